"""PyTorch's attention at given sizes: `torch_attention.py ROUNDS NAME:Q_HEADS:KV_HEADS …` prints a line of JSON for each.

A process of its own: what it does to the GPU, or to itself, ends with it.
"""
import json
import re
import sys


def measure(torch, functional, backend, dtype, heads, tokens, dim, rounds):
    """The median in microseconds of one backend, causal, all of the group's query heads on one KV head."""
    from torch.nn.attention import sdpa_kernel
    q = torch.randn(1, heads[0], tokens, dim, device="cuda", dtype=dtype)
    k, v = (torch.randn(1, heads[1], tokens, dim, device="cuda", dtype=dtype) for _ in range(2))
    times = []
    with sdpa_kernel([backend]):
        for _ in range(rounds + 3):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) * 1e3)
    return sorted(times[3:])[rounds // 2]


def one_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def main(rounds, wanted):
    import torch
    import torch.nn.functional as functional
    from torch.nn.attention import SDPBackend
    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU")
    backends = {"FlashAttention": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    for entry in wanted:
        name, q_heads, kv_heads = entry.rsplit(":", 2)
        kind, dim, tokens = re.fullmatch(r"attention/(\w+)/d(\d+)/s(\d+)", name).groups()
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[kind]
        for backend, value in backends.items():
            line = {"name": name, "q_heads": int(q_heads), "kv_heads": int(kv_heads), "backend": backend}
            try:
                line["us"] = measure(torch, functional, value, dtype, (int(q_heads), int(kv_heads)), int(tokens), int(dim), rounds)
            except Exception as error:  # whatever it is, the next may do
                line["error"] = one_line(error)
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
    except Exception as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        sys.exit(1)
