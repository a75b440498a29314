"""What a kit has in it."""
CHIPS = ["sm_80", "sm_86", "sm_89", "sm_90"]
MODELS = ["llama-bias", "llama-f16", "llama-gqa3", "llama-mha", "llama-mqa", "llama-rope-linear", "llama-rope-llama3",
          "llama-sharded", "mistral", "mistral-window", "qwen2", "qwen3"]
LAYOUTS = ["contiguous", "head_major", "paged_nhd:16"]
LAYOUT_MODELS = ["llama-gqa3", "mistral-window"]

# What is done on a GPU, in order of worth, with shares of the time.
PARTS = {"goldens": 30, "real-size": 12, "launches": 25, "tiles": 20, "torch": 8, "hardware": 5}
VALIDATIONS = ["goldens", "real-size"]  # not done is not well

# Longest prompt, query and KV heads. Head sizes are 128 in the first two, 64 in the others.
BENCH_SHAPES = {"llama-3-8b": (16384, 32, 8), "llama-3-70b": (8192, 64, 8), "llama-3.2-1b": (16384, 32, 8),
                "qwen2.5-0.5b": (1024, 14, 2)}
DEFAULT_BENCH = ["llama-3-8b", "llama-3-70b", "llama-3.2-1b"]
BENCH_LAYERS, BENCH_VOCAB = 2, 1024
# Tiles of each op beside the table's.
TUNE_CANDIDATES = 4

# Prompts around the tiles' edges.
LENGTHS = [1, 64, 65, 129, 513]
# Calls that are short enough to split their keys, the later ones against more keys than the 128 that the first split has at least.
CHUNKED_LENGTH, CHUNK = 513, 100
MAX_SEQ = 640
CONTINUATION = 64

# The first of the shapes, with weights that both sides make from a seed: logits of some rows, and of a prompt of one token.
REAL_SEED = 1
REAL_TOKENS = 600
REAL_ROWS = [*range(0, REAL_TOKENS, 25), REAL_TOKENS - 1]

# What is counted by the emulator and by hardware.
COUNTED_MODEL, COUNTED_TOKENS = "qwen2", 65

MAX_KIT_BYTES = 60 << 20


def golden_variants(models):
    for name in models:
        dtype = "f16" if name == "llama-f16" else "bf16"
        layouts = LAYOUTS if name in LAYOUT_MODELS or name == "llama-f16" else LAYOUTS[:1]
        for layout in layouts:
            yield name, dtype, layout


def real_tokens():
    return [(i * 7919 + 13) % BENCH_VOCAB for i in range(REAL_TOKENS)]
