#!/usr/bin/env python3
"""Train the tiny byte-level Llama in test/models/tiny on licence texts.

The model is a real `LlamaForCausalLM` in Hugging Face layout: one token is one
byte (vocab_size 256, no BOS, no EOS, no tokenizer file). It is small enough to
be committed and good enough that its greedy continuation is readable text.

Text: the licences that every Debian system carries in
/usr/share/common-licenses (package base-files). They may be copied verbatim.
White space inside a paragraph is collapsed to one blank and a paragraph ends
with one newline, so the model never has to learn line breaking.

RoPE depends on position differences only, so shifting the positions of short
sequences teaches nothing about long prompts. One step in `LONG_EVERY` therefore
trains on one long sequence instead of a batch of short ones.

Two phases, each a few minutes: the language on several licences, then three of
them by heart, so that the winning token wins clearly in bf16 too.

Needs torch, transformers, safetensors (scripts/make-goldens makes such a
virtual environment). Run:

    nice python3 python/train_tiny.py --phase broad --out build/tiny-broad
    nice python3 python/train_tiny.py --phase core --init build/tiny-broad --lr 2e-3 --out test/models/tiny
"""

import hashlib
import json
import math
import os
import pathlib
import sys
import time

from command_line import ArgumentParser

PHASES = {  # texts, short sequences a step
    "broad": (["Apache-2.0", "Artistic", "BSD", "GPL-2", "GPL-3", "LGPL-2.1", "LGPL-3", "MPL-2.0"], 8),
    "core": (["Apache-2.0", "BSD", "GPL-2"], 4),
}
PROMPT = "This program is free software"
SEQ = 256          # tokens of a short training sequence
LONG_SEQ = 4096    # a long step has one sequence of this length: max_position_embeddings
LONG_EVERY = 32
SEED = 20240607

# Classic (transformers 4) spelling: what most published Llama checkpoints have.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 96,
    "initializer_range": 0.02,
    "intermediate_size": 256,
    "max_position_embeddings": 4096,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 256,
}


def load_text(directory: pathlib.Path, names: list) -> bytes:
    """The training text, one paragraph a line."""
    parts = []
    for name in names:
        path = directory / name
        if not path.is_file():
            sys.exit(f"error: training text '{path}' not found (Debian package base-files)")
        paragraphs = path.read_text(encoding="utf-8").split("\n\n")
        lines = (" ".join(p.split()) for p in paragraphs)
        parts.append("\n".join(line for line in lines if line))
    return ("\n".join(parts) + "\n").encode("utf-8")


def main() -> int:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--phase", required=True, choices=list(PHASES))
    parser.add_argument("--init", type=pathlib.Path, help="checkpoint to start from (default: random weights)")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--texts", type=pathlib.Path, default=pathlib.Path("/usr/share/common-licenses"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--minutes", type=float, default=10.0,
                        help="stop early after this time; the learning rate follows whichever is nearer")
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    import torch
    from safetensors.torch import load_file, save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    torch.set_num_threads(args.threads)
    names, batch = PHASES[args.phase]
    text = load_text(args.texts, names)
    data = torch.tensor(list(text), dtype=torch.int64)  # [bytes] i64
    starts = torch.nonzero(data[:len(data) - SEQ - 1] == ord("\n"))[:, 0] + 1  # [paragraphs] i64
    starts = starts[starts < len(data) - SEQ - 1]
    digest = hashlib.sha256(text).hexdigest()

    model = LlamaForCausalLM(LlamaConfig(**{**CONFIG, "torch_dtype": "float32"}))
    if args.init:
        model.load_state_dict(load_file(str(args.init / "model.safetensors")))
    model.train()
    params = sum(p.numel() for p in model.parameters())
    print(f"{len(text)} bytes of text, {params} parameters", flush=True)
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.98))
    sampler = torch.Generator().manual_seed(SEED)

    start = time.monotonic()
    average = None
    step = 0
    while True:
        done = max(step / args.steps, (time.monotonic() - start) / (60 * args.minutes))
        if done >= 1:
            break
        warm = min(1.0, (step + 1) / 50)
        for group in opt.param_groups:
            group["lr"] = args.lr * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        rows, length = (1, LONG_SEQ) if step % LONG_EVERY == LONG_EVERY - 1 else (batch, SEQ)
        begin = torch.randint(0, len(data) - length - 1, (rows, 1), generator=sampler)
        if rows > 1:  # half of the short sequences begin with a paragraph, as a prompt does
            pick = torch.randint(0, len(starts), (rows // 2, 1), generator=sampler)
            begin[:rows // 2] = starts[pick]
        window = data[begin + torch.arange(length + 1)]  # [rows, length + 1]
        logits = model(input_ids=window[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
        step += 1
        if step % 50 == 0:
            print(f"step {step:5d}  loss {average:.3f}  {time.monotonic() - start:.0f} s", flush=True)

    # What is judged and shown is what is stored: the weights rounded to bf16.
    model.eval()
    weights = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in model.state_dict().items()}
    model.load_state_dict({name: w.float() for name, w in weights.items()})

    @torch.no_grad()
    def mean_loss(length: int, count: int) -> float:
        begins = torch.linspace(0, len(data) - length - 1, count).long()
        total = 0.0
        for b in begins:
            row = data[b:b + length + 1]
            logits = model(input_ids=row[None, :-1], use_cache=False).logits[0]
            total += torch.nn.functional.cross_entropy(logits, row[1:]).item()
        return total / count

    @torch.no_grad()
    def greedy(prompt: str, count: int) -> str:
        ids = list(prompt.encode())
        for _ in range(count):
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
            ids.append(int(logits.argmax()))
        return bytes(ids).decode("utf-8", errors="backslashreplace")

    loss_256, loss_4096 = mean_loss(256, 32), mean_loss(4096, 4)
    sample = greedy(PROMPT, 160)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(weights, str(args.out / "model.safetensors"), metadata={"format": "pt"})
    os.chmod(args.out / "model.safetensors", 0o644)
    size = (args.out / "model.safetensors").stat().st_size
    (args.out / "README.md").write_text(f"""# tiny: a byte-level Llama

Made by `python/train_tiny.py`; do not edit by hand. `LlamaForCausalLM`, {params} parameters, {size} bytes, bf16.
A token is a byte of UTF-8: `vocab_size` is 256, there is no BOS, no EOS and no tokenizer file.
4 query heads, 2 KV heads and `head_dim` 32: `head_dim` is not `hidden_size / num_attention_heads`.

| what | value |
| --- | --- |
| text | {", ".join(names)} from Debian's `common-licenses`, white space collapsed: {len(text)} bytes |
| sha256 of the text | `{digest}` |
| first phase | {f"{len(PHASES['broad'][0])} licences, the same way" if args.init else "none"} |
| training | {step} steps of {batch} x {SEQ} tokens, AdamW, peak rate {args.lr}, seed {SEED}; one step in {LONG_EVERY} is one sequence of {LONG_SEQ} tokens |
| mean loss on the training text, 256 tokens | {loss_256:.3f} nats a byte |
| the same, 4096 tokens | {loss_4096:.3f} nats a byte |
| torch | {torch.__version__.split("+")[0]} |

It has learned its text nearly by heart, which is what we want of it: a greedy continuation that anyone can
recognise and whose winning tokens win clearly. Training again gives another model (time decides the number of
steps and thread counts change rounding), so run `scripts/make-goldens tiny` afterwards.

Greedy, 160 tokens after `{PROMPT}`:

```
{sample}
```
""")
    print(f"loss {loss_256:.3f} at 256 tokens, {loss_4096:.3f} at 4096; {size} bytes\n{sample}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
