// Level `tiled`: attention as blocks of an online softmax (FlashAttention-2, Dao 2023; online softmax, Milakov and Gimelshein 2018).
#ifndef PREFILL_TILED_OPS_TD
#define PREFILL_TILED_OPS_TD

include "prefill/Dialect/Prefill/IR/PrefillFusedOps.td"

#endif
