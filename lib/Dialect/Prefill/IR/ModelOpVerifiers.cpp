#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

LogicalResult WeightOp::verify() { return success(); }
LogicalResult EmbedOp::verify() { return success(); }
LogicalResult RMSNormOp::verify() { return success(); }
LogicalResult LinearOp::verify() { return success(); }
LogicalResult RopeOp::verify() { return success(); }
LogicalResult KVAppendOp::verify() { return success(); }
LogicalResult AttentionOp::verify() { return success(); }
LogicalResult GatedActOp::verify() { return success(); }
LogicalResult AddOp::verify() { return success(); }
LogicalResult ScaleOp::verify() { return success(); }
LogicalResult SelectRowsOp::verify() { return success(); }
LogicalResult LMHeadOp::verify() { return success(); }
