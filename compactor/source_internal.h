/* source_internal: the interface between record_source.c and the two kinds of sources. */
#ifndef MILLRACE_SOURCE_INTERNAL_H
#define MILLRACE_SOURCE_INTERNAL_H

#include "compactor/record_source.h"

struct source_kind {
    enum compact_result (*next)(void *state, struct record_line *out, char error[COMPACT_ERROR_TEXT]);
    void (*close)(void *state);
};

struct record_source *source_new(const struct source_kind *kind, void *state, const char *path);

#endif
