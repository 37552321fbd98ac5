/* text_record: a base for sources of counts (count_merge.h) that read records as archive text.
 *
 * The first member of such a source is a text_record. The source's next_record passes each line to text_record_set,
 * and the source's next_value is text_record_next_value. */
#ifndef MILLRACE_TEXT_RECORD_H
#define MILLRACE_TEXT_RECORD_H

#include "counts/count_merge.h"
#include "counts/set_text.h"

struct text_record {
    struct count_source base; /* first */
    struct bytes rest;        /* the part of the record's value that is not yet returned */
    bool has_text;            /* the record is a lookup whose text is not yet returned */
    struct buf text;
    struct set_text set;
};

/* Borrows the line, given without LF. Returns COUNT_FAILED if the line has no separator. */
enum count_next text_record_set(struct text_record *t, struct bytes line);
enum count_next text_record_next_value(struct count_source *base);
/* Frees the memory of the values. */
void text_record_end(struct text_record *t);
/* Fails with the error "CONTAINER: WHAT". */
enum count_next text_record_damaged(struct text_record *t, const char *what);

#endif
