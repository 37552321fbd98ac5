#include "spamfilter/mark_store.h"

#include "base/errno_class.h"
#include "base/io.h"
#include "base/work_thread.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOURNAL_DIR "journals/marks"
#define RESERVE_STEP (UINT64_C(256) << 10)
#define LOCK_POLL 10000 /* microseconds */

struct mark_store {
    struct mark_store_config config;
    struct marks marks;
    struct journal_set *set;
    struct journal *journal;
    struct work_thread *thread;
    bool is_open, is_syncing;
    struct error sync_error; /* of the sync in progress; code 0: none */
    struct mark_load load;
    STAILQ_HEAD(, mark_change) committed;   /* not yet made */
    uint64_t made, syncing;                 /* offsets: all updates before `made` are made */
    uint64_t unsynced;                      /* updates since the last complete sync */
    size_t waiting;                         /* bytes of lines that are not made yet */
    uint64_t waiting_updates, waiting_adds; /* of these lines */
    size_t appending;                       /* changes that the journal has not answered */
    usec_t synced_at;
    int lock;             /* the file `sync.lock` */
    int reserve;          /* the file `reserve` */
    uint64_t reserved;    /* its bytes */
    bool is_full;         /* the last sync has found no space */
    struct error failure; /* code 0: none */
};

/* Waits for the lock of the files. Returns false with the error if the load stops. */
static bool lock_for_load(struct mark_store *s)
{
    while (!s->load.stops && io->flock(s->lock, LOCK_EX | LOCK_NB) != 0)
        usleep(LOCK_POLL);
    if (s->load.stops)
        error_set(&s->load.error, FILTER_FAILED, "interrupted");
    return !s->load.stops;
}

/* The exceptions are in their file before the marks of the load are. */
static void run_load(struct mark_store *s)
{
    struct mark_load *l = &s->load;
    if (!lock_for_load(s))
        return;
    int r = marks_sync(&s->marks, &s->sync_error);
    io->flock(s->lock, LOCK_UN);
    if (r != 0)
        l->error = s->sync_error;
    else if (mark_load_build(l, &s->config.marks, s->syncing) == 0) {
        if (lock_for_load(s))
            mark_load_publish(l, &s->config.marks);
        else
            mark_load_drop(l, &s->config.marks);
    }
}

static void run(void *ctx, void *arg)
{
    struct mark_store *s = ctx;
    (void)arg;
    s->sync_error.code = 0;
    if (s->load.state == MARK_LOAD_RUNNING)
        run_load(s);
    else
        marks_sync(&s->marks, &s->sync_error);
    io->flock(s->lock, LOCK_UN);
}

static void begin(struct mark_store *s)
{
    s->syncing = s->made;
    s->is_syncing = true;
    marks_number(&s->marks, s->made);
    work_thread_start(s->thread, s);
}

static void begin_load(struct mark_store *s, struct bytes name)
{
    s->load = (struct mark_load){.state = MARK_LOAD_RUNNING};
    snprintf(s->load.name, sizeof s->load.name, "%.*s", (int)name.len, name.ptr);
    begin(s);
}

static void end_load(struct mark_store *s)
{
    if (s->load.filter) {
        filter_close(&s->marks.filter);
        s->marks.filter = s->load.filter;
        s->load.filter = NULL;
        s->load.state = MARK_LOAD_DONE;
    } else {
        s->load.state = MARK_LOAD_FAILED;
        if (s->load.is_half)
            s->failure = s->load.error;
    }
}

/* Makes the first update of the lines, which end at the offset `end`, and removes it from the lines. `c` may be NULL. Returns
 * false with the error if the update is not made. */
