#include "simplequeue/queue/queues.h"

#include "base/errno_class.h"
#include "base/io.h"
#include "base/name_table.h"
#include "base/random_id.h"
#include "simplequeue/queue/queue_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DIRECTORY "/queues"
#define TRIM_SHARE 4 /* a journal is trimmed in steps of a fourth of a segment */
#define SEGMENT_BYTES (UINT64_C(64) << 20)
#define QUEUE_FILES 2 /* descriptors of a queue: its directory and its newest segment */
#define OWN_FILES 24  /* descriptors of the daemon */
#define NEW_QUEUE_BYTES                                                                                      \
    ((uint64_t)128 << 10)     /* disk space for the files of a queue and for the space that a put reserves */
#define NEW_MESSAGE_BYTES 128 /* disk space for each message, in addition to its bytes */
#define TICK_TIMERS_MAX 1000  /* timers that queues_tick handles per call */
#define ID_FILE "queue-id"
#define ID_DIGITS (JOURNAL_ID_TEXT - 1)

struct queues {
    struct queues_config config;
    char *dir; /* NULL: memory only */
    struct queue_shared shared;
    struct journal_set *journals;
    struct name_table table; /* contains each struct named_queue */
    char **found;            /* names of the queues to recover */
    size_t n_found, room_found;
};

static char *directory_of(const struct queues *qs, const char *name)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", qs->dir, name);
    char *dir = bytes_dup(buf_bytes(&path));
    buf_free(&path);
    return dir;
}

/* Removes a queue's directory if it is empty. A crash or a full disk during the creation of a queue leaves an empty
 * directory. */
static bool drop_empty(const struct queues *qs, const char *name)
{
    char *dir = directory_of(qs, name);
    bool dropped = rmdir(dir) == 0;
    free(dir);
    return dropped;
}

/* Lists the queues to open. Ignores files that are not directories. */
static int list_directory(struct queues *qs, char *error, size_t error_size)
{
    DIR *d;
    if (io_make_dirs(qs->dir) != 0 || !(d = opendir(qs->dir))) {
        snprintf(error, error_size, "%s: %s", qs->dir, strerror(errno));
        return -1;
    }
    const struct dirent *entry;
    while ((entry = readdir(d))) {
        const char *name = entry->d_name;
        struct stat st;
        if (!bytes_is_name(bytes_str(name)) || drop_empty(qs, name))
            continue;
        if (fstatat(dirfd(d), name, &st, 0) == 0 && !S_ISDIR(st.st_mode)) {
            if (qs->config.on_stray)
                qs->config.on_stray(name, qs->config.hook_arg);
            continue;
        }
        *ARRAY_ADD(qs->found, qs->n_found, qs->room_found) = mem_strdup(name);
    }
    closedir(d);
    return 0;
}

int queues_check_copy(const char *data_dir, char *error, size_t error_size)
{
    char *path = mem_printf("%s" DIRECTORY, data_dir);
    int found = access(path, F_OK);
    if (found != 0)
        snprintf(error, error_size, "restored: %s: %s; the directory must be a copy of a data directory",
            path, strerror(errno));
    free(path);
    return found;
}

struct queues *queues_new(const struct queues_config *config, char *error, size_t error_size)
{
    struct queues *qs = mem_zalloc(sizeof *qs);
    qs->config = *config;
    if (!config->data_dir)
        return qs;
    struct buf dir = {0};
    buf_printf(&dir, "%s" DIRECTORY, config->data_dir);
    qs->dir = bytes_dup(buf_bytes(&dir));
    buf_free(&dir);
    if (list_directory(qs, error, error_size) != 0) {
        int why = errno;
        queues_free(&qs);
        errno = why;
        return NULL;
    }
    struct journal_set_config set = {
        .sync_ms = config->sync_ms, .notify = config->notify, .notify_arg = config->notify_arg};
    qs->journals = journal_set_new(&set);
    return qs;
}

void queues_free(struct queues **p)
{
    struct queues *qs = *p;
    if (!qs)
        return;
    queues_stop_erasures(qs);
    queues_flush(qs);
    for (size_t i = 0; i < qs->table.n; i++) {
        struct named_queue *q = queues_at(qs, i);
        named_queue_free(&q);
    }
    if (qs->journals)
        journal_set_free(&qs->journals);
    while (qs->n_found)
        free(qs->found[--qs->n_found]);
    free(qs->found);
    name_table_free(&qs->table);
    free(qs->dir);
    heap_free(&qs->shared.deadlines);
    free(qs);
    *p = NULL;
}

static int id_fail(char *error, size_t error_size, const char *dir, const char *why)
{
    snprintf(error, error_size, "%s/" ID_FILE ": %s", dir, why);
    return -1;
}

static bool is_id(const char *text)
{
    return strspn(text, "0123456789abcdef") == ID_DIGITS;
}

