#include "nats/nats_settings.h"

#include "base/bytes.h"
#include "daemon/daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEPARATORS " ,\t"
#define SERVERS_MAX 64

static const char *const logins[] = {"nats_user", "nats_token_file", "nats_nkey", "nats_creds_file"};
static const char *const files[] = {
    "nats_nkey_file", "nats_creds_file", "nats_ca_file", "nats_cert_file", "nats_key_file"};
static const char *const together[][2] = {{"nats_user", "nats_password_file"},
    {"nats_nkey", "nats_nkey_file"}, {"nats_cert_file", "nats_key_file"}};

static int check_servers(const struct options *o, struct error *error)
{
    const char *rest = options_string(o, "nats_url");
    struct bytes url;
    size_t n = 0;
    for (; bytes_next_word(&rest, SEPARATORS, &url); n++)
        if (!bytes_starts_with(url, bytes_str("nats://")) && !bytes_starts_with(url, bytes_str("tls://")))
            return options_refuse(
                o, "nats_url", error, "%.*s does not begin with nats:// or tls://", (int)url.len, url.ptr);
    if (n == 0 || n > SERVERS_MAX)
        return options_refuse(o, "nats_url", error, "needs 1 to %d addresses", SERVERS_MAX);
    return 0;
}

int nats_settings_check(const struct options *o, struct error *error)
{
    const char *login = NULL;
    for (size_t i = 0; i < sizeof logins / sizeof *logins; i++) {
        if (options_text(o, logins[i]) && login)
            return options_refuse(o, logins[i], error, "%s is also set; keep one of them", login);
        login = options_text(o, logins[i]) ? logins[i] : login;
    }
    for (size_t i = 0; i < sizeof together / sizeof *together; i++)
        if (!options_text(o, together[i][0]) != !options_text(o, together[i][1]))
            return options_refuse(o, together[i][options_text(o, together[i][0]) == NULL], error, "needs %s",
                together[i][options_text(o, together[i][0]) != NULL]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (options_text(o, files[i]) && access(options_text(o, files[i]), R_OK) != 0)
            return options_refuse(o, files[i], error, "%s: %s", options_text(o, files[i]), strerror(errno));
    return check_servers(o, error);
}

static natsStatus set_servers(natsOptions *to, const struct options *o)
{
    const char *rest = options_string(o, "nats_url"), *list[SERVERS_MAX];
    char *urls[SERVERS_MAX];
    struct bytes url;
    int n = 0;
    for (; n < SERVERS_MAX && bytes_next_word(&rest, SEPARATORS, &url); n++)
        list[n] = urls[n] = bytes_dup(url);
    natsStatus s = natsOptions_SetServers(to, list, n);
    while (n-- > 0)
        free(urls[n]);
    return s;
}

/* Returns a status of nats.c, or sets the error. */
static natsStatus set_login(natsOptions *to, const struct options *o, struct error *error)
{
    const char *user = options_text(o, "nats_user"), *nkey = options_text(o, "nats_nkey"),
               *creds = options_text(o, "nats_creds_file");
    const char *file = options_text(o, user ? "nats_password_file" : "nats_token_file");
    char *secret = NULL;
    natsStatus s = NATS_OK;
    if (file && daemon_read_token(file, &secret, error) != 0)
        return NATS_ERR;
    if (user)
        s = natsOptions_SetUserInfo(to, user, secret);
    else if (secret)
        s = natsOptions_SetToken(to, secret);
    else if (nkey)
        s = natsOptions_SetNKeyFromSeed(to, nkey, options_text(o, "nats_nkey_file"));
    else if (creds)
        s = natsOptions_SetUserCredentialsFromFiles(to, creds, NULL);
    free(secret);
    return s;
}

static natsStatus set_tls(natsOptions *to, const struct options *o)
{
    const char *ca = options_text(o, "nats_ca_file"), *cert = options_text(o, "nats_cert_file");
    natsStatus s = NATS_OK;
    if (ca || cert)
        s = natsOptions_SetSecure(to, true);
    if (s == NATS_OK && ca)
        s = natsOptions_LoadCATrustedCertificates(to, ca);
    if (s == NATS_OK && cert)
        s = natsOptions_LoadCertificatesChain(to, cert, options_text(o, "nats_key_file"));
    return s;
}

/* nats.c otherwise prints to stderr. Each request reports its own error. */
static void ignore_error(natsConnection *nc, natsSubscription *sub, natsStatus err, void *arg)
{
    (void)nc;
    (void)sub;
    (void)err;
    (void)arg;
}

natsOptions *nats_settings_new(const struct options *o, const char *name, struct error *error)
{
    natsOptions *to = NULL;
    int64_t timeout = options_int(o, "nats_timeout");
    error->text[0] = '\0';
    natsStatus s = natsOptions_Create(&to);
    if (s == NATS_OK)
        s = set_servers(to, o);
    if (s == NATS_OK)
        s = set_login(to, o, error);
    if (s == NATS_OK)
        s = set_tls(to, o);
    if (s == NATS_OK)
        s = natsOptions_SetName(to, name);
    if (s == NATS_OK)
        s = natsOptions_SetAllowReconnect(to, false);
    if (s == NATS_OK)
        s = natsOptions_SetTimeout(to, timeout);
    if (s == NATS_OK)
        s = natsOptions_SetWriteDeadline(to, timeout);
    if (s == NATS_OK)
        s = natsOptions_SetSendAsap(to, true);
    if (s == NATS_OK)
        s = natsOptions_SetErrorHandler(to, ignore_error, NULL);
    if (s == NATS_OK)
        return to;
    if (!error->text[0])
        error_set(error, -1, "settings of nats-server: %s",
            nats_GetLastError(NULL) ? nats_GetLastError(NULL) : natsStatus_GetText(s));
    natsOptions_Destroy(to);
    return NULL;
}
