// How tests steer the recording cuBLASLt.
#ifndef PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBCUBLASLT_H
#define PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBCUBLASLT_H

#include "StubControl.h"

/// Large products are checked but not computed. Settings, separated by ';':
/// `refuse-n=N` (no algorithm for products with N columns), `refuse-checks` (no
/// stored algorithm is good), `refuse-matmul`.
PREFILL_STUB_API void prefill_blas_stub_reset(const char *settings);
/// Broken rules, then what is still there; empty when all is well.
PREFILL_STUB_API const char *prefill_blas_stub_report();
/// "heuristic COUNT", "check ALGORITHM", "matmul ALGORITHM", a line each.
PREFILL_STUB_API const char *prefill_blas_stub_calls();

#endif // PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBCUBLASLT_H
