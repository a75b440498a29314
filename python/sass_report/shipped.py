"""The configurations whose main loops docs/sass.md shows, compiled by the tools of one build."""
import os
import pathlib
import re
import subprocess
import tempfile

from sass_report.disassembly import disassemble, require_tool

MODELS = ("llama-3-8b", "qwen2.5-0.5b")
CHIPS = ("sm_80", "sm_86", "sm_89", "sm_90")


def run(*command):
    """Standard output. Raises RuntimeError with the first line of what went wrong."""
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        raise RuntimeError(f"{pathlib.Path(command[0]).name} failed: {lines[0] if lines else 'no message'}")
    return result.stdout


def assembler_version():
    """Of ptxas, for example "13.0.88". Machine code depends on it."""
    found = re.search(r"V(\d+(?:\.\d+)+)", run(require_tool("ptxas"), "--version"))
    return found.group(1) if found else "unknown"


def verify_spills(model, description):
    """`description`: what prefill-run --describe prints. Raises RuntimeError on the first kernel that spills."""
    kernels = re.findall(r"^kernel=(\S+) chip=(\S+) registers=\S+ spill_bytes=(\S+)", description, re.MULTILINE)
    if not kernels:
        raise RuntimeError(f"prefill-run --describe lists no kernel of {model}")
    for kernel, chip, spilled in kernels:
        if spilled != "0":
            raise RuntimeError(f"kernel {kernel} of {model} spills {spilled} bytes on {chip}, expected 0")


def kernels_of(tools):
    """(label, kernel) of one layer of every model on every chip, labels name model and kernel."""
    missing = [tool for tool in ("prefill-translate", "prefill-opt", "prefill-run") if not os.access(tools / tool, os.X_OK)]
    if missing:
        raise RuntimeError(f"{tools / missing[0]} is no program (expected a build's bin; --bin names another)")
    for model in MODELS:
        with tempfile.TemporaryDirectory(prefix="sass-report-") as name:
            directory = pathlib.Path(name)
            run(tools / "prefill-translate", "--synthesize", model, "--layers", "1", "-o", directory / "model.mlir")
            run(tools / "prefill-opt", directory / "model.mlir", "--compile", *(f"--target=cuda:{chip}" for chip in CHIPS),
                "-o", directory / "model.pfm")
            verify_spills(model, run(tools / "prefill-run", directory / "model.pfm", "--describe"))
            run(tools / "prefill-run", directory / "model.pfm", "--extract-code", directory / "code")
            for chip in CHIPS:
                for kernel in sorted(disassemble(directory / "code" / f"cuda-{chip}.cubin"), key=lambda kernel: kernel.name):
                    yield f"{model} {kernel.name}", kernel
