#include "stream/cursor_keeper.h"

#include "base/io.h"
#include "base/log.h"
#include "config/config.h"
#include "json/json_fields.h"
#include "http/client/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct stream_cursor_state {
    struct cursor_keeper *keeper;
    size_t stream;
    bool is_sent, is_asking;
    /* positions of the latest successful and the latest request; UINT64_MAX: no success since pubsub's start */
    uint64_t sent, asked;
    struct stream_place place;
    /* offset of the first line that pubsub still has, if lines after the committed cursor have expired */
    uint64_t first;
    int logged;
};

struct cursor_keeper {
    struct cursor_keeper_config config;
    char headers[sizeof "X-Millrace-Cursor-Key: \r\n" + RANDOM_ID_SIZE];
    struct stream_cursor_state *streams;
};

int cursor_key_read(const char *dir, char key[RANDOM_ID_SIZE], struct error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cursor-key", dir);
    int fd = io->open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    bool ok = fd >= 0, is_new = fd < 0 && errno == ENOENT;
    memset(key, 0, RANDOM_ID_SIZE);
    if (ok)
        ok = io->pread(fd, key, RANDOM_ID_SIZE - 1, 0) == RANDOM_ID_SIZE - 1 &&
             strspn(key, "0123456789abcdef") == RANDOM_ID_SIZE - 1;
    if (is_new) {
        random_id(key);
        ok = io_replace_file(path, bytes_str(key), IO_PRIVATE_MODE) == 0;
    }
    int why = errno;
    if (fd >= 0)
        io->close(fd);
    if (!ok && (is_new || fd < 0))
        error_set(error, -1, "%s: %s", path, strerror(why));
    else if (!ok)
        error_set(error, -1, "%s is damaged: restore the file, or delete it to create a new key", path);
    errno = ok || is_new || fd < 0 ? why : 0;
    return ok ? 0 : -1;
}

struct cursor_keeper *cursor_keeper_new(const struct cursor_keeper_config *config)
{
    struct cursor_keeper *k = mem_zalloc(sizeof *k);
    k->config = *config;
    snprintf(k->headers, sizeof k->headers, "X-Millrace-Cursor-Key: %s\r\n", config->key);
    k->streams = mem_zalloc((config->n_streams + 1) * sizeof *k->streams);
    for (size_t i = 0; i < config->n_streams; i++)
        k->streams[i] = (struct stream_cursor_state){.keeper = k, .stream = i};
    return k;
}

void cursor_keeper_free(struct cursor_keeper **k)
{
    if (!*k)
        return;
    free((*k)->streams);
    free(*k);
    *k = NULL;
}

/* Logs no error if pubsub does not answer or has another history than the position, because the stream client reports
 * these errors. */
static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct stream_cursor_state *s = arg;
    s->is_asking = false;
    if (result != HTTP_CLIENT_OK)
        return;
    if (reply->status == 410) {
        struct json_doc *doc = json_doc_parse(reply->body);
        json_doc_u64(doc, "/after", &s->first);
        json_doc_free(&doc);
    }
    if (reply->status != 200) {
        static const struct bytes other = BYTES_LITERAL("\"code\":\"other-history\"");
        bool is_other = reply->body.len > 0 && memmem(reply->body.ptr, reply->body.len, other.ptr, other.len);
        if (reply->status == s->logged || is_other)
            return;
        s->logged = reply->status;
        const struct cursor_keeper_config *config = &s->keeper->config;
        char *text = bytes_dup(reply->body);
        log_warn("pubsub refused to move the cursor that retains needed lines",
            LOG_S("stream", config->position(config->arg, s->stream).stream), LOG_S("cursor", config->name),
            LOG_U("status", (uint64_t)reply->status), LOG_S("answer", text));
        free(text);
        return;
    }
    s->logged = 0;
    s->is_sent = true;
    s->sent = s->asked;
}

void cursor_keeper_tick(struct cursor_keeper *k)
{
    for (size_t i = 0; i < k->config.n_streams; i++) {
        struct stream_cursor_state *s = &k->streams[i];
        const struct kept_position c = k->config.position(k->config.arg, i);
        if (strcmp(s->place.text, c.place->text) != 0) {
            s->place = *c.place;
            s->sent = UINT64_MAX;
        }
        bool is_left = s->first > c.offset; /* the opening (a run of pubsub) of this line is unknown */
        uint64_t from = is_left ? s->first : c.offset;
        if (!c.id[0] || s->is_asking || (s->is_sent && s->sent == from))
            continue;
        struct buf target = {0};
        buf_printf(&target, "/cursors?stream=%s&name=%s&from=%" PRIu64 "&id=%.*s%s%c", c.stream,
            k->config.name, from, (int)(is_left ? strcspn(c.id, ".") : strlen(c.id)), c.id,
            s->is_sent ? "" : "&backwards=1", '\0');
        s->is_asking = true;
        s->asked = from;
        http_client_request(k->config.client, &(struct http_call_spec){.method = "POST",
                                                  .target = target.ptr,
                                                  .headers = k->headers,
                                                  .may_resend = true,
                                                  .arg = s,
                                                  .on_done = on_done});
        buf_free(&target);
    }
}
