"""Interleaved rounds: every engine in turn, one at a time, the peak probe in between."""
import dataclasses
import math
import time

from bench_peers.worker_process import WorkerError

# A setting of an engine that is slower than its best one by more than this is dropped after it was tried.
KEPT_WITHIN = 1.04
# One that is slower by more than this is not even tried at greater lengths.
HOPELESS = 1.3
# From this duration on, seconds, the first run at a length decides for a setting that ran at a shorter one: what it allocates
# no longer matters, but time does. Of several settings only the fastest is then kept.
LONG = 4.0
# Where a run would take longer than this, seconds, by what a shorter prompt took, the setting that was best there is measured
# at once: a warm-up would cost minutes and allocations no longer show.
VERY_LONG = 20.0
# Before each run the others get this long to fall asleep, seconds.
SETTLE = 0.25


@dataclasses.dataclass
class Contender:
    peer: object
    worker: object
    variant: str
    seconds: list = dataclasses.field(default_factory=list)
    gflops_of_probe: list = dataclasses.field(default_factory=list)
    tried_seconds: float = math.inf
    token: int = None
    logits: object = None  # path of the file that its first run wrote them to, if it did


def keep_best(contenders):
    """Of each engine's settings that were tried: (those worth measuring, fastest first; those too slow for ever)."""
    kept, hopeless = [], []
    for name in dict.fromkeys(contender.peer.name for contender in contenders):
        mine = sorted((c for c in contenders if c.peer.name == name), key=lambda c: c.tried_seconds)
        best = mine[0].tried_seconds
        kept += [c for c in mine if c.tried_seconds <= best * (1 if best > LONG else KEPT_WITHIN)]
        hopeless += [c for c in mine if c.tried_seconds > best * HOPELESS]
    return kept, hopeless


def rounds_that_fit(seconds_a_round, wanted, budget_seconds):
    """At least one round, at most `wanted`, else as many as the budget has room for."""
    return max(1, min(wanted, int(budget_seconds / seconds_a_round)))


def budget_of(length, lengths, flops, seconds):
    """This length's part of the seconds that are left for it and the longer ones: by the root of the FLOPs, so that short
    prompts get more rounds than long ones."""
    weights = {other: flops(other) ** 0.5 for other in lengths if other >= length}
    return seconds * weights[length] / sum(weights.values())


def summarize(values):
    """(median, half the distance between the quartiles over the median)."""
    ordered = sorted(values)

    def quantile(q):
        position = q * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    median = quantile(0.5)
    return median, (quantile(0.75) - quantile(0.25)) / 2 / median


