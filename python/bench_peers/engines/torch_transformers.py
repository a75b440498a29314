"""PyTorch with Hugging Face transformers: bf16 weights, a fresh dynamic KV cache, logits of the last token only."""
import numpy as np
import torch
import transformers


class Engine:
    VARIANTS = ["eager, sdpa"]

    def __init__(self, options):
        torch.set_num_threads(options["threads"])
        torch.set_num_interop_threads(1)
        self.compiled, self.compiled_lengths = None, set()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            options["hf"], dtype=torch.bfloat16, attn_implementation="sdpa").eval()

    def describe(self):
        return {"version": f"torch {torch.__version__}, transformers {transformers.__version__}",
                "matmul": "bf16, " + ("oneDNN" if torch.backends.mkldnn.is_available() else "without oneDNN"),
                "details": f"CPU capability {torch.backends.cpu.get_cpu_capability()}"}

    def variants(self, length):
        return self.VARIANTS

    def prepare(self, variant, length):
        if variant.startswith("torch.compile") and self.compiled is None:
            self.compiled = torch.compile(self.model, dynamic=False)
        self.warm_up(variant, length)

    def warm_up(self, variant, length):
        """A run of its own for a setting that compiles: that is not the prefill."""
        if variant.startswith("torch.compile") and length not in self.compiled_lengths:
            self.prefill(np.zeros(length, np.int32), variant)
            self.compiled_lengths.add(length)

    def callable(self, variant):
        return self.compiled if variant.startswith("torch.compile") else self.model

    def prefill(self, tokens, variant):
        with torch.inference_mode():
            output = self.callable(variant)(input_ids=torch.from_numpy(tokens).long().unsqueeze(0), use_cache=True,
                                            logits_to_keep=1)
            return output.logits[0, -1].float().numpy()

    def release(self):
        pass
