// RUN: prefill-opt %s --prefill-fold-scale | FileCheck %s
// RUN: prefill-opt %s --prefill-fold-scale --remarks-filter-missed=prefill-fold --remark-policy=all -o %t 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: prefill-opt %s --prefill-fold-scale -o %t 2>&1 | count 0
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 128>

// 0.125 * log2(e); the layer goes with the query's scale.
// CHECK-LABEL: func @natural
func.func @natural(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x64xbf16> {
  // CHECK: %[[S:.*]] = prefill.scale %arg0 {factor = 0.180336880{{[0-9]+}} : f64, prefill.layer = 3 : i64}
  // CHECK: prefill.attention %[[S]], %arg1, %arg2 {base2, causal, prefill.layer = 3 : i64, scale = 1.000000e+00 : f64}
  %o = prefill.attention %q, %cache, %batch {scale = 0.125, causal, prefill.layer = 3 : i64} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}

// A scale in base 2 is moved as it is; running the pass twice changes nothing.
// CHECK-LABEL: func @base2
func.func @base2(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x64xbf16>, tensor<?x64xbf16>) {
  // CHECK: %[[S:.*]] = prefill.scale %arg0 {factor = 1.250000e-01 : f64}
  // CHECK: prefill.attention %[[S]],
  %o = prefill.attention %q, %cache, %batch {scale = 0.125, base2} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  // CHECK: prefill.attention %arg0, {{.*}}scale = 1.000000e+00
  %p = prefill.attention %q, %cache, %batch {scale = 1.0, base2} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  return %o, %p : tensor<?x64xbf16>, tensor<?x64xbf16>
}

// Said to those who ask, and to nobody else.
// REMARK: remark: [Missed] prefill-fold-scale | Category:prefill-fold | Reason="prefill.attention not folded: softcap needs the logits before the factor log2(e)"
// CHECK-LABEL: func @softcap
func.func @softcap(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x64xbf16> {
  // CHECK-NOT: prefill.scale
  // CHECK: prefill.attention %arg0, {{.*}}prefill.not_folded = "softcap needs the logits before the factor log2(e)", scale = 1.250000e-01 : f64
  %o = prefill.attention %q, %cache, %batch {scale = 0.125, softcap = 50.0} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}
