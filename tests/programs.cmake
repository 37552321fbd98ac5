# Small programs that only the tests of real daemons run; they stand in BUILD/tests.
add_executable(echo_daemon support/echo_daemon.c)
target_link_libraries(echo_daemon PRIVATE millrace_flags millrace_daemon)
add_executable(count_lines support/count_lines.c)
target_link_libraries(count_lines PRIVATE millrace_flags millrace_records)
