# Run by CPack after the installation: the files that Debian's policy asks of a package, and the packages that it depends on.
set(root "${CPACK_TEMPORARY_DIRECTORY}/usr/share")
file(GLOB pages "${root}/man/man1/*.1")
execute_process(COMMAND gzip -9 -n -f ${pages} COMMAND_ERROR_IS_FATAL ANY)
get_filename_component(etc "${CMAKE_CURRENT_LIST_DIR}/../etc/debian" ABSOLUTE)
file(RENAME "${root}/doc/millrace/LICENSE" "${root}/doc/millrace/copyright")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE "${root}/doc/millrace/changelog" "millrace (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * Release ${CPACK_PACKAGE_VERSION}.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
execute_process(COMMAND gzip -9 -n -f "${root}/doc/millrace/changelog" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND chmod -R u=rwX,go=rX "${CPACK_TEMPORARY_DIRECTORY}" COMMAND_ERROR_IS_FATAL ANY)

# CPack's own way to find the packages of the libraries runs two programs for each file of the documentation.
file(GLOB programs "${CPACK_TEMPORARY_DIRECTORY}/usr/bin/*" "${CPACK_TEMPORARY_DIRECTORY}/usr/libexec/millrace/*")
foreach(program ${programs})
  file(READ ${program} magic LIMIT 4 HEX)
  if(magic STREQUAL 7f454c46)
    list(APPEND binaries ${program})
  endif()
endforeach()
# dpkg-shlibdeps wants a source package around it, with the binaries below a package's directory.
file(WRITE "${CPACK_TEMPORARY_DIRECTORY}/debian/control" "")
file(MAKE_DIRECTORY "${CPACK_TEMPORARY_DIRECTORY}/DEBIAN")
execute_process(COMMAND dpkg-shlibdeps -O ${binaries} WORKING_DIRECTORY "${CPACK_TEMPORARY_DIRECTORY}" OUTPUT_VARIABLE libraries
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE "${CPACK_TEMPORARY_DIRECTORY}/debian" "${CPACK_TEMPORARY_DIRECTORY}/DEBIAN")
string(REPLACE "shlibs:Depends=" "" libraries "${libraries}")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "${CPACK_DEBIAN_PACKAGE_DEPENDS}, ${libraries}")
