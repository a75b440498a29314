"""Programs that are run."""
import os
import pathlib
import subprocess

from gpu_check import Failure


def tool(bin_dir: pathlib.Path, name: str) -> pathlib.Path:
    path = bin_dir / name
    if not os.access(path, os.X_OK):
        raise Failure(f"{name} is not in {str(bin_dir)!r}, expected a directory with built tools (--bin)")
    return path


def run(command, env=None, timeout=600):
    return subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env,
                          timeout=timeout)


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"


def checked(command, what: str, timeout=600):
    """Standard output, or a Failure with the tool's own words."""
    result = run(command, timeout=timeout)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if "error:" in line]
        raise Failure(f"{what}: {(errors[0] if errors else last_line(result.stderr)).removeprefix('error: ')}")
    return result.stdout
