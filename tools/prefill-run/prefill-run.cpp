// prefill-run MODEL.pfm: loads a compiled module, fills a KV cache from a
// prompt and prints what comes next. See --help.
#include "Options.h"
#include "Run.h"

#include <cstdio>
#include <new>

using namespace prefill::run;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::Result;

static int fail(const Error &error) {
  std::fprintf(stderr, "error: %s\n", error.message.c_str());
  return 1;
}

int main(int argc, char **argv) {
  try {
    Result<Options> options = parseOptions(argc, argv);
    if (!options)
      return fail(options.error());
    if (options->help) {
      std::fputs(usage(), stdout);
      return 0;
    }
    if (options->version) {
      std::printf("prefill-run %s\n", prefill_version());
      return 0;
    }
    if (Result<void> ok = Run(*options).execute(); !ok)
      return fail(ok.error());
    return 0;
  } catch (const std::bad_alloc &) {
    return fail({ErrorCode::outOfMemory,
                 "out of memory: class temporaries: logits or a copy of the "
                 "cache"});
  }
}
