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
  foreach(name http_request http_heads)
    millrace_fuzz_target(${name} millrace_daemon)
    target_sources(fuzz_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support/http_fuzz.c)
    target_include_directories(fuzz_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  endforeach()
  millrace_fuzz_target(json_fields millrace_counts)
  millrace_fuzz_target(records millrace_counts)
  millrace_fuzz_target(counters millrace_counts)
  millrace_fuzz_target(queue_text simplequeue_core)
  millrace_fuzz_target(batch reader_plan)
  millrace_fuzz_target(line_filter line_filter)
  millrace_fuzz_target(sorted_file sortdb_core)
  millrace_fuzz_target(journal_open millrace_journal PkgConfig::XXHASH)
endif()

# The journal's inputs are made by the journal; the target runs a few seconds in every build, with a plain driver.
add_executable(journal_corpus ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/journal_corpus.c)
target_link_libraries(journal_corpus PRIVATE millrace_flags millrace_journal)
add_executable(fuzz_journal_open_plain ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_journal_open.c
  ${CMAKE_CURRENT_SOURCE_DIR}/support/fuzz_main.c)
target_link_libraries(fuzz_journal_open_plain PRIVATE millrace_flags millrace_journal PkgConfig::XXHASH)
add_test(NAME fuzz_journal_open COMMAND sh -c
  "$<TARGET_FILE:journal_corpus> journal_corpus.d && exec $<TARGET_FILE:fuzz_journal_open_plain> journal_corpus.d 3")
set_tests_properties(fuzz_journal_open PROPERTIES TIMEOUT 600)
