"""The driver itself, and NVIDIA's profiler beside the emulator's counters."""
import csv
import ctypes
import shutil

from gpu_check.tools import last_line

CHIP_MAJOR, CHIP_MINOR = 75, 76  # CUdevice_attribute

# Our counter: the profiler's metrics whose sum it is. Sectors are those of instructions; what a cp.async loads is counted apart.
METRICS = {
    "load_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"],
    "store_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
    "bank_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"],
    "matrix_instructions": ["sm__inst_executed_pipe_tensor.sum"],
}


class NoDriver(Exception):
    pass


def ask(*call):
    """The driver's answer to calls in order, each (name, arguments)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoDriver(f"no CUDA device: NVIDIA's driver cannot be opened: {error}") from error
    for name, *arguments in call:
        result = getattr(driver, name)(*arguments)
        if result != 0:
            raise NoDriver(f"no CUDA device: {name} answers {result}")


def driver_problem():
    """Why there is no GPU: without a kit nothing need be built. None where there is one."""
    count = ctypes.c_int(0)
    try:
        ask(("cuInit", 0), ("cuDeviceGetCount", ctypes.byref(count)))
    except NoDriver as problem:
        return str(problem)
    return None if count.value else "no CUDA device: the driver finds none"


def chip_of(device: str) -> str:
    """"sm_80" of "cuda" or "cuda:N"."""
    number = int(device.partition(":")[2] or 0)
    handle, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    ask(("cuInit", 0), ("cuDeviceGet", ctypes.byref(handle), number))
    ask(("cuDeviceGetAttribute", ctypes.byref(major), CHIP_MAJOR, handle),
        ("cuDeviceGetAttribute", ctypes.byref(minor), CHIP_MINOR, handle))
    return f"sm_{major.value}{minor.value}"


def profile(command, run):
    """({kernel: {metric: sum}}, None) by ncu, or (None, why not)."""
    if not shutil.which("ncu"):
        return None, "no ncu"
    metrics = sorted({name for names in METRICS.values() for name in names})
    result = run(["ncu", "--csv", "--page", "raw", "--metrics", ",".join(metrics), *command])
    lines = result.stdout.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if result.returncode != 0 or head is None:
        reasons = [line for line in lines + result.stderr.splitlines() if "==ERROR==" in line]
        return None, f"ncu: {reasons[0] if reasons else last_line(result.stderr or result.stdout)}"
    sums = {}
    for row in csv.DictReader(lines[head:]):
        if not row["ID"].isdigit():
            continue  # units
        kernel = sums.setdefault(row["Kernel Name"].partition("(")[0], {})
        for metric in metrics:
            text = (row.get(metric) or "").replace(",", "")
            if text:
                kernel[metric] = kernel.get(metric, 0) + float(text)
    return sums, None


def compare(measured, emulated):
    """One line for each of our kernels and counter: {kernel, counter, emulator, hardware, ratio}."""
    rows = []
    for kernel, counters in sorted(emulated.items()):
        for counter, metrics in METRICS.items():
            values = [measured[kernel][metric] for metric in metrics if metric in measured.get(kernel, {})]
            if not values:
                continue
            ours, theirs = counters[counter], sum(values)
            rows.append({"kernel": kernel, "counter": counter, "emulator": ours, "hardware": theirs,
                         "ratio": theirs / ours if ours else None})
    return rows
