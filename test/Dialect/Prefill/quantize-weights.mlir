// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fuse-gate-up --prefill-quantize-weights | FileCheck %s --check-prefix=LAYER
// RUN: prefill-opt %s --prefill-quantize-weights | FileCheck %s
// RUN: prefill-opt %s --prefill-quantize-weights | prefill-opt --prefill-quantize-weights | FileCheck %s

// Weights become integers and scales. Three projections read one input: it is quantized once, in a kernel that has taken
// the norm, whose result is not rounded there. The scales come before the bias.
// LAYER: prefill.weight @layers.0.q_proj : tensor<64x64xbf16>
// LAYER-NEXT: prefill.weight @layers.0.q_proj.scale : tensor<64xf32> = #prefill.quantize_scale<@layers.0.q_proj>
// LAYER-NEXT: prefill.weight @layers.0.q_proj.int8 : tensor<64x64xi8> = #prefill.quantize<@layers.0.q_proj>
// LAYER: prefill.weight @layers.0.gate_up_proj.int8 : tensor<192x64xi8> = #prefill.quantize<@layers.0.gate_up_proj>
// LAYER: %[[X:.*]] = prefill.embed
// LAYER-NOT: prefill.rms_norm
// LAYER: %[[GAIN:.*]] = prefill.get_weight @layers.0.input_norm
// LAYER: %[[Q:.*]]:2 = prefill.rowwise {prefill.layer = 0 : i64, prefill.name = "quantize_q_proj"} : tensor<?x64xi8>, tensor<?x1xf32> body {
// LAYER-NEXT: %[[N:.*]] = prefill.rms_norm %[[X]], %[[GAIN]] {eps = 1.000000e-05 : f64} : tensor<?x64xbf16>, tensor<64xbf16> -> tensor<?x64xf32>
// LAYER-NEXT: %[[I:.*]], %[[S:.*]] = prefill.quantize_rows %[[N]] : tensor<?x64xf32> -> tensor<?x64xi8>, tensor<?x1xf32>
// LAYER-NEXT: prefill.yield %[[I]], %[[S]]
// LAYER-NEXT: }
// LAYER: %[[WQ:.*]] = prefill.get_weight @layers.0.q_proj.int8 : tensor<64x64xi8>
// LAYER: %[[SQ:.*]] = prefill.get_weight @layers.0.q_proj.scale : tensor<64xf32>
// LAYER: prefill.gemm %[[Q]]#0, %[[WQ]] {prefill.layer = 0 : i64, prefill.name = "q_proj"} : tensor<?x64xi8>, tensor<64x64xi8> -> tensor<?x64xbf16>
// LAYER-NEXT: ^bb0(%[[ACC:.*]]: tensor<?x64xf32>):
// LAYER-NEXT: %[[D:.*]] = prefill.dequantize %[[ACC]], %[[Q]]#1, %[[SQ]]
// LAYER-NEXT: prefill.bias_add %[[D]]
// LAYER-NOT: prefill.rowwise
// LAYER: prefill.gemm %[[Q]]#0, {{.*}}prefill.name = "k_proj"
// LAYER-NOT: prefill.rowwise
// LAYER: prefill.gemm %[[Q]]#0, {{.*}}prefill.name = "v_proj"
// Norms of heads stay, attention's result is quantized as it is stored.
// LAYER: prefill.rms_norm {{.*}}head_dim = 32
// LAYER: %[[A:.*]] = prefill.attention
// LAYER: prefill.rowwise {{.*}}prefill.name = "quantize_o_proj"
// LAYER-NEXT: prefill.quantize_rows %[[A]] : tensor<?x64xbf16> -> tensor<?x64xi8>, tensor<?x1xf32>
// LAYER: %[[X1:.*]] = prefill.add
// LAYER: prefill.rowwise {{.*}}prefill.name = "quantize_gate_up_proj"
// LAYER-NEXT: prefill.rms_norm %[[X1]]
// LAYER: prefill.gemm {{.*}}prefill.name = "gate_up_proj"
// LAYER-NEXT: ^bb0
// LAYER-NEXT: %[[GU:.*]] = prefill.dequantize
// LAYER-NEXT: prefill.deinterleave %[[GU]]
// LAYER: prefill.rowwise {{.*}}prefill.name = "quantize_down_proj"
// The head keeps its weight and its norm.
// LAYER: prefill.rms_norm
// LAYER-NOT: prefill.rowwise
// LAYER: prefill.lm_head {{.*}} : tensor<?x64xbf16>, tensor<256x64xbf16>

