# What other people's programs link with: both client libraries and what they need, as one archive that has no global
# names but those of the headers installed with it. `pkg-config millrace` knows how to use it from wherever it lies.
set(MILLRACE_HEADERS readers/queuereader.h readers/batch.h streams/stream_client.h streams/stream_place.h
  lib/http_client.h lib/bytes.h lib/clock.h lib/random_id.h)
set(MILLRACE_NAMES queuereader_* batch_* stream_client_* stream_place_* http_client_* http_call_* http_reply_header
  bytes_* buf_* mem_* clock_* random_id)
list(TRANSFORM MILLRACE_NAMES PREPEND "--keep-global-symbol=")

set(MILLRACE_ARCHIVE ${CMAKE_BINARY_DIR}/libmillrace.a)
set(whole ${CMAKE_BINARY_DIR}/millrace.o)
set(parts queuereader reader_plan stream_client millrace_records millrace_daemon millrace_base)
set(archives ${parts})
list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>")
# Groups of sections (C++'s inline functions) become plain ones: shared with a program's own they could not be hidden.
find_program(MILLRACE_LD NAMES ld.bfd ld REQUIRED) # LLVM's, which clang comes with, knows no --force-group-allocation
add_custom_command(OUTPUT ${MILLRACE_ARCHIVE} DEPENDS ${parts}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${MILLRACE_ARCHIVE}
  COMMAND ${MILLRACE_LD} -r --force-group-allocation -o ${whole}
    -u queuereader_new -u stream_client_new -u random_id --start-group ${archives} --end-group
  COMMAND ${CMAKE_OBJCOPY} --wildcard ${MILLRACE_NAMES} ${whole}
  COMMAND ${CMAKE_AR} rcs ${MILLRACE_ARCHIVE} ${whole} VERBATIM)
add_custom_target(millrace_archive ALL DEPENDS ${MILLRACE_ARCHIVE})

configure_file(cmake/millrace.pc.in ${CMAKE_BINARY_DIR}/millrace.pc @ONLY)
install(FILES ${MILLRACE_HEADERS} DESTINATION include/millrace)
install(FILES ${MILLRACE_ARCHIVE} DESTINATION lib)
install(FILES ${CMAKE_BINARY_DIR}/millrace.pc DESTINATION lib/pkgconfig)
