# libFuzzer targets, one a parser: fuzz/fuzz_NAME.c. Built with clang and MILLRACE_FUZZ=ON; run as
# fuzz_NAME [CORPUS] -max_total_time=SECONDS.
if(MILLRACE_FUZZ)
  function(millrace_fuzz_target name)
    add_executable(fuzz_${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_${name}.c)
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address)
    target_link_libraries(fuzz_${name} PRIVATE millrace_flags ${ARGN})
  endfunction()

  millrace_fuzz_target(url millrace_base)
  millrace_fuzz_target(http_request millrace_daemon)
  millrace_fuzz_target(json_fields millrace_records)
  millrace_fuzz_target(records millrace_records)
  millrace_fuzz_target(counters millrace_records)
endif()
