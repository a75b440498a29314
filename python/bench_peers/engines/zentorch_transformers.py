"""ZenTorch, AMD's plugin of PyTorch for EPYC CPUs, on the same transformers model, by its torch.compile backend."""
import importlib.metadata

import torch
import zentorch  # noqa: F401  registers the backend

from bench_peers.engines import torch_transformers


class Engine(torch_transformers.Engine):
    VARIANTS = ["torch.compile, zentorch backend"]

    def describe(self):
        base = super().describe()
        return dict(base, version=f"zentorch {importlib.metadata.version('zentorch')}, {base['version']}",
                    matmul="bf16, zentorch's linear")

    def prepare(self, variant, length):
        if self.compiled is None:  # a compiled model has no truth value
            self.compiled = torch.compile(self.model, backend="zentorch", dynamic=False)
        self.warm_up(variant, length)
