"""Makes a kit, where the compiler is."""
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import shutil
import tempfile

from gpu_check import Failure, contents
from gpu_check.logits import rel_error, rows_of
from gpu_check.tools import checked, run, tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_SOURCES = ["command_line.py", "gpu_check"]


def bundled_libraries(program: pathlib.Path):
    """What the program loads, without glibc's own."""
    system = re.compile(r"^(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|linux-vdso)")
    for line in checked(["ldd", program], f"ldd cannot read {str(program)!r}").splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match and not system.match(pathlib.Path(match.group(1)).name):
            yield match.group(1), pathlib.Path(match.group(2))


def compress(path: pathlib.Path, target: pathlib.Path):
    """Modules are tables and text: an eighth is left of them."""
    with gzip.GzipFile(target, "wb", mtime=0) as out:
        out.write(path.read_bytes())


class Builder:
    def __init__(self, kit, options):
        self.kit, self.options = kit, options
        self.bin = pathlib.Path(options.bin).resolve()
        self.scratch = tempfile.TemporaryDirectory()
        self.work = pathlib.Path(self.scratch.name)

    def tool(self, name):
        return tool(self.bin, name)

    def imported(self, name, *source):
        mlir = self.work / f"{name}.mlir"
        if not mlir.exists():
            checked([self.tool("prefill-translate"), *source, "-o", mlir], name)
        return mlir

    def compile(self, mlir, out, dtype, targets, *options):
        """Nothing, or why the compiler refuses."""
        module = self.work / out.replace("/", "-")
        try:
            checked([self.tool("prefill-opt"), mlir, "--compile", *(f"--target={target}" for target in targets),
                     f"--dtype={dtype}", *options, "-o", module], out)
        except Failure as refused:
            return str(refused)
        compress(module, self.kit / (out + ".gz"))
        module.unlink()
        return None

    def targets(self, emulation=False):
        return [f"cuda:{chip}" for chip in contents.CHIPS] + (["cuda-emu:sm_80"] if emulation else [])

    # Each of these is a job of its own, and returns what the manifest gets.

    def golden(self, model, dtype, layout):
        source = ROOT / "test" / "golden" / model
        module = f"modules/golden/{model}-{dtype}-{layout.replace(':', '-')}.pfm"
        reason = self.compile(self.imported(f"{model}-{layout.replace(':', '-')}", "--import-hf", source), module, dtype,
                              self.targets(model in self.options.emulation), f"--kv-layout={layout}",
                              f"--max-seq={contents.MAX_SEQ}")
        entry = {"model": model, "dtype": dtype, "layout": layout}
        return {"refused": [{**entry, "reason": reason}]} if reason else {"checks": [{**entry, "module": module}]}

    def continuation(self):
        """The trained model and the text that it goes on with."""
        source = ROOT / "test" / "models" / "tiny"
        shutil.copytree(source, self.kit / "golden/tiny-model")
        shutil.copytree(ROOT / "test/golden/tiny", self.kit / "golden/tiny")
        reason = self.compile(self.imported("tiny", "--import-hf", source), "modules/golden/tiny-bf16.pfm", "bf16",
                              self.targets("tiny" in self.options.emulation))
        return {"refused": [self.refused("tiny", "bf16", reason)]} if reason else {"continuation": True}

    @staticmethod
    def refused(model, dtype, reason):
        return {"model": model, "dtype": dtype, "layout": "contiguous", "reason": reason}

    def synthesized(self, name, shape):
        return self.imported(name, "--synthesize", shape, "--layers", contents.BENCH_LAYERS, "--vocab", contents.BENCH_VOCAB)

    def bench(self, shape, dtype):
        module, longest = f"modules/bench/{shape}-{dtype}.pfm", contents.BENCH_SHAPES[shape][0]
        mlir = self.synthesized(f"{shape}-{dtype}", shape)
        # Times do not depend on what a model was trained for.
        mlir.write_text(re.sub(r"max_position = \d+", f"max_position = {longest}", mlir.read_text(), count=1))
        reason = self.compile(mlir, module, dtype, self.targets(), f"--max-seq={longest}")
        return {"refused": [self.refused(shape, dtype, reason)]} if reason else {}

    def tune(self, shape):
        """The modules of --tune, under the names that prefill-bench looks for."""
        modules = self.work / f"tune-{shape}"
        modules.mkdir()
        checked([self.tool("prefill-bench"), "--tune", "--device=cuda", "--compile-only", f"--shapes={shape}",
                 f"--candidates={contents.TUNE_CANDIDATES}", "--modules", modules, "--bin", self.bin], f"tiles of {shape}",
                timeout=1800)
        for path in modules.glob("*.pfm"):
            compress(path, self.kit / "modules/tune" / (path.name + ".gz"))
        for path in modules.glob("*.tiles.json"):
            compress(path, self.kit / "modules/tune" / (path.name + ".gz"))
        return {"tune": [shape]}

    def real(self):
        """Logits of a model of real size by the CPU: in f32 what is right, in bf16 what an error is allowed."""
        shape = self.options.bench_shapes[0]
        mlir = self.synthesized(f"{shape}-real", shape)
        tokens = self.work / "tokens"
        tokens.write_text(",".join(map(str, contents.real_tokens())))
        logits = {}
        for dtype in ("f32", "bf16"):
            module, out = self.work / f"real-{dtype}.pfm", self.work / f"real-{dtype}.npy"
            checked([self.tool("prefill-opt"), mlir, "--compile", "--target=cpu", f"--dtype={dtype}", "-o", module], shape)
            checked([self.tool("prefill-run"), module, "--random-weights", contents.REAL_SEED, "--tokens-file", tokens,
                     "--all-logits", "--logits-out", out], shape)
            logits[dtype] = rows_of(out, contents.REAL_ROWS)
            module.unlink()
        with open(self.kit / "golden/real.f32", "wb") as file:
            logits["f32"].tofile(file)
        error = rel_error(logits["bf16"], logits["f32"])
        return {"real": {"shape": shape, "module": f"modules/bench/{shape}-bf16.pfm", "error": error}}

    def counters(self, chip):
        """What the emulator counts for the tiles of a chip."""
        model = contents.COUNTED_MODEL
        source = ROOT / "test" / "golden" / model
        module = self.work / f"counters-{chip}.pfm"
        mlir = self.imported(f"{model}-counters-{chip}", "--import-hf", source)
        checked([self.tool("prefill-opt"), mlir, "--compile", f"--target=cuda-emu:{chip}", "--dtype=bf16",
                 f"--max-seq={contents.MAX_SEQ}", "-o", module], model)
        tokens = json.loads((source / "tokens.json").read_text())[:contents.COUNTED_TOKENS]
        stats = json.loads(checked([self.tool("prefill-run"), module, "--weights", source, "--tokens", ",".join(map(str, tokens)),
                                    "--device", f"cuda-emu:{chip}", "--counters", "--stats=json", "--weights-cache=off"],
                                   model))
        sums = {}
        for launch in stats["counters"]:
            kernel = sums.setdefault(launch["kernel"], {"launches": 0})
            kernel["launches"] += 1
            for key in ("load_sectors", "store_sectors", "matrix_instructions", "bank_conflicts"):
                kernel[key] = kernel.get(key, 0) + launch[key]
        return {"counters": {chip: sums}}

    def copy_programs(self):
        for name in ("prefill-run", "prefill-bench"):
            program = self.tool(name)
            shutil.copy(program, self.kit / "bin" / name)
            for library, path in bundled_libraries(program):
                shutil.copy(path, self.kit / "lib" / library)
        if shutil.which("strip"):
            run(["strip", "--strip-unneeded", *sorted((self.kit / "bin").iterdir()), *sorted((self.kit / "lib").iterdir())])
        shutil.copy(ROOT / "scripts/gpu-check", self.kit / "gpu-check")
        for name in OWN_SOURCES:
            source = ROOT / "python" / name
            if source.is_dir():
                shutil.copytree(source, self.kit / "python" / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self.kit / "python" / name)

    def build(self):
        options = self.options
        for name in ("prefill-translate", "prefill-opt", "prefill-run", "prefill-bench"):
            self.tool(name)
        for directory in ("bin", "lib", "python", "golden", "modules/golden", "modules/bench", "modules/tune"):
            (self.kit / directory).mkdir(parents=True)
        self.copy_programs()
        for model in options.models:
            shutil.copytree(ROOT / "test/golden" / model, self.kit / "golden" / model)
        jobs = [(self.tune, (shape,)) for shape in options.bench_shapes]
        jobs += [(self.real, ())]
        jobs += [(self.bench, (shape, dtype)) for shape in options.bench_shapes
                 for dtype in (("bf16", "f16") if shape == "llama-3-8b" else ("bf16",))]
        jobs += [(self.counters, (chip,)) for chip in contents.CHIPS if contents.COUNTED_MODEL in options.models]
        jobs += [(self.golden, variant) for variant in contents.golden_variants(options.models)] + [(self.continuation, ())]
        manifest = {"checks": [], "refused": [], "tune": [], "counters": {}, "continuation": False, "real": None,
                    "lengths": contents.LENGTHS}
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            started = [pool.submit(job, *arguments) for job, arguments in jobs]
            try:
                for future in concurrent.futures.as_completed(started):
                    for key, value in future.result().items():
                        if isinstance(value, list):
                            manifest[key] += value
                        elif isinstance(value, dict) and isinstance(manifest[key], dict):
                            manifest[key].update(value)
                        else:
                            manifest[key] = value
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        for key in ("checks", "refused", "tune"):
            manifest[key].sort(key=json.dumps)
        if any(entry["model"] == options.bench_shapes[0] and entry["dtype"] == "bf16" for entry in manifest["refused"]):
            manifest["real"] = None
        (self.kit / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        return manifest


def size_of(kit):
    return sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())


