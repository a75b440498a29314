// The shared library gives what the header promises.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace {

TEST(SharedLibrary, ExportsEveryFunctionOfTheHeader) {
  std::ifstream file(PREFILL_SOURCE_DIR "/runtime/include/prefill/runtime.h");
  std::string header{std::istreambuf_iterator<char>(file), {}};
  void *library = dlopen(PREFILL_RUNTIME_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  std::regex declaration(R"(PREFILL_API [\w\s*]*?(prefill_\w+)\()");
  int count = 0;
  for (std::sregex_iterator match(header.begin(), header.end(), declaration),
       end;
       match != end; ++match, ++count)
    EXPECT_TRUE(dlsym(library, (*match)[1].str().c_str())) << (*match)[1];
  EXPECT_GE(count, 25);
  // C++ symbols stay inside: two versions of the library can live in a process.
  EXPECT_FALSE(dlsym(library, "_ZN7prefill2rt12verifyModuleEPKSt4bytem"));
  dlclose(library);
}

} // namespace
