#include "backup/backup.h"

#include "backup/block_copy.h"
#include "backup/counts_copy.h"
#include "backup/journal_copy.h"
#include "backup/filter_copy.h"
#include "base/clock.h"
#include "base/io.h"
#include "lists/list_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ATTEMPTS 5
#define ATTEMPT_PAUSE (200 * USEC_PER_MSEC)
#define PINS ".backup"
#define QUEUE_ID_FILE "queue-id"
#define CURSORS_READS 100

const char *const backup_place_names[BACKUP_PLACES] = {
    "simplequeue", "pubsub", "aggregator", "spamfilter", "lists", "metricdb", "ruler", "archive"};

struct journals {
    struct journal_copy *list;
    size_t n, room;
};

struct backup {
    const struct backup_spec *spec;
    struct error *error;
    char *temporary; /* spec->to with the suffix ".tmp" */
    char *stages
        [BACKUP_PLACES];      /* directory in `temporary`, or PLACE/.backup; NULL: the place does not exist */
    int locks[BACKUP_PLACES]; /* descriptors that lock the places; -1: not locked */
    bool is_ours;             /* this process has created `temporary` */
    struct journals queues, streams, marks, lists;
    struct counts_copy counts;
    struct backup_manifest manifest;
    uint64_t total, done; /* numbers of bytes, for on_progress */
};

static void progress(struct backup *b, const char *step)
{
    if (b->spec->on_progress)
        b->spec->on_progress(step, b->done, b->total, b->spec->arg);
}

static void free_journals(struct journals *js)
{
    for (size_t i = 0; i < js->n; i++)
        journal_copy_free(&js->list[i]);
    free(js->list);
    *js = (struct journals){0};
}

static const struct journal_copy *find_journal(const struct journals *js, const char *name)
{
    for (size_t i = 0; i < js->n; i++)
        if (strcmp(js->list[i].name, name) == 0)
            return &js->list[i];
    return NULL;
}

/* Pins (journal_copy.h) every journal in PLACE/KIND that is not pinned yet. */
static enum backup_result pin_journals(
    struct backup *b, enum backup_place place, const char *kind, struct journals *js)
{
    enum backup_result r = BACKUP_OK;
    if (!b->stages[place])
        return r;
    char *dir = tree_path(b->spec->places[place], kind), *stage = tree_path(b->stages[place], kind);
    DIR *d = opendir(dir);
    if (!d && errno != ENOENT)
        r = backup_fail_errno(b->error, dir);
    for (struct dirent *e; d && r == BACKUP_OK && (e = readdir(d));) {
        if (!bytes_is_name(bytes_str(e->d_name)) || find_journal(js, e->d_name))
            continue;
        struct journal_copy *c = ARRAY_ADD(js->list, js->n, js->room);
        char *source = tree_path(dir, e->d_name), *target = tree_path(stage, e->d_name);
        journal_copy_init(c, e->d_name, source, target);
        c->is_queue = place == BACKUP_SIMPLEQUEUE;
        r = journal_copy_pin(c, b->error);
        free(source);
        free(target);
    }
    if (d)
        closedir(d);
    free(dir);
    free(stage);
    return r;
}

/* Copies pubsub's file of cursors. pubsub may write to the file during the copy, so the file is copied until a second
 * read returns the same bytes. */
static enum backup_result copy_cursors(struct backup *b)
{
    struct tree_file first, second;
    struct tree_copy all = {.max_bytes = UINT64_MAX};
    if (!b->stages[BACKUP_PUBSUB])
        return BACKUP_OK;
    char *from = tree_path(b->spec->places[BACKUP_PUBSUB], "cursors");
    char *to = tree_path(b->stages[BACKUP_PUBSUB], "cursors");
    enum backup_result r = tree_make_parent(to, b->error);
    bool is_there = access(from, F_OK) == 0,
         is_same = false; /* the file is missing if pubsub has no cursors */
    for (int i = 0; r == BACKUP_OK && is_there && !is_same && i < CURSORS_READS; i++) {
        io->unlink(to);
        r = tree_copy(from, to, &all, &first, b->error);
        if (r == BACKUP_OK)
            r = tree_copy(from, NULL, &all, &second, b->error);
        is_same = r == BACKUP_OK && first.bytes == second.bytes && first.xxh3 == second.xxh3;
    }
    if (r == BACKUP_OK && is_there && !is_same)
        r = error_set(
            b->error, BACKUP_CHANGED, "%.600s changed during each of %d reads", from, CURSORS_READS);
    free(from);
    free(to);
    return r;
}

