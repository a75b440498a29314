"""What a kit does on a machine with a GPU: its parts, in order of worth, within a budget of time."""
import array
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zlib

from gpu_check import Failure, contents, hardware
from gpu_check.logits import read_npy, rel_error, rows_of
from gpu_check.tools import last_line, run

HALF_FACTOR = 2.0
# A program that is begun gets so much, or it is not begun.
LEAST_SECONDS = 5.0
# A gemm of prefill-bench's table, an attention, a candidate of --tune.
LAUNCH_LINE = re.compile(r"^((?:gemm|attention|rowwise)/\S+) +(\S+) +([\d.]+) +([\d.]+) % +([\d.]+) +([\d.]+) %"
                         r"(?: +([\d.]+) +([\d.]+))?$")
TILE_LINE = re.compile(r"^(tune/\S+) +([\d.]+)(?: +([\d.]+)% +([\d.]+)x)?$")


class OutOfTime(Exception):
    """What there was no time for."""


def launches_in(text):
    """Rows of a table that prefill-bench did not come to the end of."""
    rows = []
    for match in filter(None, map(LAUNCH_LINE.match, text.splitlines())):
        name, launch, us, spread, _, ratio, peer, _ = match.groups()
        row = {"name": name, "launch": launch, "us": float(us), "spread": float(spread) / 100, "ratio": float(ratio) / 100}
        rows.append({**row, "cublaslt_us": float(peer)} if peer else row)
    return rows


def tiles_in(text):
    rows = []
    for match in filter(None, map(TILE_LINE.match, text.splitlines())):
        name, us, spread, over = match.groups()
        rows.append({"name": name, "us": float(us),
                     **({"spread": float(spread) / 100, "over_table": float(over)} if over else {})})
    return rows


MANIFEST_KEYS = {"checks": list, "refused": list, "tune": list, "counters": dict, "continuation": bool, "lengths": list}


def read_manifest(kit):
    path = kit / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except ValueError as error:
        raise Failure(f"{path} is damaged: {error}") from error
    for key, kind in MANIFEST_KEYS.items():
        if not isinstance(manifest, dict) or not isinstance(manifest.get(key), kind):
            raise Failure(f"{path} is damaged: expected an object with '{key}', a {kind.__name__}")
    return manifest


