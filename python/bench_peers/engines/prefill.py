"""Prefill itself, by its C ABI, as any program would use it."""
import ctypes

import numpy as np

# The setting's name: the layout that its module is compiled with. The first is what prefill-opt takes by itself.
LAYOUTS = {"contiguous cache (default)": "contiguous", "paged_vnni cache": "paged_vnni"}
# With dtype int8: the setting, which is none of the variants, and the module of bf16 that logits are compared with.
REFERENCE = "reference"


class Engine:
    def __init__(self, options):
        self.library = ctypes.CDLL(options["library"])
        for name in ("prefill_last_error", "prefill_version", "prefill_module_variant"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.vocab = options["shape"]["vocab"]
        self.threads = options["threads"]
        self.device = self.make("prefill_device_create", b"cpu", ctypes.c_int(self.threads))
        self.options = options
        self.opened = {}  # {setting: (module, cache, session)}
        self.open(next(iter(LAYOUTS)))
        self.logits = np.empty(self.vocab, np.float32)

    def open(self, variant):
        """A setting that nobody asks for takes no memory: each has the weights packed for itself."""
        if variant not in self.opened:
            path = self.options["pfm"][LAYOUTS.get(variant, variant)]
            module = self.make("prefill_module_load_file", self.device, path.encode())
            weights = self.make("prefill_weights_load", module, self.options["hf"].encode(), None, None)
            cache = self.make("prefill_kv_cache_create", module, ctypes.c_int64(1),
                              ctypes.c_int64(self.options["max_length"]))
            self.opened[variant] = module, cache, self.make("prefill_session_create", module, weights, cache)
        return self.opened[variant]

    def check(self, status):
        if status:
            raise RuntimeError(self.library.prefill_last_error().decode())

    def make(self, function, *arguments):
        handle = ctypes.c_void_p()
        self.check(getattr(self.library, function)(*arguments, ctypes.byref(handle)))
        return handle

    def describe(self):
        module, _, _ = self.open(next(iter(LAYOUTS)))
        isa = self.library.prefill_module_variant(module).decode()
        matmul = {"bf16": "bf16",
                  "int8": "int8 with a scale for each row and output channel; LM head bf16"}[self.options["dtype"]]
        return {"version": self.library.prefill_version().decode(), "matmul": f"{matmul}, {isa} kernels",
                "details": "weights packed at load, bf16 KV cache"}

    def variants(self, length):
        return list(LAYOUTS)

    def prepare(self, variant, length):
        _, cache, _ = self.open(variant)
        self.check(self.library.prefill_kv_cache_truncate(cache, ctypes.c_int64(0), ctypes.c_int64(0)))

    def prefill(self, tokens, variant):
        _, _, session = self.open(variant)
        self.check(self.library.prefill_session_prefill(
            session, tokens.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(len(tokens)), ctypes.c_int(0),
            self.logits.ctypes.data_as(ctypes.c_void_p)))
        return self.logits

    def release(self):
        pass