/* Copies the files of a daemon with `copy`. The daemon's journal is pinned before the files and extended after them, so that the
 * copy of the journal has all updates that the files do not have. */
static enum backup_result copy_place(struct backup *b, enum backup_place place, struct journals *js,
    enum backup_result (*copy)(const char *from, const char *to, struct error *error))
{
    enum backup_result r = pin_journals(b, place, "journals", js);
    if (r == BACKUP_OK && js->n > 0)
        r = copy(b->spec->places[place], b->stages[place], b->error);
    for (size_t i = 0; r == BACKUP_OK && i < js->n; i++)
        r = journal_copy_extend(&js->list[i], NULL, NULL, b->error);
    return r;
}

static enum backup_result copy_lists(const char *from, const char *to, struct error *error)
{
    static const enum backup_result results[] = {[LISTS_OK] = BACKUP_OK,
        [LISTS_NO_SPACE] = BACKUP_FULL,
        [LISTS_DAMAGED] = BACKUP_DAMAGED,
        [LISTS_FAILED] = BACKUP_FAILED};
    enum backup_result r = results[list_store_copy(from, to, error)];
    if (r != BACKUP_OK)
        error->code = r;
    return r;
}

/* Links the ruler's file of alerts and silences, which the ruler only replaces. The queues are copied later, so that they
 * have every message that this file calls sent. */
static enum backup_result link_alerts(struct backup *b)
{
    if (!b->stages[BACKUP_RULER])
        return BACKUP_OK;
    char *from = tree_path(b->spec->places[BACKUP_RULER], "state.json"),
         *to = tree_path(b->stages[BACKUP_RULER], "state.json");
    enum backup_result r = tree_make_parent(to, b->error);
    if (r == BACKUP_OK && access(from, F_OK) == 0)
        r = tree_link(from, to, b->error);
    free(from);
    free(to);
    return r;
}

/* Extends the copies of all streams. A filter publishes from a source stream to another stream, with offsets of the
 * source as marks. The copy of a source stream must therefore extend at least to the marks in the other streams. */
static enum backup_result extend_streams(struct backup *b)
{
    enum backup_result r = BACKUP_OK;
    for (size_t i = 0; r == BACKUP_OK && i < b->streams.n; i++)
        r = journal_copy_extend(&b->streams.list[i], NULL, NULL, b->error);
    for (bool again = true; again && r == BACKUP_OK;) {
        again = false;
        for (size_t i = 0; r == BACKUP_OK && i < b->streams.n; i++) {
            struct journal_copy *source = &b->streams.list[i];
            uint64_t needed = 0, had = source->end.offset;
            for (size_t k = 0; k < b->streams.n; k++) {
                uint64_t mark = journal_copy_mark(&b->streams.list[k], source->id);
                needed = mark > needed ? mark : needed;
            }
            if (needed > had)
                r = journal_copy_extend(source, NULL, NULL, b->error);
            again = again || source->end.offset > had;
        }
    }
    return r;
}

/* Determines the end of the copy of a queue, see is_beyond. */
struct queue_limit {
    const struct journals *streams;
    uint64_t published; /* the copied streams contain the messages before this id */
};

/* Returns true if the copy of a queue must end before the frame: if the frame removes a message that the copied streams
 * do not contain, or adds messages made from lines that the copied streams do not contain. */
static bool is_beyond(const struct frame *f, void *arg)
{
    const struct queue_limit *limit = arg;
    for (size_t i = 0; f->name.len > 0 && i < limit->streams->n; i++) {
        const struct journal_copy *s = &limit->streams->list[i];
        if (bytes_starts_with(f->name, bytes_str(s->id)) && s->id[0] && f->mark > s->end.offset)
            return true;
    }
    return journal_copy_removes(f, limit->published);
}

