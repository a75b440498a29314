// RUN: not prefill-opt %s --prefill-plan-memory --split-input-file 2>&1 | FileCheck %s

// CHECK: error: prefill-plan-memory: the module has no function @prefill
func.func @other() {
  return
}

// -----

// The op's own verifier sees to it that rows have a known size.
// CHECK: error: 'prefill.scale' op input is 'tensor<?x?xf32>', expected a static number of channels
func.func @prefill(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = prefill.scale %x {factor = 2.0} : tensor<?x?xf32> -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
