// prefill-run MODEL.pfm: loads a compiled module, fills a KV cache from a
// prompt and prints what comes next. See --help.
#include "Options.h"
#include "Run.h"
#include "StandardStreams.h"

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
  prepareStandardStreams();
  try {
    Result<Options> options = parseOptions(argc, argv);
    if (!options)
      return fail(options.error());
    Result<void> ok =
        options->help ? print(usage())
        : options->version
            ? print(std::string("prefill-run ") + prefill_version() + "\n")
            : Run(*options).execute();
    if (!ok)
      return fail(ok.error());
    return 0;
  } catch (const std::bad_alloc &) {
    return fail({ErrorCode::outOfMemory,
                 "out of memory: class temporaries: logits or a copy of the "
                 "cache"});
  }
}
