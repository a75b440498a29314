// What prefill-verify-model refuses: each case is the model below with one edit, and names its rule of docs/spec.md.
// RUN: prefill-opt %s --prefill-verify-model -o %t

// MODEL-C1
// RUN: sed -e 's/model_type = "llama", //' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=NO-TYPE
// NO-TYPE: error: prefill.model has no string model_type
// NO-TYPE-NOT: error:

// MODEL-C1
// RUN: sed -e 's/model_type = "llama"/model_type = ""/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=TYPE
// TYPE: error: prefill.model has model_type "", expected a name
// TYPE-NOT: error:

// MODEL-C2
// RUN: sed -e 's/tied_embeddings = true/tied_embeddings = 1/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=TIED
// TIED: error: prefill.model has no bool tied_embeddings
// TIED-NOT: error:

// MODEL-C3
// RUN: sed -e 's/num_q_heads = 2, //' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=NO-HEADS
// NO-HEADS: error: prefill.model has no integer num_q_heads
// NO-HEADS-NOT: error:

// MODEL-C3
// RUN: sed -e 's/max_position = 64/max_position = "x"/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=STRING
// STRING: error: prefill.model has no integer max_position but "x", expected an i64
// STRING-NOT: error:

// MODEL-C3
// RUN: sed -e 's/num_layers = 2/num_layers = 2 : i128/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=WIDE
// WIDE: error: prefill.model has no integer num_layers but 2 : i128, expected an i64
// WIDE-NOT: error:

// MODEL-C4
// RUN: sed -e 's/max_position = 64/max_position = 0/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=POSITION
// POSITION: error: prefill.model has max_position 0, expected 1 to 2147483647
// POSITION-NOT: error:

// MODEL-C4
// RUN: sed -e 's/sliding_window = 0/sliding_window = -1/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: error: prefill.model has sliding_window -1, expected 0 to 2147483647
// NEGATIVE-NOT: error:

// MODEL-C4
// RUN: sed -e 's/vocab_size = 16/vocab_size = 2147483648/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=HUGE
// HUGE: error: prefill.model has vocab_size 2147483648, expected 1 to 2147483647
// HUGE-NOT: error:

// MODEL-C5
// RUN: sed -e 's/num_layers = 2/num_layers = 3/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=LAYERS
// LAYERS: error: prefill.model has num_layers 3, but function @prefill has 2 caches
// LAYERS-NOT: error:

// MODEL-C6
// RUN: sed -e 's/vocab_size = 16/vocab_size = 15/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=VOCAB
// VOCAB: error: prefill.model has vocab_size 15, but the table of prefill.embed has rows 16
// VOCAB-NOT: error:

// MODEL-C6
// RUN: sed -e 's/hidden_size = 8/hidden_size = 9/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=HIDDEN
// HIDDEN: error: prefill.model has hidden_size 9, but the table of prefill.embed has columns 8
// HIDDEN-NOT: error:

// MODEL-C6
// RUN: sed -e 's/16x8xf32> = #prefill.checkpoint<"head">/24x8xf32> = #prefill.checkpoint<"head">/' -e 's/@head : tensor<16x8xf32>/@head : tensor<24x8xf32>/' -e '/lm_head/s/16x8/24x8/' -e 's/?x16xf32/?x24xf32/g' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=LOGITS
// LOGITS: error: prefill.model has vocab_size 16, but prefill.lm_head has logits 24
// LOGITS-NOT: error:

// MODEL-C7
// RUN: sed -e 's/num_q_heads = 2/num_q_heads = 4/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=HEADS
// HEADS: error: prefill.model has num_q_heads 4, but prefill.attention has query heads 2
// HEADS-NOT: error:

// MODEL-C8
// RUN: sed -e '/linear %a1/s/layer = 1/layer = 2/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=LAYER
// LAYER: error: prefill.linear has prefill.layer 2, expected 0 to 1
// LAYER-NOT: error:

// MODEL-C9
// RUN: sed -e 's/sliding_window = 0/sliding_window = 3/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=WINDOW
// WINDOW: error: prefill.model has sliding_window 3, but every prefill.attention has 0
// WINDOW-NOT: error:

// MODEL-C9
// RUN: sed -e 's/causal,/causal, sliding_window = 7 : i64,/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=NO-WINDOW
// NO-WINDOW: error: prefill.model has sliding_window 0, but every prefill.attention has 7
// NO-WINDOW-NOT: error:

// MODEL-C9
// RUN: sed -e 's/sliding_window = 0/sliding_window = 7/' -e '/attention %x1/s/causal,/causal, sliding_window = 7 : i64,/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=WINDOWS
// WINDOWS: error: prefill.model has sliding_window 7, expected 0, since layers have different windows
// WINDOWS-NOT: error:

// CACHES-C1
// RUN: sed -e 's/%x1, %x1 into %cache1/%x1, %x1 into %c0/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=CHAIN
// CHAIN: error: prefill.kv_append appends to the result of another prefill.kv_append, expected a cache argument of @prefill
// CHAIN-NOT: error:

// CACHES-C1
// RUN: sed -e 's/%x1, %x1 into %cache1/%x1, %x1 into %cache0/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: error: the cache of layer 0 has a second prefill.kv_append, expected one
// TWICE-NOT: error:

