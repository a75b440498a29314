"""IREE: the decoder below, exported by torch.export and iree-turbine, compiled for this CPU, one module a length.

The weights are parameters of the module, so that IREE may lay them out for its kernels when it loads them."""
import importlib.metadata
import pathlib

import numpy as np
import torch

import iree.compiler
import iree.runtime
import iree.turbine.aot as aot
from safetensors.torch import load_file


# With the data tiling that O3 turns on, IREE 3.13 refuses attention ("large vector sizes"); the older pass works.
VARIANTS = {"O3": ["--iree-opt-level=O3"], "O2, data tiling": ["--iree-opt-level=O2", "--iree-global-opt-data-tiling"]}


class Decoder(torch.nn.Module):
    """The Llama decoder: tokens [1, T] to (logits of the last token, keys and values of every layer)."""

    def __init__(self, shape, weights):
        super().__init__()
        self.shape = shape
        for name, value in weights.items():
            self.register_buffer(name.replace(".", "_"), value)
        half = shape["head_dim"] // 2
        self.register_buffer("frequencies", shape["rope_theta"] ** (-torch.arange(half, dtype=torch.float32) / half),
                             persistent=False)

    def weight(self, name):
        return getattr(self, name.replace(".", "_") + "_weight")

    def norm(self, x, name):
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.shape["rms_eps"])
        return scaled.to(x.dtype) * self.weight(name)

    def rope(self, x):
        angles = torch.arange(x.shape[2], dtype=torch.float32)[:, None] * self.frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        low, high = x.chunk(2, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    def forward(self, tokens):
        linear = torch.nn.functional.linear
        length, width = tokens.shape[1], self.shape["head_dim"]
        x = torch.nn.functional.embedding(tokens, self.weight("model.embed_tokens"))
        cache = []
        for index in range(self.shape["layers"]):
            prefix = f"model.layers.{index}."
            y = self.norm(x, prefix + "input_layernorm")
            q, k, v = (linear(y, self.weight(f"{prefix}self_attn.{name}_proj")).view(1, length, -1, width).transpose(1, 2)
                       for name in "qkv")
            q, k = self.rope(q), self.rope(k)
            cache += [k, v]
            group = self.shape["q_heads"] // self.shape["kv_heads"]
            k, v = (t[:, :, None].expand(-1, -1, group, -1, -1).reshape(1, -1, length, width) for t in (k, v))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + linear(y.transpose(1, 2).reshape(1, length, -1), self.weight(prefix + "self_attn.o_proj"))
            y = self.norm(x, prefix + "post_attention_layernorm")
            y = torch.nn.functional.silu(linear(y, self.weight(prefix + "mlp.gate_proj"))) * linear(
                y, self.weight(prefix + "mlp.up_proj"))
            x = x + linear(y, self.weight(prefix + "mlp.down_proj"))
        last = self.norm(x[:, -1:], "model.norm")
        return linear(last, self.weight("model.embed_tokens"))[0, 0].float(), *cache


class Engine:
    def __init__(self, options):
        self.options = options
        self.directory = pathlib.Path(options["cache"]) / "models" / "iree"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.parameters = self.directory / f"{options['shape']['layers']}.irpa"
        self.functions = {}

    def compiled(self, variant, length):
        """The path of the module compiled for this length."""
        version = importlib.metadata.version("iree-base-compiler")
        number = list(VARIANTS).index(variant)
        path = self.directory / f"{self.options['shape']['layers']}-{length}-{version}-{number}.vmfb"
        if path.is_file() and self.parameters.is_file():
            return path
        weights = load_file(pathlib.Path(self.options["hf"]) / "model.safetensors")
        decoder = Decoder(self.options["shape"], weights)
        aot.externalize_module_parameters(decoder)
        aot.save_module_parameters(self.parameters, decoder)
        tokens = torch.zeros((1, length), dtype=torch.int64)
        exported = aot.export(decoder, args=(tokens,))
        mlir = path.with_suffix(".mlir")
        exported.save_mlir(mlir)
        iree.compiler.compile_file(
            str(mlir), output_file=str(path) + ".partial", target_backends=["llvm-cpu"],
            extra_args=["--iree-llvmcpu-target-cpu=host", *VARIANTS[variant]])
        pathlib.Path(str(path) + ".partial").rename(path)
        return path

    def describe(self):
        return {"version": f"iree-base-compiler {importlib.metadata.version('iree-base-compiler')}, iree-turbine "
                           f"{importlib.metadata.version('iree-turbine')}",
                "matmul": "bf16, code generated for the host CPU", "details": "llvm-cpu, one module a length"}

    def variants(self, length):
        return list(VARIANTS)

    def prepare(self, variant, length):
        if (variant, length) in self.functions:
            return
        path = self.compiled(variant, length)
        device = iree.runtime.get_device("local-task" if self.options["threads"] > 1 else "local-sync")
        index = iree.runtime.ParameterIndex()
        index.load(str(self.parameters))
        config = iree.runtime.Config(device=device)
        modules = [iree.runtime.create_io_parameters_module(config.vm_instance, index.create_provider(scope="model")),
                   iree.runtime.create_hal_module(config.vm_instance, device),
                   iree.runtime.VmModule.mmap(config.vm_instance, str(path))]
        context = iree.runtime.SystemContext(vm_modules=modules, config=config)
        self.functions[variant, length] = context.modules.module.main, context

    def prefill(self, tokens, variant):
        outputs = self.functions[variant, len(tokens)][0](tokens.astype(np.int64)[None])
        return outputs[0].to_host()

    def release(self):
        self.functions.clear()
