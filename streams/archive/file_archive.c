#include "streams/archive/file_archive.h"

#include "streams/archive/archive_lock.h"
#include "streams/archive/archive_part.h"
#include "base/io.h"
#include "base/log.h"
#include "streams/archive/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define NAME_TEXT 4096
#define MINUTE 60
#define HOUR 3600
/* So many spans of time are remembered, each in its own place. */
#define SPANS 1024
/* Files that wait to be finished. */
#define FINISHING_MAX 32
/* The part, the packed file or the manifest, a directory: of each that is being finished. */
#define FINISHER_DESCRIPTORS 3
/* Two locks, the new state, a directory that is being synced. */
#define OWN_DESCRIPTORS 4
/* Finished at once: most of it is waiting for syncs, which the disk does together. */
#define FINISHERS 4
/* Each try packs the whole file again, so want of room is waited out, longer with each try in vain: by the file that was tried,
 * whatever others find room, and by all of them until one has been finished. */
#define FINISH_RETRY (1 * USEC_PER_SEC)
#define FINISH_RETRY_MAX (30 * USEC_PER_SEC)
/* Wants that come and go are told of so often. */
#define TELL_AGAIN (60 * USEC_PER_SEC)
/* So much is kept free where the files are, of a small file system a part. */
#define RESERVE ((uint64_t)1 << 20)
#define RESERVE_PART 16
/* After a commit that met want of something. */
#define COMMIT_RETRY (200 * USEC_PER_MSEC)

/* Something that passes is lacking. */
struct want {
    bool on;
    char text[ARCHIVE_ERROR_TEXT];
};

/* What the committing thread gets and gives back. */
struct commit {
    struct archive_state state; /* to be written */
    int *fds;                   /* to be synced first */
    size_t n_fds;
    const char **paths; /* and the directories in which these are, each once */
    size_t n_paths;
    bool names_only; /* the committed state again, and the names of new files */
    int error;       /* errno; 0: done */
    bool sync_failed;
};

struct finishing {
    const struct file_archive *archive;
    struct worker *worker;
    struct archive_part *part; /* NULL: none */
    char id[STREAM_ID_TEXT];
    bool wanting;
    int rc;
    char error[ARCHIVE_ERROR_TEXT];
};

/* Which file the times of a span go to. */
struct span {
    struct archive_span times;
    struct archive_part *part; /* NULL: not known; one that is no longer open takes none */
    bool known;
};

struct file_archive {
    struct file_archive_config config;
    char *state_path, *format, *directory, stream[NAME_LEN_MAX + 1];
    struct stream_cursor cursor, begun; /* of the first state, until there is one */
    struct archive_state committed;
    struct archive_part **parts; /* by their beginning */
    size_t n_parts;
    struct worker *committer;
    struct commit commit;
    struct finishing finishing[FINISHERS];
    bool committing, changed; /* a commit is under way; there is something to commit */
    bool has_state, at_once;  /* the next state does not wait for commit_every */
    usec_t changed_at, now;
    usec_t finish_at, commit_at; /* not before */
    usec_t finish_pause;         /* of all files since the last try, which was in vain; 0: it was not */
    int lock_fd, names_fd;
    struct want to_write, to_finish; /* of what writes and commits need, and of what finishing does */
    struct want to_take;             /* room for more lines */
    bool was_full;  /* there was no room for lines: what waits is finished before more come */
    bool told;      /* that something is lacking, and not yet that there is enough */
    usec_t tell_at; /* not before */
    bool failed;
    char failure[ARCHIVE_ERROR_TEXT];
    struct file_archive_numbers numbers;
    char named[NAME_TEXT]; /* the name made last */
    struct span spans[SPANS];
};

static void note_change(struct file_archive *a)
{
    if (!a->changed)
        a->changed_at = a->now;
    a->changed = true;
}

static void set_failed(struct file_archive *a, const char *text)
{
    if (!a->failed)
        log_error("storage failed: nothing more is written", LOG_S("why", text));
    snprintf(a->failure, sizeof a->failure, "%s", text);
    a->failed = true;
}

static bool is_wanting(const struct file_archive *a)
{
    return a->to_write.on || a->to_take.on || a->to_finish.on;
}

