#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

LogicalResult GemmOp::verify() { return success(); }
LogicalResult RowwiseOp::verify() { return success(); }
LogicalResult SplitOp::verify() { return success(); }
LogicalResult DeinterleaveOp::verify() { return success(); }
LogicalResult BiasAddOp::verify() { return success(); }
LogicalResult RowSumsqOp::verify() { return success(); }
LogicalResult RowRMSScaleOp::verify() { return success(); }
