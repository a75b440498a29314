"""One virtual environment for each engine, made by uv from PyPI, under the cache directory."""
import json
import os
import pathlib
import subprocess
import sys


class InstallError(Exception):
    """A peer's packages could not be installed; the message is one line."""


def install_reason(output):
    """The line of uv's or pip's output that says why, without its decoration."""
    lines = [line.strip(" ×╰─▶│├\t") for line in output.splitlines()]
    lines = [line for line in lines if line]
    for marker in ("cause:", "Caused by", "error:", "ERROR:", "Error"):
        for line in lines:
            if line.startswith(marker) or (marker == "Error" and "Error" in line):
                return line[:300]
    return lines[-1][:300] if lines else "no output"


class Environments:
    def __init__(self, cache, report):
        self.cache = pathlib.Path(cache)
        self.report = report
        self.uv = self.cache / "harness" / "bin" / "uv"

    def python(self, peer):
        """The interpreter of the peer's environment, which is made and filled unless an earlier run did."""
        directory = self.cache / "environments" / peer.name
        wanted = json.dumps([peer.packages, peer.overrides, peer.from_source, sys.version.split()[0]])
        stamp = directory / "installed.json"
        if not stamp.is_file() or stamp.read_text() != wanted:
            self.report(f"installing {peer.name}: {' '.join(peer.packages)}")
            self.install(peer, directory)
            stamp.write_text(wanted)
        return directory / "bin" / "python"

    def install(self, peer, directory):
        log = self.cache / "logs" / f"install-{peer.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "w") as output:
            def run(*command):
                environment = dict(os.environ, UV_PYTHON_DOWNLOADS="never", CMAKE_ARGS="-DGGML_NATIVE=ON",
                                   CMAKE_BUILD_PARALLEL_LEVEL=str(len(os.sched_getaffinity(0))))
                # Building an engine takes long; nothing else should feel it.
                if subprocess.run(["nice", "-n", "10", *map(str, command)], stdin=subprocess.DEVNULL, stdout=output,
                                  stderr=subprocess.STDOUT, env=environment).returncode:
                    raise InstallError(f"{install_reason(log.read_text(errors='replace'))} (see {log.name})")

            run(self.uv, "venv", "--clear", "--python", sys.executable, directory)
            compiled = [self.compiled_wheel(package, run) for package in peer.from_source]
            others = [package for package in peer.packages if package not in peer.from_source]
            options = []
            if peer.overrides:
                overrides = self.cache / "logs" / f"overrides-{peer.name}.txt"
                overrides.write_text("\n".join(peer.overrides) + "\n")
                options = ["--overrides", overrides]
            run(self.uv, "pip", "install", "--python", directory / "bin" / "python", *options, *others, *compiled)

    def compiled_wheel(self, package, run):
        """The wheel of a package that is compiled on this machine, once."""
        directory = self.cache / "wheels"
        pattern = package.replace("-", "_") + "-*.whl"
        if not list(directory.glob(pattern)):
            self.report(f"compiling {package} for this CPU: many minutes")
            run(self.cache / "harness/bin/pip", "wheel", "--no-deps", "--no-binary", package, "--wheel-dir", directory,
                package)
        return list(directory.glob(pattern))[0]
