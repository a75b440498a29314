"""Prefill itself, by its C ABI, as any program would use it."""
import ctypes

import numpy as np


class Engine:
    def __init__(self, options):
        self.library = ctypes.CDLL(options["library"])
        for name in ("prefill_last_error", "prefill_version", "prefill_module_variant"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.vocab = options["shape"]["vocab"]
        self.threads = options["threads"]
        self.device = self.make("prefill_device_create", b"cpu", ctypes.c_int(self.threads))
        self.module = self.make("prefill_module_load_file", self.device, options["pfm"].encode())
        self.weights = self.make("prefill_weights_load", self.module, options["hf"].encode(), None, None)
        self.cache = self.make("prefill_kv_cache_create", self.module, ctypes.c_int64(1),
                               ctypes.c_int64(options["max_length"]))
        self.session = self.make("prefill_session_create", self.module, self.weights, self.cache)
        self.logits = np.empty(self.vocab, np.float32)

    def check(self, status):
        if status:
            raise RuntimeError(self.library.prefill_last_error().decode())

    def make(self, function, *arguments):
        handle = ctypes.c_void_p()
        self.check(getattr(self.library, function)(*arguments, ctypes.byref(handle)))
        return handle

    def describe(self):
        variant = self.library.prefill_module_variant(self.module).decode()
        return {"version": self.library.prefill_version().decode(), "matmul": f"bf16, {variant} kernels",
                "details": "weights packed at load, bf16 KV cache"}

    def variants(self, length):
        return ["default"]

    def prepare(self, variant, length):
        self.check(self.library.prefill_kv_cache_truncate(self.cache, ctypes.c_int64(0), ctypes.c_int64(0)))

    def prefill(self, tokens, variant):
        self.check(self.library.prefill_session_prefill(
            self.session, tokens.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(len(tokens)), ctypes.c_int(0),
            self.logits.ctypes.data_as(ctypes.c_void_p)))
        return self.logits

    def release(self):
        pass
