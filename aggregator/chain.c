#include "aggregator/chain.h"

#include "base/io.h"
#include "base/log.h"
#include "counts/manifest.h"
#include "counts/slice.h"
#include "counts/slice_files.h"
#include "counts/rejects.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct opening {
    const struct chain_config *config;
    struct manifest manifest; /* zeroed if there is no archive, so that `through` is 0 */
    struct slice_range slices;
    /* state of the newest slice; number 0: there is no slice, or its creation was interrupted */
    struct slice_state newest;
    struct error *error;
};

void chain_next_free(struct chain_next *next)
{
    free(next->cursors);
    *next = (struct chain_next){0};
}

/* Refuses slices and an archive of different ages. Appends to the error the commands with which counting can continue.
 * Without slices, counting begins at the archive's end; the follower refuses if lines after this end have expired. */
static enum slice_result refuse_copies(const struct opening *o)
{
    const char *slices = o->config->slices_dir, *rejects = o->config->rejects_dir;
    return error_set(o->error, SLICE_FOREIGN,
        "%s; the slices or the archive are an old copy. Restore the slices and the archive from one backup, "
        "or count again from the archive's end: mkdir %s.old && mv %s %s %s.old",
        o->error->text, slices, slices, rejects, slices);
}

/* Finds the slices. The numbers must be consecutive, and the first slice must not be after slice `through` + 1. */
static enum slice_result find_slices(struct opening *o)
{
    const char *dir = o->config->slices_dir, *archive = o->config->archive;
    struct slice_range *found = &o->slices;
    if (slice_files_find(dir, 0, found) != 0)
        return error_set(o->error, SLICE_FAILED, "cannot read %s: %s", dir, strerror(errno));
    uint64_t missing = slice_files_missing(dir, found->first, found->last);
    if (found->last > 0 && missing > 0)
        return error_set(o->error, SLICE_FOREIGN, "slice %" PRIu64 " is missing from %.400s", missing, dir);
    if (!archive || found->first <= o->manifest.through + 1)
        return SLICE_OK;
    error_set(o->error, SLICE_FOREIGN,
        "the archive %.100s includes slices up to %" PRIu64 ", but the oldest slice in %.100s is %" PRIu64,
        archive, o->manifest.through, dir, found->first);
    return refuse_copies(o);
}

/* Deletes the log that an interrupted clear has left. */
static enum slice_result complete_clear(const struct opening *o)
{
    uint64_t cleared = o->slices.first > 0 ? o->slices.first - 1 : o->manifest.through;
    if (cleared == 0 || cleared > o->manifest.through)
        return SLICE_OK;
    char *path = slice_path(o->config->slices_dir, cleared);
    enum slice_result r = slice_unlink(path) == 0 ? SLICE_OK : error_errno(o->error, SLICE_FAILED, path);
    free(path);
    return r;
}

static enum slice_result read_manifest(const char *archive, struct manifest *m, struct error *error)
{
    struct error why;
    *m = (struct manifest){0};
    if (!archive)
        return SLICE_OK;
    enum manifest_result r = manifest_read_current(archive, m, &why);
    if (r == MANIFEST_OK) {
        /* Syncs the archive, because a killed compactor may have switched `current` without a sync. */
        struct buf path = {0};
        buf_printf(&path, "%s/current", archive);
        buf_append_char(&path, '\0');
        int failed = io_sync_name(path.ptr);
        buf_free(&path);
        return failed ? error_set(error, SLICE_FAILED, "cannot sync %.400s: %s", archive, strerror(errno))
                      : SLICE_OK;
    }
    if (r == MANIFEST_ABSENT)
        return SLICE_OK;
    return error_set(error, r == MANIFEST_VERSION ? SLICE_VERSION : SLICE_FAILED,
        "cannot read which slices the archive includes: %s", why.text);
}