class Check:
    def __init__(self, kit, options):
        self.kit, self.options = kit, options
        self.manifest = read_manifest(kit)
        self.start = time.monotonic()
        self.deadline = self.start
        self.scratch = tempfile.TemporaryDirectory()
        libraries = [str(kit / "lib")] + [part for part in [os.environ.get("LD_LIBRARY_PATH")] if part]
        self.env = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "XDG_CACHE_HOME": self.scratch.name}
        self.failed = 0
        self.report = {"results": [], "rows": [], "tiles": [], "torch": [], "hardware": None, "cut": [],
                       "refused": self.manifest["refused"]}

    # ---- Time.

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def timeout(self) -> float:
        if self.left() < LEAST_SECONDS:
            raise OutOfTime
        return self.left()

    def write(self):
        self.report["seconds"] = round(time.monotonic() - self.start, 1)
        if self.options.json:
            temporary = self.options.json.with_name(self.options.json.name + ".partial")
            temporary.write_text(json.dumps(self.report, indent=1) + "\n")
            temporary.replace(self.options.json)

    def cut(self, what):
        self.report["cut"].append(what)
        print(f"cut     {what}: no time was left for it", flush=True)

    def run_parts(self, parts):
        """Parts are (name, share, function). What one leaves of its share is the others'."""
        end = self.start + self.options.minutes * 60
        for i, (name, share, part) in enumerate(parts):
            shares = sum(later for _, later, _ in parts[i:])
            self.deadline = time.monotonic() + max(0.0, end - time.monotonic()) * share / shares
            try:
                self.timeout()
                part()
            except (OutOfTime, subprocess.TimeoutExpired) as expired:
                ended = ""
                if isinstance(expired, subprocess.TimeoutExpired):
                    ended = f" (the rest: {pathlib.Path(expired.cmd[0]).name} was ended after {expired.timeout:.0f} s)"
                self.cut(name + ended)
                if name in contents.VALIDATIONS:
                    self.record(name, False, "no time was left for it")
            except (Failure, OSError, ValueError, KeyError) as failure:
                self.record(name, False, str(failure))
            self.write()

    # ---- Programs.

    def unpack(self, name) -> pathlib.Path:
        path = pathlib.Path(self.scratch.name, name)
        if not path.exists():
            packed = self.kit / (name + ".gz")
            try:
                module = gzip.decompress(packed.read_bytes())
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise Failure(f"{packed} is damaged: {error}") from error
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(module)
        return path

    def program(self, name, *arguments):
        return run([self.kit / "bin" / name, *arguments, "--device", self.options.device], self.env, self.timeout())

    def record(self, what: str, ok: bool, detail: str, **numbers):
        self.report["results"].append({"what": what, "ok": ok, "detail": detail, **numbers})
        self.failed += not ok
        print(f"{'ok    ' if ok else 'FAILED'}  {what}: {detail}", flush=True)

    # ---- Parts.

    def logits(self, check, length, *options):
        """One prompt of one model against transformers: error and what is allowed, or the tool's words."""
        golden = self.kit / "golden" / check["model"]
        tokens = json.loads((golden / "tokens.json").read_text())[:length]
        row = json.loads((golden / "golden.json").read_text())["lengths"].index(length)
        out = pathlib.Path(self.scratch.name, "out.npy")
        result = self.program("prefill-run", self.unpack(check["module"]), "--weights", golden, "--tokens",
                              ",".join(map(str, tokens)), "--logits-out", out, "--weights-cache=off", *options)
        if result.returncode != 0:
            return last_line(result.stderr), None, None
        _, actual = read_npy(out)
        shape, reference = read_npy(golden / "logits_f32.npy")
        _, own = read_npy(golden / f"logits_{check['dtype']}.npy")
        vocab = shape[1]
        expected = reference[row * vocab:(row + 1) * vocab]
        allowed = HALF_FACTOR * rel_error(own[row * vocab:(row + 1) * vocab], expected)
        return None, rel_error(actual, expected), allowed

    def check_logits(self, what, check, lengths, *options):
        worst = 0.0
        for length in lengths:
            problem, error, allowed = self.logits(check, length, *options)
            if problem:
                return self.record(what, False, f"{length} tokens: {problem}")
            if not error < allowed:
                return self.record(what, False, f"{length} tokens: relative error {error:.2e}, allowed {allowed:.2e}",
                                   error=str(error), allowed=allowed)
            worst = max(worst, error / allowed)
        count = f"{len(lengths)} lengths" if len(lengths) > 1 else f"{lengths[0]} tokens"
        return self.record(what, True, f"{count}, at most {worst:.2f} of the error allowed", worst=worst)

    def check_continuation(self):
        prompt = (self.kit / "golden/tiny/prompt.txt").read_text()
        expected = (self.kit / "golden/tiny/continuation.txt").read_bytes()
        result = self.program("prefill-run", self.unpack("modules/golden/tiny-bf16.pfm"), "--weights",
                              self.kit / "golden/tiny-model", "--text", prompt, "--decode", contents.CONTINUATION,
                              "--weights-cache=off")
        what = f"tiny, {contents.CONTINUATION} decoded tokens"
        if result.returncode != 0:
            return self.record(what, False, last_line(result.stderr))
        match = re.search(r"^tokens +([0-9,]+)$", result.stdout, re.MULTILINE)
        added = bytes(map(int, match.group(1).split(","))) if match else b""
        return self.record(what, added == expected, "as transformers goes on" if added == expected
                           else f"goes on with {added[:24]!r}, expected {expected[:24]!r}")

    def goldens(self):
        lengths = self.options.lengths or self.manifest["lengths"]
        jobs, chunked = [], []
        for check in self.manifest["checks"]:
            if check["model"] not in self.options.models:
                continue
            what = f"{check['model']} {check['dtype']} {check['layout']}"
            jobs.append((what, self.check_logits, (what, check, lengths)))
            # Prompts from position 0 have all their keys in the first split, so that nothing is combined.
            if contents.CHUNKED_LENGTH in lengths:
                what += f", chunks of {contents.CHUNK}"
                chunked.append((what, self.check_logits, (what, check, [contents.CHUNKED_LENGTH], f"--chunk={contents.CHUNK}")))
        # The first model is checked, then decoding and what splits, then the others.
        if self.manifest["continuation"]:
            jobs.insert(1, (f"tiny, {contents.CONTINUATION} decoded tokens", self.check_continuation, ()))
            jobs[2:2] = chunked[:1]
            jobs += chunked[1:]
        else:
            jobs += chunked
        for what, job, arguments in jobs:
            try:
                job(*arguments)
            except (OutOfTime, subprocess.TimeoutExpired):
                self.record(what, False, "no time was left for it")

    def real_size(self):
        real = self.manifest["real"]
        what = f"{real['shape']} bf16, {contents.BENCH_LAYERS} layers"
        expected = array.array("f")
        expected.frombytes((self.kit / "golden/real.f32").read_bytes())
        tokens, out = pathlib.Path(self.scratch.name, "tokens"), pathlib.Path(self.scratch.name, "out.npy")
        allowed, worst = HALF_FACTOR * real["error"], 0.0
        for count, rows in ((contents.REAL_TOKENS, contents.REAL_ROWS), (1, [0])):
            tokens.write_text(",".join(map(str, contents.real_tokens()[:count])))
            result = self.program("prefill-run", self.unpack(real["module"]), "--random-weights", contents.REAL_SEED,
                                  "--tokens-file", tokens, "--all-logits", "--logits-out", out)
            if result.returncode != 0:
                return self.record(what, False, f"{count} tokens: {last_line(result.stderr)}")
            actual = rows_of(out, rows)
            error = rel_error(actual, expected[:len(actual)])
            if not error < allowed:
                return self.record(what, False, f"{count} tokens: relative error {error:.2e}, allowed {allowed:.2e}",
                                   error=str(error), allowed=allowed)
            worst = max(worst, error / allowed)
        return self.record(what, True, f"{len(contents.REAL_ROWS)} rows of {contents.REAL_TOKENS} and one token, at most "
                           f"{worst:.2f} of the error allowed", worst=worst)

    def measure(self, what, rows, parse, *arguments):
        """Rows of prefill-bench are kept as far as it came."""
        out = pathlib.Path(self.scratch.name, "bench.json")
        out.unlink(missing_ok=True)
        try:
            result = self.program("prefill-bench", *arguments, "--json", out)
        except subprocess.TimeoutExpired as expired:
            done = expired.stdout or b""
            rows += parse(done.decode() if isinstance(done, bytes) else done)
            raise
        if result.returncode != 0:
            rows += parse(result.stdout)
            return self.record(what, False, last_line(result.stderr).removeprefix("error: "))
        print(result.stdout, end="", flush=True)
        rows += json.loads(out.read_text())
        return None

    def launches(self):
        modules = sorted(path.name.removesuffix(".gz") for path in (self.kit / "modules/bench").glob("*.pfm.gz"))
        for i, name in enumerate(sorted(modules, key=lambda name: ("70b" in name, "f16" in name, name))):
            # One module in a directory of its own: each has its share of the time that is left, and its memory alone.
            directory = pathlib.Path(self.scratch.name, f"bench-{i}")
            directory.mkdir()
            self.unpack(f"modules/bench/{name}").rename(directory / name)
            try:
                self.measure(name, self.report["rows"], launches_in, "--modules", directory, "--rounds", self.options.rounds,
                             "--threads", str(len(os.sched_getaffinity(0))))
            finally:
                (directory / name).unlink()

    def tiles(self):
        for name in sorted(path.name.removesuffix(".gz") for path in (self.kit / "modules/tune").glob("*.gz")):
            self.unpack(f"modules/tune/{name}")
        for shape in sorted(self.manifest["tune"], key=lambda shape: ("70b" in shape, shape)):
            self.measure(f"tiles of {shape}", self.report["tiles"], tiles_in, "--tune", f"--shapes={shape}",
                         f"--candidates={contents.TUNE_CANDIDATES}", "--filter=/(512|2048|8192)x|/s|cublaslt",
                         f"--rounds={max(3, self.options.rounds // 3)}", "--modules",
                         pathlib.Path(self.scratch.name, "modules/tune"), "--threads", str(len(os.sched_getaffinity(0))))
        self.verdict_on_tiles()

    def verdict_on_tiles(self):
        """The table's choice and the best, beside cuBLASLt's plain product where that was timed."""
        cublaslt = {row["name"]: row["cublaslt_us"] for row in self.report["rows"] if "cublaslt_us" in row}
        classes = {}
        for row in self.report["tiles"]:
            name, _, tile = row["name"].removeprefix("tune/").rpartition("/")
            if "over_table" in row:
                classes.setdefault(name, {})[tile] = row["us"]
        for name, tiles in classes.items():
            best = min(tiles, key=tiles.get)
            peer = cublaslt.get(name)
            print(f"tile    {name}: table {tiles.get('table', 0):.1f} us, best {best} {tiles[best]:.1f} us"
                  + (f", cuBLASLt {peer:.1f} us" if peer else ""))

    def torch(self):
        wanted = {}
        for row in self.report["rows"]:
            shape = next((shape for shape in contents.BENCH_SHAPES if row.get("module", "").startswith(f"{shape}-")), None)
            match = re.fullmatch(r"attention/(\w+)/d(\d+)/s(\d+)", row["name"])
            if shape and match:
                wanted.setdefault((row["name"], *contents.BENCH_SHAPES[shape][1:]), row["us"])
        if not wanted:
            return
        command = [sys.executable, pathlib.Path(__file__).with_name("torch_attention.py"), self.options.rounds,
                   *(":".join(map(str, key)) for key in wanted)]
        try:
            result = run(command, timeout=self.timeout())
            output = result.stdout
        except subprocess.TimeoutExpired as expired:
            result, output = None, (expired.stdout or b"")
        output = output.decode() if isinstance(output, bytes) else output
        for line in filter(lambda line: line.startswith("{"), output.splitlines()):
            row = json.loads(line)
            self.report["torch"].append(row)
            ours = wanted.get((row["name"], row["q_heads"], row["kv_heads"]))
            what = f"torch   {row['name']}, {row['q_heads']} heads on {row['kv_heads']}, {row['backend']}: "
            print(what + (f"{row['us']:.1f} us, ours {ours:.1f}" if "us" in row else row["error"]), flush=True)
        if result is None:
            raise OutOfTime
        if result.returncode != 0:
            self.note("torch", last_line(result.stderr).removeprefix("error: "))

    def note(self, what, reason):
        self.report[what + "_missing"] = reason
        print(f"        {what}: not compared: {reason}", flush=True)

    def hardware(self):
        chip = hardware.chip_of(self.options.device)
        emulated = self.manifest["counters"].get(chip)
        if not emulated:
            return self.note("hardware", f"the kit has no counters for {chip}")
        golden = self.kit / "golden" / contents.COUNTED_MODEL
        tokens = json.loads((golden / "tokens.json").read_text())[:contents.COUNTED_TOKENS]
        command = [self.kit / "bin/prefill-run", self.unpack(f"modules/golden/{contents.COUNTED_MODEL}-bf16-contiguous.pfm"),
                   "--weights", golden, "--tokens", ",".join(map(str, tokens)), "--weights-cache=off", "--device",
                   self.options.device]
        measured, why = hardware.profile(command, lambda arguments: run(arguments, self.env, self.timeout()))
        if why:
            return self.note("hardware", why)
        self.report["hardware"] = hardware.compare(measured, emulated)
        for row in self.report["hardware"]:
            ratio = "" if row["ratio"] is None else f", {row['ratio']:.3f} times as many"
            print(f"counts  {row['kernel']} {row['counter']}: emulator {row['emulator']}, hardware {row['hardware']:.0f}{ratio}")
        return None

    def run(self):
        for entry in self.manifest["refused"]:
            print(f"refused  {entry['model']} {entry['dtype']} {entry['layout']}: {entry['reason']}")
        parts = {"goldens": self.goldens, "real-size": self.real_size, "launches": self.launches, "tiles": self.tiles,
                 "torch": self.torch, "hardware": self.hardware}
        self.run_parts([(name, share, parts[name]) for name, share in contents.PARTS.items() if name in self.options.parts
                        and (name != "real-size" or self.manifest["real"])])
        report = self.report
        print(f"{len(report['results']) - self.failed} of {len(report['results'])} checks are well, {len(report['rows'])} launches "
              f"and {len(report['tiles'])} tiles timed, {len(report['cut'])} parts cut, {report['seconds']} s")
        return 1 if self.failed else 0


def find_device(program: pathlib.Path, device: str, env):
    """The tool's own line where there is none."""
    result = run([program, "--device", device, "--modules", "/nonexistent"], env, 60)
    if "no CUDA device" in result.stderr or "--modules" not in result.stderr:
        return last_line(result.stderr).removeprefix("error: ")
    return None


def check(kit, options):
    run_of = Check(kit, options)
    problem = find_device(kit / "bin/prefill-bench", options.device, run_of.env)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return run_of.run()
