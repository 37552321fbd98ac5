/* Builds the index of a text in memory. */
#ifndef MILLRACE_TEST_BUILD_INDEX_H
#define MILLRACE_TEST_BUILD_INDEX_H

#include "archive/sorted_index.h"

#include <assert.h>

static inline struct sorted_index *build_index(struct bytes text)
{
    char error[SORTED_INDEX_ERROR_TEXT];
    struct buf file = {0};
    struct sorted_index_writer *w = sorted_index_writer_new();
    sorted_index_writer_feed(w, text, &file);
    sorted_index_writer_finish(w, 0, &file);
    sorted_index_writer_free(&w);
    struct sorted_index *i = sorted_index_open(buf_bytes(&file), text, 0, error);
    buf_free(&file);
    assert(i);
    return i;
}

#endif