/* The id of a queue is usually the id of its journal. A queue in a restored copy gets a new id, which is stored in the
 * file `queue-id` (docs/formats/simplequeue.md).
 *
 * 1. The file is missing, or it is complete and synced. Any other content is an error.
 * 2. The file also contains the id of the journal. If this is the id of another journal, the file is ignored, because
 *    message ids start again in a new journal.
 * 3. The file is read after journal_open, which has synced the directory. An id that a client has seen therefore
 *    survives a power cut.
 *
 * `journal` is the id of the journal. If the file is missing or ignored, sets `id` to "". Returns 0, or -1 with the
 * error. */
static int read_id(
    const char *dir, const char *journal, char id[JOURNAL_ID_TEXT], char *error, size_t error_size)
{
    char path[PATH_MAX], text[2 * JOURNAL_ID_TEXT + 1] = "";
    snprintf(path, sizeof path, "%s/" ID_FILE, dir);
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    id[0] = '\0';
    if (fd < 0)
        return errno == ENOENT ? 0 : id_fail(error, error_size, dir, strerror(errno));
    ssize_t n = io->pread(fd, text, sizeof text, 0);
    io->close(fd);
    const char *of = text + JOURNAL_ID_TEXT;
    if (n != 2 * JOURNAL_ID_TEXT || !is_id(text) || text[ID_DIGITS] != ' ' || !is_id(of) ||
        of[ID_DIGITS] != '\n')
        return id_fail(error, error_size, dir, "the file must contain two ids of 32 hexadecimal digits");
    if (memcmp(of, journal, ID_DIGITS) == 0)
        snprintf(id, JOURNAL_ID_TEXT, "%.*s", ID_DIGITS, text);
    return 0;
}

static int write_id(const char *dir, const char *journal, const char *id, char *error, size_t error_size)
{
    char path[PATH_MAX], text[2 * JOURNAL_ID_TEXT + 1];
    snprintf(path, sizeof path, "%s/" ID_FILE, dir);
    snprintf(text, sizeof text, "%s %s\n", id, journal);
    if (io_replace_file(path, bytes_str(text), IO_PRIVATE_MODE) == 0)
        return 0;
    return id_fail(error, error_size, dir, strerror(errno));
}

/* Opens the journal and then reads the queue's id. With the setting `restored`, gives the queue a new id. */
static enum queue_result open_directory(struct queues *qs, const char *dir, struct named_queue_config *config,
    char id[JOURNAL_ID_TEXT], char *error, size_t error_size)
{
    struct journal_config journal = {.dir = dir,
        .segment_bytes = qs->config.segment_bytes,
        .count = queue_log_count_messages,
        .counted = "messages"};
    enum journal_result opened = journal_open(qs->journals, &journal, &config->journal, error, error_size);
    enum queue_result r = opened == JOURNAL_OK               ? QUEUE_OK
                          : opened == JOURNAL_NO_SPACE       ? QUEUE_NO_SPACE
                          : opened == JOURNAL_NO_DESCRIPTORS ? QUEUE_NO_DESCRIPTORS
                                                             : QUEUE_LATCHED;
    if (r == QUEUE_OK) {
        const char *of = journal_id(config->journal);
        errno = 0;
        if (qs->config.restored)
            random_id(id);
        int failed = qs->config.restored ? write_id(dir, of, id, error, error_size)
                                         : read_id(dir, of, id, error, error_size);
        if (failed) {
            r = errno_is_fd_limit(errno) ? QUEUE_NO_DESCRIPTORS : QUEUE_LATCHED;
            journal_close(&config->journal);
        }
    }
    config->id = id;
    return r;
}

static struct named_queue *open_queue(struct queues *qs, const char *name, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size)
{
    uint64_t segment = qs->config.segment_bytes ? qs->config.segment_bytes : SEGMENT_BYTES;
    struct named_queue_config config = {
        .name = name,
        .shared = &qs->shared,
        .limits = &qs->config.limits,
        .trim_step = segment / TRIM_SHARE,
        .on_ready = qs->config.on_ready,
        .on_ready_arg = qs->config.hook_arg,
    };
    char id[JOURNAL_ID_TEXT] = "", *dir = qs->dir ? directory_of(qs, name) : NULL;
    struct named_queue *q = NULL;
    *result = qs->dir ? open_directory(qs, dir, &config, id, error, error_size) : QUEUE_OK;
    if (*result == QUEUE_OK)
        q = named_queue_open(&config, now, result, error, error_size);
    free(dir);
    if (!q)
        return NULL;
    name_table_add(&qs->table, named_queue_name(q), q);
    if (qs->config.on_new)
        qs->config.on_new(q, qs->config.hook_arg);
    return q;
}

