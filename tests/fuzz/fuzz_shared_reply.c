/* Any bytes as the body of a united reply: each question ends once, with the same result however the bytes are cut, and gets only lines of
 * its own key and of the key for all. The first byte is the length of a piece. */
#include "api/shared_call.h"
#include "support/fuzz_file.h"

#include <assert.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N 2

struct outcome {
    int ends;
    enum http_client_result result;
    struct buf text;
};

static struct event_base *base;
static int listener;
static struct sockaddr_un where = {.sun_family = AF_UNIX};

static void on_body(struct bytes piece, void *arg)
{
    struct outcome *o = arg;
    assert(o->ends == 0);
    buf_append_bytes(&o->text, piece);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct outcome *o = arg;
    (void)reply;
    o->ends++;
    o->result = result;
}

static void open_listener(void)
{
    struct buf path = {0};
    buf_printf(&path, "%s/file", fuzz_dir());
    memcpy(where.sun_path, path.ptr, path.len);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&where, sizeof where) < 0 || listen(listener, 16) < 0)
        abort();
    signal(SIGPIPE, SIG_IGN);
    base = event_base_new();
    buf_free(&path);
}

static void send_pieces(int fd, const uint8_t *data, size_t size, size_t step)
{
    char head[100];
    int n = snprintf(head, sizeof head, "HTTP/1.1 200 A\r\nContent-Length: %zu\r\n\r\n", size);
    send(fd, head, (size_t)n, MSG_NOSIGNAL);
    for (size_t at = 0; at < size; at += step) {
        if (send(fd, data + at, size - at < step ? size - at : step, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            return;
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
}

static void run(const uint8_t *data, size_t size, size_t step, struct outcome o[N])
{
    static const char *const targets[N] = {"/mget?k=u%7Ca&k=u%7Co", "/mget?k=u%7Cb&k=u%7Co"};
    char url[120];
    struct stats_counter joined = {0};
    struct share shares[N];
    snprintf(url, sizeof url, "unix:%s", where.sun_path);
    struct http_client *c =
        http_client_new(&(struct http_client_config){.base = base, .url = url, .max_connections = 1});
    struct shared_calls *calls = shared_calls_new(c, &joined);
    for (size_t i = 0; i < N; i++) {
        shares[i] = (struct share){.on_body = on_body, .on_done = on_done, .arg = &o[i]};
        shared_calls_get(calls, targets[i], &shares[i]);
    }
    event_base_loop(base, EVLOOP_NONBLOCK);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; i < 3; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
    send_pieces(fd, data, size, step);
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 100 && o[0].ends == 0; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
    close(fd);
    assert(o[0].ends == 1 && o[1].ends == 1 && o[0].result == o[1].result && stats_read(&joined) == 1);
    shared_calls_free(&calls);
    http_client_free(&c);
}

static void check_lines(const struct outcome *o, const char *key)
{
    struct bytes rest = buf_bytes(&o->text);
    while (rest.len > 0) {
        const char *lf = memchr(rest.ptr, '\n', rest.len);
        assert(bytes_starts_with(rest, bytes_str(key)) || bytes_starts_with(rest, BYTES_LITERAL("u|o,")));
        assert(lf || o->result != HTTP_CLIENT_OK);
        size_t len = lf ? (size_t)(lf - rest.ptr) + 1 : rest.len;
        rest = bytes_of(rest.ptr + len, rest.len - len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome cut[N] = {0}, whole[N] = {0};
    if (size < 2 || size > 4000)
        return 0;
    if (!base)
        open_listener();
    run(data + 1, size - 1, data[0] ? data[0] : 1, cut);
    run(data + 1, size - 1, size, whole);
    check_lines(&cut[0], "u|a,");
    check_lines(&cut[1], "u|b,");
    for (size_t i = 0; i < N; i++) {
        assert(cut[i].result == whole[i].result);
        assert(bytes_equal(buf_bytes(&cut[i].text), buf_bytes(&whole[i].text)));
        buf_free(&cut[i].text);
        buf_free(&whole[i].text);
    }
    return 0;
}
