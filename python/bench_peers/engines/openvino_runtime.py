"""OpenVINO: the model as optimum-intel exports it (stateful, bf16 weights), run by the runtime itself.

As openvino-genai does, the last linear layer is cut to the last token before compilation; without that it would compute
logits of every token."""
import importlib.metadata
import os
import pathlib

import numpy as np
import openvino
from openvino import opset13

# (the KV cache's type, inference precision, columns that share a scale where activations are quantized). u8 is OpenVINO's own
# default of a cache on a CPU, bf16 is what the others store. Weights in 8 bits make it quantize activations; larger groups
# than those of 32, its default, are faster and coarser.
VARIANTS = {
    "bf16": {"bf16 cache": ("bf16", "bf16", 32), "u8 cache (OpenVINO's default)": ("u8", "bf16", 32)},
    "int8": {"groups of 32, u8 cache (OpenVINO's defaults)": ("u8", "bf16", 32), "groups of 128, u8 cache": ("u8", "bf16", 128),
             "groups of 128, bf16 cache": ("bf16", "bf16", 128), "groups of 128, u8 cache, f32": ("u8", "f32", 128)},
}


def export(hf_directory, directory, int8):
    """Writes directory/openvino_model.{xml,bin} once, by optimum-intel; with int8 by NNCF, a scale for each output channel."""
    if (directory / "openvino_model.xml").is_file():
        return
    from optimum.intel.openvino import OVModelForCausalLM
    partial = directory.with_name(directory.name + ".partial")
    model = OVModelForCausalLM.from_pretrained(hf_directory, export=True, compile=False, load_in_8bit=int8,
                                               stateful=True, dtype="bfloat16")
    model.save_pretrained(partial)
    os.rename(partial, directory)


def cut_to_last_token(model):
    """Slices the hidden states [batch, tokens, hidden] that feed the last matrix product to the last token."""
    node = model.output("logits").get_node()
    while node.get_type_name() != "MatMul":
        node = node.input_value(0).get_node()
    last = opset13.slice(node.input_value(0), np.array([-1]), np.array([-2]), np.array([-1]), np.array([1]))
    node.input(0).replace_source_output(last.output(0))
    model.validate_nodes_and_infer_types()


class Engine:
    def __init__(self, options):
        hf_directory = pathlib.Path(options["hf"])
        int8 = options["dtype"] == "int8"
        directory = hf_directory.with_name(hf_directory.name + "-openvino" + ("-int8" if int8 else ""))
        export(hf_directory, directory, int8)
        self.settings = VARIANTS[options["dtype"]]
        core = openvino.Core()
        model = core.read_model(directory / "openvino_model.xml")
        cut_to_last_token(model)
        self.requests = {}
        self.options = options
        self.core, self.model = core, model

    def request(self, variant):
        if variant not in self.requests:
            cache, precision, group = self.settings[variant]
            compiled = self.core.compile_model(self.model, "CPU", {
                "INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": self.options["threads"],
                "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False, "KV_CACHE_PRECISION": cache,
                "DYNAMIC_QUANTIZATION_GROUP_SIZE": group})
            self.requests[variant] = compiled.create_infer_request()
        return self.requests[variant]

    def describe(self):
        capabilities = self.core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return {"version": f"openvino {openvino.__version__.split('-')[0]}, exported by optimum-intel "
                           f"{importlib.metadata.version('optimum-intel')}",
                "matmul": "int8 with a scale for each output channel and group of columns of activations, oneDNN; LM head too"
                          if self.options["dtype"] == "int8"
                          else "bf16, oneDNN (inference precision bf16)" if "BF16" in capabilities
                          else "f32: this CPU has no BF16 capability for OpenVINO",
                "details": "capabilities " + " ".join(capabilities)}

    def variants(self, length):
        return list(self.settings)

    def prepare(self, variant, length):
        self.request(variant).reset_state()

    def prefill(self, tokens, variant):
        length = len(tokens)
        request = self.request(variant)
        inputs = {"input_ids": tokens.astype(np.int64)[None], "attention_mask": np.ones((1, length), np.int64),
                  "position_ids": np.arange(length, dtype=np.int64)[None], "beam_idx": np.zeros(1, np.int32)}
        request.infer({name: inputs[name] for name in (port.get_any_name() for port in self.model.inputs)})
        return request.get_tensor("logits").data[0, -1]

    def release(self):
        for request in self.requests.values():
            request.reset_state()