/* Copies the file queue-id, and sets `id` to the id of the queue. The id of the queue differs from the id of its
 * journal if the queue is a copy with a new id. */
static enum backup_result read_queue_id(
    struct backup *b, const struct journal_copy *c, char id[JOURNAL_ID_TEXT])
{
    char *from = tree_path(c->source, QUEUE_ID_FILE), *to = tree_path(c->stage, QUEUE_ID_FILE);
    char text[2 * JOURNAL_ID_TEXT] = "";
    struct tree_file copied;
    enum backup_result r =
        tree_copy(from, to, &(struct tree_copy){.max_bytes = UINT64_MAX}, &copied, b->error);
    snprintf(id, JOURNAL_ID_TEXT, "%s", c->id);
    int fd = r == BACKUP_OK ? io->open(to, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd >= 0 && io->pread(fd, text, sizeof text, 0) == sizeof text &&
        memcmp(text + JOURNAL_ID_TEXT, c->id, JOURNAL_ID_TEXT - 1) == 0)
        snprintf(id, JOURNAL_ID_TEXT, "%.*s", JOURNAL_ID_TEXT - 1, text);
    if (fd >= 0)
        io->close(fd);
    free(from);
    free(to);
    return r == BACKUP_CHANGED ? BACKUP_OK : r; /* most queues have no file queue-id */
}

static enum backup_result extend_queues(struct backup *b)
{
    enum backup_result r = BACKUP_OK;
    for (size_t i = 0; r == BACKUP_OK && i < b->queues.n; i++) {
        struct journal_copy *c = &b->queues.list[i];
        struct queue_limit limit = {.streams = &b->streams};
        char id[JOURNAL_ID_TEXT];
        r = read_queue_id(b, c, id);
        for (size_t k = 0; k < b->streams.n; k++) {
            uint64_t published = journal_copy_mark(&b->streams.list[k], id);
            limit.published = published > limit.published ? published : limit.published;
        }
        if (r == BACKUP_OK)
            r = journal_copy_extend(c, is_beyond, &limit, b->error);
        if (r == BACKUP_OK && c->newest > 0 && c->next_id < limit.published)
            r = error_set(b->error, BACKUP_CHANGED,
                "queue %s: a stream has newer messages than the copied queue", c->name);
    }
    return r;
}

static enum backup_result cut_journals(struct backup *b, struct journals *js)
{
    enum backup_result r = BACKUP_OK;
    for (size_t i = 0; r == BACKUP_OK && i < js->n; i++)
        r = journal_copy_cut(&js->list[i], b->error);
    return r;
}

/* Called while the open slice is being copied. Links new segments of the streams before retention deletes them. */
static void follow_streams(void *arg)
{
    struct backup *b = arg;
    for (size_t i = 0; i < b->streams.n; i++)
        journal_copy_follow(&b->streams.list[i]);
}

/* Copies the parts of the pipeline in the order that docs/internals/backup.md proves to be correct. */
static enum backup_result copy_in_order(struct backup *b)
{
    enum backup_result r;
    progress(b, "copy");
    if ((r = pin_journals(b, BACKUP_PUBSUB, "streams", &b->streams)) == BACKUP_OK &&
        (r = copy_cursors(b)) == BACKUP_OK && (r = counts_copy(&b->counts, b->error)) == BACKUP_OK &&
        (r = copy_place(b, BACKUP_SPAMFILTER, &b->marks, filter_copy)) == BACKUP_OK &&
        (r = copy_place(b, BACKUP_LISTS, &b->lists, copy_lists)) == BACKUP_OK &&
        (!b->stages[BACKUP_METRICDB] || (r = block_copy(b->spec->places[BACKUP_METRICDB],
                                             b->stages[BACKUP_METRICDB], b->error)) == BACKUP_OK) &&
        (r = link_alerts(b)) == BACKUP_OK &&
        (r = pin_journals(b, BACKUP_SIMPLEQUEUE, "queues", &b->queues)) == BACKUP_OK &&
        (r = pin_journals(b, BACKUP_PUBSUB, "streams", &b->streams)) == BACKUP_OK &&
        (r = extend_streams(b)) == BACKUP_OK && (r = extend_queues(b)) == BACKUP_OK) {
        progress(b, "verify");
        r = cut_journals(b, &b->streams);
    }
    if (r == BACKUP_OK)
        r = cut_journals(b, &b->queues);
    if (r == BACKUP_OK)
        r = cut_journals(b, &b->marks);
    if (r == BACKUP_OK)
        r = cut_journals(b, &b->lists);
    if (r == BACKUP_OK && b->counts.aggregator)
        r = counts_copy_verify(&b->counts, b->error);
    return r;
}

