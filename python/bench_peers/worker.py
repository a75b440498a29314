"""One engine in its own process and its own Python environment: waits for commands, runs one at a time, else sleeps.

usage: python -m bench_peers.worker ENGINE OPTIONS.json      (commands on stdin, answers on stdout, one JSON a line)

Only the standard library and numpy are imported here: every engine's environment has those.
"""
import importlib
import json
import os
import sys
import time
import traceback

import numpy as np

from bench_peers.shape import prompt


def first_line(error):
    """What went wrong, in one line; the last line of a message that is a traceback of its own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0] if lines else ''}"
    return text if len(text) <= 300 else text[:297] + "..."


class Worker:
    def __init__(self, engine, options):
        self.engine = engine
        self.vocab = options["shape"]["vocab"]

    def describe(self, command):
        return self.engine.describe()

    def variants(self, command):
        return {"variants": self.engine.variants(command["length"])}

    def prefill(self, command):
        """One prefill of `length` tokens into an empty cache, timed until the last token's logits are readable."""
        tokens = np.array(prompt(command["length"], self.vocab), dtype=np.int32)
        self.engine.prepare(command["variant"], command["length"])
        start = time.perf_counter()
        logits = self.engine.prefill(tokens, command["variant"])
        seconds = time.perf_counter() - start
        logits = np.asarray(logits)
        answer = {"seconds": seconds, "token": int(logits if logits.ndim == 0 else logits.argmax())}
        if command.get("logits_out") and logits.ndim:
            np.save(command["logits_out"], logits.astype(np.float32))
        return answer

    def release(self, command):
        self.engine.release()
        return {}


def main():
    # The engines write to stdout as they like; the answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, options_path = sys.argv[1:]

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        with open(options_path) as file:
            options = json.load(file)
        worker = Worker(importlib.import_module(f"bench_peers.engines.{name}").Engine(options), options)
    except BaseException as error:  # an engine may end in SystemExit as well: the harness must hear why
        traceback.print_exc()
        answer({"error": first_line(error)})
        return 1
    answer({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer(getattr(worker, command["command"])(command))
        except Exception as error:
            traceback.print_exc()
            answer({"error": first_line(error)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
