#include "base/log.h"
#include "base/clock.h"
#include "base/rfc3339.h"
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};
#define N_LEVELS (sizeof level_names / sizeof *level_names)

/* log_init sets these values before threads start. */
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

void log_emit(enum log_level level, const char *message, const struct log_field *fields)
{
    struct buf line = {0};
    bool is_json = settings.format == LOG_FORMAT_JSON;
    assert((size_t)level < N_LEVELS);
    atomic_fetch_add_explicit(&counts[level], 1, memory_order_relaxed);
    if (!log_wants(level))
        return;
    usec_t now = clock_wall();
    char text[RFC3339_TEXT];
    rfc3339_write(now / USEC_PER_SEC, text);
    buf_printf(&line, "%s%.19s.%03dZ", is_json ? "{\"time\":\"" : "", text,
        (int)(now % USEC_PER_SEC / USEC_PER_MSEC));
    buf_printf(&line, is_json ? "\",\"level\":\"%s\",\"part\":\"%s\",\"message\":" : " %s %s ",
        level_names[level], settings.part);
    if (is_json)
        buf_append_json(&line, bytes_str(message));
    for (const char *p = message; !is_json && *p != '\0'; p++)
        buf_append_char(&line, (unsigned char)*p < ' ' ? ' ' : *p);
    for (const struct log_field *f = fields; f->key; f++) {
        buf_printf(&line, is_json ? ",\"%s\":" : " %s=", f->key);
        /* A value without spaces and '=' needs no quotes, because programs that read the log split a line at these
         * characters. */
        bool quote = is_json || (f->type == LOG_FIELD_BYTES && f->v.bytes.len == 0);
        for (size_t i = 0; f->type == LOG_FIELD_BYTES && i < f->v.bytes.len && !quote; i++) {
            unsigned char c = (unsigned char)f->v.bytes.ptr[i];
            quote = c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7F;
        }
        if (f->type == LOG_FIELD_U64)
            buf_append_u64(&line, f->v.u64);
        else if (f->type == LOG_FIELD_I64)
            buf_printf(&line, "%lld", (long long)f->v.i64);
        else if (f->type == LOG_FIELD_F64 && is_json && !isfinite(f->v.f64))
            buf_append_str(&line, "\"not finite\"");
        else if (f->type == LOG_FIELD_F64)
            buf_printf(&line, "%.6g", f->v.f64);
        else if (quote)
            buf_append_json(&line, f->v.bytes);
        else
            buf_append_bytes(&line, f->v.bytes);
    }
    buf_append_str(&line, is_json ? "}\n" : "\n");
    (void)!write(STDERR_FILENO, line.ptr, line.len);
    buf_free(&line);
}