static bool is_elsewhere(const struct backup *b, size_t place)
{
    return b->stages[place] && strncmp(b->stages[place], b->temporary, strlen(b->temporary)) != 0;
}

/* Removes the stages of this or a killed process, including the stages in `temporary` if `with_temporary` is true. */
static enum backup_result remove_stages(struct backup *b, bool with_temporary)
{
    enum backup_result r = BACKUP_OK;
    for (size_t p = 0; p < BACKUP_PLACES && r == BACKUP_OK; p++)
        if (b->stages[p] && (with_temporary || is_elsewhere(b, p)))
            r = tree_remove(b->stages[p], b->error);
    return r;
}

static enum backup_result attempt(struct backup *b)
{
    enum backup_result r;
    for (int i = 1;; i++) {
        r = remove_stages(b, true);
        if (r == BACKUP_OK)
            r = copy_in_order(b);
        if (r != BACKUP_CHANGED || i == ATTEMPTS)
            return r;
        free_journals(&b->queues);
        free_journals(&b->streams);
        free_journals(&b->marks);
        free_journals(&b->lists);
        clock_sleep(i * ATTEMPT_PAUSE);
    }
}

static enum backup_result lock_directory(struct backup *b, size_t i, const char *dir)
{
    b->locks[i] = io->open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (b->locks[i] < 0)
        return backup_fail_errno(b->error, dir);
    if (io->flock(b->locks[i], LOCK_EX | LOCK_NB) == 0)
        return BACKUP_OK;
    return errno == EWOULDBLOCK ? error_set(b->error, BACKUP_BUSY, "another backup of %.600s is running", dir)
                                : backup_fail_errno(b->error, dir);
}

/* Chooses the stage of a place. The place and the backup are on the same file system if a hard link between them is
 * possible. choose_stage also removes links that a killed backup to another file system has left in the place. */
static enum backup_result choose_stage(struct backup *b, size_t place)
{
    char *lock = tree_path(b->spec->places[place], "lock"), *probe = tree_path(b->temporary, "probe");
    bool is_same = link(lock, probe) == 0;
    if (is_same)
        io->unlink(probe);
    char *pins = tree_path(b->spec->places[place], PINS);
    enum backup_result r = tree_remove(pins, b->error);
    b->stages[place] = is_same ? tree_path(b->temporary, backup_place_names[place]) : mem_strdup(pins);
    free(lock);
    free(probe);
    free(pins);
    return r;
}

static enum backup_result begin(struct backup *b)
{
    enum backup_result r = BACKUP_OK;
    size_t found = 0;
    char parent[PATH_MAX];
    io_parent_of(b->spec->to, parent);
    if (access(parent, F_OK) != 0 && errno == ENOENT)
        return error_set(b->error, BACKUP_MISSING, "the directory %.600s does not exist; create it", parent);
    if (access(b->spec->to, F_OK) == 0)
        return error_set(b->error, BACKUP_EXISTS, "%.600s exists; choose a new directory", b->spec->to);
    for (size_t p = 0; p < BACKUP_PLACES && r == BACKUP_OK; p++)
        if (access(b->spec->places[p], F_OK) == 0) {
            found++;
            r = lock_directory(b, p, b->spec->places[p]);
        } else if (errno == EACCES) {
            (void)backup_fail_errno(b->error, b->spec->places[p]);
            r = b->error->code = BACKUP_MISSING;
        }
    if (r == BACKUP_OK && found == 0)
        return error_set(b->error, BACKUP_MISSING,
            "no data of a pipeline at %.600s; run this command in the directory of `millrace up`, or name "
            "the data directory: --data-dir=DIR",
            b->spec->places[0]);
    if (r == BACKUP_OK)
        r = tree_remove(b->temporary, b->error);
    if (r == BACKUP_OK && io->mkdir(b->temporary, 0700) != 0)
        r = backup_fail_errno(b->error, b->temporary);
    b->is_ours = r == BACKUP_OK;
    for (size_t p = 0; p < BACKUP_PLACES && r == BACKUP_OK; p++)
        if (b->locks[p] >= 0)
            r = choose_stage(b, p);
    if (b->stages[BACKUP_ARCHIVE]) {
        b->counts.archive = b->spec->places[BACKUP_ARCHIVE];
        b->counts.archive_stage = b->stages[BACKUP_ARCHIVE];
    }
    if (b->stages[BACKUP_AGGREGATOR]) {
        b->counts.aggregator = b->spec->places[BACKUP_AGGREGATOR];
        b->counts.aggregator_stage = b->stages[BACKUP_AGGREGATOR];
    }
    b->counts.meanwhile = follow_streams;
    b->counts.arg = b;
    return r;
}