static const char *what_is_wanted(const struct file_archive *a)
{
    const struct want *w = a->to_write.on ? &a->to_write : a->to_take.on ? &a->to_take : &a->to_finish;
    return w->on ? w->text : NULL;
}

/* When it begins and once a minute while it lasts, no more often when it comes and goes; and when it ends, if it was told. */
static void tell_wants(struct file_archive *a)
{
    if (is_wanting(a) && a->now >= a->tell_at) {
        log_error("waiting for room, descriptors or memory", LOG_S("why", what_is_wanted(a)));
        a->tell_at = a->now + TELL_AGAIN;
        a->told = true;
    }
    if (!is_wanting(a) && a->told) {
        log_info("there is enough again");
        a->told = false;
    }
}

static void set_want(struct file_archive *a, struct want *w, const char *text)
{
    snprintf(w->text, sizeof w->text, "%s", text);
    a->numbers.wants += !w->on;
    w->on = true;
    tell_wants(a);
}

static void set_trouble(struct file_archive *a, struct want *w, bool passes, const char *text)
{
    if (passes)
        set_want(a, w, text);
    else
        set_failed(a, text);
}

/* The format is the user's, and strftime reads no arguments by it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static bool make_name(struct file_archive *a, int64_t when)
{
    time_t t = (time_t)when;
    struct tm tm;
    return (a->config.local_time ? localtime_r(&t, &tm) : gmtime_r(&t, &tm)) != NULL &&
           strftime(a->named, sizeof a->named, a->format, &tm) > 0;
}
#pragma GCC diagnostic pop

/* A time that no calendar has (and a name that is too long) leaves the format as it stands. */
static const char *name_of_time(struct file_archive *a, int64_t when)
{
    if (!make_name(a, when))
        snprintf(a->named, sizeof a->named, "%s", a->format);
    return a->named;
}

/* Within an hour of UTC no name changes and back, nor within a minute of a zone, whose clocks may be set back right after
 * midnight: where the first and the last second have one name, all have. */
static int64_t span_length(const struct file_archive *a)
{
    return a->config.local_time ? MINUTE : HOUR;
}

static struct archive_span make_span(struct file_archive *a, int64_t when)
{
    int64_t first = when - when % span_length(a);
    struct archive_span s = {.first = first, .last = first + span_length(a) - 1};
    char *begin = mem_strdup(name_of_time(a, s.first));
    bool one_name = strcmp(begin, name_of_time(a, s.last)) == 0;
    free(begin);
    return one_name ? s : (struct archive_span){.first = when, .last = when};
}

/* In its place, where it may be new. */
static struct span *span_of_time(struct file_archive *a, int64_t when)
{
    struct span *s = &a->spans[(uint64_t)when / (uint64_t)span_length(a) % SPANS];
    if (!s->known || when < s->times.first || when > s->times.last)
        *s = (struct span){.times = make_span(a, when), .known = true};
    return s;
}

struct archive_span file_archive_span_of(struct file_archive *a, int64_t time)
{
    return span_of_time(a, time)->times;
}

static bool is_ours(const struct file_archive *a, const char *name)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (strcmp(a->parts[i]->state.name, name) == 0)
            return true;
    return false;
}

/* The part that was just added. A file without a name keeps its descriptor until it has one, so it is made only when this leaves
 * one to all others that need it: each open one, and each that has it still. */
static bool may_be_nameless(const struct file_archive *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_parts; i++)
        n += a->parts[i]->stage == PART_OPEN || a->parts[i]->fd >= 0;
    return n <= a->config.max_open;
}

static char *free_name(const struct file_archive *a, const char *period)
{
    struct buf name = {0};
    for (unsigned n = 0; n == 0 || is_ours(a, name.ptr) || archive_name_is_taken(name.ptr); n++) {
        buf_clear(&name);
        buf_printf(&name, n == 0 ? "%s" : "%s.%u", period, n);
    }
    return name.ptr;
}