class LengthRun:
    """All engines of one group at one length."""

    def __init__(self, workers, shape, length, probe, timeout_s, failures, progress, only_variants=(), hopeless=None,
                 shorter=None, warm=None):
        self.workers, self.shape, self.length, self.probe = workers, shape, length, probe
        self.timeout_s, self.failures, self.progress = timeout_s, failures, progress
        self.only_variants = only_variants
        self.hopeless = set() if hopeless is None else hopeless  # (peer, setting), filled for greater lengths
        self.shorter = {} if shorter is None else shorter  # {peer: (setting, seconds, length)}, best at a shorter length
        self.warm = set() if warm is None else warm  # (peer, setting) that ran at some length already
        self.tried = {}    # {peer: {setting: seconds of the run that decided}}
        self.stolen = 0.0  # CPU seconds that idle workers used during runs
        self.run_seconds = 0.0

    def fail(self, peer, error):
        self.failures[peer.name, self.length] = str(error)
        self.progress(f"{peer.name}: {error}")

    def once(self, contender, logits_out=None):
        """One prefill; None when the engine failed, which then takes no further part at this length."""
        time.sleep(SETTLE)
        others = [w for w in self.workers.values() if w is not contender.worker and w.process.poll() is None]
        before = sum(w.cpu_seconds() for w in others)
        try:
            answer = contender.worker.ask(self.timeout_s, command="prefill", length=self.length,
                                          variant=contender.variant, logits_out=logits_out)
        except WorkerError as error:
            self.fail(contender.peer, error)
            return None
        self.stolen += sum(w.cpu_seconds() for w in others) - before
        self.run_seconds += answer["seconds"]
        contender.token = answer["token"]
        return answer["seconds"]

    def try_variants(self, peers, logits_directory):
        contenders = []
        for peer in peers:
            worker = self.workers.get(peer.name)
            if worker is None or worker.process.poll() is not None:
                continue
            try:
                variants = worker.ask(60, command="variants", length=self.length)["variants"]
            except WorkerError as error:
                self.fail(peer, error)
                continue
            variants = [v for v in variants if (peer.name, v) not in self.hopeless]
            if peer.name in self.shorter:
                variant, seconds, length = self.shorter[peer.name]
                expected = seconds * self.shape.flops(self.length) / self.shape.flops(length)
                if expected > VERY_LONG:
                    contenders.append(Contender(peer, worker, variant, tried_seconds=expected))
                    continue
            for variant in [v for v in variants if any(text in v for text in self.only_variants)] or variants:
                contender = Contender(peer, worker, variant, logits=logits_directory / f"{peer.name}-{len(contenders)}.npy")
                self.progress(f"{self.length} tokens: {peer.name} ({variant}) warms up")
                first = self.once(contender, str(contender.logits))
                warm = (peer.name, variant) in self.warm and first is not None and first > LONG
                second = first if warm or first is None else self.once(contender)
                self.warm.add((peer.name, variant))
                if second is not None:
                    contender.tried_seconds = second
                    contenders.append(contender)
                elif worker.process.poll() is not None:
                    break
        for contender in contenders:
            self.tried.setdefault(contender.peer.name, {})[contender.variant] = contender.tried_seconds
            self.progress(f"  {contender.peer.name} ({contender.variant}): {contender.tried_seconds:.2f} s")
        kept, hopeless = keep_best(contenders)
        for contender in kept:
            best = self.shorter.get(contender.peer.name)
            if best is None or best[2] != self.length:
                self.shorter[contender.peer.name] = (contender.variant, contender.tried_seconds, self.length)
        self.hopeless.update((c.peer.name, c.variant) for c in hopeless)
        return kept

    def rounds(self, contenders, wanted, budget_seconds):
        a_round = sum(c.tried_seconds + 2 * SETTLE + 0.1 for c in contenders)
        count = rounds_that_fit(a_round, wanted, budget_seconds)
        if count < wanted:
            self.progress(f"warning: {self.length} tokens: {count} of {wanted} rounds, which is what --minutes has room for "
                          f"({a_round:.1f} s a round)")
        for index in range(count):
            # Each round starts with another engine, so that none always follows the same one.
            turn = contenders[index % len(contenders):] + contenders[:index % len(contenders)]
            before = self.probe.gflops()
            for contender in turn:
                self.progress(f"{self.length} tokens: round {index + 1} of {count}: {contender.peer.name}")
                seconds = self.once(contender)
                after = self.probe.gflops()
                contender.seconds.append(seconds)
                contender.gflops_of_probe.append(max(before, after))
                before = after
            contenders = [c for c in contenders if c.seconds[-1] is not None]
        return contenders


def row(contender, ours, shape, length, threads, wanted, tried=(), dtype="bf16"):
    """One line of the result: medians over the rounds; ratios are taken round by round first."""
    flops = shape.flops(length)
    seconds, spread = summarize(contender.seconds)
    ratio, _ = summarize([flops / s / 1e9 / probe for s, probe in zip(contender.seconds, contender.gflops_of_probe)])
    against, _ = summarize([theirs / mine for theirs, mine in zip(contender.seconds, ours.seconds)])
    return {"name": f"model/llama-3.2-1b/{dtype}/s{length}", "peer": contender.peer.name, "title": contender.peer.title,
            "variant": contender.variant, "layers": shape.layers, "length": length, "threads": threads,
            "rounds": len(contender.seconds), "rounds_wanted": wanted, "seconds": seconds, "spread": spread, "ratio": ratio,
            "times_ours": against, "all_seconds": contender.seconds, "probe_gflops": contender.gflops_of_probe,
            "token": contender.token, "tried": dict(tried)}
