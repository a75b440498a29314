"""Machine code of a cubin as instructions, by nvdisasm."""
import dataclasses
import json
import shutil
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


def find_tool(name):
    """Where prefill-opt looks for ptxas: PATH, then the toolkit's usual place. None: it is nowhere."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


def require_tool(name):
    """Raises RuntimeError where it is nowhere."""
    program = find_tool(name)
    if not program:
        raise RuntimeError(f"{name} was not found (expected in PATH or /usr/local/cuda/bin; scripts/bootstrap installs it)")
    return program


def disassemble(path, program=None):
    """The kernels of a cubin. Raises RuntimeError with nvdisasm's message."""
    result = subprocess.run([program or require_tool("nvdisasm"), "-json", path], stdin=subprocess.DEVNULL, capture_output=True)
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