static struct archive_part *begin_part(struct file_archive *a, const char *period)
{
    char *name = free_name(a, period);
    struct archive_part *p = archive_part_new(name, period, a->cursor.offset);
    free(name);
    a->parts = mem_realloc(a->parts, (a->n_parts + 1) * sizeof *a->parts);
    a->parts[a->n_parts++] = p;
    if (may_be_nameless(a))
        archive_part_make_nameless(p);
    /* Its file waits for the commit that names it, or its lines do in memory. */
    a->config.wake(a->config.arg);
    return p;
}

static void close_part(struct file_archive *a, struct archive_part *p)
{
    p->stage = PART_CLOSED;
    p->state.finishing = true;
    note_change(a);
}

static size_t count_stage(const struct file_archive *a, int stage)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_parts; i++)
        n += a->parts[i]->stage == (unsigned)stage;
    return n;
}

static void close_idlest(struct file_archive *a)
{
    struct archive_part *idlest = NULL;
    for (size_t i = 0; i < a->n_parts; i++)
        if (a->parts[i]->stage == PART_OPEN &&
            (idlest == NULL || a->parts[i]->last_taken < idlest->last_taken))
            idlest = a->parts[i];
    close_part(a, idlest);
}

static struct archive_part *find_part(struct file_archive *a, const char *period)
{
    for (size_t i = a->n_parts; i-- > 0;)
        if (a->parts[i]->stage == PART_OPEN && strcmp(a->parts[i]->state.period, period) == 0)
            return a->parts[i];
    if (!a->config.by_event_time)
        file_archive_roll(a);
    else if (count_stage(a, PART_OPEN) >= a->config.max_open)
        close_idlest(a);
    return begin_part(a, period);
}

static struct archive_part *part_of_time(struct file_archive *a, int64_t when)
{
    struct span *s = span_of_time(a, when);
    if (s->part == NULL || s->part->stage != PART_OPEN)
        s->part = find_part(a, name_of_time(a, when));
    return s->part;
}

static bool is_want_of_room(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* Finished files are what gives room, as those who take them away do: the first that there is goes into their manifests and
 * packed files, or lines would fill the disk again and again with complete files that nobody may take. */
static bool finishes_first(const struct file_archive *a)
{
    return a->was_full && count_stage(a, PART_SETTLED) + count_stage(a, PART_FINISHING) > 0;
}

static bool is_want_of_descriptors(int error)
{
    return error == EMFILE || error == ENFILE;
}

/* One that needs no more than a sync for it. */
static struct archive_part *with_idle_descriptor(const struct file_archive *a)
{
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        if (p->stage == PART_CLOSED && p->fd >= 0 && !p->nameless && !p->syncing &&
            archive_part_unwritten(p) == 0)
            return p;
    }
    return NULL;
}

/* False: there is none to be had, or the sync failed, which is told here. */
static bool free_descriptor(struct file_archive *a)
{
    char text[ARCHIVE_ERROR_TEXT];
    struct archive_part *p = with_idle_descriptor(a);
    if (p == NULL)
        return false;
    if (p->unsynced && io->fdatasync(p->fd) != 0) {
        snprintf(text, sizeof text, "a sync: %s", strerror(errno));
        set_failed(a, text);
        return false;
    }
    p->unsynced = false;
    archive_part_close(p);
    return true;
}

/* Somebody else was quicker to make a file of this name: its lines wait for the commit that names another. */
static void take_other_name(struct file_archive *a, struct archive_part *p)
{
    char *name = free_name(a, p->state.period);
    free(p->state.name);
    p->state.name = name;
    p->named = false;
    note_change(a);
    a->config.wake(a->config.arg);
}

/* -1: not all of it is written. */
static int write_part(struct file_archive *a, struct archive_part *p)
{
    char error[ARCHIVE_ERROR_TEXT];
    size_t before = archive_part_unwritten(p);
    int rc, failed = 0;
    do
        rc = archive_part_write(p, error) == 0 ? 0 : (failed = errno, -1);
    while (rc != 0 && is_want_of_descriptors(failed) && free_descriptor(a));
    a->was_full = a->was_full || (rc != 0 && is_want_of_room(failed));
    if (rc != 0 && failed == EEXIST)
        take_other_name(a, p);
    else if (rc != 0 && !a->failed)
        set_trouble(a, &a->to_write, archive_is_want(failed), error);
    a->numbers.pending -= before - archive_part_unwritten(p);
    return rc;
}

