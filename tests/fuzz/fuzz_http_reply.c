/* Any bytes as a server's reply: the call ends once, with the same result however the bytes are cut. The first byte is the length of
 * a piece, the second says how the call is made. */
#include "http/client/http_client.h"
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

#define FLAG_STREAM 1
#define FLAG_HEAD 2
#define FLAG_CUT 4
#define REPLY_MAX 200

struct outcome {
    int ends, status;
    enum http_client_result result;
    struct buf text; /* a header's value and the body */
};

static struct event_base *base;
static int listener;
static struct sockaddr_un where = {.sun_family = AF_UNIX};

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    struct outcome *o = arg;
    (void)call;
    assert(o->ends == 0);
    buf_append_bytes(&o->text, piece);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct outcome *o = arg;
    o->ends++;
    o->result = result;
    o->status = reply->status;
    buf_append_bytes(&o->text, reply->body);
    buf_append_str(&o->text, http_reply_header(reply, "x"));
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

static void run(const uint8_t *data, size_t size, size_t step, unsigned flags, struct outcome *o)
{
    char url[120];
    snprintf(url, sizeof url, "unix:%s", where.sun_path);
    struct http_client *c = http_client_new(&(struct http_client_config){.base = base,
        .url = url,
        .max_connections = 1,
        .max_reply = REPLY_MAX,
        .cut_reply = flags & FLAG_CUT});
    http_client_request(c, &(struct http_call_spec){.method = flags & FLAG_HEAD ? "HEAD" : "GET",
                               .target = "/",
                               .arg = o,
                               .on_body = flags & FLAG_STREAM ? on_body : NULL,
                               .on_done = on_done});
    event_base_loop(base, EVLOOP_NONBLOCK);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; i < 3; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
    for (size_t at = 0; at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        if (send(fd, data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 100 && o->ends == 0; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
    close(fd);
    assert(o->ends == 1);
    http_client_free(&c);
    assert(o->ends == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome cut = {0}, whole = {0};
    if (size < 3 || size > 4000)
        return 0;
    if (!base)
        open_listener();
    run(data + 2, size - 2, data[0] ? data[0] : 1, data[1], &cut);
    run(data + 2, size - 2, size, data[1], &whole);
    assert(cut.result == whole.result && cut.status == whole.status);
    if (cut.result == HTTP_CLIENT_OK)
        assert(bytes_equal(buf_bytes(&cut.text), buf_bytes(&whole.text)));
    buf_free(&cut.text);
    buf_free(&whole.text);
    return 0;
}
