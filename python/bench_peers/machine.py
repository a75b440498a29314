"""The machine: what it is, and what its multiply units can do right now."""
import os
import pathlib
import subprocess


def describe():
    """{"cpu", "cores", "l2_kib", "l3_mib", "memory_gib"} as Linux shows them."""
    fields = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    caches = {}
    for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        caches[(index / "level").read_text().strip()] = (index / "size").read_text().strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wanted = ("avx2", "avx_vnni", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")
    return {"cpu": f"{fields.get('model name', 'unknown')} (family {fields.get('cpu family', '?')}, model "
                   f"{fields.get('model', '?')})",
            "cores": os.cpu_count(), "l2": caches.get("2", "?"), "l3": caches.get("3", "?"),
            "memory_gib": round(memory / 2**30),
            "isa": [flag for flag in wanted if flag in fields.get("flags", "").split()]}


def available_memory():
    """Bytes that can be taken without swapping."""
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")


def choose_cores(threads):
    """The last `threads` cores that this process may use: the first one tends to take the interrupts."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise ValueError(f"--threads {threads}: this process may use {len(allowed)} cores (expected 1 to {len(allowed)})")
    return allowed[-threads:]


class PeakProbe:
    """Runs peak_probe.c, compiled into the cache directory, on the measured cores."""

    def __init__(self, cache, cores, dtype="bf16"):
        source = pathlib.Path(__file__).with_name("peak_probe.c")
        self.program = cache / "peak_probe"
        self.arguments = [str(len(cores))] + (["int8"] if dtype == "int8" else [])
        self.cores = cores
        result = subprocess.run(["cc", "-O2", "-pthread", source, "-o", self.program], capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"cannot compile {source.name}: {result.stderr.strip().splitlines()[-1]}")
        self.isa = None

    def gflops(self):
        output = subprocess.run([self.program, *self.arguments], check=True, capture_output=True, text=True,
                                preexec_fn=lambda: os.sched_setaffinity(0, self.cores)).stdout
        self.isa, _, value = output.strip().rpartition(" ")
        return float(value)