/* What is worth a write is written before its bytes go; the rest, and what cannot be written, waits in memory. */
static void write_or_keep(struct file_archive *a, struct archive_part *p)
{
    bool worth = p->taken.bytes >= ARCHIVE_PART_PIECE || archive_part_unwritten(p) >= ARCHIVE_PART_BUFFER;
    if (worth && archive_part_has_file(p) && !a->to_write.on && !a->failed)
        write_part(a, p);
    else
        archive_part_keep(p);
}

void file_archive_write(struct file_archive *a)
{
    for (size_t i = 0; i < a->n_parts && !a->to_write.on && !finishes_first(a) && !a->failed; i++)
        write_part(a, a->parts[i]);
}

bool file_archive_has_state(const struct file_archive *a)
{
    return a->has_state;
}

void file_archive_make_state(struct file_archive *a)
{
    note_change(a);
    a->at_once = true;
}

void file_archive_begin(struct file_archive *a, const struct stream_cursor *at)
{
    a->cursor = a->begun = *at;
    note_change(a);
    a->at_once = true;
}

/* What was taken is to have room when it is written, and then the state and the manifests too. */
static void reserve_room(struct file_archive *a)
{
    struct statvfs fs;
    char text[ARCHIVE_ERROR_TEXT];
    if (statvfs(a->directory, &fs) != 0)
        return;
    uint64_t all = (uint64_t)fs.f_blocks * fs.f_frsize, free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t reserve = all / RESERVE_PART < RESERVE ? all / RESERVE_PART : RESERVE;
    if (all == 0 || free_bytes >= a->numbers.pending + reserve) {
        a->to_take.on = false;
        tell_wants(a);
        return;
    }
    snprintf(text, sizeof text, "%.300s: %s: %llu kB are kept for what was taken", a->directory,
        strerror(ENOSPC), (unsigned long long)(reserve >> 10));
    set_want(a, &a->to_take, text);
}

static void take_run(struct file_archive *a, const struct archive_run *run)
{
    struct archive_part *p = part_of_time(a, run->time);
    if (p->state.lines == 0)
        p->state.first = a->cursor.offset;
    a->cursor.offset += run->lines.len;
    archive_part_take(p, run->lines, run->n, a->cursor.offset);
    p->last_taken = a->now;
    a->numbers.bytes += run->lines.len;
    a->numbers.pending += run->lines.len;
}

void file_archive_take(struct file_archive *a, const struct archive_run *runs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        take_run(a, &runs[i]);
    for (size_t i = 0; i < a->n_parts; i++)
        if (a->parts[i]->taken.n > 0)
            write_or_keep(a, a->parts[i]);
    if (a->numbers.pending >= a->config.max_pending / 2)
        file_archive_write(a);
    reserve_room(a);
    note_change(a);
}

void file_archive_roll(struct file_archive *a)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (a->parts[i]->stage == PART_OPEN)
            close_part(a, a->parts[i]);
}

void file_archive_gap(struct file_archive *a, uint64_t after)
{
    file_archive_roll(a);
    a->cursor.offset = after;
    note_change(a);
}

static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* Its names, and its own, which may have been made by a life that was killed. */
static int sync_directory_of(const char *path)
{
    size_t n = directory_length(path);
    char *directory = n > 1 ? bytes_dup(bytes_of(path, n - 1)) : NULL;
    int rc = directory != NULL ? io_sync_name(directory) : 0;
    free(directory);
    return rc == 0 ? io_sync_parent(path) : -1;
}

/* The disk is told of all before one is waited for: so they are fewer than one after another. What is told promises nothing. */
static int sync_files(const struct commit *c)
{
    for (size_t i = 0; i < c->n_fds && c->n_fds > 1; i++)
        (void)sync_file_range(c->fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
    for (size_t i = 0; i < c->n_fds; i++)
        if (io->fdatasync(c->fds[i]) != 0)
            return -1;
    for (size_t i = 0; i < c->n_paths; i++)
        if (sync_directory_of(c->paths[i]) != 0)
            return -1;
    return 0;
}

static void run_commit(void *arg)
{
    struct file_archive *a = arg;
    struct commit *c = &a->commit;
    c->sync_failed = sync_files(c) != 0;
    c->error = c->sync_failed ? errno : 0;
    if (c->error == 0 && archive_state_write(a->state_path, &c->state) != 0)
        c->error = errno;
}

static void start_commit(struct file_archive *a)
{
    memcpy(a->commit.state.stream, a->stream, sizeof a->stream);
    a->committing = true;
    a->at_once = false;
    worker_start(a->committer, run_commit, a);
}

static bool has_new_part(const struct file_archive *a)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (!a->parts[i]->named)
            return true;
    return false;
}

