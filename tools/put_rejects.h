/* put_rejects: keeps the lines that the queue refuses in a file (lib/base/reject_file.h), and reports them on standard error: the
 * first at once, then their number at most once a minute.
 *
 * A line that is too long to be read (line_source.h) is not kept. It is reported with its place when it is found, since it may never end,
 * and with its length when it has ended. */
#ifndef MILLRACE_PUT_REJECTS_H
#define MILLRACE_PUT_REJECTS_H

#include "base/bytes.h"
#include "base/clock.h"

#define PUT_REJECTS_REPORT_EVERY (60 * USEC_PER_SEC)

struct put_rejects;

struct put_reject {
    struct bytes line, why; /* without LF; the reply of the queue */
    const char *file;       /* that contains the line */
    uint64_t offset;        /* in that file's unpacked bytes */
};

/* Creates the file if needed. NULL after printing the error. */
struct put_rejects *put_rejects_open(const char *path);
void put_rejects_free(struct put_rejects **r);
/* 0, or an exit status after printing the error. */
int put_rejects_add(struct put_rejects *r, const struct put_reject *reject, usec_t now);
/* A line that is too long, before and after its end; `length` includes its LF. */
void put_rejects_skipping(const struct put_rejects *r, const char *file, uint64_t offset);
void put_rejects_skipped(struct put_rejects *r, const char *file, uint64_t offset, uint64_t length);
/* Prints the number of new lines, at most once a minute, or at once with `last`. r may be NULL. */
void put_rejects_report(struct put_rejects *r, usec_t now, bool last);
/* Print one line with file, place and reason. */
void put_reject_print(const struct put_reject *reject);
void put_skipping_print(const char *file, uint64_t offset);
void put_skipped_print(const char *file, uint64_t offset, uint64_t length);

#endif
