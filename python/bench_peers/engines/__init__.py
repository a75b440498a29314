"""One engine a module, each with a class `Engine` of the same six methods; imported in the engine's own environment.

Engine(options)              loads the model; options: shape, threads, dtype, hf, gguf, pfm, library, cache, max_length;
                             with dtype int8 gguf is of Q8_0 and hf_int8 has integers, hf is as ever
describe()                   {"version", "matmul": how the projections are computed, "details": one line}
variants(length)             names of the settings worth trying at this length, at least one
prepare(variant, length)     whatever is not the prefill itself: contexts, buffers, emptying the cache
prefill(tokens, variant)     the last token's logits, f32 [vocab], or the winner's id where there are none; timed
release()                    drops what prepare() holds
"""