static void describe(struct backup *b)
{
    struct backup_manifest *m = &b->manifest;
    const struct journals *kinds[2] = {&b->queues, &b->streams};
    m->made = (uint64_t)(clock_wall() / USEC_PER_SEC);
    m->generation = b->counts.archived.generation;
    m->through = b->counts.archived.through;
    m->first_slice = b->counts.slices.first;
    m->last_slice = b->counts.slices.last;
    m->journals = mem_zalloc((b->queues.n + b->streams.n + 1) * sizeof *m->journals);
    m->cursors = mem_zalloc((b->counts.state.n_cursors + 1) * sizeof *m->cursors);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < kinds[k]->n; i++) {
            const struct journal_copy *c = &kinds[k]->list[i];
            struct backup_journal *j = &m->journals[m->n_journals];
            m->n_journals += c->newest > 0;
            *j = (struct backup_journal){
                .is_queue = c->is_queue, .first = c->earliest, .end = c->end.offset, .next_id = c->next_id};
            snprintf(j->name, sizeof j->name, "%s", c->name);
            snprintf(j->id, sizeof j->id, "%s", c->id);
        }
    for (size_t i = 0; i < b->counts.state.n_cursors; i++) {
        const struct slice_cursor *c = &b->counts.state.cursors[i];
        if (!bytes_is_name(bytes_str(c->stream)) || c->stream[0] == '.')
            continue;
        snprintf(m->cursors[m->n_cursors].stream, NAME_LEN_MAX + 1, "%s", c->stream);
        m->cursors[m->n_cursors++].offset = c->offset;
    }
}

static void on_bytes(size_t n, void *arg)
{
    struct backup *b = arg;
    b->done += n;
    progress(b, "write");
}

/* Adds a staged file to the manifest with its size and checksum. Copies the file if the backup is on another file
 * system. */
static enum backup_result take_file(struct backup *b, size_t place, struct tree_file *f)
{
    struct tree_copy how = {.max_bytes = UINT64_MAX, .on_bytes = on_bytes, .arg = b};
    char *from = tree_path(b->stages[place], f->path),
         *place_path = tree_path(backup_place_names[place], f->path);
    char *to = tree_path(b->temporary, place_path);
    bool copies = is_elsewhere(b, place);
    enum backup_result r = copies ? tree_make_parent(to, b->error) : BACKUP_OK;
    if (r == BACKUP_OK && f->link) {
        if (copies && symlink(f->link, to) != 0)
            r = backup_fail_errno(b->error, to);
    } else if (r == BACKUP_OK) {
        r = tree_copy(from, copies ? to : NULL, &how, f, b->error);
    }
    struct tree_file entry = *f;
    entry.path = place_path;
    tree_list_add(&b->manifest.files, &entry);
    free(from);
    free(to);
    free(place_path);
    return r;
}

