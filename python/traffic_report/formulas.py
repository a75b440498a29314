"""What a launch must move, and what its tiles ask of the second-level cache: closed formulas of shapes and tiles.

Both are in bytes. `compulsory`: every input read once and every output written once; of a table (embedding, angles) and of
a cache the rows that the call touches. `tile_traffic`: by site, the sectors of all requests as if nothing kept them; the
sites that are not named are scalars of a row.
"""
import dataclasses

from traffic_report.kernels import Cache, PlanError, Tensor

INT32, INT64 = 4, 8
SECTOR_BYTES = 32
# Of a warp, and columns of a chunk of 16 bytes: a row of an epilogue takes as many lanes as it has chunks.
_WARP_LANES, _CHUNK_COLUMNS = 32, 8
# A row of the batch's arrays, by the op that reads it.
_BATCH_ROW_BYTES = {"embed": INT32, "rope": INT32, "kv_append": INT64, "select_rows": INT32}


@dataclasses.dataclass(frozen=True)
class Call:
    """One sequence of `tokens` tokens without a past, and the logits of `logit_rows` of them."""
    tokens: int
    logit_rows: int

    def rows(self, domain):
        return self.tokens if domain == "tokens" else self.logit_rows


def _ceil_div(a, b):
    return -(-a // b)


def _argument_rows(kernel, name, call):
    """Rows of a matrix that the kernel touches; None: all of a weight or vector."""
    tensor = kernel.arguments[name]
    for node in kernel.nodes:
        if name not in node.operands:
            continue
        if node.op == "embed":
            return call.tokens  # tokens differ
        if node.op == "rope":
            return call.tokens  # positions do
        if node.op == "select_rows":
            return call.logit_rows
    return call.rows(kernel.domain) if tensor.is_dynamic else None


def _cache_of(kernel):
    return next((argument for argument in kernel.arguments.values() if isinstance(argument, Cache)), None)


def compulsory(kernel, call):
    """Bytes that a launch must load and store."""
    loads = 0
    for name, argument in kernel.arguments.items():
        if not isinstance(argument, Tensor):
            continue
        rows = _argument_rows(kernel, name, call)
        loads += argument.bytes(rows) if rows is None or argument.is_dynamic else rows * argument.row_bytes
    for op in {node.op for node in kernel.nodes} & set(_BATCH_ROW_BYTES):
        loads += _BATCH_ROW_BYTES[op] * (call.logit_rows if op == "select_rows" else call.tokens)
    stores = sum(result.bytes(call.rows(kernel.domain)) for result in kernel.results if isinstance(result, Tensor))
    if cache := _cache_of(kernel):
        both = 2 * call.tokens * cache.row_bytes
        if kernel.kind == "attention":
            loads += both
        else:
            stores += both
    return loads, stores


def _loaded(kernel, value, producers, norms):
    """Matrices that the evaluation of `value` loads by rows, a name for each time; each once in an evaluation, and once
    more where a norm sums over the whole row first."""
    names = set()

    def visit(value):
        if value in kernel.arguments:
            if isinstance(kernel.arguments[value], Tensor):
                names.add(value)
            return
        if node := producers.get(value):
            for operand in node.operands:
                if node.op == "rope" and operand != node.operands[0]:
                    continue  # angles
                if node.op == "row_rms_scale" and operand != node.operands[0]:
                    continue  # partial sums
                visit(operand)
            if node.op == "rms_norm" and "head_dim" not in node.attributes:
                norms.append(node.operands[0])
    visit(value)
    return list(names)


def _row_loads(kernel):
    producers = {result: node for node in kernel.nodes for result in node.results}
    yielded = kernel.nodes[-1]
    if yielded.op != "yield":
        raise PlanError(f"kernel '{kernel.name}' ends with '{yielded.op}', expected yield")
    norms, evaluated = [], set()
    values = list(yielded.operands)
    for node in kernel.nodes:  # what is stored is what is evaluated, a cache by its keys and values
        if node.op == "kv_append":
            values += node.operands[:2]
            values = [value for value in values if value not in node.results]
    for value in values:
        evaluated.update(_loaded(kernel, value, producers, norms))
    extra = []
    for operand in dict.fromkeys(norms):
        extra += _loaded(kernel, operand, producers, [])
    return [*evaluated, *extra]


def _gemm_traffic(kernel, call):
    x, w = (kernel.arguments[name] for name in kernel.operands[:2])
    rows, n = call.rows(kernel.domain), w.shape[0]
    tiles_m, tiles_n = _ceil_div(rows, kernel.block_m), _ceil_div(n, kernel.block_n)
    traffic = {"gemm.load_a": rows * x.row_bytes * tiles_n, "gemm.load_b": n * w.row_bytes * tiles_m}
    for node in kernel.nodes:
        if node.op != "row_rms_scale" or rows % kernel.block_m:
            continue
        # A lane takes a row's partial sums, 16 bytes at a time where rows begin at multiples of that: a sector each time.
        partials = kernel.arguments[node.operands[1]].columns
        if partials >= SECTOR_BYTES // 4:
            steps = partials // 4 if partials % 4 == 0 else partials
            traffic["epilogue.load_sumsq"] = rows * tiles_n * steps * SECTOR_BYTES
    return traffic


def _angle_traffic(kernel, call):
    """A row of a tile takes the angles of its position once for all heads in it, 16 bytes at a time: every sector twice."""
    traffic = 0
    for node in kernel.nodes:
        if node.op != "rope":
            continue
        head_dim, columns = node.integer("head_dim"), node.result_columns
        table = next(kernel.arguments[name] for name in node.operands if isinstance(kernel.arguments.get(name), Tensor)
                     and kernel.arguments[name].element == "f32" and not kernel.arguments[name].is_dynamic)
        if kernel.block_n % head_dim or table.columns % 16:
            raise PlanError(f"kernel '{kernel.name}' has tiles of {kernel.block_n} columns over heads of {head_dim} and "
                            f"{table.columns} angles, expected whole heads and halves of 8 angles")
        traffic += _ceil_div(columns, kernel.block_n) * 2 * table.row_bytes * call.rows(kernel.domain)
    return traffic


def _sink_traffic(kernel, call):
    """Chunks of rows that an epilogue or rowwise body loads and stores."""
    rows = call.rows(kernel.domain)
    traffic = {}
    # Lanes of a warp that have no chunk of its rows read the next row's: those bytes have no formula.
    lanes_have_chunks = kernel.kind != "gemm" or _WARP_LANES % _ceil_div(kernel.block_n, _CHUNK_COLUMNS) == 0
    loads = sum(kernel.arguments[name].row_bytes for name in _row_loads(kernel)) * rows
    if loads and lanes_have_chunks:
        traffic["epilogue.load"] = loads
    if angles := _angle_traffic(kernel, call):
        traffic["epilogue.load_angle"] = angles
    sums = [node.results[0] for node in kernel.nodes if node.op == "row_sumsq"]
    yielded = kernel.nodes[-1].operands
    stored = sum(result.row_bytes for value, result in zip(yielded, kernel.results)
                 if isinstance(result, Tensor) and value not in sums)
    if stored:
        traffic["epilogue.store"] = stored * rows
    if cache := _cache_of(kernel):
        traffic["kv_append.store_k"] = traffic["kv_append.store_v"] = rows * cache.row_bytes
    return traffic


def _attention_traffic(kernel, call):
    query, cache = kernel.arguments[kernel.operands[0]], _cache_of(kernel)
    keys = 0  # that the tiles read: of the last block visited those that its last row sees
    for begin in range(0, call.tokens, kernel.block_m):
        end = min(begin + kernel.block_m, call.tokens)
        blocks = _ceil_div(end, kernel.block_kv)
        keys += min(blocks * kernel.block_kv, end)
    rows = call.tokens * query.row_bytes
    return {"attention.load_q": rows, "attention.load_k": keys * cache.row_bytes,
            "attention.load_v": keys * cache.row_bytes, "attention.store": rows}


def tile_traffic(kernel, call):
    """Bytes by site."""
    if kernel.kind == "attention":
        return _attention_traffic(kernel, call)
    traffic = _gemm_traffic(kernel, call) if kernel.kind == "gemm" else {}
    return traffic | _sink_traffic(kernel, call)


def matrix_instructions(kernel, call):
    """Of m16n8k16, where the tiles cover the rows and columns exactly; None for others."""
    if kernel.kind != "gemm":
        return None
    x, w = (kernel.arguments[name] for name in kernel.operands[:2])
    rows, n, k = call.rows(kernel.domain), w.shape[0], x.columns
    if rows % kernel.block_m or n % kernel.block_n or k % 16:
        return None
    return rows * n * k // (16 * 8 * 16)
