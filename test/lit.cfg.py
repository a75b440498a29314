"""Configuration of the lit suite; lit.site.cfg.py in the build directory loads it."""

import os

import lit.formats

config.name = "Prefill"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.prefill_binary_dir, "test")
# Inputs of tests, and suites that other runners own.
config.excludes = ["Inputs", "example", "golden", "models", "python", "unit", "fuzz"]

# %prefill_bin stands before anything that begins with the same letters.
config.substitutions += [
    ("%prefill_bin", config.prefill_tools_dir),
    ("%plugin", config.prefill_plugin),
    ("%models", os.path.join(config.test_source_root, "models")),
    ("%golden", os.path.join(config.test_source_root, "golden")),
    ("%python", "/usr/bin/python3"),
]

config.environment["PATH"] = os.pathsep.join(
    [config.prefill_tools_dir, config.llvm_tools_dir, config.environment.get("PATH", "")]
)
# Results must not depend on how many cores the machine has, unless a test says so.
config.environment.pop("PREFILL_NUM_THREADS", None)


def cpu_flags():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    return set()


# REQUIRES: avx512 and the like stand for what this CPU can run, not for what the compiler can emit.
flags = cpu_flags()
if {"avx2", "fma"} <= flags:
    config.available_features.add("avx2")
if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
    config.available_features.add("avx512")
    if "avx512_bf16" in flags:
        config.available_features.add("avx512_bf16")
        if {"amx_bf16", "amx_tile"} <= flags:
            config.available_features.add("amx_bf16")
