# Run by `cmake --install`: what a host needs to run millrace as a service, with the paths of this prefix. With the prefixes of a system,
# /usr and /usr/local, configuration and data are in /etc and /var; with any other prefix they are below it. Honours DESTDIR.
# lib/config/config.h (config_default) has the same rule.
set(etc "${CMAKE_CURRENT_LIST_DIR}/../etc")
string(REGEX REPLACE "(.)/+$" "\\1" prefix "${CMAKE_INSTALL_PREFIX}")
set(root "${prefix}")
if(prefix MATCHES "^/usr(/local)?$")
  set(root "")
endif()
set(BIN_DIR "${prefix}/bin")
set(CONFIG "${root}/etc/millrace/millrace.conf")
set(DATA_DIR "${root}/var/lib/millrace")
set(LOG_DIR "${root}/var/log/millrace")
file(READ "${etc}/systemd/hardening.in" HARDENING)

# Of this run alone: another one may have another prefix.
string(RANDOM LENGTH 16 run)
set(made_here "${MILLRACE_BINARY_DIR}/service-${run}")
function(install_made source directory name)
  set(made "${made_here}/${source}")
  configure_file("${etc}/${source}" "${made}/${name}" @ONLY)
  file(INSTALL "${made}/${name}" DESTINATION "${directory}")
endfunction()

install_made(systemd/millrace.service.in "${prefix}/lib/systemd/system" millrace.service)
install_made(systemd/millrace-compact.service.in "${prefix}/lib/systemd/system" millrace-compact.service)
file(INSTALL "${etc}/systemd/millrace-compact.timer" DESTINATION "${prefix}/lib/systemd/system")
install_made(systemd/sysusers.in "${prefix}/lib/sysusers.d" millrace.conf)
install_made(systemd/tmpfiles.in "${prefix}/lib/tmpfiles.d" millrace.conf)
install_made(logrotate.in "${root}/etc/logrotate.d" millrace)
# An operator's configuration stays as it is.
if(NOT EXISTS "$ENV{DESTDIR}${CONFIG}")
  install_made(millrace.conf.in "${root}/etc/millrace" millrace.conf)
endif()
file(REMOVE_RECURSE "${made_here}")
