#include "compactor/record_source.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum compact_result record_source_open_slice(const char *path, struct slice_reader **out, struct error *error)
{
    struct stat st;
    bool exists = stat(path, &st) == 0;
    if (!exists && errno == ENOENT)
        return error_set(error, COMPACT_REFUSED,
            "%.300s is missing, and the archive's current generation does not include this slice. If the "
            "slice "
            "was cleared: " MANIFEST_BEHIND_REMEDY ". Otherwise check the setting slices",
            path);
    if (!exists)
        return error_errno(error, COMPACT_FAILED, path);
    switch (slice_reader_open_sealed(path, out, error)) {
    case SLICE_OK:
        return COMPACT_OK;
    case SLICE_DAMAGED:
    case SLICE_FOREIGN:
        return error->code = COMPACT_DAMAGED;
    case SLICE_FULL:
    case SLICE_FAILED:
        return error->code = COMPACT_FAILED;
    case SLICE_UNSEALED:
    case SLICE_VERSION:
    case SLICE_DIFFERENT:
        break;
    }
    return error->code = COMPACT_REFUSED;
}

static struct manifest_stream *streams_of(const struct slice_cursor *cursors, size_t n, size_t *n_streams)
{
    struct manifest_stream *list = mem_zalloc((n + 1) * sizeof *list);
    *n_streams = 0;
    for (size_t i = 0; i < n; i++) {
        if (cursors[i].id[0] == '\0')
            continue;
        struct manifest_stream *s = &list[(*n_streams)++];
        snprintf(s->name, sizeof s->name, "%s", cursors[i].stream);
        snprintf(s->id, sizeof s->id, "%s", cursors[i].id);
        s->end = cursors[i].offset;
    }
    return list;
}

/* Returns the least time of all streams, in seconds. A stream that was not read yet is included, because the stream
 * may have uncounted events. */
static int64_t least_until(const struct slice_state *state)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < state->n_cursors; i++)
        if (state->cursors[i].stream[0] != '.' && state->cursors[i].until < least)
            least = state->cursors[i].until;
    return least > 0 && least < INT64_MAX ? least / USEC_PER_SEC : 0;
}

enum compact_result slice_facts_read(const char *path, struct slice_facts *out, struct error *error)
{
    struct slice_reader *reader = NULL;
    *out = (struct slice_facts){0};
    enum compact_result r = record_source_open_slice(path, &reader, error);
    if (r != COMPACT_OK)
        return r;
    const struct slice_state *state = slice_reader_state(reader);
    out->number = state->number;
    out->started = state->started;
    out->quarters_since = state->quarters_since;
    out->newest_hour = state->newest_hour;
    out->until = least_until(state);
    out->counters = mem_strdup(state->counters);
    out->sums = value_sums_copy(&state->sums);
    out->streams = streams_of(state->cursors, state->n_cursors, &out->n_streams);
    out->begins = streams_of(state->begins, state->n_begins, &out->n_begins);
    for (size_t i = 0; i < state->n_runs; i++)
        out->bytes += state->runs[i].bytes;
    slice_reader_close(&reader);
    return COMPACT_OK;
}

void slice_facts_free(struct slice_facts *f)
{
    free(f->counters);
    value_sums_free(&f->sums);
    free(f->streams);
    free(f->begins);
    *f = (struct slice_facts){0};
}