prefill.weight @gain : tensor<64xf32> = #prefill.checkpoint<"gain">
prefill.weight @head_gain : tensor<32xf32> = #prefill.checkpoint<"head_gain">
prefill.weight @w : tensor<96x64xf32> = #prefill.checkpoint<"w">
prefill.weight @square : tensor<64x64xf32> = #prefill.checkpoint<"square">
prefill.weight @table : tensor<64x64xf32> = #prefill.checkpoint<"table">
prefill.weight @wide : tensor<8x65537xf32> = #prefill.checkpoint<"wide">

// The gemm's other results and nodes stay; without a name the kernel is called after the op.
// CHECK-LABEL: func @plain
func.func @plain(%x: tensor<?x64xf32>) -> (tensor<?x96xbf16>, tensor<?x1xf32>) {
  %w = prefill.get_weight @w : tensor<96x64xf32>
  // CHECK: %[[Q:.*]]:2 = prefill.rowwise {prefill.layer = 3 : i64, prefill.name = "quantize_gemm"} : tensor<?x64xi8>, tensor<?x1xf32> body {
  // CHECK-NEXT: prefill.quantize_rows %arg0 : tensor<?x64xf32> -> tensor<?x64xi8>, tensor<?x1xf32>
  // CHECK: %[[W:.*]] = prefill.get_weight @w.int8 : tensor<96x64xi8>
  // CHECK: %[[S:.*]] = prefill.get_weight @w.scale : tensor<96xf32>
  // CHECK-NOT: prefill.get_weight
  // CHECK: prefill.gemm %[[Q]]#0, %[[W]] {prefill.layer = 3 : i64} : tensor<?x64xi8>, tensor<96x64xi8> -> tensor<?x96xbf16>, tensor<?x1xf32> epilogue {
  // CHECK-NEXT: ^bb0(%[[ACC:.*]]: tensor<?x96xf32>):
  // CHECK-NEXT: %[[D:.*]] = prefill.dequantize %[[ACC]], %[[Q]]#1, %[[S]] : tensor<?x96xf32>, tensor<?x1xf32>, tensor<96xf32> -> tensor<?x96xf32>
  // CHECK-NEXT: %[[H:.*]] = prefill.scale %[[D]]
  // CHECK-NEXT: prefill.row_sumsq %[[D]]
  // CHECK-NEXT: prefill.yield %[[H]]
  %y:2 = prefill.gemm %x, %w {prefill.layer = 3 : i64} : tensor<?x64xf32>, tensor<96x64xf32> -> tensor<?x96xbf16>, tensor<?x1xf32> epilogue {
  ^bb0(%acc: tensor<?x96xf32>):
    %half = prefill.scale %acc {factor = 0.5} : tensor<?x96xf32> -> tensor<?x96xf32>
    %sums = prefill.row_sumsq %acc : tensor<?x96xf32> -> tensor<?x1xf32>
    prefill.yield %half, %sums : tensor<?x96xf32>, tensor<?x1xf32>
  }
  return %y#0, %y#1 : tensor<?x96xbf16>, tensor<?x1xf32>
}

// A weight that two ops read has one set of integers; two inputs are quantized each.
// CHECK-LABEL: func @shared_weight
func.func @shared_weight(%x: tensor<?x64xf32>, %y: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %w = prefill.get_weight @square : tensor<64x64xf32>
  // CHECK: prefill.rowwise {prefill.layer = 0 : i64, prefill.name = "quantize_a"}
  // CHECK-NEXT: prefill.quantize_rows %arg0
  // CHECK: prefill.get_weight @square.int8
  // CHECK: prefill.gemm {{.*}}prefill.name = "a"
  %a = prefill.linear %x, %w {prefill.layer = 0 : i64, prefill.name = "a"} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  // CHECK: prefill.rowwise {prefill.layer = 0 : i64, prefill.name = "quantize_b"}
  // CHECK-NEXT: prefill.quantize_rows %arg1
  // CHECK: prefill.get_weight @square.int8
  // CHECK: prefill.gemm {{.*}}prefill.name = "b"
  %b = prefill.linear %y, %w {prefill.layer = 0 : i64, prefill.name = "b"} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  return %a, %b : tensor<?x64xf32>, tensor<?x64xf32>
}

