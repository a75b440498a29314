"""CTranslate2: the converted checkpoint in the compute type that this benchmark compares, bf16 or int8."""
import os

import ctranslate2
import numpy as np

from bench_peers.engines.dummy_tokenizer import with_tokenizer


class Engine:
    def __init__(self, options):
        source = with_tokenizer(options["hf"], options["shape"]["vocab"])
        # int8: a scale for each row of the weights and of the activations.
        kind = {"bf16": "bfloat16", "int8": "int8"}[options["dtype"]]
        directory = source.with_name(source.name + "-ctranslate2" + ("-int8" if kind == "int8" else ""))
        if not (directory / "model.bin").is_file():
            ctranslate2.converters.TransformersConverter(str(source)).convert(str(directory), quantization=kind, force=True)
        try:
            self.generator = ctranslate2.Generator(str(directory), device="cpu", compute_type=kind,
                                                   inter_threads=1, intra_threads=options["threads"])
        except ValueError as error:
            supported = ", ".join(sorted(ctranslate2.get_supported_compute_types("cpu")))
            raise RuntimeError(f"{error} (supported here: {supported})") from error

    def describe(self):
        return {"version": f"ctranslate2 {ctranslate2.__version__}", "matmul": self.generator.compute_type,
                "details": f"{os.environ.get('CT2_USE_MKL', 'default')} GEMM backend"}

    def variants(self, length):
        return ["default"]

    def prepare(self, variant, length):
        pass

    def prefill(self, tokens, variant):
        result = self.generator.generate_batch([[str(token) for token in tokens]], max_length=1, sampling_topk=1,
                                               include_prompt_in_result=False)
        return np.int64(result[0].sequences_ids[0][0])

    def release(self):
        pass
