# One place for how every target is compiled.
add_library(millrace_flags INTERFACE)
# A header is included by its path: "journal/journal.h" of lib, "pubsub/stream/stream.h" of a daemon.
target_include_directories(millrace_flags INTERFACE ${CMAKE_SOURCE_DIR}/lib ${CMAKE_SOURCE_DIR})
target_compile_definitions(millrace_flags INTERFACE _GNU_SOURCE MILLRACE_VERSION="${PROJECT_VERSION}")
target_compile_options(millrace_flags INTERFACE
  -Wall -Wextra -Wshadow -Wpointer-arith -Wvla -Wundef -Wformat=2 -Wwrite-strings -Wcast-qual
  -fno-strict-aliasing -fno-omit-frame-pointer -fstack-protector-strong -g
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition>)
if(MILLRACE_WERROR)
  target_compile_options(millrace_flags INTERFACE -Werror)
endif()
if(MILLRACE_SANITIZE)
  # Lines and names are enough for a report, and faster to build.
  target_compile_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-sanitize-recover=all -g1)
  target_link_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE})
  target_compile_definitions(millrace_flags INTERFACE MILLRACE_SANITIZED=1)
else()
  target_compile_definitions(millrace_flags INTERFACE $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
endif()
# Assertions stay in every build: they say what cannot happen.
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_RELEASE "-O2")
  set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O1")
endforeach()
