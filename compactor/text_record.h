/* text_record: the part of a source of counts (count_merge.h) that holds a record as archive text.
 *
 * A source that reads text embeds a text_record first. Its next_record sets each line with text_record_set, and its
 * next_value is text_record_next_value. */
#ifndef MILLRACE_TEXT_RECORD_H
#define MILLRACE_TEXT_RECORD_H

#include "counts/count_merge.h"

struct text_record {
    struct count_source base; /* first */
    struct bytes rest;        /* of the record's value, not yet returned */
    bool has_text;            /* the record is a lookup whose text is not yet returned */
    struct buf text;
};

/* Borrows the line, given without LF. Returns COUNT_FAILED if the line has no separator. */
enum count_next text_record_set(struct text_record *t, struct bytes line);
enum count_next text_record_next_value(struct count_source *base);
/* Fails with "CONTAINER: WHAT". */
enum count_next text_record_damaged(struct text_record *t, const char *what);

#endif
