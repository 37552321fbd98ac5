/* nng_listen: listens with nng on one or more URLs, separated by commas: tcp://ADDRESS:PORT or ipc://PATH. This
 * module is in a library of its own, millrace_nng, so that other daemons do not link nng. */
#ifndef MILLRACE_NNG_LISTEN_H
#define MILLRACE_NNG_LISTEN_H

#include "config/options.h"

#include <nng/nng.h>

/* Checks the URLs. `token` is true if HTTP requests need a token. nng cannot check tokens, so in this case a tcp://
 * URL is an error. Returns 0, or -1 with the error. */
int nng_listen_check(const char *setting, const char *urls, bool token, struct error *error);
/* Listens and logs the addresses. 0, or -1 with the error. */
int nng_listen_on(const char *setting, const char *urls, nng_socket socket, struct error *error);

#endif
