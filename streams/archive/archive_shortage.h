/* archive_shortage: what an archive is short of, and when the log says so.
 *
 * A shortage of space, descriptors or memory passes, and may come and go many times a minute. The log names it when it begins and
 * once a minute while it lasts, and says when it is over. */
#ifndef MILLRACE_ARCHIVE_SHORTAGE_H
#define MILLRACE_ARCHIVE_SHORTAGE_H

#include "base/clock.h"
#include "streams/archive/archive_state.h"

enum archive_shortage_kind {
    SHORTAGE_TO_WRITE,  /* writes and commits fail */
    SHORTAGE_TO_TAKE,   /* the disk's reserve is all that is left */
    SHORTAGE_TO_FINISH, /* complete files cannot be published */
    SHORTAGE_KINDS,
};

struct archive_shortages {
    bool on[SHORTAGE_KINDS];
    char text[SHORTAGE_KINDS][ARCHIVE_ERROR_TEXT];
    uint64_t begun; /* how many have */
    bool logged;    /* the log's last word is that there is one */
    usec_t log_at;  /* not before */
};

void archive_shortages_set(
    struct archive_shortages *s, enum archive_shortage_kind kind, const char *text, usec_t now);
void archive_shortages_clear(struct archive_shortages *s, enum archive_shortage_kind kind, usec_t now);
void archive_shortages_log(struct archive_shortages *s, usec_t now); /* if it is time to */
/* The most severe; NULL: there is none. */
const char *archive_shortages_text(const struct archive_shortages *s);

#endif