static bool make_next(
    struct mark_store *s, struct bytes *lines, uint64_t end, struct mark_change *c, struct error *error)
{
    struct bytes line, rest = *lines;
    struct mark_update u;
    if (!bytes_take_line(&rest, &line) || !mark_update_read(line, &u)) {
        error_set(error, FILTER_DAMAGED, "%.500s/" JOURNAL_DIR ": no update at offset %" PRIu64,
            s->config.marks.dir, end - lines->len);
        return false;
    }
    enum mark_result r = marks_apply(&s->marks, &u, end - rest.len, error);
    if (r == MARK_FAILED)
        return false;
    *lines = rest;
    s->made = end - rest.len;
    s->unsynced++;
    if (c)
        c->made(c, &u, r);
    if (c && u.action == MARK_LOAD)
        begin_load(s, u.text);
    return true;
}

static bool scan(const struct journal_scanned *frame, void *arg)
{
    struct mark_store *s = arg;
    struct bytes lines = frame->payload;
    struct error error;
    while (lines.len > 0) {
        if (!make_next(s, &lines, frame->offset + frame->payload.len, NULL, &error)) {
            s->failure = error;
            return false;
        }
    }
    return true;
}

/* Returns 0, or an enum filter_result. */
static int check_journal(const struct mark_store *s, const char *dir, struct error *error)
{
    uint64_t synced = filter_sequence(s->marks.filter);
    if (journal_earliest(s->journal) > synced)
        return error_set(error, FILTER_DAMAGED, "%.500s: begins after the last sync of the marks", dir);
    if (journal_committed_end(s->journal) < synced)
        return error_set(error, FILTER_DAMAGED, "%.500s: ends before the last sync of the marks", dir);
    return 0;
}

static int open_journal(struct mark_store *s, struct error *error)
{
    char *dir = mem_printf("%s/" JOURNAL_DIR, s->config.marks.dir), text[JOURNAL_ERROR_TEXT];
    if (io_make_dirs(dir) != 0) {
        int failed = error_errno(error, FILTER_FAILED, dir);
        free(dir);
        return failed;
    }
    enum journal_result r =
        journal_open(s->set, &(struct journal_config){.dir = dir, .segment_bytes = s->config.marks.recent},
            &s->journal, text, sizeof text);
    int code = 0;
    if (r != JOURNAL_OK)
        code = error_set(
            error, r == JOURNAL_DAMAGED || r == JOURNAL_VERSION ? FILTER_DAMAGED : FILTER_FAILED, "%s", text);
    else
        code = check_journal(s, dir, error);
    if (code == 0 && (r = journal_scan(s->journal, journal_earliest(s->journal), scan, s)) != JOURNAL_OK)
        code = error_set(error, FILTER_FAILED, "%.500s: %s", dir, journal_strerror(r));
    if (code == 0 && s->failure.code == FILTER_DAMAGED) {
        *error = s->failure;
        code = FILTER_DAMAGED;
    }
    free(dir);
    return code;
}

