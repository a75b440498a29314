# Installs this build to a fresh prefix, builds the example against it and runs it.
set(compile_model "")
if(PREFILL_BUILD_COMPILER)
  set(compile_model ${PROJECT_SOURCE_DIR}/test/models/tiny)
endif()
if(NOT PREFILL_SANITIZE)
  add_test(NAME find-package-example
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/example/run ${CMAKE_COMMAND} ${CMAKE_CXX_COMPILER} ${PROJECT_BINARY_DIR}
            ${CMAKE_CURRENT_SOURCE_DIR}/example ${CMAKE_CURRENT_BINARY_DIR}/example ${compile_model})
  set_tests_properties(find-package-example PROPERTIES TIMEOUT 300)
endif()
