#include "cuda/CudaStream.h"

using namespace prefill::rt;
using namespace prefill::rt::cuda;

Result<std::unique_ptr<CudaStream>>
CudaStream::create(const CudaDevice &device,
                   const std::vector<KernelFunction> &functions) {
  Result<CommandStream> commands = CommandStream::create(device);
  if (!commands)
    return commands.takeError();
  std::unique_ptr<CudaStream> stream(
      new CudaStream(std::move(*commands), functions));
  stream->cache = std::make_unique<GraphCache>(stream->commands);
  return stream;
}

CudaStream::~CudaStream() = default;

Result<void> CudaStream::beginCall(const CallShape &shape) {
  pending.clear(); // of a call that failed
  times.clear();
  interrupted = false;
  key = {shape.rowsPad, shape.logitRowsPad};
  return {};
}

Result<void> CudaStream::launch(const KernelLaunch &launch) {
  pending.push_back(Pending{
      launch.kernel, static_cast<uint64_t>(launch.workgroups), launch.words});
  return {};
}

Result<void> CudaStream::enqueue(const Pending &launch) const {
  return functions[launch.kernel].launch(commands, launch.workgroups,
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
  if (pending.size() == 1)
    return describeLaunch(functions[pending[0].kernel].shape(),
                          pending[0].workgroups, pending[0].words);
  return "one of " + std::to_string(pending.size()) +
         " kernels (poison mode tells which)";
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
  bool direct = cache->isNew(key);
  Result<void> enqueued = cache->run(key, arguments, [&]() -> Result<void> {
    if (direct)
      return enqueueTimed();
    for (const Pending &launch : pending)
      if (Result<void> ok = enqueue(launch); !ok)
        return ok;
    return {};
  });
  Result<void> done = commands.synchronize(describePending());
  if (enqueued && done) {
    if (direct)
      done = readTimes();
    else
      times.assign(pending.size(), {0, 0});
  }
  pending.clear();
  return enqueued ? done : enqueued;
}