void chain_archive_free(struct chain_archive *known)
{
    value_sums_free(&known->sums);
    *known = (struct chain_archive){0};
}

enum slice_result chain_renew_archive(const char *archive, struct chain_archive *known, struct error *error)
{
    struct manifest m;
    uint64_t generation;
    if (known->is_read && manifest_current(archive, &generation, NULL) == MANIFEST_OK &&
        generation == known->generation)
        return SLICE_OK;
    enum slice_result r = read_manifest(archive, &m, error);
    if (r == SLICE_OK) {
        chain_archive_free(known);
        *known = (struct chain_archive){true, m.generation, m.through, value_sums_copy(&m.sums)};
    }
    manifest_free(&m);
    return r;
}

static enum slice_result check_counters(const struct opening *o, const char *what, const char *text)
{
    struct bytes line = counters_conflict(text, o->config->counters->text);
    if (line.len == 0)
        return SLICE_OK;
    return error_set(o->error, SLICE_DIFFERENT,
        "%.200s was counted under other counters: `%.*s` is defined differently now; give the counter a new "
        "name",
        what, (int)(line.len > 200 ? 200 : line.len), line.ptr);
}

/* Compares the cursors with the positions in the manifest. If a stream was never read or is not in the manifest, any
 * position is accepted. */
static enum slice_result check_meeting(const struct manifest *m, uint64_t slice, const char *verb,
    const struct slice_cursor *cursors, size_t n, struct error *error)
{
    for (size_t k = 0; k < m->n_streams; k++) {
        const struct manifest_stream *s = &m->streams[k];
        const struct slice_cursor *c = slice_cursors_find(cursors, n, s->name);
        if (!c || s->id[0] == '\0' || (strcmp(s->id, c->id) == 0 && s->end == c->offset))
            continue;
        return error_set(error, SLICE_FOREIGN,
            "slice %" PRIu64 " %s in stream %s at %" PRIu64 " of %s, but in the archive at %" PRIu64
            " of %s: slices and archive do not belong together",
            slice, verb, s->name, c->offset, c->id, s->end, s->id);
    }
    return SLICE_OK;
}

enum slice_result chain_archived(
    const char *archive, const struct sealed *sealed, uint64_t *through, struct error *error)
{
    struct manifest m;
    enum slice_result r = read_manifest(archive, &m, error);
    const struct sealed_slice *last = sealed_find(sealed, m.through);
    if (r == SLICE_OK && last) {
        r = check_meeting(&m, m.through, "ends", last->state.cursors, last->state.n_cursors, error);
    } else if (r == SLICE_OK && sealed->n > 0 && m.through >= sealed->slices[0].state.number) {
        r = error_set(error, SLICE_FOREIGN,
            "the current archive includes slice %" PRIu64 ", which was never sealed here", m.through);
    }
    *through = m.through;
    manifest_free(&m);
    return r;
}

static enum slice_result check_follows(
    const struct opening *o, const struct slice_state *before, const struct slice_state *next)
{
    for (size_t i = 0; i < before->n_cursors; i++) {
        const struct slice_cursor *end = &before->cursors[i];
        const struct slice_cursor *begin = slice_cursors_find(next->begins, next->n_begins, end->stream);
        if (begin && strcmp(begin->id, end->id) == 0 && begin->offset == end->offset)
            continue;
        return error_set(o->error, SLICE_FOREIGN,
            "slice %" PRIu64 " in %.200s does not begin where slice %" PRIu64
            " ends in stream %s: one of these slices "
            "is an old copy",
            next->number, o->config->slices_dir, before->number, end->stream);
    }
    return SLICE_OK;
}

