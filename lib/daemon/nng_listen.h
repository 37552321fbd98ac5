/* nng_listen: listens with nng on one or more URLs, separated by commas. A URL is tcp://ADDRESS:PORT or ipc://PATH. The
 * module nng_listen has its own library, millrace_nng, so that daemons without nng sockets do not link nng. */
#ifndef MILLRACE_NNG_LISTEN_H
#define MILLRACE_NNG_LISTEN_H

#include "config/options.h"

#include <nng/nng.h>

/* Checks the URLs. `token` is true if HTTP requests need a token. If `token` is true, a tcp:// URL is an error, because
 * nng cannot check tokens. Returns 0, or -1 with the error. */
int nng_listen_check(const char *setting, const char *urls, bool token, struct error *error);
/* Listens at the URLs and logs the addresses. Returns 0, or -1 with the error. */
int nng_listen_on(const char *setting, const char *urls, nng_socket socket, struct error *error);

#endif
