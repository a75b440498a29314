"""ik_llama.cpp, by the C API that `ik-llama-cpp-python` wraps: weights repacked at load, bf16 or f16 KV cache."""
import ctypes
import importlib.metadata

import numpy as np

from ik_llama_cpp import _ctypes_api as api

F16, BF16 = 1, 30  # enum ggml_type

VARIANTS = {
    "flash attention, bf16 cache, ubatch 512": (True, BF16, 512),
    "flash attention, f16 cache, ubatch 512": (True, F16, 512),
    "flash attention, bf16 cache, ubatch 2048": (True, BF16, 2048),
    "flash attention, f16 cache, ubatch 2048": (True, F16, 2048),
}


class Engine:
    def __init__(self, options):
        self.options = options
        self.contexts = {}
        api.llama_backend_init()
        parameters = api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        # Repacking writes to the weights: they must not be mapped.
        parameters.use_mmap = False
        parameters.repack_tensors = True
        self.model = api.llama_model_load_from_file(options["gguf"].encode(), parameters)
        if not self.model:
            raise RuntimeError(f"llama_model_load_from_file failed for {options['gguf']}")

    def features(self):
        system_info = api._lib.llama_print_system_info
        system_info.restype = ctypes.c_char_p
        return [part.strip().removesuffix(" = 1") for part in system_info().decode().split("|")
                if part.strip().endswith("= 1")]

    def describe(self):
        features = self.features()
        bf16, int8 = "AVX512_BF16" in features, self.options["dtype"] == "int8"
        return {"version": f"ik-llama-cpp-python {importlib.metadata.version('ik-llama-cpp-python')}",
                "details": "weights repacked at load; built with " + " ".join(features),
                "matmul": "Q8_0, int8 with a scale for each 32 weights and activations; LM head too" if int8
                          else "bf16, vdpbf16ps kernels" if bf16 else "bf16 widened to f32: built without AVX512_BF16"}

    def variants(self, length):
        # Built without AVX512_BF16, its flash attention ends the process on a bf16 cache.
        bf16 = "AVX512_BF16" in self.features()
        return [name for name, (_, cache_type, ubatch) in VARIANTS.items()
                if (ubatch <= 512 or ubatch <= length) and (bf16 or cache_type == F16)]

    def prepare(self, variant, length):
        key = (variant, length)
        if key not in self.contexts:
            flash, cache_type, ubatch = VARIANTS[variant]
            parameters = api.llama_context_default_params()
            parameters.n_ctx = length
            parameters.n_batch = length
            parameters.n_ubatch = min(ubatch, length)
            parameters.n_threads = parameters.n_threads_batch = self.options["threads"]
            parameters.flash_attn = flash
            parameters.type_k = parameters.type_v = cache_type
            context = api.llama_init_from_model(self.model, parameters)
            if not context:
                raise RuntimeError(f"llama_init_from_model failed ({variant}, {length} tokens)")
            self.contexts[key] = context
        api.llama_kv_cache_clear(self.contexts[key])

    def prefill(self, tokens, variant):
        context = self.contexts[variant, len(tokens)]
        length = len(tokens)
        batch = api.llama_batch_init(length, 0, 1)
        batch.n_tokens = length
        for index, token in enumerate(tokens.tolist()):
            batch.token[index] = token
            batch.pos[index] = index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = index == length - 1
        status = api.llama_decode(context, batch)
        api.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        row = ctypes.cast(api.llama_get_logits_ith(context, -1), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(row, (self.options["shape"]["vocab"],))

    def release(self):
        for context in self.contexts.values():
            api.llama_free(context)
        self.contexts.clear()
