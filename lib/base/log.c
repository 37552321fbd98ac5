#include "base/log.h"
#include "base/clock.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};
#define N_LEVELS (sizeof level_names / sizeof *level_names)

/* Set once by log_init, before there are threads. */
static struct {
    const char *part;
    enum log_level least;
    enum log_format format;
} settings = {"millrace", LOG_LEVEL_INFO, LOG_FORMAT_TEXT};

static _Atomic uint64_t counts[N_LEVELS];

void log_init(const char *part, enum log_level least, enum log_format format)
{
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

static void append_time(struct buf *out)
{
    usec_t now = clock_wall();
    time_t seconds = (time_t)(now / USEC_PER_SEC);
    struct tm tm;
    char text[32];
    gmtime_r(&seconds, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    buf_printf(out, "%s.%03dZ", text, (int)(now % USEC_PER_SEC / USEC_PER_MSEC));
}

static void append_number(struct buf *out, const struct log_field *f)
{
    if (f->type == LOG_FIELD_U64)
        buf_append_u64(out, f->v.u64);
    else if (f->type == LOG_FIELD_I64)
        buf_printf(out, "%lld", (long long)f->v.i64);
    else
        buf_printf(out, "%.6g", f->v.f64);
}

/* A bare word needs no quotes: readers split a line at spaces and '='. */
static bool is_bare(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7F)
            return false;
    }
    return text.len > 0;
}

/* Messages are literals, but nothing checks them for control bytes. */
static void append_message(struct buf *out, const char *message)
{
    for (const char *p = message; *p != '\0'; p++)
        buf_append_char(out, (unsigned char)*p < ' ' ? ' ' : *p);
}

static void append_text_line(
    struct buf *out, enum log_level level, const char *message, const struct log_field *fields)
{
    append_time(out);
    buf_printf(out, " %s %s ", level_names[level], settings.part);
    append_message(out, message);
    for (const struct log_field *f = fields; f->key != NULL; f++) {
        buf_printf(out, " %s=", f->key);
        if (f->type != LOG_FIELD_BYTES)
            append_number(out, f);
        else if (is_bare(f->v.bytes))
            buf_append_bytes(out, f->v.bytes);
        else
            buf_append_json(out, f->v.bytes);
    }
}

static void append_json_line(
    struct buf *out, enum log_level level, const char *message, const struct log_field *fields)
{
    buf_append_str(out, "{\"time\":\"");
    append_time(out);
    buf_printf(out, "\",\"level\":\"%s\",\"part\":\"%s\",\"message\":", level_names[level], settings.part);
    buf_append_json(out, bytes_str(message));
    for (const struct log_field *f = fields; f->key != NULL; f++) {
        buf_append_char(out, ',');
        buf_append_json(out, bytes_str(f->key));
        buf_append_char(out, ':');
        if (f->type == LOG_FIELD_BYTES || (f->type == LOG_FIELD_F64 && f->v.f64 - f->v.f64 != 0))
            buf_append_json(out, f->type == LOG_FIELD_BYTES ? f->v.bytes : bytes_str("not finite"));
        else
            append_number(out, f);
    }
    buf_append_char(out, '}');
}

void log_emit(enum log_level level, const char *message, const struct log_field *fields)
{
    struct buf line = {0};
    assert((size_t)level < N_LEVELS);
    atomic_fetch_add_explicit(&counts[level], 1, memory_order_relaxed);
    if (!log_wants(level))
        return;
    if (settings.format == LOG_FORMAT_JSON)
        append_json_line(&line, level, message, fields);
    else
        append_text_line(&line, level, message, fields);
    buf_append_char(&line, '\n');
    (void)!write(STDERR_FILENO, line.ptr, line.len);
    buf_free(&line);
}
