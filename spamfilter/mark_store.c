#include "spamfilter/mark_store.h"

#include "base/work_thread.h"

#include <inttypes.h>
#include <stdlib.h>

struct mark_store {
    struct mark_store_config config;
    struct marks marks;
    struct journal_set *set;
    struct journal *journal;
    struct work_thread *thread;
    bool is_syncing;
    struct error sync_error;              /* of the sync in progress; code 0: none */
    STAILQ_HEAD(, mark_change) committed; /* not yet made */
    uint64_t made, synced, syncing;       /* offsets: `syncing` is the end of the sync in progress */
    uint64_t unsynced;                    /* updates */
    usec_t synced_at;
    struct error failure; /* code 0: none */
};

/* Makes the updates of the lines from the offset `start` on. `c` may be NULL. Returns false after a failure. */
static bool make_lines(struct mark_store *s, struct bytes lines, uint64_t start, struct mark_change *c)
{
    for (size_t at = 0; at < lines.len; s->unsynced++) {
        const char *line = lines.ptr + at, *end = memchr(line, '\n', lines.len - at);
        struct mark_update u;
        if (!end || !mark_update_read(bytes_of(line, (size_t)(end - line)), &u)) {
            error_set(&s->failure, FILTER_DAMAGED, "%.500s/journal: no update at offset %" PRIu64,
                s->config.marks.dir, start + at);
            return false;
        }
        at = (size_t)(end + 1 - lines.ptr);
        struct error error;
        enum mark_result r = marks_apply(&s->marks, &u, start + at, &error);
        if (r == MARK_FAILED) {
            s->failure = error;
            return false;
        }
        if (c)
            c->made(c, &u, r);
    }
    s->made = start + lines.len;
    return true;
}

static bool scan(const struct journal_scanned *frame, void *arg)
{
    return make_lines(arg, frame->payload, frame->offset, NULL);
}

static int open_journal(struct mark_store *s, struct error *error)
{
    char *dir = mem_printf("%s/journal", s->config.marks.dir), text[JOURNAL_ERROR_TEXT];
    enum journal_result r =
        journal_open(s->set, &(struct journal_config){.dir = dir, .segment_bytes = s->config.marks.recent},
            &s->journal, text, sizeof text);
    bool is_open = r == JOURNAL_OK;
    if (is_open)
        r = journal_scan(s->journal, journal_earliest(s->journal), scan, s);
    if (r != JOURNAL_OK)
        error_set(error, r == JOURNAL_DAMAGED || r == JOURNAL_VERSION ? FILTER_DAMAGED : FILTER_FAILED,
            "%.500s: %s", dir, is_open ? journal_strerror(r) : text);
    else if (s->failure.code != 0)
        *error = s->failure;
    free(dir);
    return r != JOURNAL_OK || s->failure.code != 0;
}

static void sync_marks(void *ctx, void *arg)
{
    struct mark_store *s = ctx;
    (void)arg;
    s->sync_error.code = 0;
    marks_sync(&s->marks, &s->sync_error);
}

struct mark_store *mark_store_open(const struct mark_store_config *config, struct error *error)
{
    struct mark_store *s = mem_zalloc(sizeof *s);
    s->config = *config;
    STAILQ_INIT(&s->committed);
    s->set = journal_set_new(
        &(struct journal_set_config){.notify = config->notify, .notify_arg = config->notify_arg});
    s->thread = work_thread_new(&(struct work_thread_config){
        .run = sync_marks, .ctx = s, .notify = config->notify, .notify_arg = config->notify_arg});
    if (!s->thread)
        error_errno(error, FILTER_FAILED, "cannot start a thread");
    else if (marks_open(&s->marks, &config->marks, error) == 0 && open_journal(s, error) == 0)
        return s;
    mark_store_close(&s);
    return NULL;
}

/* Makes the committed changes, unless a sync reads the marks. */
static void make_changes(struct mark_store *s)
{
    struct mark_change *c;
    while (!s->is_syncing && (c = STAILQ_FIRST(&s->committed))) {
        STAILQ_REMOVE_HEAD(&s->committed, link);
        bool is_made = s->failure.code == 0 && make_lines(s, buf_bytes(&c->lines), c->start, c);
        c->done(c, is_made ? JOURNAL_OK : JOURNAL_LATCHED);
    }
}

void mark_store_close(struct mark_store **sp)
{
    struct mark_store *s = *sp;
    if (!s)
        return;
    work_thread_free(&s->thread);
    s->is_syncing = false;
    journal_set_free(&s->set);
    make_changes(s);
    marks_close(&s->marks);
    free(s);
    *sp = NULL;
}

static void on_commit(const struct journal_commit *commit, void *arg)
{
    struct mark_change *c = arg;
    c->start = commit->start;
    if (commit->result == JOURNAL_OK)
        STAILQ_INSERT_TAIL(&c->store->committed, c, link);
    else
        c->done(c, commit->result);
}

enum journal_result mark_store_change(struct mark_store *s, struct mark_change *c, usec_t now)
{
    struct bytes lines = buf_bytes(&c->lines);
    c->store = s;
    if (s->failure.code != 0)
        return JOURNAL_LATCHED;
    return journal_append(
        s->journal, &(struct journal_append){.pieces = &lines, .n_pieces = 1}, now, on_commit, c, NULL);
}

/* Frees the updates that neither the marks nor the table `recent` need after a start. */
static void trim(struct mark_store *s)
{
    uint64_t window = s->config.marks.recent, recent = s->made > window ? s->made - window : 0;
    journal_trim(s->journal, recent < s->synced ? recent : s->synced);
}

void mark_store_poll(struct mark_store *s)
{
    if (s->is_syncing && work_thread_done(s->thread)) {
        s->is_syncing = false;
        s->failure = s->sync_error;
        if (s->failure.code == 0) {
            s->synced = s->syncing;
            trim(s);
        }
    }
    journal_set_poll(s->set);
    make_changes(s);
}

void mark_store_tick(struct mark_store *s, usec_t now)
{
    bool is_due = s->unsynced >= MARK_STORE_UNSYNCED || now - s->synced_at >= s->config.sync_every;
    if (s->is_syncing || s->failure.code != 0 || s->unsynced == 0 || !is_due)
        return;
    s->unsynced = 0;
    s->synced_at = now;
    s->syncing = s->made;
    s->is_syncing = true;
    marks_begin_sync(&s->marks, s->made);
    work_thread_start(s->thread, s);
}

struct marks *mark_store_marks(struct mark_store *s)
{
    return &s->marks;
}

const char *mark_store_failure(const struct mark_store *s)
{
    if (s->failure.code != 0)
        return s->failure.text;
    return journal_is_latched(s->journal) ? journal_failure(s->journal) : NULL;
}
