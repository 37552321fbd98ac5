# Programs: the daemons go to libexec/millrace, the one command users type to bin. The build tree has the same
# shape as an installed one, so that `millrace` finds the daemons beside itself in both.
set(MILLRACE_LIBEXEC libexec/millrace)

# The manual page millrace-NAME.1: the --help of a program, called with these arguments.
function(millrace_manual_page name target)
  set(page ${CMAKE_BINARY_DIR}/share/man/man1/millrace-${name}.1)
  add_custom_command(OUTPUT ${page} DEPENDS ${target} ${CMAKE_SOURCE_DIR}/scripts/manpage
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/share/man/man1
    COMMAND ${CMAKE_SOURCE_DIR}/scripts/manpage ${name} $<TARGET_FILE:${target}> ${ARGN} > ${page})
  add_custom_target(manual_page_${name} ALL DEPENDS ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endfunction()

# millrace_program(NAME [IN_PATH] SOURCES ... LIBS ...): libexec/millrace/NAME, or bin/NAME
function(millrace_program name)
  cmake_parse_arguments(P "IN_PATH" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${P_SOURCES})
  target_link_libraries(${name} PRIVATE millrace_flags ${P_LIBS})
  if(P_IN_PATH)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
    install(TARGETS ${name} RUNTIME DESTINATION bin)
  else()
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${MILLRACE_LIBEXEC})
    install(TARGETS ${name} RUNTIME DESTINATION ${MILLRACE_LIBEXEC})
    millrace_manual_page(${name} ${name})
  endif()
endfunction()
