#include "CublasPeer.h"
#include "cuda/Event.h"
#include "cuda/PinnedStaging.h"
#include "prefill/checkpoint/FloatConversion.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

using namespace prefill;
using namespace prefill::bench;
using namespace prefill::rt::cuda;

namespace {

uint64_t elementBytes(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

/// A block of random values, repeated: what the values are matters for the
/// power that the multipliers draw, not where they repeat.
std::vector<uint8_t> randomBytes(cudaDataType_t type) {
  constexpr size_t count = 1 << 20;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint8_t> bytes(count * elementBytes(type));
  for (size_t i = 0; i < count; ++i) {
    float value = normal(random);
    uint16_t bits =
        type == CUDA_R_16BF ? rt::floatToBf16(value) : rt::floatToF16(value);
    if (type == CUDA_R_32F)
      std::memcpy(&bytes[i * 4], &value, 4);
    else
      std::memcpy(&bytes[i * 2], &bits, 2);
  }
  return bytes;
}

Result<DeviceBuffer> randomMatrix(const CommandStream &commands,
                                  uint64_t elements, cudaDataType_t type,
                                  const std::vector<uint8_t> &block) {
  uint64_t bytes = elements * elementBytes(type);
  Result<DeviceBuffer> buffer =
      DeviceBuffer::allocate(commands, bytes, "a matrix");
  if (!buffer)
    return buffer;
  Result<PinnedStaging> staging = PinnedStaging::create(commands);
  if (!staging)
    return staging.takeError();
  for (uint64_t first = 0; first < bytes; first += block.size())
    if (Result<void> ok = staging->upload(
            buffer->address() + first, block.data(),
            std::min<uint64_t>(block.size(), bytes - first), "a matrix");
        !ok)
      return ok.takeError();
  if (Result<void> ok = commands.synchronize("a matrix"); !ok)
    return ok.takeError();
  return buffer;
}

} // namespace

Result<std::unique_ptr<CublasPeer>>
CublasPeer::create(const CudaDevice &device, const std::string &algorithms) {
  Result<std::shared_ptr<const BlasApi>> api = BlasApi::load();
  if (!api)
    return api.takeError();
  Result<CommandStream> commands = CommandStream::create(device);
  if (!commands)
    return commands.takeError();
  std::unique_ptr<CublasPeer> peer(new CublasPeer(std::move(*commands)));
  Result<DeviceBuffer> workspace = DeviceBuffer::allocate(
      peer->commands, BlasMatmul::workspaceBytes, "cuBLASLt's workspace");
  if (!workspace)
    return workspace.takeError();
  peer->workspace = std::move(*workspace);
  // A damaged file is written anew.
  std::string warning;
  peer->algorithms = std::make_unique<BlasAlgorithmCache>(
      BlasAlgorithmCache::read(algorithms, warning));
  Result<std::unique_ptr<BlasMatmul>> matmul = BlasMatmul::create(
      *api, peer->commands, *peer->algorithms, peer->workspace.address());
  if (!matmul)
    return matmul.takeError();
  peer->matmul = std::move(*matmul);
  return peer;
}

Result<double> CublasPeer::measure(const MatmulProblem &problem, int rounds) {
  const std::vector<uint8_t> block = randomBytes(problem.inputType);
  Result<DeviceBuffer> in =
      randomMatrix(commands, problem.m * problem.k, problem.inputType, block);
  if (!in)
    return in.takeError();
  Result<DeviceBuffer> out = DeviceBuffer::allocate(
      commands, problem.m * problem.n * elementBytes(problem.outputType),
      "the product");
  if (!out)
    return out.takeError();
  uint64_t weightBytes =
      problem.n * problem.k * elementBytes(problem.inputType);
  uint64_t cache = commands.device().properties().l2Bytes;
  std::vector<DeviceBuffer> weights;
  for (uint64_t i = 0; i < 2 * cache / weightBytes + 2; ++i) {
    Result<DeviceBuffer> weight =
        randomMatrix(commands, problem.n * problem.k, problem.inputType, block);
    if (!weight)
      return weight.takeError();
    weights.push_back(std::move(*weight));
  }

  MatmulOperands operands{in->address(), weights[0].address(), out->address(),
                          0};
  if (Result<float> best = matmul->tune(problem, operands); !best)
    return best.takeError();
  Result<Event> start =
      Event::create(commands.device(), Event::Purpose::timing);
  if (!start)
    return start.takeError();
  Result<Event> end = Event::create(commands.device(), Event::Purpose::timing);
  if (!end)
    return end.takeError();
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    operands.weight = weights[(round + 1) % weights.size()].address();
    if (Result<void> ok = start->record(commands); !ok)
      return ok.takeError();
    if (Result<void> ok = matmul->enqueue(problem, operands); !ok)
      return ok.takeError();
    if (Result<void> ok = end->record(commands); !ok)
      return ok.takeError();
    if (Result<void> ok = end->wait(); !ok)
      return ok.takeError();
    Result<float> milliseconds = end->millisecondsSince(*start);
    if (!milliseconds)
      return milliseconds.takeError();
    times.push_back(*milliseconds * 1e3);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}