static enum backup_result take_config(struct backup *b)
{
    struct tree_file f = {.path = mem_strdup(BACKUP_CONFIG)};
    char *to = tree_path(b->temporary, BACKUP_CONFIG);
    enum backup_result r = BACKUP_OK;
    if (b->spec->config)
        r = tree_copy(b->spec->config, to, &(struct tree_copy){.max_bytes = UINT64_MAX}, &f, b->error);
    if (b->spec->config && r == BACKUP_OK)
        tree_list_add(&b->manifest.files, &f);
    free(f.path);
    free(to);
    return r == BACKUP_CHANGED ? BACKUP_FAILED : r;
}

static uint64_t size_of(const struct backup *b, size_t place, const struct tree_list *files)
{
    uint64_t total = 0;
    for (size_t i = 0; i < files->n; i++) {
        struct stat st;
        char *path = tree_path(b->stages[place], files->files[i].path);
        total += lstat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
        free(path);
    }
    return total;
}

static enum backup_result write_files(struct backup *b)
{
    struct tree_list files[BACKUP_PLACES] = {{0}};
    enum backup_result r = BACKUP_OK;
    for (size_t p = 0; p < BACKUP_PLACES && r == BACKUP_OK; p++)
        if (b->stages[p] && access(b->stages[p], F_OK) == 0) {
            r = tree_list(b->stages[p], &files[p], b->error);
            b->total += size_of(b, p, &files[p]);
        }
    if (r == BACKUP_OK)
        r = take_config(b);
    for (size_t p = 0; p < BACKUP_PLACES; p++) {
        for (size_t i = 0; i < files[p].n && r == BACKUP_OK; i++)
            r = take_file(b, p, &files[p].files[i]);
        if (r == BACKUP_OK && p == BACKUP_ARCHIVE)
            r = counts_copy_verify_archive(&b->counts, &files[p], b->error);
        tree_list_free(&files[p]);
    }
    return r;
}

/* Writes the manifest, syncs all files and renames the directory to its final name. */
static enum backup_result publish(struct backup *b)
{
    struct buf text = {0};
    char *path = tree_path(b->temporary, BACKUP_MANIFEST);
    backup_manifest_print(&b->manifest, &text);
    progress(b, "sync");
    enum backup_result r = tree_write(path, buf_bytes(&text), b->error);
    if (r == BACKUP_OK)
        r = tree_sync(b->temporary, b->error);
    if (r == BACKUP_OK && io->rename_new(b->temporary, b->spec->to) != 0)
        r = backup_fail_errno(b->error, b->spec->to);
    if (r == BACKUP_OK && io_sync_parent(b->spec->to) != 0)
        r = backup_fail_errno(b->error, b->spec->to);
    buf_free(&text);
    free(path);
    return r;
}

static void end(struct backup *b)
{
    b->error = NULL; /* errors of the removals must not replace the error of the backup */
    remove_stages(b, false);
    if (b->is_ours)
        tree_remove(b->temporary, NULL);
    for (size_t i = 0; i < BACKUP_PLACES; i++) {
        if (b->locks[i] >= 0)
            io->close(b->locks[i]);
        free(b->stages[i]);
    }
    free_journals(&b->queues);
    free_journals(&b->streams);
    free_journals(&b->marks);
    free_journals(&b->lists);
    counts_copy_free(&b->counts);
    free(b->temporary);
}

enum backup_result backup_make(
    const struct backup_spec *spec, struct backup_manifest *out, struct error *error)
{
    struct backup b = {.spec = spec, .error = error};
    struct buf temporary = {0};
    buf_printf(&temporary, "%s.tmp", spec->to);
    b.temporary = temporary.ptr;
    for (size_t i = 0; i < BACKUP_PLACES; i++)
        b.locks[i] = -1;
    b.manifest.began = (uint64_t)(clock_wall() / USEC_PER_SEC);
    enum backup_result r = begin(&b);
    if (r == BACKUP_OK)
        r = attempt(&b);
    if (r == BACKUP_OK) {
        describe(&b);
        r = write_files(&b);
    }
    if (r == BACKUP_OK) /* fails before the backup is published if a stage cannot be removed */
        r = remove_stages(&b, false);
    if (r == BACKUP_OK)
        r = publish(&b);
    if (r == BACKUP_OK)
        *out = b.manifest;
    else
        backup_manifest_free(&b.manifest);
    end(&b);
    return r;
}
