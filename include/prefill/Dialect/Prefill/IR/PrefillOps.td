// All ops of the dialect, for tablegen.
include "prefill/Dialect/Prefill/IR/PrefillModelOps.td"
include "prefill/Dialect/Prefill/IR/PrefillFusedOps.td"
include "prefill/Dialect/Prefill/IR/PrefillTiledOps.td"
