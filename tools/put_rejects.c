#include "tools/put_rejects.h"

#include "tools/line_source.h"
#include "base/progress.h"
#include "base/reject_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

struct put_rejects {
    char *path;
    uint64_t n, reported;
    uint64_t skipped; /* lines over LINE_SOURCE_LINE_MAX */
    usec_t reported_at;
};

static void fail(const struct put_rejects *r)
{
    int system = errno;
    progress_leave();
    fprintf(stderr, "millrace put: %s: %s\n", r->path, strerror(system));
}

struct put_rejects *put_rejects_open(const char *path)
{
    struct put_rejects *r = mem_zalloc(sizeof *r);
    r->path = mem_strdup(path);
    if (reject_file_make(path) != 0) {
        fail(r);
        put_rejects_free(&r);
    }
    return r;
}

void put_rejects_free(struct put_rejects **rp)
{
    if (*rp == NULL)
        return;
    free((*rp)->path);
    free(*rp);
    *rp = NULL;
}

void put_reject_print(const struct put_reject *reject)
{
    progress_leave();
    fprintf(stderr, "millrace put: the queue refuses the line at byte %" PRIu64 " of %s (%zu bytes): %.*s\n",
        reject->offset, reject->file, reject->line.len, (int)reject->why.len,
        reject->why.ptr != NULL ? reject->why.ptr : "");
}

int put_rejects_add(struct put_rejects *r, const struct put_reject *reject, usec_t now)
{
    if (reject_file_add(r->path, reject->line) != 0) {
        fail(r);
        return EX_IOERR;
    }
    if (r->n++ == 0) {
        put_reject_print(reject);
        fprintf(stderr, "millrace put: kept in %s; further lines are reported once a minute\n", r->path);
        r->reported = 1;
        r->reported_at = now;
    }
    put_rejects_report(r, now, false);
    return 0;
}

void put_skipping_print(const char *file, uint64_t offset)
{
    progress_leave();
    fprintf(stderr,
        "millrace put: the line at byte %" PRIu64
        " of %s is too long to be read (no line feed in %zu bytes)\n",
        offset, file, LINE_SOURCE_LINE_MAX);
}

void put_rejects_skipping(const struct put_rejects *r, const char *file, uint64_t offset)
{
    put_skipping_print(file, offset);
    fprintf(stderr, "millrace put: skipping it to its end; it is not kept in %s\n", r->path);
}

void put_skipped_print(const char *file, uint64_t offset, uint64_t length)
{
    progress_leave();
    fprintf(stderr,
        "millrace put: the line at byte %" PRIu64 " of %s is too long to be read (%" PRIu64
        " bytes, over %zu)\n",
        offset, file, length, LINE_SOURCE_LINE_MAX);
}

void put_rejects_skipped(struct put_rejects *r, const char *file, uint64_t offset, uint64_t length)
{
    r->skipped++;
    put_skipped_print(file, offset, length);
    fprintf(stderr, "millrace put: skipped it; it is not in %s\n", r->path);
}

void put_rejects_report(struct put_rejects *r, usec_t now, bool last)
{
    if (r != NULL && last && r->skipped > 0) {
        progress_leave();
        fprintf(stderr, "millrace put: %" PRIu64 " lines that were too long to be read were skipped\n",
            r->skipped);
    }
    if (r == NULL || r->n == r->reported || (!last && now - r->reported_at < PUT_REJECTS_REPORT_EVERY))
        return;
    progress_leave();
    fprintf(stderr, "millrace put: %" PRIu64 " lines that the queue refused are in %s\n", r->n, r->path);
    r->reported = r->n;
    r->reported_at = now;
}
