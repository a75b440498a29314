#include "prefill/runtime.h"

const char *prefill_version(void) { return PREFILL_VERSION; }