static bool is_named(const struct file_archive *a, const char *name)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (a->parts[i]->named && strcmp(a->parts[i]->state.name, name) == 0)
            return true;
    return false;
}

/* The committed cursor and lengths again, and the new files, empty. */
static void commit_names(struct file_archive *a)
{
    a->commit = (struct commit){.names_only = true};
    a->commit.state.cursor = a->committed.cursor.id[0] != '\0' ? a->committed.cursor : a->begun;
    for (size_t i = 0; i < a->committed.n_files; i++)
        if (is_named(
                a, a->committed.files[i].name)) /* else it got another name, and a new one perhaps this */
            archive_state_add(&a->commit.state, &a->committed.files[i]);
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_file_state s = a->parts[i]->state;
        s.length = s.lines = 0;
        s.end = s.first;
        s.finishing = false;
        if (!a->parts[i]->named)
            archive_state_add(&a->commit.state, &s);
    }
    start_commit(a);
}

static void add_directory_of(struct commit *c, const char *path)
{
    size_t n = directory_length(path);
    for (size_t i = 0; i < c->n_paths; i++)
        if (directory_length(c->paths[i]) == n && memcmp(c->paths[i], path, n) == 0)
            return;
    c->paths[c->n_paths++] = path;
}

static void sync_part(struct commit *c, struct archive_part *p)
{
    if (p->unsynced)
        c->fds[c->n_fds++] = p->fd;
    if (p->unsynced_name)
        add_directory_of(c, p->state.name);
    p->syncing = p->unsynced;
    p->syncing_name = p->unsynced_name;
    p->unsynced = p->unsynced_name = false;
}

/* What was not synced after all still is to be. */
static void end_syncs(struct file_archive *a, bool done)
{
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        p->unsynced = p->unsynced || (p->syncing && !done);
        p->unsynced_name = p->unsynced_name || (p->syncing_name && !done);
        p->syncing = p->syncing_name = false;
    }
}

/* Everything taken so far: all of it is written before the cursor is told. */
static int commit_all(struct file_archive *a)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (write_part(a, a->parts[i]) != 0)
            return -1;
    a->commit = (struct commit){.names_only = false};
    a->commit.state.cursor = a->cursor;
    a->commit.fds = mem_alloc((a->n_parts + 1) * sizeof *a->commit.fds);
    a->commit.paths = mem_alloc((a->n_parts + 1) * sizeof *a->commit.paths);
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        if (p->stage == PART_FINISHED)
            p->stage = PART_DROPPED;
        if (p->stage != PART_DROPPED)
            archive_state_add(&a->commit.state, &p->state);
        sync_part(&a->commit, p);
    }
    a->changed = false;
    start_commit(a);
    return 0;
}

static struct archive_part *part_named(struct file_archive *a, const char *name)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (strcmp(a->parts[i]->state.name, name) == 0)
            return a->parts[i];
    return NULL;
}

/* The safe state knows them no more. Before that their names must not be given again: an empty file that was removed leaves
 * no trace on the disk, and a new one of its name would be taken for it, also by the next life. */
static void forget_dropped(struct file_archive *a)
{
    size_t kept = 0;
    for (size_t i = 0; i < SPANS; i++)
        a->spans[i].part = NULL;
    for (size_t i = 0; i < a->n_parts; i++) {
        if (a->parts[i]->stage == PART_DROPPED)
            archive_part_free(&a->parts[i]);
        else
            a->parts[kept++] = a->parts[i];
    }
    a->n_parts = kept;
}

