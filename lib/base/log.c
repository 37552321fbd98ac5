#include "base/log.h"
#include "base/clock.h"
#include "base/rfc3339.h"
#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};
#define N_LEVELS (sizeof level_names / sizeof *level_names)

/* log_init sets `settings` before threads start. */
static struct {
    const char *part;
    enum log_level least;
    enum log_format format;
} settings = {"millrace", LOG_LEVEL_INFO, LOG_FORMAT_TEXT};

static _Atomic uint64_t counts[N_LEVELS];

static struct {
    pthread_mutex_t lock;
    bool is_open, is_cut; /* is_cut: only a part of the last line was written */
    bool is_file;         /* takes a line of any length without waiting */
    int fd;               /* a write blocks only if another process fills the same socket after poll */
    uint64_t dropped, reported;
} out = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = STDERR_FILENO};

/* O_NONBLOCK belongs to the open file, which other processes share. To set the flag only for itself, the log opens the
 * pipe or terminal once more. */
static void open_output(void)
{
    struct stat st;
    bool has_stat = fstat(STDERR_FILENO, &st) == 0;
    int fd = has_stat && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
                 ? open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                 : -1;
    if (out.fd != STDERR_FILENO)
        close(out.fd);
    out.fd = fd >= 0 ? fd : STDERR_FILENO;
    out.is_file = has_stat && S_ISREG(st.st_mode);
    out.is_open = true;
}

void log_init(const char *part, enum log_level least, enum log_format format)
{
    open_output();
    settings.part = part;
    settings.least = least;
    settings.format = format;
}

bool log_wants(enum log_level level)
{
    return level >= settings.least;
}

uint64_t log_count(enum log_level level)
{
    assert((size_t)level < N_LEVELS);
    return atomic_load_explicit(&counts[level], memory_order_relaxed);
}

static void append_line(
    struct buf *line, enum log_level level, const char *message, const struct log_field *fields)
{
    bool is_json = settings.format == LOG_FORMAT_JSON;
    usec_t now = clock_wall();
    char text[RFC3339_TEXT];
    rfc3339_write(now / USEC_PER_SEC, text);
    buf_printf(line, "%s%.19s.%03dZ", is_json ? "{\"time\":\"" : "", text,
        (int)(now % USEC_PER_SEC / USEC_PER_MSEC));
    buf_printf(line, is_json ? "\",\"level\":\"%s\",\"part\":\"%s\",\"message\":" : " %s %s ",
        level_names[level], settings.part);
    if (is_json)
        buf_append_json(line, bytes_str(message));
    for (const char *p = message; !is_json && *p != '\0'; p++)
        buf_append_char(line, (unsigned char)*p < ' ' ? ' ' : *p);
    for (const struct log_field *f = fields; f->key; f++) {
        buf_printf(line, is_json ? ",\"%s\":" : " %s=", f->key);
        /* A value without spaces and '=' needs no quotes, because programs that read the log split a line at these
         * characters. */
        bool quote = is_json || (f->type == LOG_FIELD_BYTES && f->v.bytes.len == 0);
        for (size_t i = 0; f->type == LOG_FIELD_BYTES && i < f->v.bytes.len && !quote; i++) {
            unsigned char c = (unsigned char)f->v.bytes.ptr[i];
            quote = c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7F;
        }
        if (f->type == LOG_FIELD_U64)
            buf_append_u64(line, f->v.u64);
        else if (f->type == LOG_FIELD_I64)
            buf_printf(line, "%lld", (long long)f->v.i64);
        else if (f->type == LOG_FIELD_F64 && is_json && !isfinite(f->v.f64))
            buf_append_str(line, "\"not finite\"");
        else if (f->type == LOG_FIELD_F64)
            buf_printf(line, "%.6g", f->v.f64);
        else if (quote)
            buf_append_json(line, f->v.bytes);
        else
            buf_append_bytes(line, f->v.bytes);
    }
    buf_append_str(line, is_json ? "}\n" : "\n");
}

/* Writes as much as fits without waiting. Returns false if the end is missing. In a file that several processes append to, one write keeps a
 * line whole. */
static bool write_fitting(struct bytes text)
{
    while (text.len > 0) {
        struct pollfd room = {.fd = out.fd, .events = POLLOUT};
        size_t piece = text.len < PIPE_BUF ? text.len : PIPE_BUF; /* fits if poll says that there is room */
        if (out.fd != STDERR_FILENO || out.is_file)
            piece = text.len;
        else if (out.is_open && poll(&room, 1, 0) != 1)
            return false;
        ssize_t n = write(out.fd, text.ptr, piece);
        if (n <= 0)
            return false;
        out.is_cut = (size_t)n < text.len;
        text = bytes_of(text.ptr + n, text.len - (size_t)n);
    }
    return true;
}

void log_forward(struct bytes line)
{
    pthread_mutex_lock(&out.lock);
    bool is_written = true;
    if (out.is_cut || out.reported < out.dropped) {
        struct buf gap = {0};
        buf_append_str(&gap, out.is_cut ? "\n" : "");
        append_line(&gap, LOG_LEVEL_WARN,
            "lines of the log were dropped: its reader was too slow, or its disk full",
            LOG_FIELDS_(LOG_U("lines", out.dropped - out.reported)));
        is_written = write_fitting(buf_bytes(&gap));
        if (is_written)
            out.reported = out.dropped;
        buf_free(&gap);
    }
    if (!is_written || !write_fitting(line))
        out.dropped++;
    pthread_mutex_unlock(&out.lock);
}

uint64_t log_dropped(void)
{
    pthread_mutex_lock(&out.lock);
    uint64_t n = out.dropped;
    pthread_mutex_unlock(&out.lock);
    return n;
}

void log_emit(enum log_level level, const char *message, const struct log_field *fields)
{
    struct buf line = {0};
    assert((size_t)level < N_LEVELS);
    atomic_fetch_add_explicit(&counts[level], 1, memory_order_relaxed);
    if (!log_wants(level))
        return;
    append_line(&line, level, message, fields);
    log_forward(buf_bytes(&line));
    buf_free(&line);
}
