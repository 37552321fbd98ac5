#include "daemon/nng_listen.h"

#include "daemon/listen.h"
#include "base/log.h"

#include <stdlib.h>

/* Returns the next URL of the list, which the caller frees, or NULL at the end of the list. */
static char *next_url(const char **list)
{
    struct bytes url;
    return bytes_next_word(list, ", ", &url) ? bytes_dup(url) : NULL;
}

int nng_listen_check(const char *setting, const char *urls, bool token, struct error *error)
{
    /* A missing URL before or after a comma is an error, because a shell variable was probably empty. */
    bool has_url = false, has_gap = false;
    for (const char *c = urls; *c; c++) {
        has_gap = has_gap || (*c == ',' && !has_url);
        if (*c != ' ')
            has_url = *c != ',';
    }
    int failed = 0;
    if (has_gap || !has_url)
        failed = error_set(error, -1, "%s: %s: a URL is missing", setting, urls);
    for (char *url; failed == 0 && (url = next_url(&urls)); free(url)) {
        bool tcp = strncmp(url, "tcp://", 6) == 0, ipc = strncmp(url, "ipc://", 6) == 0;
        const char *colon = strrchr(url, ':'), *why = NULL;
        /* If the URL has no port, nng would listen on a random port. */
        bool has_port = tcp && colon > url + 5 && colon[1] >= '0' && colon[1] <= '9' && !strchr(colon, ']');
        if (!ipc && !has_port)
            why = "a URL is tcp://ADDRESS:PORT or ipc://PATH";
        else if (tcp && token)
            why = "nng cannot check a token: with auth_token_file use ipc://, where the group of the "
                  "file restricts access";
        else if (strlen(url) >= NNG_MAXADDRLEN)
            why = "the URL is too long";
        failed = why ? error_set(error, -1, "%s: %s: %s", setting, url, why) : 0;
    }
    return failed;
}

int nng_listen_on(const char *setting, const char *urls, nng_socket socket, struct error *error)
{
    int failed = 0;
    for (char *url; failed == 0 && (url = next_url(&urls)); free(url)) {
        nng_listener listener;
        int port, why = nng_listener_create(&listener, socket, url);
        if (why == 0 && strncmp(url, "ipc://", 6) == 0)
            why = nng_listener_set_int(listener, NNG_OPT_IPC_PERMISSIONS, LISTEN_FILE_MODE);
        if (why == 0)
            why = nng_listener_start(listener, 0);
        if (why != 0)
            failed = error_set(error, -1, "%s: %s: %s", setting, url, nng_strerror(why));
        else if (nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port) == 0)
            log_info("nng listening", LOG_S("url", url), LOG_I("bound_port", port));
        else
            log_info("nng listening", LOG_S("url", url));
    }
    return failed;
}
