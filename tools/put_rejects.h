/* put_rejects: the lines that the queue refuses for themselves, kept in a file (lib/base/reject_file.h).
 *
 * Told on standard error: the first at once, the others as a number, at most once a minute.
 *
 * A line that is too long to be read (line_source.h) is not kept: each is told with its place, by which it can be looked at where it stands:
 * when that is found, for it may never end, and when it has ended, with its length. */
#ifndef MILLRACE_PUT_REJECTS_H
#define MILLRACE_PUT_REJECTS_H

#include "base/bytes.h"
#include "base/clock.h"

#define PUT_REJECTS_REPORT_EVERY (60 * USEC_PER_SEC)

struct put_rejects;

struct put_reject {
    struct bytes line, why; /* without LF; what the queue answered */
    const char *file;       /* where it stands */
    uint64_t offset;        /* in that file's unpacked bytes */
};

/* The file is made if there is none. NULL after saying why on standard error. */
struct put_rejects *put_rejects_open(const char *path);
void put_rejects_free(struct put_rejects **r);
/* 0, or an exit status after saying why. */
int put_rejects_add(struct put_rejects *r, const struct put_reject *reject, usec_t now);
/* One that is too long so far; then a line that was passed over, `length` bytes with its LF. */
void put_rejects_begin_pass(const struct put_rejects *r, const char *file, uint64_t offset);
void put_rejects_pass(struct put_rejects *r, const char *file, uint64_t offset, uint64_t length);
/* What was not told yet, when it is time, or in any case with `last`. NULL: there are none. */
void put_rejects_tell(struct put_rejects *r, usec_t now, bool last);
/* One line, which file, where, and why. */
void put_reject_tell(const struct put_reject *reject);
void put_passing_tell(const char *file, uint64_t offset);
void put_passed_tell(const char *file, uint64_t offset, uint64_t length);

#endif