def build_kit(options):
    """A kit appears complete or not at all."""
    kit = pathlib.Path(options.build_kit).absolute()
    where = f"--build-kit is {options.build_kit!r}"
    if not options.build_kit:
        raise Failure(f"{where}, expected a new directory")
    if kit.exists() and not kit.is_dir():
        raise Failure(f"{where}, which is no directory, expected a new one")
    if kit.exists() and any(kit.iterdir()):
        raise Failure(f"{where}, which is not empty, expected a new directory")
    try:
        kit.parent.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(prefix=f".{kit.name}-", dir=kit.parent))
    except OSError as error:
        raise Failure(f"{where}, expected a directory that can be made: {error.strerror}") from error
    try:
        partial.chmod(0o755)
        manifest = Builder(partial, options).build()
        for entry in manifest["refused"]:
            print(f"refused  {entry['model']} {entry['dtype']} {entry['layout']}: {entry['reason']}")
        if not manifest["checks"]:
            raise Failure("no golden model could be compiled")
        total = size_of(partial)
        if total > contents.MAX_KIT_BYTES:
            raise Failure(f"the kit has {total} bytes, expected at most {contents.MAX_KIT_BYTES}")
        partial.replace(kit)
    finally:
        if partial.exists():
            shutil.rmtree(partial)
    count = {name: len(list((kit / "modules" / name).glob("*.pfm.gz"))) for name in ("golden", "bench", "tune")}
    print(f"kit      {kit}: {count['golden']} golden modules, {count['bench']} to time, {count['tune']} of tiles, "
          f"{total / (1 << 20):.1f} MiB")
    return 0
