"""PyTorch with Hugging Face transformers: bf16 weights, a fresh dynamic KV cache, logits of the last token only.

int8 is PyTorch's dynamic quantization of every linear layer, which takes a model of f32: weights with a scale for each output
channel, activations with one for a whole matrix."""
import numpy as np
import torch
import transformers


class Engine:
    VARIANTS = ["eager, sdpa"]

    def __init__(self, options):
        torch.set_num_threads(options["threads"])
        torch.set_num_interop_threads(1)
        self.compiled, self.compiled_lengths = None, set()
        self.int8 = options["dtype"] == "int8"
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            options["hf"], dtype=torch.float32 if self.int8 else torch.bfloat16, attn_implementation="sdpa").eval()
        if self.int8:
            from torch.ao import quantization
            quantization.quantize_dynamic(self.model, {torch.nn.Linear: quantization.per_channel_dynamic_qconfig}, inplace=True)

    def describe(self):
        library = "oneDNN" if torch.backends.mkldnn.is_available() else "without oneDNN"
        return {"version": f"torch {torch.__version__}, transformers {transformers.__version__}",
                "matmul": f"int8 by quantize_dynamic, {torch.backends.quantized.engine} engine; all else f32" if self.int8
                          else f"bf16, {library}",
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
