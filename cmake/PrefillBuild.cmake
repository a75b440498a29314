# What every target of the project shares: warnings, sanitizers, ccache, lld.
find_program(PREFILL_CCACHE ccache)
if(PREFILL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need these two relaxations; see ccache's manual, "Precompiled headers".
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${PREFILL_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on `"literal" + std::string` (GCC bug 105651).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-instantiate-templates>)
  find_program(PREFILL_LLD NAMES ld.lld-22 ld.lld)
  if(PREFILL_LLD)
    add_link_options(-fuse-ld=${PREFILL_LLD})
  endif()
endif()
# prefill_use_pch(TARGET PCH): the headers that were precompiled for the object library PCH. They are position-independent
# as libraries are (-fPIC), and so are then an executable's sources, which CMake gives -fPIE.
function(prefill_use_pch target pch)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()

if(PREFILL_SANITIZE)
  add_compile_options(-fsanitize=${PREFILL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${PREFILL_SANITIZE})
endif()
