"""Machine code of a cubin as instructions, by nvdisasm."""
import dataclasses
import importlib.util
import json
import pathlib
import subprocess

INSTRUCTION_BYTES = 16  # of every chip since sm_70


@dataclasses.dataclass(frozen=True)
class Instruction:
    opcode: str    # with its modifiers: "LDSM.16.M88.4"
    operands: str


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    chip: str      # "sm_80"
    instructions: tuple


def find_nvdisasm():
    """The program of the PyPI package nvidia-cuda-nvdisasm, of any version of CUDA."""
    package = importlib.util.find_spec("nvidia")
    for place in (package.submodule_search_locations if package else []):
        for program in sorted(pathlib.Path(place).glob("*/bin/nvdisasm")):
            return program
    raise RuntimeError("nvdisasm was not found (expected the package nvidia-cuda-nvdisasm)")


def disassemble(path, program=None):
    """The kernels of a cubin. Raises RuntimeError with nvdisasm's message."""
    result = subprocess.run([program or find_nvdisasm(), "-json", path], stdin=subprocess.DEVNULL, capture_output=True)
    if result.returncode:
        message = result.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"cannot disassemble '{path}': {message[0] if message else 'nvdisasm failed'}")
    return parse(result.stdout)


def parse(text):
    """The kernels of nvdisasm's JSON."""
    head, functions = json.loads(text)
    version = head["SM"]["version"]
    chip = f"sm_{version['major']}{version['minor']}"
    return [Kernel(function["function-name"], chip,
                   tuple(Instruction(entry["opcode"], entry.get("operands", "")) for entry in function["sass-instructions"]))
            for function in functions]
