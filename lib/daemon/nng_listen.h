/* nng_listen: a setting that names where a daemon listens with nng: tcp://ADDRESS:PORT or ipc://PATH, several separated
 * by commas, none of them empty. A library of its own (millrace_nng), so that only who listens so is linked with nng. */
#ifndef MILLRACE_NNG_LISTEN_H
#define MILLRACE_NNG_LISTEN_H

#include "config/options.h"

#include <nng/nng.h>

/* Whether they can be listened on; `token`: HTTP asks for one, which nng cannot. 0, or -1 with the error. */
int nng_listen_check(const char *setting, const char *urls, bool token, struct config_error *error);
/* Listens, and says where in the log. 0, or -1 with the error. */
int nng_listen_on(const char *setting, const char *urls, nng_socket socket, struct config_error *error);

#endif
