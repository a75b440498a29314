"""The kernels of a model, read from its IR at level config: what each computes, on which operands, in which tiles."""
import dataclasses
import re

ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


class PlanError(Exception):
    """IR that the formulas don't know."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A matrix or, with one dimension, a vector. A dynamic first dimension is None: a row for each token."""
    shape: tuple
    element: str

    @property
    def columns(self):
        return self.shape[-1]

    @property
    def is_dynamic(self):
        return self.shape[0] is None

    @property
    def row_bytes(self):
        return self.columns * ELEMENT_BYTES[self.element]

    def bytes(self, rows):
        """With `rows` where the first dimension is dynamic."""
        size = ELEMENT_BYTES[self.element]
        for extent in self.shape:
            size *= rows if extent is None else extent
        return size


@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values of one layer."""
    heads: int
    head_dim: int
    element: str

    @property
    def row_bytes(self):
        """Of the keys of a token; values take as many."""
        return self.heads * self.head_dim * ELEMENT_BYTES[self.element]


@dataclasses.dataclass
class Node:
    """An op in a kernel's body."""
    op: str
    results: list
    operands: list
    attributes: str

    def integer(self, name):
        """An attribute."""
        match = re.search(rf"\b{name} = (\d+)", self.attributes)
        if not match:
            raise PlanError(f"prefill.{self.op} has no attribute '{name}'")
        return int(match[1])

    @property
    def result_columns(self):
        match = re.search(r"-> tensor<\?x(\d+)x", self.attributes)
        if not match:
            raise PlanError(f"prefill.{self.op} has no result of rows")
        return int(match[1])


@dataclasses.dataclass
class Kernel:
    name: str
    kind: str  # gemm, rowwise, attention
    arguments: dict  # by name; None: the batch
    results: list
    domain: str  # tokens or logits
    block_m: int
    block_n: int
    block_kv: int
    operands: list  # of the op
    nodes: list


def _type(text, aliases):
    text = text.strip()
    if text == "!prefill.batch":
        return None
    text = aliases.get(text, text)
    if match := re.fullmatch(r"tensor<((?:[?\d]+x)+)(\w+)>", text):
        extents = match[1].rstrip("x").split("x")
        return Tensor(tuple(None if extent == "?" else int(extent) for extent in extents), match[2])
    if text.startswith("!prefill.kv_cache<"):
        fields = dict(re.findall(r"(\w+) = (\w+)", text))
        if fields["head_dim_qk"] != fields["head_dim_v"]:
            raise PlanError(f"a cache with head sizes {fields['head_dim_qk']} and {fields['head_dim_v']}, expected one")
        return Cache(int(fields["num_kv_heads"]), int(fields["head_dim_qk"]), fields["dtype"])
    raise PlanError(f"type '{text}', expected a tensor, a cache or a batch")


def _split(text):
    """At commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "(<[{":
            depth += 1
        elif c in ")>]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


_NODE = re.compile(r"(?:(%[\w.#:, %]+) = )?prefill\.(\w+)\s*(.*)")
_FUNCTION = re.compile(r"  func\.func private @([\w.]+)\((.*?)\) -> (.*?) attributes \{prefill\.kernel.*?\n(.*?)\n  \}",
                       re.DOTALL)
_CONFIG = re.compile(r"lowering_config<(\w+), block_m = (\d+), block_n = (\d+), block_kv = (\d+)")


def _node(line):
    match = _NODE.match(line.strip())
    if not match:
        return None
    # Operands stand before the types, attributes between braces; a rope's table in parentheses.
    before = re.split(r"[{]| : (?![^()]*\))", match[3], maxsplit=1)[0]
    return Node(match[2], re.findall(r"%[\w.]+", match[1] or ""), re.findall(r"%[\w.]+", before), match[3])


def parse_kernels(text):
    """The kernels of a module, by name."""
    aliases = dict(re.findall(r"^(!\w+) = (.*)$", text, re.MULTILINE))
    kernels = {}
    for name, arguments, results, body in _FUNCTION.findall(text):
        named = [argument.split(":", 1) for argument in _split(arguments)]
        nodes = [node for node in map(_node, body.splitlines()) if node]
        config = _CONFIG.search(body)
        if not nodes or nodes[0].op not in ("gemm", "rowwise", "attention") or not config:
            raise PlanError(f"kernel '{name}' begins with '{nodes[0].op if nodes else ''}', expected a gemm, a rowwise or "
                            "attention with its tiles")
        results = results.strip()
        kernels[name] = Kernel(
            name, nodes[0].op, {key.strip(): _type(value, aliases) for key, value in named},
            [_type(part, aliases) for part in _split(results[1:-1] if results.startswith("(") else results)],
            config[1], int(config[2]), int(config[3]), int(config[4]), nodes[0].operands, nodes[1:])
    if not kernels:
        raise PlanError("no kernel, expected the IR of level config")
    return kernels
