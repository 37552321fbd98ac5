#include "daemon/nng_listen.h"

#include "daemon/listen.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

/* The next URL of the list; NULL at its end. The caller frees it. */
static char *next_url(const char **list)
{
    struct bytes url;
    return bytes_next_word(list, ", ", &url) ? bytes_dup(url) : NULL;
}

/* Without a port nng picks a random one. */
static bool has_port(const char *address)
{
    const char *colon = strrchr(address, ':');
    return colon && colon[1] >= '0' && colon[1] <= '9' && !strchr(colon, ']');
}

static const char *why_not(const char *url, bool token)
{
    bool tcp = strncmp(url, "tcp://", 6) == 0, ipc = strncmp(url, "ipc://", 6) == 0;
    if (!ipc && !(tcp && has_port(url + 6)))
        return "a URL is tcp://ADDRESS:PORT or ipc://PATH";
    if (tcp && token)
        return "nng cannot check a token: with auth_token_file use ipc://, where the group of the "
               "file restricts access";
    return strlen(url) < NNG_MAXADDRLEN ? NULL : "it is too long";
}

/* A comma without a URL on one side suggests an empty variable. */
static bool has_gap(const char *urls)
{
    bool has_url = false;
    for (; *urls; urls++) {
        if (*urls == ',' && !has_url)
            return true;
        if (*urls != ' ')
            has_url = *urls != ',';
    }
    return !has_url;
}

int nng_listen_check(const char *setting, const char *urls, bool token, struct config_error *error)
{
    int failed = has_gap(urls) ? config_fail(error, NULL, 0, "%s: %s: a URL is missing", setting, urls) : 0;
    for (char *url; failed == 0 && (url = next_url(&urls)); free(url)) {
        const char *why = why_not(url, token);
        failed = why ? config_fail(error, NULL, 0, "%s: %s: %s", setting, url, why) : 0;
    }
    return failed;
}

static void tell_listening(nng_listener listener, const char *url)
{
    int port;
    if (strncmp(url, "tcp://", 6) != 0 || nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port) != 0)
        log_info("nng listening", LOG_S("url", url));
    else
        log_info("nng listening", LOG_S("url", url), LOG_I("bound_port", port));
}

static int listen_at(const char *url, nng_socket socket)
{
    nng_listener listener;
    int why = nng_listener_create(&listener, socket, url);
    if (why == 0 && strncmp(url, "ipc://", 6) == 0)
        why = nng_listener_set_int(listener, NNG_OPT_IPC_PERMISSIONS, LISTEN_FILE_MODE);
    if (why == 0)
        why = nng_listener_start(listener, 0);
    if (why == 0)
        tell_listening(listener, url);
    return why;
}

int nng_listen_on(const char *setting, const char *urls, nng_socket socket, struct config_error *error)
{
    int failed = 0;
    for (char *url; failed == 0 && (url = next_url(&urls)); free(url)) {
        int why = listen_at(url, socket);
        failed = why ? config_fail(error, NULL, 0, "%s: %s: %s", setting, url, nng_strerror(why)) : 0;
    }
    return failed;
}
