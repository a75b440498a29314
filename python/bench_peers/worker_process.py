"""The harness's end of a worker: starts it, talks to it, ends it."""
import json
import os
import select
import subprocess
import time


class WorkerError(Exception):
    """The worker failed or died; the message is one line."""


class WorkerProcess:
    def __init__(self, name, python, engine, options_path, log_path, cores, source_directory):
        self.name, self.log_path = name, log_path
        threads = str(len(cores))
        # The idle engines must not spin while another one runs: the wait policy stays what a user gets, but the time
        # for which Intel's and LLVM's OpenMP spin after a parallel region is cut to nothing.
        environment = dict(os.environ, PYTHONPATH=str(source_directory), OMP_NUM_THREADS=threads,
                           MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, KMP_BLOCKTIME="0",
                           TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
                           TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="")
        self.log = open(log_path, "w")
        self.process = subprocess.Popen(
            [str(python), "-u", "-m", "bench_peers.worker", engine, str(options_path)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True, start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def ask(self, timeout_s, **command):
        """Sends a command (none: waits for the greeting) and returns the answer."""
        try:
            if command:
                self.process.stdin.write(json.dumps(command) + "\n")
                self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
            line = self.process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if line is None:
            self.stop()
            raise WorkerError(f"no answer to {command.get('command', 'start')} after {timeout_s:.0f} s")
        if not line:
            status = self.process.wait()
            raise WorkerError(f"died ({'signal ' + str(-status) if status < 0 else 'exit code ' + str(status)}): "
                              + self.last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def last_words(self):
        """A line of the worker's log that says why it died, else the last one."""
        self.log.flush()
        with open(self.log_path, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        telling = [line for line in lines if any(word in line.lower() for word in ("error", "abort", "assert"))]
        return (telling or lines or ["no output"])[-1][:300]

    def cpu_seconds(self):
        """CPU time that the worker and its children have used."""
        total, ticks = 0, os.sysconf("SC_CLK_TCK")
        group = os.getpgid(self.process.pid)
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group:
                total += int(fields[11]) + int(fields[12])
        return total / ticks

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            deadline = time.monotonic() + 10
            while self.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            if self.process.poll() is None:
                os.killpg(self.process.pid, 9)
                self.process.wait()
        self.log.close()
