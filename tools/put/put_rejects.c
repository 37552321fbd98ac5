#include "tools/put/put_rejects.h"

#include "base/line_source.h"
#include "base/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

static int fail(const char *path)
{
    int why = errno;
    progress_leave();
    fprintf(stderr, "millrace put: %s: %s\n", path, strerror(why));
    return -1;
}

int put_rejects_open(struct put_rejects *r, const struct reject_file *file)
{
    *r = (struct put_rejects){.file = *file};
    return !file->path || reject_file_make(file) == 0 ? 0 : fail(file->path);
}

static int keep(struct put_rejects *r, struct bytes line)
{
    bool expired;
    if (reject_file_add(&r->file, line, &expired) != 0) {
        fail(r->file.path);
        return -1;
    }
    if (expired && !r->has_expired) {
        progress_leave();
        fprintf(stderr,
            "millrace put: %s has reached rejects_max_bytes or rejects_max_age: its oldest lines are "
            "deleted\n",
            r->file.path);
        r->has_expired = true;
    }
    return 0;
}

int put_rejects_add(struct put_rejects *r, const struct put_batch_refusal *refusal, const char *file,
    uint64_t offset, usec_t now)
{
    if (r->file.path && keep(r, refusal->line) != 0)
        return EX_IOERR;
    snprintf(r->why, sizeof r->why, "%.*s", (int)refusal->why.len, refusal->why.ptr ? refusal->why.ptr : "");
    if (r->n++ == 0) {
        progress_leave();
        fprintf(stderr,
            "millrace put: the line at byte %" PRIu64 " of %s (%zu bytes) cannot be posted: %.*s\n", offset,
            file, refusal->line.len, (int)refusal->why.len, refusal->why.ptr ? refusal->why.ptr : "");
        if (!r->file.path) {
            fprintf(stderr, "millrace put: use --rejects=FILE to keep such lines and continue\n");
            return EX_DATAERR;
        }
        fprintf(stderr, "millrace put: kept in %s; further lines are reported once a minute\n", r->file.path);
        r->reported = 1;
        r->reported_at = now;
    }
    put_rejects_report(r, now, false);
    return 0;
}

int put_rejects_skip(struct put_rejects *r, const char *file, uint64_t offset, uint64_t length)
{
    progress_leave();
    fprintf(
        stderr, "millrace put: the line at byte %" PRIu64 " of %s is too long to be read (", offset, file);
    if (length > 0)
        fprintf(stderr, "%" PRIu64 " bytes, over %zu)\n", length, LINE_SOURCE_LINE_MAX);
    else
        fprintf(stderr, "no line feed in %zu bytes)\n", LINE_SOURCE_LINE_MAX);
    if (!r->file.path) {
        fprintf(stderr, "millrace put: use --rejects=FILE to skip such lines and continue\n");
        return EX_DATAERR;
    }
    fprintf(stderr, "millrace put: %s; it is not kept in %s\n",
        length > 0 ? "skipped it" : "skipping it to its end", r->file.path);
    r->skipped += length > 0;
    return 0;
}

void put_rejects_report(struct put_rejects *r, usec_t now, bool last)
{
    if (last && r->skipped > 0) {
        progress_leave();
        fprintf(stderr, "millrace put: %" PRIu64 " lines that were too long to be read were skipped\n",
            r->skipped);
    }
    if (!r->file.path || r->n == r->reported || (!last && now - r->reported_at < PUT_REJECTS_REPORT_EVERY))
        return;
    progress_leave();
    fprintf(stderr, "millrace put: %" PRIu64 " refused lines are in %s\n", r->n, r->file.path);
    r->reported = r->n;
    r->reported_at = now;
}