static int open_lock(struct mark_store *s, struct error *error)
{
    char *path = mem_printf("%s/sync.lock", s->config.marks.dir);
    s->lock = io->open(path, O_RDWR | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
    int r = s->lock < 0 ? error_errno(error, FILTER_FAILED, path) : 0;
    free(path);
    return r;
}

static int open_reserve(struct mark_store *s, struct error *error)
{
    struct stat st;
    char *path = mem_printf("%s/reserve", s->config.marks.dir);
    s->reserve = io->open(path, O_RDWR | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
    int r = s->reserve < 0 || fstat(s->reserve, &st) != 0 ? error_errno(error, FILTER_FAILED, path) : 0;
    s->reserved = r == 0 ? (uint64_t)st.st_size : 0;
    free(path);
    return r;
}

/* Extends the file `reserve` to at least this number of bytes. */
static enum filter_result reserve(struct mark_store *s, uint64_t bytes, struct error *error)
{
    uint64_t end = (bytes / RESERVE_STEP + 1) * RESERVE_STEP;
    if (end <= s->reserved)
        return FILTER_OK;
    if (io_extend(s->reserve, (off_t)s->reserved, (off_t)end) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return (enum filter_result)error_errno(
            error, errno_is_full(errno) ? FILTER_NO_SPACE : FILTER_FAILED, "cannot reserve disk space");
    s->reserved = end;
    return FILTER_OK;
}

static void free_reserve(struct mark_store *s)
{
    if (io->ftruncate(s->reserve, 0) == 0)
        s->reserved = 0;
}

struct mark_store *mark_store_open(const struct mark_store_config *config, struct error *error)
{
    struct mark_store *s = mem_zalloc(sizeof *s);
    s->config = *config;
    s->lock = s->reserve = -1;
    STAILQ_INIT(&s->committed);
    s->set = journal_set_new(
        &(struct journal_set_config){.notify = config->notify, .notify_arg = config->notify_arg});
    s->thread = work_thread_new(&(struct work_thread_config){
        .run = run, .ctx = s, .notify = config->notify, .notify_arg = config->notify_arg});
    if (!s->thread)
        error_errno(error, FILTER_FAILED, "cannot start a thread");
    else
        s->is_open = open_lock(s, error) == 0 && marks_open(&s->marks, &config->marks, error) == 0 &&
                     open_reserve(s, error) == 0 && open_journal(s, error) == 0;
    if (!s->is_open)
        mark_store_close(&s);
    return s;
}

static void end_change(struct mark_change *c, enum journal_result r)
{
    c->store->waiting -= c->lines.len;
    c->store->waiting_updates -= c->updates;
    c->store->waiting_adds -= c->adds;
    c->done(c, r);
}

static void finish(struct mark_store *s, struct mark_change *c, enum journal_result r)
{
    STAILQ_REMOVE_HEAD(&s->committed, link);
    end_change(c, r);
}

/* Makes committed updates, unless a sync reads the marks. On a full disk, the updates wait for the next tick. */
static void make_changes(struct mark_store *s)
{
    struct mark_change *c;
    struct error error;
    for (size_t n = 0; (c = STAILQ_FIRST(&s->committed)) && (c->left.len == 0 || !s->is_syncing); n++) {
        if (n == MARK_STORE_TURN) {
            s->config.notify(s->config.notify_arg);
            return;
        }
        if (c->left.len == 0)
            finish(s, c, JOURNAL_OK);
        else if (s->failure.code != 0)
            finish(s, c, JOURNAL_LATCHED);
        else if (!make_next(s, &c->left, c->end, c, &error)) {
            if (error.code == FILTER_NO_SPACE)
                return;
            s->failure = error;
        }
    }
}

void mark_store_close(struct mark_store **sp)
{
    struct mark_store *s = *sp;
    struct mark_change *c;
    struct error ignored;
    if (!s)
        return;
    s->load.stops = true;
    if (work_thread_free(&s->thread) && s->load.state == MARK_LOAD_RUNNING)
        end_load(s);
    journal_set_free(&s->set);
    while ((c = STAILQ_FIRST(&s->committed)))
        finish(s, c, JOURNAL_CLOSED);
    if (s->is_open && s->failure.code == 0 && io->flock(s->lock, LOCK_EX | LOCK_NB) == 0) {
        marks_number(&s->marks, s->made);
        marks_sync(&s->marks, &ignored);
    }
    marks_close(&s->marks);
    if (s->reserve >= 0)
        io->close(s->reserve);
    if (s->lock >= 0)
        io->close(s->lock);
    free(s);
    *sp = NULL;
}

static void on_commit(const struct journal_commit *commit, void *arg)
{
    struct mark_change *c = arg;
    struct mark_store *s = c->store;
    c->left = buf_bytes(&c->lines);
    c->end = commit->end;
    s->appending--;
    if (commit->result == JOURNAL_OK) {
        STAILQ_INSERT_TAIL(&s->committed, c, link);
        return;
    }
    end_change(c, commit->result);
}

static uint64_t count_adds(struct bytes lines)
{
    uint64_t adds = 0;
    struct bytes line;
    while (bytes_take_line(&lines, &line))
        adds += bytes_starts_with(line, BYTES_LITERAL("add "));
    return adds;
}

enum journal_result mark_store_change(struct mark_store *s, struct mark_change *c, usec_t now)
{
    struct bytes lines = buf_bytes(&c->lines);
    struct journal_append append = {.pieces = &lines,
        .n_pieces = lines.len > 0,
        .producer = c->follower,
        .next = c->cursor.offset,
        .tag = c->cursor.tag,
        .sets_mark = c->follower.len > 0};
    struct error error;
    c->store = s;
    if (s->failure.code != 0)
        return JOURNAL_LATCHED;
    if (s->is_full)
        return JOURNAL_NO_SPACE;
    if (s->waiting > MARK_STORE_WAITING_MAX || s->load.state == MARK_LOAD_RUNNING)
        return JOURNAL_BUSY;
    c->adds = count_adds(lines);
    c->updates = bytes_count_lines(lines);
    enum filter_result room = filter_reserve(s->marks.filter, s->waiting_adds + c->adds, &error);
    if (room == FILTER_OK)
        room = reserve(s,
            marks_sync_bytes(
                &s->marks, s->unsynced + s->waiting_updates + c->updates, s->waiting + lines.len),
            &error);
    if (room == FILTER_FAILED)
        s->failure = error;
    if (room != FILTER_OK)
        return room == FILTER_FAILED ? JOURNAL_LATCHED : JOURNAL_NO_SPACE;
    enum journal_result r = journal_append(s->journal, &append, now, on_commit, c, NULL);
    if (r == JOURNAL_OK) {
        s->appending++;
        s->waiting += lines.len;
        s->waiting_updates += c->updates;
        s->waiting_adds += c->adds;
    }
    return r;
}

struct mark_cursor mark_store_cursor(const struct mark_store *s, struct bytes follower)
{
    return (struct mark_cursor){journal_mark(s->journal, follower, NULL), journal_tag(s->journal, follower)};
}

/* Frees the updates that neither the marks nor the table `recent` need after a start. */
static void end_sync(struct mark_store *s)
{
    uint64_t window = s->config.marks.recent;
    s->is_full = false;
    s->unsynced = 0;
    journal_trim(s->journal, s->syncing > window ? s->syncing - window : 0);
    if (s->waiting_updates == 0)
        free_reserve(s);
}

void mark_store_poll(struct mark_store *s)
{
    if (s->is_syncing && work_thread_done(s->thread)) {
        s->is_syncing = false;
        if (s->load.state == MARK_LOAD_RUNNING)
            end_load(s);
        else if (s->sync_error.code == 0)
            end_sync(s);
        else if (s->sync_error.code == FILTER_NO_SPACE)
            s->is_full = true; /* the next sync tries again, with the reserved space */
        else
            s->failure = s->sync_error;
    }
    journal_set_poll(s->set);
    make_changes(s);
}

void mark_store_tick(struct mark_store *s, usec_t now)
{
    bool is_due = s->unsynced >= MARK_STORE_UNSYNCED || now - s->synced_at >= s->config.sync_every;
    make_changes(s);
    bool is_ready = !s->is_full || s->appending + s->waiting_updates == 0;
    if (s->is_syncing || s->failure.code != 0 || s->unsynced == 0 || !is_due || !is_ready ||
        io->flock(s->lock, LOCK_EX | LOCK_NB) != 0)
        return;
    if (s->is_full)
        free_reserve(s);
    s->synced_at = now;
    begin(s);
}

struct marks *mark_store_marks(struct mark_store *s)
{
    return &s->marks;
}

const struct mark_load *mark_store_load(const struct mark_store *s)
{
    return &s->load;
}

const char *mark_store_failure(const struct mark_store *s)
{
    if (s->failure.code != 0)
        return s->failure.text;
    return journal_is_latched(s->journal) ? journal_failure(s->journal) : NULL;
}
