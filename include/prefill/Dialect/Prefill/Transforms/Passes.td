// Graph passes, prefill to prefill. Order and stages are in lib/Pipelines/Pipelines.cpp.
#ifndef PREFILL_TRANSFORMS_PASSES_TD
#define PREFILL_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
