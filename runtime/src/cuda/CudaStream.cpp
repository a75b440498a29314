#include "cuda/CudaStream.h"
#include "cuda/Warning.h"

#include <algorithm>

using namespace prefill;
using namespace prefill::rt;
using namespace prefill::rt::cuda;

Result<std::unique_ptr<CudaStream>> CudaStream::create(const StreamCode &code,
                                                       Allocator &allocator) {
  Result<CommandStream> commands = CommandStream::create(code.device);
  if (!commands)
    return commands.takeError();
  std::unique_ptr<CudaStream> stream(
      new CudaStream(std::move(*commands), code));
  stream->cache = std::make_unique<GraphCache>(stream->commands);
  if (Result<void> ok = stream->openBlas(allocator); !ok)
    return ok.takeError();
  return stream;
}

Result<void> CudaStream::openBlas(Allocator &allocator) {
  if (!code.blas)
    return {};
  Result<Allocation> memory =
      allocator.allocate(MemoryClass::temporaries, BlasMatmul::workspaceBytes,
                         "cuBLASLt's workspace");
  if (!memory)
    return memory.takeError();
  workspace = std::move(*memory);
  Result<std::unique_ptr<BlasMatmul>> made = BlasMatmul::create(
      code.blas, commands, *code.algorithms, workspace.address());
  if (!made)
    return made.takeError();
  blas = std::move(*made);
  return {};
}

CudaStream::~CudaStream() = default;

Result<void> CudaStream::beginCall(const CallShape &shape) {
  pending.clear(); // of a call that failed
  times.clear();
  interrupted = false;
  call = shape;
  key = {shape.schedule, shape.rowsPad, shape.logitRowsPad};
  return {};
}

Result<void> CudaStream::launch(const KernelLaunch &launch) {
  pending.push_back(Pending{launch.kernel,
                            static_cast<uint64_t>(launch.workgroups),
                            launch.words,
                            nullptr,
                            {}});
  choose(launch.launch, pending.back());
  return {};
}

void CudaStream::choose(uint32_t launch, Pending &pending) {
  const ScheduleProducts &products = code.products[call.schedule];
  if (!blas || !products[launch])
    return;
  const ProductLaunch &product = *products[launch];
  MatmulProblem problem = product.problem;
  problem.m = product.rows == module::RowDomain::tokens ? call.rowsPad
                                                        : call.logitRowsPad;
  bool known = blas->knows(problem);
  Result<void> prepared = blas->prepare(problem);
  if (prepared) {
    pending.product = &product;
    pending.problem = problem;
  } else if (!known) {
    warn(prepared.error().message + "; the compiled kernel does it");
  }
}

Result<void> CudaStream::enqueue(const Pending &launch) const {
  if (launch.product)
    return blas->enqueue(launch.problem,
                         launch.product->operands(launch.words));
  return code.functions[launch.kernel].launch(commands, launch.workgroups,
                                              launch.words);
}

Result<void> CudaStream::enqueueTimed() {
  while (events.size() <= pending.size()) {
    Result<Event> event =
        Event::create(commands.device(), Event::Purpose::timing);
    if (!event)
      return event.takeError();
    events.push_back(std::move(*event));
  }
  if (Result<void> ok = events[0].record(commands); !ok)
    return ok;
  for (size_t i = 0; i < pending.size(); ++i) {
    if (Result<void> ok = enqueue(pending[i]); !ok)
      return ok;
    if (Result<void> ok = events[i + 1].record(commands); !ok)
      return ok;
  }
  return {};
}

std::string CudaStream::describePending() const {
  if (pending.size() == 1 && pending[0].product)
    return "cuBLASLt, " + describe(pending[0].problem);
  if (pending.size() == 1)
    return describeLaunch(code.functions[pending[0].kernel].shape(),
                          pending[0].workgroups, pending[0].words);
  std::string kernels;
  std::vector<std::string> named;
  for (const Pending &launch : pending) {
    std::string name = launch.product
                           ? "cuBLASLt"
                           : code.functions[launch.kernel].shape().name;
    if (std::find(named.begin(), named.end(), name) != named.end())
      continue;
    kernels += (named.empty() ? "" : ", ") + name;
    named.push_back(std::move(name));
  }
  return "one of " + std::to_string(pending.size()) + " launches (" + kernels +
         "; poison mode tells which)";
}

Result<void> CudaStream::readTimes() {
  constexpr double nanosecondsPerMillisecond = 1e6;
  uint64_t start = 0;
  for (size_t i = 0; i < pending.size(); ++i) {
    Result<float> milliseconds = events[i + 1].millisecondsSince(events[i]);
    if (!milliseconds)
      return milliseconds.takeError();
    auto duration =
        static_cast<uint64_t>(*milliseconds * nanosecondsPerMillisecond);
    times.push_back({start, duration});
    start += duration;
  }
  return {};
}

Result<void> CudaStream::synchronize() {
  interrupted = true;
  Result<void> enqueued;
  for (const Pending &launch : pending)
    if (enqueued)
      enqueued = enqueue(launch);
  // Also after an error: nothing runs when the caller gives memory back.
  Result<void> waited = commands.synchronize(describePending());
  pending.clear();
  return enqueued ? waited : enqueued;
}

Result<void> CudaStream::endCall() {
  if (interrupted)
    return synchronize();
  std::vector<uint64_t> arguments;
  for (const Pending &launch : pending) {
    arguments.push_back(launch.kernel);
    arguments.push_back(launch.workgroups);
    arguments.insert(arguments.end(), launch.words.begin(), launch.words.end());
  }
  bool timed = timing || cache->isNew(key);
  auto enqueueAll = [&]() -> Result<void> {
    if (timed)
      return enqueueTimed();
    for (const Pending &launch : pending)
      if (Result<void> ok = enqueue(launch); !ok)
        return ok;
    return {};
  };
  Result<void> enqueued =
      timing ? enqueueAll() : cache->run(key, arguments, enqueueAll);
  Result<void> done = commands.synchronize(describePending());
  if (enqueued && done && timed)
    done = readTimes();
  pending.clear();
  return enqueued ? done : enqueued;
}
