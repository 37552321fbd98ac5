/* nng_listen: listening with nng on tcp://ADDRESS:PORT or ipc://PATH, several separated by commas. A library of its own
 * (millrace_nng), so that other daemons are not linked with nng. */
#ifndef MILLRACE_NNG_LISTEN_H
#define MILLRACE_NNG_LISTEN_H

#include "config/options.h"

#include <nng/nng.h>

/* Checks the URLs. `token`: HTTP requires one, which nng cannot check. 0, or -1 with the error. */
int nng_listen_check(const char *setting, const char *urls, bool token, struct config_error *error);
/* Listens and logs the addresses. 0, or -1 with the error. */
int nng_listen_on(const char *setting, const char *urls, nng_socket socket, struct config_error *error);

#endif