/* What the safe state says of each file. */
static void settle(struct file_archive *a)
{
    for (size_t i = 0; i < a->committed.n_files; i++) {
        const struct archive_file_state *s = &a->committed.files[i];
        struct archive_part *p = part_named(a, s->name);
        if (p == NULL)
            continue;
        p->named = true;
        if (p->stage != PART_CLOSED || !s->finishing || s->length != p->state.length)
            continue;
        p->stage = PART_SETTLED;
        archive_part_close(p);
    }
}

/* Those that the safe state names. */
static void name_files(struct file_archive *a)
{
    for (size_t i = 0; i < a->n_parts && !a->to_write.on && !finishes_first(a) && !a->failed; i++)
        if (a->parts[i]->named && a->parts[i]->nameless)
            write_part(a, a->parts[i]);
}

static void free_syncs(struct commit *c)
{
    free(c->fds);
    free(c->paths);
}

/* No sync ends with EMFILE or ENFILE: then a directory could not be opened, and nothing has failed that was to be safe. */
static bool commit_only_wants(const struct commit *c)
{
    return c->sync_failed ? is_want_of_descriptors(c->error) : archive_is_want(c->error);
}

static void commit_failed(struct file_archive *a)
{
    struct commit *c = &a->commit;
    char text[ARCHIVE_ERROR_TEXT];
    snprintf(text, sizeof text, "%s: %s", c->sync_failed ? "a sync" : a->state_path, strerror(c->error));
    note_change(a);
    a->was_full = a->was_full || is_want_of_room(c->error);
    a->commit_at = a->now + COMMIT_RETRY;
    set_trouble(a, &a->to_write, commit_only_wants(c), text);
    while (is_want_of_descriptors(c->error) && free_descriptor(a))
        continue;
    archive_state_free(&c->state);
}

static void finish_commit(struct file_archive *a)
{
    struct commit *c = &a->commit;
    a->committing = false;
    free_syncs(c);
    end_syncs(a, c->error == 0);
    if (c->error != 0) {
        commit_failed(a);
        return;
    }
    a->to_write.on = false;
    tell_wants(a);
    a->has_state = true;
    archive_state_free(&a->committed);
    a->committed = c->state;
    c->state = (struct archive_state){.n_files = 0};
    a->numbers.commits++;
    settle(a);
    name_files(a);
    if (!c->names_only)
        forget_dropped(a);
}

static void run_finish(void *arg)
{
    struct finishing *f = arg;
    struct archive_finish_spec spec = {.file = &f->part->state,
        .stream = f->archive->stream,
        .id = f->id,
        .compression = f->archive->config.compression,
        .may_be_named = f->part->tried};
    f->rc = archive_finish(&spec, &f->wanting, f->error);
}

static void wait_longer(usec_t now, usec_t *pause, usec_t *until)
{
    usec_t next = *pause == 0 ? FINISH_RETRY : 2 * *pause;
    *pause = next < FINISH_RETRY_MAX ? next : FINISH_RETRY_MAX;
    *until = now + *pause;
}

/* Those that were tried beside it are one try of all. */
static void could_not_finish(struct file_archive *a, struct finishing *f, struct archive_part *p)
{
    set_trouble(a, &a->to_finish, f->wanting, f->error);
    if (a->config.compression != ARCHIVE_PLAIN)
        a->was_full = false; /* no manifest: lines may have room where a packed file never has */
    free(p->lacks);
    p->lacks = mem_strdup(f->error);
    wait_longer(a->now, &p->finish_pause, &p->finish_at);
    if (a->now >= a->finish_at)
        wait_longer(a->now, &a->finish_pause, &a->finish_at);
}

/* It lasts while any file is left that lacks something. */
static void end_want_to_finish(struct file_archive *a)
{
    a->to_finish.on = false;
    for (size_t i = 0; i < a->n_parts && !a->to_finish.on; i++)
        if (a->parts[i]->lacks != NULL) {
            a->to_finish.on = true;
            snprintf(a->to_finish.text, sizeof a->to_finish.text, "%s", a->parts[i]->lacks);
        }
    tell_wants(a);
}

static void has_finished(struct file_archive *a, struct archive_part *p)
{
    free(p->lacks);
    p->lacks = NULL;
    a->finish_pause = a->finish_at = 0;
    end_want_to_finish(a);
    p->stage = PART_FINISHED;
    note_change(a);
    if (p->state.lines == 0)
        return;
    log_info("finished", LOG_S("file", p->state.name), LOG_U("lines", p->state.lines),
        LOG_U("bytes", p->state.length));
    a->numbers.lines += p->state.lines;
    a->numbers.finished++;
}

