/* journal_marks: a table of producers and their marks. `accepted` moves with an append, `committed` with its commit. */
#ifndef MILLRACE_JOURNAL_MARKS_H
#define MILLRACE_JOURNAL_MARKS_H

#include "base/bytes.h"

struct mark {
    char name[NAME_LEN_MAX];
    uint8_t length; /* 0: an empty slot */
    bool known;     /* a frame of this producer is committed */
    uint64_t accepted, committed;
};
struct marks {
    struct mark *slots; /* open addressing: a power of two, at most half full */
    size_t capacity, count;
};

struct mark *marks_find(const struct marks *m, struct bytes name); /* NULL: none */
struct mark *marks_add(struct marks *m, struct bytes name);        /* finds it, or adds it with mark 0 */
void marks_commit(struct marks *m, struct bytes name, uint64_t mark);
/* Replaces `to` by the committed marks of `from`, which may be the same table. */
void marks_copy(struct marks *to, const struct marks *from);
/* Encodes the committed marks as the payload of a table frame, and decodes it. marks_load replaces all marks; false:
 * malformed. */
void marks_table(const struct marks *m, struct buf *out);
bool marks_load(struct marks *m, struct bytes table);
void marks_free(struct marks *m);

#endif
