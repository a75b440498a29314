// Where packed weights are looked for and put when nobody says.
#ifndef PREFILL_RUNTIME_CORE_WEIGHTSCACHEPLACES_H
#define PREFILL_RUNTIME_CORE_WEIGHTSCACHEPLACES_H

#include <string>
#include <string_view>
#include <vector>

namespace prefill::rt {

/// In this order: MODULE.weights (of another target than cpu
/// MODULE.TARGET.weights: its weights are packed otherwise) beside the module
/// (links in its path are followed, so that all names of a module share one
/// file), then, for a module in a place that cannot be written,
/// prefill/NAME-HASH.weights likewise in the user's cache directory:
/// $XDG_CACHE_HOME, or $HOME/.cache. The second is left out when neither
/// variable holds an absolute path.
std::vector<std::string> weightsCachePlaces(const std::string &modulePath,
                                            std::string_view target = "cpu");

/// Makes the missing directories of the second place, for the user alone.
void makeWeightsCacheDirectory(const std::string &place);

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_WEIGHTSCACHEPLACES_H
