#include "daemon/request_log.h"

#include "base/io.h"
#include "base/log.h"
#include "base/rfc3339.h"
#include "daemon/loop_timer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLUSH_BYTES ((size_t)64 << 10)
#define PATH_SHOWN_MAX 1000 /* bytes of a path in a line */

struct request_log {
    char *path;
    int fd; /* descriptor of the file; -1: the file could not be opened */
    struct buf lines;
    uint64_t n_lines;
    struct loop_timer *flush_timer;
    struct stats_counter *lost;
    bool is_error_logged;
};

static void fail(struct request_log *l, const char *what, int why)
{
    stats_add(l->lost, l->n_lines);
    if (!l->is_error_logged)
        log_error(what, LOG_S("path", l->path), LOG_S("error", strerror(why)));
    l->is_error_logged = true;
}

static int open_file(struct request_log *l)
{
    l->fd = open(l->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);
    return l->fd;
}

static void flush(void *arg)
{
    struct request_log *l = arg;
    struct stat st;
    if (l->lines.len == 0)
        return;
    if (l->fd < 0 || fstat(l->fd, &st) != 0) {
        fail(l, "no request log", l->fd < 0 ? ENOENT : errno);
    } else if (io_write_all(l->fd, l->lines.ptr, l->lines.len, st.st_size) != 0) {
        fail(l, "cannot write the request log", errno);
        (void)!io->ftruncate(l->fd, st.st_size);
    } else {
        l->is_error_logged = false;
    }
    l->n_lines = 0;
    buf_clear(&l->lines);
}

struct request_log *request_log_new(const char *path, struct event_base *base, struct stats *stats)
{
    struct request_log *l = mem_zalloc(sizeof *l);
    l->path = mem_strdup(path);
    l->lost = stats_counter(
        stats, "request_log_lost_total", NULL, "lines that could not be written to request_log");
    if (open_file(l) < 0) {
        int why = errno;
        request_log_free(&l);
        errno = why;
        return NULL;
    }
    l->flush_timer = loop_timer_new(base, flush, l);
    return l;
}

void request_log_free(struct request_log **lp)
{
    struct request_log *l = *lp;
    *lp = NULL;
    if (!l)
        return;
    flush(l);
    if (l->fd >= 0)
        close(l->fd);
    loop_timer_free(&l->flush_timer);
    buf_free(&l->lines);
    free(l->path);
    free(l);
}

void request_log_reopen(struct request_log *l)
{
    flush(l);
    if (l->fd >= 0)
        close(l->fd);
    l->is_error_logged = false;
    if (open_file(l) < 0)
        fail(l, "cannot open the request log", errno);
}

void request_log_add(struct request_log *l, const struct http_ended *e, usec_t wall)
{
    char time[RFC3339_TEXT];
    struct buf *b = &l->lines;
    struct bytes path = e->path;
    if (path.len > PATH_SHOWN_MAX)
        path.len = PATH_SHOWN_MAX;
    buf_printf(b, "{\"time\":\"%.19s.%06dZ\",\"remote\":", rfc3339_write(wall / USEC_PER_SEC, time),
        (int)(wall % USEC_PER_SEC));
    buf_append_json(b, bytes_str(e->peer));
    buf_append_str(b, ",\"token\":");
    if (e->token)
        buf_append_json(b, bytes_str(e->token));
    else
        buf_append_str(b, "null");
    buf_append_str(b, ",\"method\":");
    buf_append_json(b, e->method);
    buf_append_str(b, ",\"path\":");
    buf_append_json(b, path);
    buf_printf(b, ",\"status\":%d,\"bytes\":%llu,\"usec\":%lld%s}\n", e->status, (unsigned long long)e->bytes,
        (long long)e->usec, e->is_cut ? ",\"cut\":true" : "");
    l->n_lines++;
    if (b->len >= FLUSH_BYTES)
        flush(l);
    else if (!loop_timer_is_set(l->flush_timer))
        loop_timer_set(l->flush_timer, USEC_PER_SEC);
}