static void take_finished(struct file_archive *a, struct finishing *f)
{
    struct archive_part *p = f->part;
    f->part = NULL;
    p->tried = true;
    if (f->rc == 0) {
        has_finished(a, p);
        return;
    }
    p->stage = PART_SETTLED;
    could_not_finish(a, f, p);
}

/* A manifest needs as little for each, so one that found room tells that there is some for all. */
static bool may_be_tried(const struct file_archive *a, const struct archive_part *p)
{
    return a->now >= p->finish_at || (a->was_full && a->config.compression == ARCHIVE_PLAIN);
}

/* Where room is lacking the shortest: it needs least, and what it gives back may do for another. */
static struct archive_part *next_to_finish(const struct file_archive *a)
{
    struct archive_part *next = NULL;
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        bool better = next == NULL || (a->finish_pause > 0 && p->state.length < next->state.length);
        if (p->stage == PART_SETTLED && may_be_tried(a, p) && better)
            next = p;
    }
    return next;
}

static void start_finishing(struct file_archive *a, struct finishing *f)
{
    f->part = next_to_finish(a);
    if (f->part == NULL)
        return;
    f->part->stage = PART_FINISHING;
    memcpy(f->id, a->cursor.id, sizeof f->id);
    worker_start(f->worker, run_finish, f);
}

/* Where room is lacking one at a time, so that none takes what another needs. */
static void finish_parts(struct file_archive *a)
{
    for (int i = 0; i < FINISHERS; i++) {
        if (a->finish_pause > 0 && count_stage(a, PART_FINISHING) > 0)
            return;
        if (a->finishing[i].part == NULL && a->now >= a->finish_at)
            start_finishing(a, &a->finishing[i]);
    }
}

static void take_all_finished(struct file_archive *a)
{
    for (int i = 0; i < FINISHERS; i++)
        if (a->finishing[i].part != NULL && worker_is_idle(a->finishing[i].worker))
            take_finished(a, &a->finishing[i]);
}

/* More than max_open are open after a crash that came between the closing of some and the commit that would have said so:
 * they would keep the archive full, and no line would come that closes one. */
static void close_what_is_over(struct file_archive *a, usec_t wall)
{
    while (count_stage(a, PART_OPEN) > a->config.max_open)
        close_idlest(a);
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        if (p->stage != PART_OPEN)
            continue;
        bool over = a->config.by_event_time
                        ? a->now - p->last_taken >= a->config.close_after
                        : strcmp(name_of_time(a, wall / USEC_PER_SEC), p->state.period) != 0;
        if (over)
            close_part(a, p);
    }
}

static bool commit_is_urgent(const struct file_archive *a)
{
    return a->at_once || a->to_write.on || count_stage(a, PART_CLOSED) > 0 ||
           count_stage(a, PART_FINISHED) > 0 || a->numbers.pending >= a->config.max_pending;
}

static void start_due_commit(struct file_archive *a)
{
    if (has_new_part(a))
        commit_names(a);
    else if (a->changed && (commit_is_urgent(a) || a->now - a->changed_at >= a->config.commit_every))
        commit_all(a);
}

void file_archive_tick(struct file_archive *a, usec_t wall, usec_t monotonic)
{
    a->now = monotonic;
    tell_wants(a);
    reserve_room(a);
    if (a->committing && worker_is_idle(a->committer))
        finish_commit(a);
    take_all_finished(a);
    close_what_is_over(a, wall);
    if (a->failed)
        return;
    if (!a->committing && a->now >= a->commit_at && !finishes_first(a))
        start_due_commit(a);
    finish_parts(a);
    a->was_full = a->was_full && (a->to_write.on || finishes_first(a));
}

int file_archive_flush(struct file_archive *a)
{
    while (!a->failed) {
        worker_wait(a->committer);
        if (a->committing)
            finish_commit(a);
        if (a->to_write.on)
            return -1;
        if (has_new_part(a))
            commit_names(a);
        else if (!a->changed)
            return 0;
        else if (commit_all(a) != 0 && !has_new_part(a))
            return -1;
    }
    return -1;
}

