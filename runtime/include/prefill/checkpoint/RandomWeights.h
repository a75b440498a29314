// Weights from a seed: the same numbers in the runtime and in the reference
// interpreter, on every machine, for every thread count and every dtype.
#ifndef PREFILL_CHECKPOINT_RANDOMWEIGHTS_H
#define PREFILL_CHECKPOINT_RANDOMWEIGHTS_H

#include <cstdint>
#include <string_view>
#include <vector>

namespace prefill::rt {

/// Element `index` (row-major) of a checkpoint tensor is a function of (seed,
/// name, index) and of nothing else but the tensor's last extent:
///
///   rank >= 2           n / sqrt(K), K the last extent: activations and logits
///                       keep unit scale whatever the shape
///   rank 1, name has "norm"   1 + 0.1 n
///   rank 1, otherwise         0.1 n
///
/// where n is the sum of four uniform 16-bit numbers, centred and scaled to
/// unit variance: approximately normal, within +-3.47, and exact in integer
/// arithmetic. The result is rounded to bf16 (nearest even), so that modules of
/// different dtypes see the same values.
class RandomTensor {
public:
  RandomTensor(uint64_t seed, std::string_view name,
               const std::vector<int64_t> &shape);

  float operator[](uint64_t index) const;

private:
  uint64_t stream;
  double mean, scale;
};

} // namespace prefill::rt

#endif // PREFILL_CHECKPOINT_RANDOMWEIGHTS_H
