#include "pubsub/stream/streams.h"

#include "base/errno_class.h"
#include "base/io.h"
#include "base/name_table.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define STREAMS_MAGIC 0x53545253
#define STREAM_FILES 2                     /* descriptors of a stream: its directory and its newest segment */
#define OWN_FILES 24                       /* descriptors of the daemon, and of the readers of a set */
#define RETAINED_SEGMENTS 8                /* retain_bytes has at least this number of segments */
#define SEGMENT_LEAST ((uint64_t)64 << 10) /* as the setting segment_bytes */

struct streams {
    unsigned magic;
    struct streams_config config;
    char *dir; /* DIR/streams */
    struct journal_set *set;
    struct name_table table; /* of struct stream */
};

struct streams *streams_new(const struct streams_config *config)
{
    struct streams *ss = mem_zalloc(sizeof *ss);
    ss->magic = STREAMS_MAGIC;
    ss->config = *config;
    struct buf dir = {0};
    buf_printf(&dir, "%s/streams%c", config->dir, '\0');
    ss->dir = dir.ptr;
    ss->set = journal_set_new(&config->set);
    return ss;
}

void streams_free(struct streams **ss)
{
    if (!*ss)
        return;
    assert((*ss)->magic == STREAMS_MAGIC);
    for (size_t i = 0; i < (*ss)->table.n; i++) {
        struct stream *s = name_table_at(&(*ss)->table, i);
        stream_close(&s);
    }
    journal_set_free(&(*ss)->set);
    (*ss)->magic = 0;
    name_table_free(&(*ss)->table);
    free((*ss)->dir);
    free(*ss);
    *ss = NULL;
}

/* Retention deletes whole segments, so segments must be small compared with the bytes that retention keeps. */
static uint64_t segment_bytes(const struct streams *ss, const struct stream_limits *limits)
{
    uint64_t part = limits->retain_bytes / RETAINED_SEGMENTS, most = ss->config.segment_bytes;
    if (!part || (most && part >= most))
        return most;
    return part > SEGMENT_LEAST ? part : SEGMENT_LEAST;
}

static enum streams_result open_one(
    struct streams *ss, const char *name, struct stream **out, struct error *error)
{
    struct stream_limits limits = {0};
    if (ss->config.limits)
        limits = ss->config.limits(ss->config.limits_arg, name);
    struct buf dir = {0};
    buf_printf(&dir, "%s/%s%c", ss->dir, name, '\0');
    struct journal_config config = {
        .dir = dir.ptr,
        .segment_bytes = segment_bytes(ss, &limits),
        .max_producers = ss->config.max_producers,
        .shares_files = true,
        .openings_begin_segments = true,
        .count = bytes_count_lines,
        .counted = "lines",
    };
    enum journal_result r = stream_open(ss->set, name, &config, out, error);
    buf_free(&dir);
    if (r != JOURNAL_OK)
        return r == JOURNAL_NO_SPACE         ? STREAMS_NO_SPACE
               : r == JOURNAL_NO_DESCRIPTORS ? STREAMS_OUT_OF_DESCRIPTORS
                                             : STREAMS_STORAGE;
    stream_set_limits(*out, &limits);
    name_table_add(&ss->table, stream_name(*out), *out);
    return STREAMS_OK;
}

/* Removes the directory if it is empty: nothing was stored in it. */
static bool drop_empty(const struct streams *ss, const char *name)
{
    char *dir = mem_printf("%s/%s", ss->dir, name);
    bool dropped = rmdir(dir) == 0;
    free(dir);
    return dropped;
}

enum streams_result streams_recover(struct streams *ss, struct error *error)
{
    DIR *d = io_make_dirs(ss->dir) == 0 ? opendir(ss->dir) : NULL;
    if (!d)
        return error_errno(
            error, errno_is_fd_limit(errno) ? STREAMS_OUT_OF_DESCRIPTORS : STREAMS_STORAGE, ss->dir);
    enum streams_result r = STREAMS_OK;
    for (struct dirent *e; r == STREAMS_OK && (e = readdir(d));) {
        struct stream *s;
        if (bytes_is_name(bytes_str(e->d_name)) && !drop_empty(ss, e->d_name))
            r = open_one(ss, e->d_name, &s, error);
    }
    closedir(d);
    return r;
}

struct stream *streams_find(const struct streams *ss, const char *name)
{
    return name_table_find(&ss->table, name);
}

enum streams_result streams_make(
    struct streams *ss, const char *name, struct stream **out, struct error *error)
{
    *out = streams_find(ss, name);
    if (*out)
        return STREAMS_OK;
    if (ss->table.n >= ss->config.max_streams)
        return STREAMS_TOO_MANY;
    if (ss->config.descriptors &&
        (ss->table.n + 1) * STREAM_FILES + OWN_FILES > (size_t)ss->config.descriptors())
        return error_set(error, STREAMS_OUT_OF_DESCRIPTORS,
            "%zu streams and the connections need all descriptors", ss->table.n);
    enum streams_result r = open_one(ss, name, out, error);
    if (r != STREAMS_OK)
        (void)drop_empty(ss, name);
    return r;
}

size_t streams_count(const struct streams *ss)
{
    return ss->table.n;
}

struct stream *streams_at(const struct streams *ss, size_t i)
{
    return name_table_at(&ss->table, i);
}

struct journal_set *streams_set(struct streams *ss)
{
    return ss->set;
}