enum queues_recovery queues_recover(struct queues *qs, struct queue_now now, char *error, size_t error_size)
{
    if (qs->n_found == 0) {
        queues_flush(qs);
        return QUEUES_RECOVERED;
    }
    enum queue_result result;
    char *name = qs->found[--qs->n_found];
    struct named_queue *q = open_queue(qs, name, now, &result, error, error_size);
    free(name);
    if (q)
        return QUEUES_MORE;
    return result == QUEUE_NO_SPACE || result == QUEUE_NO_DESCRIPTORS ? QUEUES_RETRY : QUEUES_FAILED;
}

struct named_queue *queues_find(const struct queues *qs, const char *name)
{
    return name_table_find(&qs->table, name);
}

struct named_queue *queues_get(struct queues *qs, const char *name, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size)
{
    struct named_queue *q = queues_find(qs, name);
    *result = QUEUE_OK;
    if (q)
        return q;
    if ((*result = queues_may_add(qs, &(struct first_put){0})) != QUEUE_OK)
        return NULL;
    if (qs->dir && qs->config.owns && !qs->config.owns(qs->config.data_dir)) {
        snprintf(error, error_size,
            "%s: not the directory that the daemon locked at its start; the directory was moved, or its lock "
            "was removed",
            qs->config.data_dir);
        *result = QUEUE_LATCHED;
        return NULL;
    }
    q = open_queue(qs, name, now, result, error, error_size);
    if (!q && qs->dir)
        drop_empty(qs, name);
    return q;
}

size_t queues_count(const struct queues *qs)
{
    return qs->table.n;
}

size_t queues_max(const struct queues *qs)
{
    return qs->config.max_queues;
}

size_t queues_descriptor_limit(const struct queues *qs)
{
    if (!qs->dir || !qs->config.descriptors)
        return SIZE_MAX;
    int files = qs->config.descriptors();
    return files > OWN_FILES ? (size_t)(files - OWN_FILES) / QUEUE_FILES : 0;
}

size_t queues_descriptors_for(size_t n)
{
    return n * QUEUE_FILES + OWN_FILES;
}

enum queue_result queues_may_add(const struct queues *qs, const struct first_put *put)
{
    enum queue_result fits =
        named_queue_check_first_put(&qs->config.limits, &qs->shared, qs->dir != NULL, put->n, put->bytes);
    if (fits != QUEUE_OK)
        return fits;
    if (queues_count(qs) >= queues_max(qs))
        return QUEUE_TOO_MANY_QUEUES;
    if (queues_count(qs) >= queues_descriptor_limit(qs))
        return QUEUE_NO_DESCRIPTORS;
    /* The required space is a little more than the first put reserves, so that the first put of a new queue is not
     * refused. */
    struct statvfs disk;
    if (!qs->dir || put->n == 0 || statvfs(qs->dir, &disk) != 0 || disk.f_blocks == 0)
        return QUEUE_OK;
    uint64_t each = put->n * NEW_MESSAGE_BYTES + put->bytes;
    uint64_t needed = NEW_QUEUE_BYTES + (put->late ? 2 * each : each);
    return (uint64_t)disk.f_bavail * disk.f_frsize >= needed ? QUEUE_OK : QUEUE_NO_SPACE;
}

size_t queues_unopened(const struct queues *qs)
{
    return qs->n_found;
}

struct named_queue *queues_at(const struct queues *qs, size_t i)
{
    return name_table_at(&qs->table, i);
}

const struct queue_limits *queues_limits(const struct queues *qs)
{
    return &qs->config.limits;
}

uint64_t queues_memory(const struct queues *qs)
{
    return qs->shared.memory.all;
}

struct journal_set *queues_journals(struct queues *qs)
{
    return qs->journals;
}

void queues_stop_erasures(struct queues *qs)
{
    for (size_t i = 0; i < qs->table.n; i++)
        named_queue_stop_erasure(queues_at(qs, i));
}

void queues_flush(struct queues *qs)
{
    if (qs->journals)
        journal_set_flush(qs->journals);
}

bool queues_next_deadline(const struct queues *qs, usec_t *deadline)
{
    const struct heap_node *first = heap_first(&qs->shared.deadlines);
    if (first)
        *deadline = first->priority;
    return first != NULL;
}

void queues_tick(struct queues *qs, struct queue_now now)
{
    struct heap_node *first;
    struct named_queue *q = NULL;
    for (size_t n = 0; n < TICK_TIMERS_MAX && (first = heap_first(&qs->shared.deadlines)) &&
                       first->priority <= now.monotonic;
         n++) {
        struct queue_timer *timer = (struct queue_timer *)(void *)first;
        struct named_queue *next = timer->owner;
        if (q && q != next)
            named_queue_move_due(q, now);
        q = next;
        heap_remove(&qs->shared.deadlines, first);
        named_queue_timer(q, timer, now);
    }
    if (q)
        named_queue_move_due(q, now);
}
