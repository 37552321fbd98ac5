#include "tools/put/put_rejects.h"

#include "base/amount.h"
#include "base/line_source.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rfc3339.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    progress_leave();
    buf_append_str(&text, "millrace put: ");
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    buf_append_char(&text, '\n');
    log_forward(buf_bytes(&text));
    buf_free(&text);
}

int put_rejects_open(struct put_rejects *r, const struct reject_file *file)
{
    *r = (struct put_rejects){.file = *file, .reasons = *file};
    r->reasons.path = r->reasons_path;
    if (!file->path)
        return 0;
    int n = snprintf(r->reasons_path, sizeof r->reasons_path, "%s.reasons", file->path);
    errno = ENAMETOOLONG;
    if (n < PATH_MAX && reject_file_make(file) == 0)
        return 0;
    say("--rejects: %s: %s", file->path,
        errno == EINVAL  ? "not a regular file"
        : errno == ELOOP ? "a symbolic link, which is not followed"
                         : strerror(errno));
    return -1;
}

static int add(const struct reject_file *file, struct bytes line, bool *expired)
{
    if (reject_file_add(file, line, expired) == 0)
        return 0;
    say("%s: %s", file->path, strerror(errno));
    return EX_IOERR;
}

/* Keeps the reason before the line, so that no line is without one. */
static int keep(struct put_rejects *r, struct bytes line, const char *file, uint64_t offset)
{
    bool expired;
    char now[RFC3339_TEXT];
    char *reason = mem_printf(
        "%s %s, byte %" PRIu64 ": %s", rfc3339_write(clock_wall() / USEC_PER_SEC, now), file, offset, r->why);
    int status = add(&r->reasons, bytes_str(reason), &expired);
    free(reason);
    if (status == 0)
        status = add(&r->file, line, &expired);
    if (status != 0)
        return status;
    if (expired && !r->has_expired)
        say("%s has reached rejects_max_bytes or rejects_max_age: its oldest lines are deleted",
            r->file.path);
    r->has_expired = r->has_expired || expired;
    return 0;
}

int put_rejects_add(struct put_rejects *r, const struct put_batch_refusal *refusal, const char *file,
    uint64_t offset, usec_t now)
{
    snprintf(r->why, sizeof r->why, "%.*s", (int)refusal->why.len, refusal->why.ptr ? refusal->why.ptr : "");
    int status = r->file.path ? keep(r, refusal->line, file, offset) : 0;
    if (status != 0)
        return status;
    if (r->n++ == 0) {
        say("the line at byte %" PRIu64 " of %s (%zu bytes) cannot be posted: %s", offset, file,
            refusal->line.len, r->why);
        if (!r->file.path) {
            say("use --rejects=FILE to keep such lines and continue");
            return EX_DATAERR;
        }
        say("kept in %s, with the reason in %s; further lines are reported once a minute", r->file.path,
            r->reasons_path);
        r->reported = 1;
        r->reported_at = now;
    }
    put_rejects_report(r, now, false);
    return 0;
}

int put_rejects_skip(struct put_rejects *r, const char *file, uint64_t offset, uint64_t length)
{
    if (length > 0)
        say("the line at byte %" PRIu64 " of %s is too long to be read (%" PRIu64 " bytes, over %zu)", offset,
            file, length, LINE_SOURCE_LINE_MAX);
    else
        say("the line at byte %" PRIu64 " of %s is too long to be read (no line feed in %zu bytes)", offset,
            file, LINE_SOURCE_LINE_MAX);
    if (!r->file.path) {
        say("use --rejects=FILE to skip such lines and continue");
        return EX_DATAERR;
    }
    say("%s; it is not kept in %s", length > 0 ? "skipped it" : "skipping it to its end", r->file.path);
    r->skipped += length > 0;
    return 0;
}

void put_rejects_report(struct put_rejects *r, usec_t now, bool last)
{
    if (last && r->skipped > 0)
        say("%" PRIu64 " %s skipped", r->skipped,
            plural(r->skipped, "line that was too long to be read was",
                "lines that were too long to be read were"));
    if (!r->file.path || r->n == r->reported || (!last && now - r->reported_at < PUT_REJECTS_REPORT_EVERY))
        return;
    say("%" PRIu64 " refused %s in %s", r->n, plural(r->n, "line is", "lines are"), r->file.path);
    r->reported = r->n;
    r->reported_at = now;
}
