#include "nats/nats_settings.h"

#include "base/bytes.h"
#include "base/io.h"
#include "daemon/daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEPARATORS " ,\t"
#define SERVERS_MAX 64
#define STREAM_NAME_MAX 48 /* a reader's name at a queue ends in it, and a subject begins with it */
#define SECRET_MAX ((size_t)64 << 10) /* bytes of a file */

static const char *const logins[] = {"nats_user", "nats_token_file", "nats_nkey", "nats_creds_file"};
static const char *const files[] = {"nats_ca_file", "nats_cert_file"};
static const char *const secrets[] = {"nats_nkey_file", "nats_creds_file", "nats_key_file"};
static const char *const together[][2] = {{"nats_user", "nats_password_file"},
    {"nats_nkey", "nats_nkey_file"}, {"nats_cert_file", "nats_key_file"}};

static bool is_tls(struct bytes url)
{
    return bytes_starts_with(url, bytes_str("tls://"));
}

static int check_servers(const struct options *o, struct error *error)
{
    const char *rest = options_string(o, "nats_url");
    struct bytes url;
    size_t n = 0, n_tls = 0;
    for (; bytes_next_word(&rest, SEPARATORS, &url); n++) {
        n_tls += is_tls(url);
        if (memchr(url.ptr, '@', url.len))
            return options_refuse(o, "nats_url", error,
                "has a login: set nats_user and nats_password_file, or nats_token_file");
        if (!is_tls(url) && !bytes_starts_with(url, bytes_str("nats://")))
            return options_refuse(o, "nats_url", error, "an address does not begin with nats:// or tls://");
    }
    if (n == 0 || n > SERVERS_MAX)
        return options_refuse(o, "nats_url", error, "needs 1 to %d addresses", SERVERS_MAX);
    if (n_tls > 0 && n_tls < n)
        return options_refuse(
            o, "nats_url", error, "has addresses with nats:// and with tls://: use one of them");
    return 0;
}

/* nats.c reads these files itself, and does not look at their modes. */
static int check_secrets(const struct options *o, struct error *error)
{
    int result = 0;
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets && result == 0; i++) {
        const char *path = options_text(o, secrets[i]);
        struct buf text = {0};
        struct error why;
        if (path && io_read_secret(path, secrets[i], SECRET_MAX, &text, &why) != 0)
            result = options_refuse(o, secrets[i], error, "%s", why.text);
        if (text.len > 0)
            explicit_bzero(text.ptr, text.len);
        buf_free(&text);
    }
    return result;
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
    return check_secrets(o, error) != 0 ? -1 : check_servers(o, error);
}

int nats_settings_check_stream(const struct options *o, const char *option, struct error *error)
{
    const char *stream = options_string(o, option);
    if (bytes_is_name(bytes_str(stream)) && strlen(stream) <= STREAM_NAME_MAX && !strchr(stream, '.'))
        return 0;
    return options_refuse(o, option, error, "not a name of JetStream: [A-Za-z0-9_-]{1,%d}", STREAM_NAME_MAX);
}

size_t nats_settings_servers(const struct options *o)
{
    const char *rest = options_string(o, "nats_url");
    struct bytes url;
    size_t n = 0;
    while (bytes_next_word(&rest, SEPARATORS, &url))
        n++;
    return n;
}

static natsStatus set_server(natsOptions *to, const struct options *o, size_t i)
{
    const char *rest = options_string(o, "nats_url");
    struct bytes url;
    while (bytes_next_word(&rest, SEPARATORS, &url) && i > 0)
        i--;
    char *text = bytes_dup(url);
    natsStatus s = natsOptions_SetURL(to, text);
    free(text);
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
    /* nats.c ignores the scheme of an address. */
    if (ca || cert || strstr(options_string(o, "nats_url"), "tls://"))
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

natsOptions *nats_settings_new(const struct options *o, size_t server, const char *name, struct error *error)
{
    natsOptions *to = NULL;
    int64_t timeout = options_int(o, "nats_timeout");
    error->text[0] = '\0';
    natsStatus s = natsOptions_Create(&to);
    if (s == NATS_OK)
        s = set_server(to, o, server);
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