static enum slice_result check_state(const struct opening *o, const struct slice_state *s)
{
    char *path = slice_path(o->config->slices_dir, s->number);
    enum slice_result r = check_counters(o, path, s->counters);
    free(path);
    if (r == SLICE_OK && s->sealed && s->number == o->manifest.through)
        r = check_meeting(&o->manifest, s->number, "ends", s->cursors, s->n_cursors, o->error);
    if (r == SLICE_OK && s->number == o->manifest.through + 1)
        r = check_meeting(&o->manifest, s->number, "begins", s->begins, s->n_begins, o->error);
    return r == SLICE_FOREIGN ? refuse_copies(o) : r;
}

/* Seals the newest slice without further counts. Lines after the slice's last transaction count into the next slice. */
static enum slice_result seal_as_it_is(const struct opening *o, const char *path)
{
    const struct slice_state *at = &o->newest;
    const struct slice_config c = {.path = path, .number = at->number, .counters_text = at->counters};
    struct slice_written written;
    struct slice *slice;
    enum slice_result r = slice_open(&c, &slice, o->error);
    if (r != SLICE_OK)
        return r;
    const struct slice_state *state = slice_committed(slice);
    const struct slice_batch last = {
        .tally = state->tally, .rejects_length = state->rejects_length, .seal = true};
    struct rejects *rejects = NULL;
    if (rejects_open(o->config->rejects_dir, state->number, state->rejects_length, &rejects) != 0)
        r = error_set(o->error, SLICE_FAILED, "cannot open the rejects in %.300s: %s", o->config->rejects_dir,
            errno == ERANGE ? "shorter than recorded" : strerror(errno));
    rejects_close(&rejects);
    if (r == SLICE_OK)
        r = slice_merge_abandon(slice, o->error);
    if (r == SLICE_OK)
        r = slice_commit(slice, &last, &written, o->error);
    slice_close(&slice);
    return r;
}

static enum slice_result take_in(const struct opening *o, uint64_t number, struct sealed *sealed)
{
    char *path = slice_path(o->config->slices_dir, number);
    struct slice_state state;
    struct slice_reader *reader = NULL;
    enum slice_result r = slice_look(path, number, &state, o->error);
    if (r == SLICE_OK && !state.sealed)
        r = error_set(o->error, SLICE_FOREIGN, "%.400s is not sealed, but a later slice exists", path);
    if (r == SLICE_OK)
        r = slice_reader_open_sealed(path, &reader, o->error);
    slice_state_free(&state);
    if (r == SLICE_OK)
        sealed_add(sealed, path, reader);
    free(path);
    if (r != SLICE_OK)
        return r;
    const struct slice_state *last = &sealed->slices[sealed->n - 1].state;
    r = check_state(o, last);
    if (r == SLICE_OK && sealed->n > 1)
        r = check_follows(o, &sealed->slices[sealed->n - 2].state, last);
    return r;
}

void chain_follow(const struct sealed *sealed, struct chain_next *next)
{
    const struct slice_state *last = &sealed->slices[sealed->n - 1].state;
    *next = (struct chain_next){.number = last->number + 1,
        .quarters_since = last->quarters_since,
        .n_cursors = last->n_cursors,
        .before = {last->tally.events + last->before.events, last->tally.skipped + last->before.skipped,
            last->tally.rejected + last->before.rejected}};
    next->cursors = mem_zalloc((last->n_cursors + 1) * sizeof *next->cursors);
    if (last->n_cursors > 0)
        memcpy(next->cursors, last->cursors, last->n_cursors * sizeof *next->cursors);
}

/* Sets the time from which the open slice counts by quarter hour, which an open slice of these counters has already. */
static enum slice_result set_quarters(
    const struct opening *o, const struct sealed *sealed, struct chain_next *next)
{
    int64_t since = o->manifest.quarters_since, newest = o->manifest.newest_hour;
    for (size_t i = 0; i < sealed->n; i++) {
        const struct slice_state *s = &sealed->slices[i].state;
        if (since == 0 || (s->quarters_since > 0 && s->quarters_since < since))
            since = s->quarters_since;
        newest = s->newest_hour > newest ? s->newest_hour : newest;
    }
    if (!o->config->counters->has_quarters && since > 0)
        return error_set(o->error, SLICE_DIFFERENT,
            "events were counted by quarter hour, so set [input] resolution = 15m; to count by hour again, "
            "begin with "
            "an empty data directory and an empty archive");
    if (o->config->counters->has_quarters && since == 0)
        since = newest > 0 ? newest + SECONDS_PER_HOUR : HOUR_FIRST;
    next->quarters_since = since;
    return SLICE_OK;
}

