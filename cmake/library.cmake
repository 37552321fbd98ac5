# What other people's programs link with: both client libraries and what they need, as one archive that has no global
# names but those of the headers installed with it. `pkg-config millrace` knows how to use it from wherever it lies.
set(MILLRACE_HEADERS readers/dispatcher.h readers/dispatch.h readers/queuereader.h readers/batch.h lib/stream/stream_client.h lib/stream/watermark.h
  lib/http/client/http_client.h lib/filter/filter.h lib/url/url_form.h lib/base/bytes.h lib/base/error.h lib/base/clock.h lib/base/random_id.h)
set(MILLRACE_NAMES dispatcher_* dispatch_* queuereader_* batch_* stream_client_* stream_place_* http_client_* http_call_* http_reply_header
  filter_open filter_open_reader filter_close filter_add filter_remove filter_number filter_reserve filter_sync_bytes filter_check filter_sync filter_refresh filter_sequence filter_last_id
  filter_stats filter_layer_stats url_normalize url_parents url_form_free url_strerror error_* bytes_* buf_* mem_* clock_* random_id)
list(TRANSFORM MILLRACE_NAMES PREPEND "--keep-global-symbol=")

set(MILLRACE_ARCHIVE ${CMAKE_BINARY_DIR}/libmillrace.a)
set(whole ${CMAKE_BINARY_DIR}/millrace.o)
set(parts queuereader reader_plan millrace_stream millrace_watermark millrace_counts millrace_json millrace_daemon millrace_http millrace_journal millrace_filter millrace_url millrace_config millrace_base)
set(archives ${parts})
list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>")
# Groups of sections (C++'s inline functions) become plain ones: shared with a program's own they could not be hidden.
find_program(MILLRACE_LD NAMES ld.bfd ld REQUIRED) # LLVM's, which clang comes with, knows no --force-group-allocation
add_custom_command(OUTPUT ${MILLRACE_ARCHIVE} DEPENDS ${parts}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${MILLRACE_ARCHIVE}
  COMMAND ${MILLRACE_LD} -r --force-group-allocation -o ${whole}
    -u dispatcher_new -u queuereader_new -u stream_client_new -u filter_open -u url_normalize -u url_strerror -u random_id --start-group ${archives} --end-group
  COMMAND ${CMAKE_OBJCOPY} --wildcard ${MILLRACE_NAMES} ${whole}
  COMMAND ${CMAKE_AR} rcs ${MILLRACE_ARCHIVE} ${whole} VERBATIM)
add_custom_target(millrace_archive ALL DEPENDS ${MILLRACE_ARCHIVE})

configure_file(cmake/millrace.pc.in ${CMAKE_BINARY_DIR}/millrace.pc @ONLY)
# Installed they lie in one folder: names of headers are unique.
foreach(header ${MILLRACE_HEADERS})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${header})
  get_filename_component(name ${header} NAME)
  file(READ ${header} text)
  string(REGEX REPLACE "(#include \")[a-z_/]*/" "\\1" text "${text}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/include/millrace/${name} CONTENT "${text}" @ONLY)
endforeach()
install(DIRECTORY ${CMAKE_BINARY_DIR}/include/millrace DESTINATION include COMPONENT devel)
install(FILES ${MILLRACE_ARCHIVE} DESTINATION lib COMPONENT devel)
install(FILES ${CMAKE_BINARY_DIR}/millrace.pc DESTINATION lib/pkgconfig COMPONENT devel)
