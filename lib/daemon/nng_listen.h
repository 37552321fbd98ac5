/* nng_listen: listens with nng on tcp://ADDRESS:PORT or ipc://PATH, several separated by commas. The separate library millrace_nng
 * keeps nng out of the other daemons. */
#ifndef MILLRACE_NNG_LISTEN_H
#define MILLRACE_NNG_LISTEN_H

#include "config/options.h"

#include <nng/nng.h>

/* Checks the URLs. `token`: HTTP requires a token. nng cannot check tokens, so tcp:// is then an error. 0, or -1 with
 * the error. */
int nng_listen_check(const char *setting, const char *urls, bool token, struct config_error *error);
/* Listens and logs the addresses. 0, or -1 with the error. */
int nng_listen_on(const char *setting, const char *urls, nng_socket socket, struct config_error *error);

#endif
