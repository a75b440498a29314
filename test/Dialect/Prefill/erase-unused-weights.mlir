// RUN: prefill-opt %s --prefill-erase-unused-weights | FileCheck %s

// CHECK: prefill.weight @a
// CHECK: prefill.weight @b
// CHECK-NOT: prefill.weight @c
// CHECK: prefill.weight @ab
// CHECK-NOT: prefill.weight @abc
// CHECK-NOT: prefill.get_weight @abc
prefill.weight @a : tensor<2x8xf32> = #prefill.checkpoint<"a">
prefill.weight @b : tensor<2x8xf32> = #prefill.checkpoint<"b">
prefill.weight @c : tensor<2x8xf32> = #prefill.checkpoint<"c">
prefill.weight @ab : tensor<4x8xf32> = #prefill.concat<[@a, @b]>
prefill.weight @abc : tensor<6x8xf32> = #prefill.concat<[@ab, @c]>
func.func @f() -> tensor<4x8xf32> {
  %dead = prefill.get_weight @abc : tensor<6x8xf32>
  %0 = prefill.get_weight @ab : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