static int recover(struct file_archive *a, char *error)
{
    int found = archive_state_read(a->state_path, &a->committed, error);
    a->has_state = found > 0;
    if (found <= 0)
        return found;
    if (strcmp(a->committed.stream, a->stream) != 0) {
        snprintf(error, ARCHIVE_ERROR_TEXT, "%s: it is of the stream %s, not %s", a->state_path,
            a->committed.stream, a->stream);
        return -1;
    }
    a->cursor = a->committed.cursor;
    a->parts = mem_zalloc((a->committed.n_files + 1) * sizeof *a->parts);
    for (size_t i = 0; i < a->committed.n_files; i++) {
        a->parts[i] = archive_part_recover(&a->committed.files[i], error);
        if (a->parts[i] == NULL)
            return -1;
        a->parts[i]->last_taken = a->now;
        a->n_parts++;
    }
    return 0;
}

size_t file_archive_descriptors(size_t max_open)
{
    return max_open + FINISHERS * FINISHER_DESCRIPTORS + OWN_DESCRIPTORS;
}

struct file_archive *file_archive_open(
    const struct file_archive_config *config, usec_t monotonic, char error[ARCHIVE_ERROR_TEXT])
{
    struct file_archive *a = mem_zalloc(sizeof *a);
    a->config = *config;
    a->config.max_open = config->by_event_time ? config->max_open : 1;
    a->now = monotonic;
    a->lock_fd = a->names_fd = -1;
    a->state_path = mem_strdup(config->state_path);
    a->format = mem_strdup(config->format);
    size_t fixed = archive_fixed_directory(a->format);
    a->directory = fixed > 0 ? bytes_dup(bytes_of(a->format, fixed)) : mem_strdup(".");
    snprintf(a->stream, sizeof a->stream, "%s", config->stream);
    a->committer = worker_new(config->wake, config->arg);
    for (int i = 0; i < FINISHERS; i++)
        a->finishing[i] = (struct finishing){.archive = a, .worker = worker_new(config->wake, config->arg)};
    a->lock_fd = archive_lock_state(a->state_path, error);
    if (a->lock_fd >= 0)
        a->names_fd = archive_lock_names(a->format, a->state_path, error);
    if (a->names_fd < 0 || recover(a, error) != 0)
        file_archive_close(&a);
    return a;
}

void file_archive_close(struct file_archive **ap)
{
    struct file_archive *a = *ap;
    if (a == NULL)
        return;
    worker_free(&a->committer);
    for (int i = 0; i < FINISHERS; i++)
        worker_free(&a->finishing[i].worker);
    if (a->committing) {
        free_syncs(&a->commit);
        archive_state_free(&a->commit.state);
    }
    archive_state_free(&a->committed);
    for (size_t i = 0; i < a->n_parts; i++)
        archive_part_free(&a->parts[i]);
    free(a->parts);
    if (a->names_fd >= 0)
        io->close(a->names_fd);
    if (a->lock_fd >= 0)
        io->close(a->lock_fd);
    free(a->state_path);
    free(a->format);
    free(a->directory);
    free(a);
    *ap = NULL;
}

const struct stream_cursor *file_archive_cursor(const struct file_archive *a)
{
    return &a->cursor;
}

const struct stream_cursor *file_archive_committed(const struct file_archive *a)
{
    return &a->committed.cursor;
}

bool file_archive_is_full(const struct file_archive *a)
{
    return a->to_write.on || a->to_take.on || a->failed || finishes_first(a) ||
           a->numbers.pending > a->config.max_pending || a->n_parts > a->config.max_open + FINISHING_MAX;
}

const char *file_archive_trouble(const struct file_archive *a, bool *final)
{
    *final = a->failed;
    if (a->failed)
        return a->failure;
    return what_is_wanted(a);
}

struct file_archive_numbers file_archive_numbers(const struct file_archive *a)
{
    struct file_archive_numbers n = a->numbers;
    n.open = count_stage(a, PART_OPEN);
    n.finishing = a->n_parts - n.open;
    n.wanting = is_wanting(a);
    return n;
}
