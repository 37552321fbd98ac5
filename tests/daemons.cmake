# Every tests/daemons/test_*.py is a ctest; so is each of its long rounds, with the label `full`, by the line
# `# full: MILLRACE_ROUNDS=200` that a file may carry.
file(GLOB DAEMON_TESTS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/daemons/test_*.py
  ${CMAKE_CURRENT_SOURCE_DIR}/crash/test_*.py)
if(NOT MILLRACE_SANITIZE) # they run nothing that a sanitizer watches
  file(GLOB SOURCE_TESTS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/source/test_*.py)
  list(APPEND DAEMON_TESTS ${SOURCE_TESTS})
endif()
# A program with a route for each thing that test_http_server.py wants to see.
add_executable(http_probe ${CMAKE_CURRENT_SOURCE_DIR}/support/http_probe.c)
target_link_libraries(http_probe PRIVATE millrace_flags millrace_daemon)

set(PYTHON /usr/bin/python3 -S ${CMAKE_CURRENT_SOURCE_DIR}/support/start.py)
# Where node is to trust more certificates, it reads them at each start, and no test asks a server with one. Python keeps the
# compiled tests for the next run, also where the environment forbids this.
set(DAEMON_ENVIRONMENT "MILLRACE_BUILD=${CMAKE_BINARY_DIR}" "PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}/support"
  "NODE_EXTRA_CA_CERTS=" "PYTHONDONTWRITEBYTECODE=")
if(MILLRACE_SANITIZE)
  list(APPEND DAEMON_ENVIRONMENT "MILLRACE_SANITIZED=1" "ASAN_OPTIONS=detect_leaks=1:abort_on_error=0"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()
# A change of a file's first lines counts at the next build.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${DAEMON_TESTS})
foreach(path ${DAEMON_TESTS})
  # `# label: surface`: the file tests scripts, guides, the package or the page, and runs no code of the daemons that other tests do not
  # run. It says nothing new with sanitizers or under other clocks.
  file(STRINGS ${path} surface REGEX "^# label: surface")
  if(surface AND MILLRACE_SANITIZE)
    continue()
  endif()
  get_filename_component(name ${path} NAME_WE)
  string(REGEX REPLACE "^test_" "daemons_" name ${name})
  set(few "")
  if(MILLRACE_SANITIZE)
    set(few "MILLRACE_ROUNDS=2")
  endif()
  # ctest begins with the tests that take longest. A file of more than 10 seconds says so: `# seconds: 90`.
  set(cost 10)
  file(STRINGS ${path} seconds REGEX "^# seconds: ")
  if(seconds)
    string(REGEX REPLACE "^# seconds: *" "" cost "${seconds}")
  elseif(path MATCHES "/crash/")
    set(cost 20)
  endif()
  # A file that waits or computes long is run in parts beside each other, also in the long round: `# parts: 3` (harness.PartLoader).
  set(parts 1)
  file(STRINGS ${path} several REGEX "^# parts: ")
  if(several)
    string(REGEX REPLACE "^# parts: *" "" parts "${several}")
  endif()
  math(EXPR cost "${cost} / ${parts} + 1")
  # A file whose programs compute as much as several other tests: `# processors: 3`.
  set(processors 1)
  file(STRINGS ${path} busy REGEX "^# processors: ")
  if(busy)
    string(REGEX REPLACE "^# processors: *" "" processors "${busy}")
  endif()
  file(STRINGS ${path} full REGEX "^# full: ")
  string(REGEX REPLACE "^# full: *" "" full "${full}")
  string(REPLACE " " ";" full "${full}")
  foreach(part RANGE 1 ${parts})
    set(part_name ${name}_${part})
    if(part EQUAL 1)
      set(part_name ${name})
    endif()
    set(part_environment "${DAEMON_ENVIRONMENT};MILLRACE_PART=${part}/${parts}")
    millrace_add_test(${part_name} ${PYTHON} ${path} -v)
    set_tests_properties(${part_name} PROPERTIES COST ${cost} PROCESSORS ${processors} SKIP_RETURN_CODE 77
      ENVIRONMENT "${part_environment};${few}")
    if(surface)
      set_tests_properties(${part_name} PROPERTIES LABELS surface)
    endif()
    if(full)
      millrace_add_full_test(full_${part_name} "${part_environment};${full}" ${PYTHON} ${path} -v)
      set_tests_properties(full_${part_name} PROPERTIES SKIP_RETURN_CODE 77)
    endif()
  endforeach()
endforeach()
