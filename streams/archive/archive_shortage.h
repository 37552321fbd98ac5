/* archive_shortage: tracks an archive's shortages of space, descriptors or memory, and logs them.
 *
 * A shortage may begin and end many times a minute. The log names a shortage at most once a minute, and its end. */
#ifndef MILLRACE_ARCHIVE_SHORTAGE_H
#define MILLRACE_ARCHIVE_SHORTAGE_H

#include "base/clock.h"
#include "streams/archive/archive_state.h"

enum archive_shortage_kind {
    SHORTAGE_TO_WRITE,  /* writes and commits fail */
    SHORTAGE_TO_TAKE,   /* the next line does not fit on the disk beside the reserve */
    SHORTAGE_TO_FINISH, /* complete files cannot be published */
    SHORTAGE_KINDS,
};

struct archive_shortages {
    bool on[SHORTAGE_KINDS];
    char text[SHORTAGE_KINDS][ARCHIVE_ERROR_TEXT];
    uint64_t begun; /* number of shortages so far */
    bool logged;    /* the log has named a shortage but not its end */
    usec_t log_at;  /* earliest time of the next log line */
};

void archive_shortages_set(
    struct archive_shortages *s, enum archive_shortage_kind kind, const char *text, usec_t now);
void archive_shortages_clear(struct archive_shortages *s, enum archive_shortage_kind kind, usec_t now);
void archive_shortages_log(struct archive_shortages *s, usec_t now); /* if due */
/* Returns the text of the most severe shortage, or NULL. */
const char *archive_shortages_text(const struct archive_shortages *s);

#endif
