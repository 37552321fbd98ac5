# Small programs that only the tests of real daemons run; they stand in BUILD/tests.
add_executable(echo_daemon support/echo_daemon.c)
target_link_libraries(echo_daemon PRIVATE millrace_flags millrace_daemon)