// A norm that somebody else reads stays where all find it.
// CHECK-LABEL: func @second_user
func.func @second_user(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %g = prefill.get_weight @gain : tensor<64xf32>
  %w = prefill.get_weight @square : tensor<64x64xf32>
  // CHECK: %[[N:.*]] = prefill.rms_norm %arg0
  // CHECK: prefill.rowwise
  // CHECK-NEXT: prefill.quantize_rows %[[N]]
  %n = prefill.rms_norm %x, %g {eps = 1.0e-5} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
  %y = prefill.linear %n, %w {prefill.layer = 0 : i64, prefill.name = "proj"} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  // CHECK: prefill.add %[[N]]
  %z = prefill.add %n, %y : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// A second user inside the region of the projection itself.
// CHECK-LABEL: func @loaded_by_the_epilogue
func.func @loaded_by_the_epilogue(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %g = prefill.get_weight @gain : tensor<64xf32>
  %w = prefill.get_weight @square : tensor<64x64xf32>
  // CHECK: %[[N:.*]] = prefill.rms_norm %arg0
  // CHECK: prefill.rowwise
  // CHECK-NEXT: prefill.quantize_rows %[[N]]
  %n = prefill.rms_norm %x, %g {eps = 1.0e-5} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
  %y = prefill.gemm %n, %w {prefill.layer = 0 : i64, prefill.name = "proj"} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    // CHECK: %[[D:.*]] = prefill.dequantize
    // CHECK-NEXT: prefill.add %[[N]], %[[D]]
    %sum = prefill.add %n, %acc : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
    prefill.yield %sum : tensor<?x64xf32>
  }
  return %y : tensor<?x64xf32>
}

// One of two projections keeps its weight: it needs the norm as it is stored.
// CHECK-LABEL: func @half_quantized
func.func @half_quantized(%batch: !prefill.batch) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %t = prefill.get_weight @table : tensor<64x64xf32>
  %x = prefill.embed %batch, %t : tensor<64x64xf32> -> tensor<?x64xf32>
  %g = prefill.get_weight @gain : tensor<64xf32>
  %w = prefill.get_weight @square : tensor<64x64xf32>
  // CHECK: %[[N:.*]] = prefill.rms_norm
  // CHECK: prefill.linear %[[N]], {{.*}}prefill.not_folded = "not quantized: weight @table is tied to the embedding and keeps its values"
  // CHECK: prefill.quantize_rows %[[N]]
  %n = prefill.rms_norm %x, %g {eps = 1.0e-5} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
  %y = prefill.linear %n, %t {prefill.layer = 0 : i64} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %z = prefill.linear %n, %w {prefill.layer = 0 : i64} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  return %y, %z : tensor<?x64xf32>, tensor<?x64xf32>
}

// Of a row's only head a norm is one of the row; that of two heads is not, and stays.
// CHECK-LABEL: func @heads
func.func @heads(%x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %g = prefill.get_weight @gain : tensor<64xf32>
  %h = prefill.get_weight @head_gain : tensor<32xf32>
  %w = prefill.get_weight @square : tensor<64x64xf32>
  // CHECK: %[[H:.*]] = prefill.rms_norm {{.*}}head_dim = 32
  %1 = prefill.rms_norm %x, %h {eps = 1.0e-5, head_dim = 32} : tensor<?x64xf32>, tensor<32xf32> -> tensor<?x64xf32>
  // CHECK: prefill.rowwise
  // CHECK-NEXT: prefill.rms_norm %arg0, %{{.*}} {eps = 1.000000e-05 : f64} :
  %0 = prefill.rms_norm %x, %g {eps = 1.0e-5, head_dim = 64} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
  %y = prefill.linear %0, %w {prefill.layer = 0 : i64} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  // CHECK: prefill.quantize_rows %[[H]]
  %z = prefill.linear %1, %w {prefill.layer = 0 : i64} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  return %y, %z : tensor<?x64xf32>, tensor<?x64xf32>
}

// CHECK-LABEL: func @reasons
func.func @reasons(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>, %wide: tensor<?x65537xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x8xf32>) {
  // CHECK-NOT: prefill.rowwise
  // CHECK: prefill.linear {{.*}}prefill.not_folded = "not quantized: its weight is no prefill.get_weight"
  %0 = prefill.linear %x, %w {prefill.layer = 0 : i64} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %square = prefill.get_weight @square : tensor<64x64xf32>
  // CHECK: prefill.linear {{.*}}prefill.not_folded = "not quantized: it belongs to no decoder layer"
  %1 = prefill.linear %x, %square : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %ww = prefill.get_weight @wide : tensor<8x65537xf32>
  // CHECK: prefill.linear {{.*}}prefill.not_folded = "not quantized: it has K = 65537, and sums of more than 65536 products may not fit 32 bits"
  %2 = prefill.linear %wide, %ww {prefill.layer = 0 : i64} : tensor<?x65537xf32>, tensor<8x65537xf32> -> tensor<?x8xf32>
  return %0, %1, %2 : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x8xf32>
}