// CACHES-C2
// RUN: sed -e 's/attention %x1, %c1/attention %x1, %cache1/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=OLD
// OLD: error: prefill.attention reads the cache of layer 1 as it was before this call, expected the result of the layer's prefill.kv_append
// OLD-NOT: error:

// CACHES-C3
// RUN: sed -e 's/return %l, %c0, %c1/return %l, %c1, %c0/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=RETURN
// RETURN: error: result 1 of @prefill is not the result of the prefill.kv_append of layer 0
// RETURN-NOT: error:

// CACHES-C3
// RUN: sed -e '/%c1 =/d' -e 's/attention %x1, %c1/attention %x1, %c0/' -e '/attention %x1/s/layer = 1/layer = 0/' -e 's/return %l, %c0, %c1/return %l, %c0, %cache1/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: layer 1 has no prefill.kv_append, expected one for each cache
// MISSING-NOT: error:

// CACHES-C4
// RUN: sed -e 's/attention %x1, %c1/attention %x1, %c0/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=OTHER
// OTHER: error: prefill.attention has prefill.layer 1, but uses the cache of layer 0
// OTHER-NOT: error:

// CACHES-C4
// RUN: sed -e '/%c1 =/s/layer = 1/layer = 0/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=APPEND
// APPEND: error: prefill.kv_append has prefill.layer 0, but uses the cache of layer 1
// APPEND-NOT: error:

// CACHES-C4
// RUN: sed -e '/%a1 =/s/, prefill.layer = 1 : i64//' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=NO-LAYER
// NO-LAYER: error: prefill.attention has no prefill.layer, expected 1, the layer of its cache
// NO-LAYER-NOT: error:

// ROWS-C1
// RUN: sed -e 's/attention %x1, %c1/attention %r, %c1/' -e '/%r =/d' -e 's/^    %c1 = .*/&\n    %r = prefill.select_rows %x1, %batch : tensor<?x8xf32> -> tensor<?x8xf32>/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=SELECT
// SELECT: error: prefill.attention reads selected rows, expected rows of the batch
// SELECT-NOT: error:

// ROWS-C1
// RUN: sed -e 's/%f = prefill.add %r, %r/%f = prefill.add %r, %x2/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=MIXED
// MIXED: error: prefill.add reads rows of the batch, expected selected rows
// MIXED-NOT: error:

// ROWS-C2
// RUN: sed -e 's/lm_head %f/lm_head %x2/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=ALL
// ALL: error: prefill.lm_head reads rows of the batch, expected selected rows
// ALL-NOT: error:

// ROWS-C3
// RUN: sed -e 's/return %l,/return %y,/' -e 's/^    return/    %y = prefill.scale %l {factor = 2.0} : tensor<?x16xf32> -> tensor<?x16xf32>\n&/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=RESULT
// RESULT: error: result 0 of @prefill is not the result of prefill.lm_head
// RESULT-NOT: error:

// ROWS-C4
// RUN: sed -e 's/linear %a1, %wo/linear %wo, %wo/' -e '/linear %wo/s/: tensor<?x8xf32>/: tensor<8x8xf32>/' %s | not prefill-opt --prefill-verify-model 2>&1 | FileCheck %s --check-prefix=WEIGHT
// WEIGHT: error: prefill.linear reads a weight as an activation
// WEIGHT-NOT: error:

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 4, head_dim_v = 4, dtype = f32, block_size = 64>
module attributes {prefill.model = {model_type = "llama", vocab_size = 16, hidden_size = 8, num_layers = 2, num_q_heads = 2, max_position = 64, sliding_window = 0, tied_embeddings = true}} {
  prefill.weight @embed : tensor<16x8xf32> = #prefill.checkpoint<"embed">
  prefill.weight @head : tensor<16x8xf32> = #prefill.checkpoint<"head">
  prefill.weight @o : tensor<8x8xf32> = #prefill.checkpoint<"o">
  func.func @prefill(%batch: !prefill.batch, %cache0: !cache, %cache1: !cache) -> (tensor<?x16xf32>, !cache, !cache) {
    %embed = prefill.get_weight @embed : tensor<16x8xf32>
    %head = prefill.get_weight @head : tensor<16x8xf32>
    %wo = prefill.get_weight @o : tensor<8x8xf32>
    %x0 = prefill.embed %batch, %embed : tensor<16x8xf32> -> tensor<?x8xf32>
    %c0 = prefill.kv_append %x0, %x0 into %cache0, %batch {prefill.layer = 0 : i64} : tensor<?x8xf32>, tensor<?x8xf32> into !cache
    %x1 = prefill.attention %x0, %c0, %batch {scale = 0.5, causal, prefill.layer = 0 : i64} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>
    %c1 = prefill.kv_append %x1, %x1 into %cache1, %batch {prefill.layer = 1 : i64} : tensor<?x8xf32>, tensor<?x8xf32> into !cache
    %a1 = prefill.attention %x1, %c1, %batch {scale = 0.5, causal, prefill.layer = 1 : i64} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>
    %x2 = prefill.linear %a1, %wo {prefill.layer = 1 : i64} : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
    %r = prefill.select_rows %x2, %batch : tensor<?x8xf32> -> tensor<?x8xf32>
    %f = prefill.add %r, %r : tensor<?x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
    %l = prefill.lm_head %f, %head : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
    return %l, %c0, %c1 : tensor<?x16xf32>, !cache, !cache
  }
}