/* True if the open slice cannot count on: the counters changed, or a recount counted by quarter hour from an earlier
 * time. */
static bool must_turn(const struct opening *o)
{
    int64_t since = o->manifest.quarters_since;
    return strcmp(o->newest.counters, o->config->counters->text) != 0 ||
           (since > 0 && since < o->newest.quarters_since);
}

enum slice_result chain_open(
    const struct chain_config *config, struct sealed *sealed, struct chain_next *next, struct error *error)
{
    struct opening o = {.config = config, .error = error};
    const struct manifest *m = &o.manifest;
    *next = (struct chain_next){0};
    enum slice_result r = read_manifest(config->archive, &o.manifest, error);
    if (r == SLICE_OK && m->counters)
        r = check_counters(&o, config->archive, m->counters);
    if (r == SLICE_OK && m->retired)
        r = check_counters(&o, config->archive, m->retired);
    if (r == SLICE_OK)
        r = find_slices(&o);
    if (r == SLICE_OK)
        r = complete_clear(&o);
    if (r == SLICE_OK && o.slices.last > 0) {
        uint64_t number = o.slices.last;
        char *path = slice_path(config->slices_dir, number);
        r = slice_look(path, number, &o.newest, error);
        if (r == SLICE_OK && o.newest.number > 0)
            r = check_state(&o, &o.newest);
        if (r == SLICE_OK && o.newest.number > 0 && !o.newest.sealed && must_turn(&o)) {
            log_info("the counters changed; sealing the open slice", LOG_U("slice", o.newest.number));
            r = seal_as_it_is(&o, path);
            o.newest.sealed = r == SLICE_OK;
        }
        free(path);
    }
    bool has_open = o.slices.last > 0 && !o.newest.sealed;
    for (uint64_t n = o.slices.first; n > 0 && n + has_open <= o.slices.last && r == SLICE_OK; n++)
        r = take_in(&o, n, sealed);
    if (r == SLICE_OK && has_open && o.newest.number > 0 && sealed->n > 0)
        r = check_follows(&o, &sealed->slices[sealed->n - 1].state, &o.newest);
    if (r == SLICE_OK && sealed->n > 0) {
        chain_follow(sealed, next);
    } else if (r == SLICE_OK) {
        *next = (struct chain_next){.number = has_open ? o.slices.last : m->through + 1};
        next->cursors = mem_zalloc((m->n_streams + 1) * sizeof *next->cursors);
        for (; next->n_cursors < m->n_streams; next->n_cursors++) {
            const struct manifest_stream *s = &m->streams[next->n_cursors];
            struct slice_cursor *c = &next->cursors[next->n_cursors];
            snprintf(c->stream, sizeof c->stream, "%s", s->name);
            snprintf(c->id, sizeof c->id, "%s", s->id);
            c->offset = s->end;
            c->until = s->name[0] == '.' ? 0 : m->until * USEC_PER_SEC;
        }
    }
    if (r == SLICE_OK)
        r = set_quarters(&o, sealed, next);
    if (r == SLICE_OK && next->number <= m->through) {
        error_set(error, SLICE_FOREIGN,
            "slice %" PRIu64
            " in %.100s is open, but the archive %.100s already includes slices up to %" PRIu64,
            next->number, config->slices_dir, config->archive, m->through);
        r = refuse_copies(&o);
    }
    manifest_free(&o.manifest);
    slice_state_free(&o.newest);
    return r;
}
