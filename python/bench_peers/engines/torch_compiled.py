"""The same transformers model through torch.compile (inductor, which needs a C++ compiler), one compilation a length."""
from bench_peers.engines import torch_transformers


class Engine(torch_transformers.Engine):
    VARIANTS = ["torch.compile, sdpa"]
