"""ONNX Runtime GenAI: the checkpoint by its own model builder, for the CPU, in bf16 where that runs, else in f32."""
import importlib.metadata
import shutil
import subprocess
import sys

import numpy as np

# The engine's package has this module's name: an absolute import finds the package.
import onnxruntime_genai as og

from bench_peers.engines.dummy_tokenizer import with_tokenizer
from bench_peers.worker import first_line


class Engine:
    def __init__(self, options):
        source = with_tokenizer(options["hf"], options["shape"]["vocab"])
        self.threads, self.maximum, self.refused = options["threads"], options["max_length"], ""
        try:
            self.load(source, "bf16")
        except Exception as error:
            self.refused = f"bf16 refused: {first_line(error)}"
            print(self.refused, flush=True)
            self.load(source, "fp32")

    def load(self, source, precision):
        directory = source.with_name(f"{source.name}-onnx-{precision}")
        if not (directory / "genai_config.json").is_file():
            shutil.rmtree(directory, ignore_errors=True)
            result = subprocess.run(
                [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", directory, "-p", precision,
                 "-e", "cpu", "-c", directory.with_name("cache")], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError([line for line in result.stderr.splitlines() if line.strip()][-1])
        config = og.Config(str(directory))
        config.overlay('{"model": {"decoder": {"session_options": {"intra_op_num_threads": %d}}}}' % self.threads)
        self.model = og.Model(config)
        self.precision = precision
        self.prepare("default", 2)
        self.prefill(np.array([5, 6], np.int32), "default")

    def describe(self):
        return {"version": f"onnxruntime-genai {importlib.metadata.version('onnxruntime-genai')}",
                "matmul": "bf16" if self.precision == "bf16" else "f32", "details": self.refused or "model builder's graph"}

    def variants(self, length):
        return [self.precision]

    def prepare(self, variant, length):
        parameters = og.GeneratorParams(self.model)
        parameters.set_search_options(max_length=length + 1, batch_size=1)
        self.generator = og.Generator(self.model, parameters)

    def prefill(self, tokens, variant):
        self.generator.append_tokens(tokens.astype(np.int32))
        logits = np.asarray(self.generator.get_logits(), dtype=np.float32)
        return logits.reshape(-1, logits.shape[-1])[-1]

    def release(self):
        self.generator = None
