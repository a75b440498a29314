// How tests steer and question the recording driver: functions that the stub
// libcuda.so.1 exports beside the driver's own. README.md of this directory
// says what the stub checks.
#ifndef PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBCONTROL_H
#define PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBCONTROL_H

#include <cstdint>

#define PREFILL_STUB_API extern "C" __attribute__((visibility("default")))

/// Forgets everything and begins anew. `settings` are separated by ';', those
/// left out have the default (also read from the environment variable
/// PREFILL_CUDA_STUB when the library is loaded):
///   devices=1            how many there are
///   chip=80              compute capability of all of them
///   memory=BYTES         of a device (1 GiB)
///   kernels=FILE         a shared object; a launch of kernel k calls its
///   k(words,
///                        0, blocks, scratch), and does nothing where it has
///                        none
///   emulate=DIR          kernels run on the emulator: the image's module is
///                        looked for below the directory and must have been
///                        compiled for cuda-emu too
///   fail=NAME:N          the Nth call of an entry point fails with
///                        CUDA_ERROR_OUT_OF_MEMORY where that allocates, else
///                        CUDA_ERROR_LAUNCH_FAILED; NAME `execute` counts
///                        kernels as they run, so that the error comes out
///                        later
///   jit-log=TEXT         PTX is refused, with this log
///   no-update=1          cuGraphExecUpdate refuses every graph
///   block-us=N           a launch takes so many microseconds for each of its
///                        blocks beside the millisecond of every operation
///   log=FILE             calls and report are written there at exit
PREFILL_STUB_API void prefill_stub_reset(const char *settings);

/// One line for each rule that was broken, then one for each thing that is
/// still there; empty when all is well. Valid until the next call.
PREFILL_STUB_API const char *prefill_stub_report();
/// One line for each call since the reset, with what matters of its arguments.
PREFILL_STUB_API const char *prefill_stub_calls();
/// Calls of one entry point since the reset.
PREFILL_STUB_API uint64_t prefill_stub_count(const char *name);

/// For stubs of libraries above the driver: enqueues work(state) in a stream as
/// a launch, graphs included, and release(state) when the last copy of it is
/// gone. `addresses` must lie in the device's memory when it runs.
PREFILL_STUB_API int prefill_stub_enqueue(void *stream, const char *name,
                                          void (*work)(void *),
                                          void (*release)(void *), void *state,
                                          const uint64_t *addresses,
                                          uint64_t numAddresses);

#endif // PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBCONTROL_H
