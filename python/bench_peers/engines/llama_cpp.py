"""llama.cpp as `llama-cpp-python` builds it on this machine, by its C API: token ids in, one row of logits out."""
import ctypes

import numpy as np

import llama_cpp as api

F16, BF16 = 1, 30  # enum ggml_type

# (flash attention, type of the KV cache, micro-batch). Without flash attention the scores of a micro-batch are a matrix
# in memory, so only the usual micro-batch is tried there.
VARIANTS = {
    "flash attention, f16 cache, ubatch 512": (True, F16, 512),
    "flash attention, f16 cache, ubatch 2048": (True, F16, 2048),
    "flash attention, bf16 cache, ubatch 512": (True, BF16, 512),
    "no flash attention, f16 cache, ubatch 512": (False, F16, 512),
    "no flash attention, bf16 cache, ubatch 512": (False, BF16, 512),
}


class Engine:
    def __init__(self, options):
        self.options = options
        self.contexts = {}
        api.llama_backend_init()
        parameters = api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(options["gguf"].encode(), parameters)
        if not self.model:
            raise RuntimeError(f"llama_model_load_from_file failed for {options['gguf']}")

    def describe(self):
        info = api.llama_print_system_info().decode()
        features = [part.strip().removesuffix(" = 1").split(":")[-1].strip() for part in info.split("|")
                    if part.strip().endswith("= 1")]
        bf16, int8 = "AVX512_BF16" in features, self.options["dtype"] == "int8"
        return {"version": f"llama-cpp-python {api.__version__}", "details": "built with " + " ".join(features),
                "matmul": "Q8_0, int8 with a scale for each 32 weights and activations; LM head too" if int8
                          else "bf16, vdpbf16ps kernels" if bf16 else "bf16 widened to f32: built without AVX512_BF16"}

    def variants(self, length):
        return [name for name, (_, _, ubatch) in VARIANTS.items() if ubatch <= 512 or ubatch <= length]

    def prepare(self, variant, length):
        key = (variant, length)
        if key not in self.contexts:
            flash, cache_type, ubatch = VARIANTS[variant]
            parameters = api.llama_context_default_params()
            parameters.n_ctx = length
            parameters.n_batch = length
            parameters.n_ubatch = min(ubatch, length)
            parameters.n_threads = parameters.n_threads_batch = self.options["threads"]
            parameters.flash_attn_type = (api.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash
                                          else api.LLAMA_FLASH_ATTN_TYPE_DISABLED)
            parameters.type_k = parameters.type_v = cache_type
            context = api.llama_init_from_model(self.model, parameters)
            if not context:
                raise RuntimeError(f"llama_init_from_model failed ({variant}, {length} tokens)")
            self.contexts[key] = context
        api.llama_memory_clear(api.llama_get_memory(self.contexts[key]), False)

    def prefill(self, tokens, variant):
        context = self.contexts[variant, len(tokens)]
        # llama_batch_get_one asks for the last token's logits only.
        batch = api.llama_batch_get_one(tokens.ctypes.data_as(ctypes.POINTER(api.llama_token)), len(tokens))
        status = api.llama_decode(context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        row = api.llama_get_logits_ith(context, -1)
        return np.ctypeslib.as_array(row, (self.options["shape"]["vocab"],))

    def release(self):
        for context in self.contexts.values():
            api.llama_free(context)
        self.contexts.clear()
