"""The command line of scripts/bench-peers, run in the harness's environment."""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import rich.console

import marked_section

from bench_peers import checkpoint, machine, measure, peers, report
from bench_peers.arguments import parse_arguments
from bench_peers.engines.prefill import LAYOUTS, REFERENCE
from bench_peers.environment import Environments, InstallError
from bench_peers.shape import Shape
from bench_peers.worker_process import WorkerError, WorkerProcess

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_TIMEOUT = 900   # seconds in which an engine loads (and exports, converts) the model
RUN_TIMEOUT = 1800    # seconds for one prefill
# Relative error of the logits. bf16 engines are 0.01 to 0.02 from each other. Those of int8 are some hundredths from bf16, since
# in rows that the feed-forward's product of two makes a scale must serve a few large values; one with a single scale for all
# activations of a matrix was 0.19 away.
MAX_ERROR = {"bf16": 0.1, "int8": 0.4}
MEMORY_RESERVE = 2 << 30

console = rich.console.Console(stderr=True, highlight=False)


def tool(options, name, *arguments):
    path = options.bin / name
    if not path.is_file():
        raise ValueError(f"{path} does not exist (expected --bin DIR with Prefill's tools; scripts/demo builds them)")
    result = subprocess.run([path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{name}: {result.stderr.strip()}")


class Harness:
    def __init__(self, options):
        self.options, self.cache = options, options.cache
        self.cores = machine.choose_cores(options.threads)
        self.environments = Environments(self.cache, self.say)
        self.result = {"machine": machine.describe(), "dtype": options.dtype, "probe_isa": "", "rows": [], "engines": {},
                       "failed": {}, "agreement": {}}
        self.pythons = {}
        self.hopeless = set()

    def say(self, text):
        console.print(text, markup=False)

    def install(self):
        for peer in self.options.selected:
            if self.options.dtype == "int8" and not peer.int8:
                self.failed(peer, "has no int8 in this benchmark")
                continue
            try:
                self.pythons[peer.name] = self.environments.python(peer)
            except InstallError as error:
                self.failed(peer, f"cannot be installed: {error}")

    def failed(self, peer, reason):
        self.result["failed"][peer.name] = reason
        self.say(f"{peer.name}: {reason}")

    def model(self, shape):
        """Paths of the checkpoint and the GGUF file of this shape, by the names that the engines' options have for them."""
        stem = self.cache / "models" / f"llama-3.2-1b-{shape.layers}"
        paths = {"hf": stem, "gguf": stem.with_name(stem.name + ".gguf")}
        checkpoint.write(shape, paths["hf"], paths["gguf"], self.say)
        if self.options.dtype == "int8":
            paths |= {"hf_int8": stem.with_name(stem.name + "-int8"), "gguf": stem.with_name(stem.name + "-q8_0.gguf")}
            checkpoint.write_int8(shape, paths["hf_int8"], paths["gguf"], self.say)
        return paths

    def worker_options(self, shape, lengths, directory):
        model = self.model(shape)
        int8 = self.options.dtype == "int8"
        wanted = {layout: ([f"--kv-layout={layout}"] + (["--weights=int8"] if int8 else [])) for layout in LAYOUTS.values()}
        if int8:
            wanted[REFERENCE] = []
        pfm = {name: directory / f"{name}.pfm" for name in wanted}
        tool(self.options, "prefill-translate", "--import-hf", model["hf"], "-o", directory / "model.mlir")
        for name, arguments in wanted.items():
            tool(self.options, "prefill-opt", directory / "model.mlir", "--compile", "--target=cpu", "--isa=native",
                 "--dtype=bf16", f"--max-seq={max(lengths)}", *arguments, "-o", pfm[name])
        library = self.options.bin.parent / "lib" / "libprefill_runtime.so"
        path = directory / "options.json"
        path.write_text(json.dumps({
            "shape": {"layers": shape.layers, "vocab": shape.vocab, "hidden": shape.hidden, "q_heads": shape.q_heads,
                      "kv_heads": shape.kv_heads, "head_dim": shape.head_dim, "intermediate": shape.intermediate,
                      "rope_theta": shape.rope_theta, "rms_eps": shape.rms_eps},
            "threads": self.options.threads, "dtype": self.options.dtype,
            **{name: str(path) for name, path in model.items()}, "pfm": {name: str(path) for name, path in pfm.items()},
            "library": str(library.resolve()), "cache": str(self.cache), "max_length": max(lengths)}))
        return path

    def start(self, group, options_path):
        workers = {}
        for peer in group:
            self.say(f"starting {peer.name}")
            worker = WorkerProcess(peer.name, self.pythons[peer.name], peer.engine, options_path,
                                   self.cache / "logs" / f"worker-{peer.name}.log", self.cores, ROOT / "python")
            try:
                worker.ask(START_TIMEOUT)
                self.result["engines"][peer.name] = dict(worker.ask(60, command="describe"), title=peer.title)
                if peer.note:
                    self.result["engines"][peer.name]["details"] += "; " + peer.note
                workers[peer.name] = worker
            except WorkerError as error:
                self.failed(peer, f"cannot run: {error}")
                worker.stop()
        return workers

    def compare(self, directory, length, contenders):
        """How far each setting's logits and winner are from PyTorch's, or from Prefill's where PyTorch takes no part; those of
        int8 from Prefill's in bf16.

        Returns the names of engines that compute something else: their time means nothing."""
        logits = {id(c): np.load(c.logits) for c in contenders if c.logits and c.logits.is_file()}
        if self.options.dtype == "int8":
            name, reference = "Prefill in bf16", np.load(directory / f"{REFERENCE}.npy")
        else:
            chosen = [c for name in ("torch", peers.PREFILL) for c in contenders if c.peer.name == name and id(c) in logits]
            if not chosen:
                return set()
            name, reference = chosen[0].peer.name, logits[id(chosen[0])]
        winner, wrong = int(reference.argmax()), set()
        for contender in contenders:
            peer = contender.peer.name
            if peer == name:
                self.result["agreement"].setdefault(peer, "is the reference")
                continue
            if contender.token is None:
                continue
            same = "same winner" if contender.token == winner else f"winner {contender.token}, not {winner}"
            if id(contender) in logits:
                error = np.linalg.norm(logits[id(contender)] - reference) / np.linalg.norm(reference)
                same += f", relative error {error:.3f}"
                if not error <= MAX_ERROR[self.options.dtype]:
                    wrong.add(peer)
                    self.failed(contender.peer, f"wrong logits: {same} ({length} tokens, against {name})")
            # The first is the fastest.
            self.result["agreement"].setdefault(peer, f"{same} ({length} tokens, against {name})")
        return wrong

    def measure_length(self, workers, group, shape, length, probe, budget, history):
        """Measures one length and keeps its rows; returns the seconds that the rounds took."""
        failures = {}
        run = measure.LengthRun(workers, shape, length, probe, RUN_TIMEOUT, failures, self.say,
                                [text for text in self.options.variants.split("|") if text], self.hopeless, *history)
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            if self.options.dtype == "int8":
                workers[peers.PREFILL].ask(RUN_TIMEOUT, command="prefill", length=length, variant=REFERENCE,
                                           logits_out=str(directory / f"{REFERENCE}.npy"))
            contenders = run.try_variants(group, directory)
            wrong = self.compare(directory, length, contenders)
            contenders = [contender for contender in contenders if contender.peer.name not in wrong]
            for name in wrong:
                workers[name].stop()
        start = time.monotonic()
        contenders = run.rounds(contenders, self.options.rounds, budget)
        elapsed = time.monotonic() - start
        ours = [c for c in contenders if c.peer.name == peers.PREFILL]
        if not ours:
            raise RuntimeError(f"Prefill itself failed at {length} tokens: {failures.get((peers.PREFILL, length))}")
        self.result["probe_isa"] = probe.isa
        best = min(ours, key=lambda c: measure.summarize(c.seconds))  # the one that the table shows
        rows = [measure.row(c, best, shape, length, self.options.threads, self.options.rounds,
                            run.tried[c.peer.name], self.options.dtype) for c in contenders]
        self.result["rows"] += rows
        for name in dict.fromkeys(peer.name for peer in group):
            if (name, length) in failures and name not in {row["peer"] for row in rows}:
                self.failed(peers.BY_NAME[name], f"{length} tokens: {failures[name, length]}")
        if run.run_seconds and run.stolen > 0.02 * run.run_seconds:
            self.say(f"warning: idle engines used {run.stolen:.1f} s of CPU time during {run.run_seconds:.1f} s of runs")
        for row in sorted(rows, key=lambda row: row["seconds"]):
            self.say(f"  {length:6} tokens  {row['title']:24} {row['seconds']:9.3f} s  +-{row['spread']:5.1%}  "
                     f"peak {row['ratio']:.3f}  {row['times_ours']:.2f}x  {row['variant']}")
        for worker in workers.values():
            if worker.process.poll() is None:
                worker.ask(60, command="release")
        self.write_json()
        return elapsed

    def write_json(self):
        if self.options.json:
            partial = self.options.json.with_name(self.options.json.name + ".partial")
            partial.write_text(json.dumps(self.result, indent=1) + "\n")
            partial.replace(self.options.json)

    def run(self):
        self.install()
        by_layers = {}
        for length in self.options.lengths:
            by_layers.setdefault(self.options.layers_at(length), []).append(length)
        if self.options.install_only:
            for layers in by_layers:
                self.model(Shape(layers))
            return
        if peers.PREFILL in self.result["failed"]:
            raise RuntimeError(f"Prefill itself {self.result['failed'][peers.PREFILL]}")
        probe = machine.PeakProbe(self.cache, self.cores, self.options.dtype)
        installed = [peer for peer in self.options.selected if peer.name in self.pythons]
        work = {layers: sum(Shape(layers).flops(length) ** 0.5 for length in lengths)
                for layers, lengths in by_layers.items()}
        for layers, lengths in by_layers.items():
            shape = Shape(layers)
            with tempfile.TemporaryDirectory() as directory:
                options_path = self.worker_options(shape, lengths, pathlib.Path(directory))
                groups = peers.group_by_memory(installed, shape.weight_bytes(),
                                               machine.available_memory() - MEMORY_RESERVE)
                for group in groups:
                    workers = self.start(group, options_path)
                    history = {}, set()
                    left = self.options.minutes * 60 * work[layers] / sum(work.values()) / len(groups)
                    try:
                        for length in lengths:
                            budget = measure.budget_of(length, lengths, shape.flops, left)
                            left -= self.measure_length(workers, group, shape, length, probe, budget, history)
                    finally:
                        for worker in workers.values():
                            worker.stop()


def main():
    options = parse_arguments(sys.argv[1:])
    if options.list:
        for peer in peers.PEERS:
            print(f"{peer.name:18} {' '.join(peer.packages)}{'  (' + peer.note + ')' if peer.note else ''}")
        return
    if options.from_json:
        result = report.merge([report.load(path) for path in options.from_json])
    else:
        harness = Harness(options)
        harness.run()
        if options.install_only:
            return
        result = report.merge([harness.result])
    print(report.table(result))
    if options.update_docs:
        marked_section.replace(ROOT / "docs" / "performance.md", report.section(result), f"\n{report.table(result)}\n")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, RuntimeError, OSError) as error:
        sys.exit(f"error: {' '.join(str(error).split())}")
