"""Compiles a model with each optional pass left out in turn, runs it, and prints the launches a layer.

usage: launches.py BIN MODEL.mlir WEIGHTS SCRATCH.pfm. Ends with an error when a run differs from the one with everything
on: by the next token, or by more than 2e-5 of the logits' norm (f32).
"""
import json
import re
import subprocess
import sys

import numpy as np

binaries, model, weights, scratch = sys.argv[1:5]
TOKENS = ",".join(str((7 * i + 3) % 100) for i in range(37))


def run(*command):
    result = subprocess.run([f"{binaries}/{command[0]}", *command[1:]], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command)}: {result.stderr}")
    return result.stdout


def optional_passes():
    """The flags, as the tool itself lists them."""
    result = subprocess.run([f"{binaries}/prefill-opt", "--compile", "--disable-pass=none", "-o", scratch, model],
                            capture_output=True, text=True)
    return re.findall(r"prefill-[a-z-]+", result.stderr.split("expected one of:")[1])


passes = optional_passes()
expected = None
for name, disabled in [("everything on", []), *((f"without {p}", [p]) for p in passes), ("all of them off", passes)]:
    # The instruction set changes no launch, and every machine has AVX2.
    isa = "avx2" if len(disabled) == 1 else "native"
    run("prefill-opt", model, "--compile", "--target=cpu", "--dtype=f32", "--max-seq=64", f"--isa={isa}",
        *(f"--disable-pass={p}" for p in disabled), "-o", scratch)
    stats = json.loads(run("prefill-run", scratch, "--weights", weights, "--tokens", TOKENS, "--logits-out",
                           scratch + ".npy", "--stats=json"))
    logits = np.load(scratch + ".npy").astype(np.float64)
    if expected is None:
        expected = logits
    error = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
    if error > 2e-5 or logits.argmax() != expected.argmax():
        sys.exit(f"{name}: logits differ by {error:.1e}")
    of_layer = [launch for launch in stats["launches"] if launch["layer"] == 0]
    if stats["kernels_per_layer"] != len(of_layer):
        sys.exit(f"{name}: kernels_per_layer is {stats['kernels_per_layer']}, but layer 0 has {len(of_layer)} launches")
    print(f"{name}: {len(of_layer)}")
