# Programs that measure: `make bench` runs them by scripts/bench. None is a test; their figures go to docs/performance.md.
function(millrace_bench name)
  add_executable(bench_${name} bench/bench_${name}.c)
  target_link_libraries(bench_${name} PRIVATE millrace_flags ${ARGN})
endfunction()

add_library(bench_load STATIC bench/load.c bench/talk.c bench/servers.c)
target_link_libraries(bench_load PRIVATE millrace_flags PUBLIC millrace_base)

millrace_bench(queue bench_load)
millrace_bench(streams bench_load)
millrace_bench(service bench_load)
millrace_bench(journal millrace_journal)
if(TARGET sortdb_core)
  millrace_bench(sorted sortdb_core)
endif()
if(TARGET line_filter)
  millrace_bench(filter line_filter)
endif()
