#include "streams/archive/archive_names.h"

#include "base/bytes.h"

#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MINUTE 60
#define HOUR 3600
#define ENTRIES 1024 /* a span's entry is its number modulo ENTRIES */

struct archive_names {
    char *format;
    bool local_time;
    int64_t span; /* seconds */
    char last[PATH_MAX];
    struct archive_names_entry entries[ENTRIES];
};

struct archive_names *archive_names_new(const char *format, bool local_time)
{
    struct archive_names *n = mem_zalloc(sizeof *n);
    n->format = mem_strdup(format);
    n->local_time = local_time;
    /* A zone's clocks may be set back right after midnight; UTC is never set back. */
    n->span = local_time ? MINUTE : HOUR;
    return n;
}

void archive_names_free(struct archive_names **n)
{
    if (*n == NULL)
        return;
    free((*n)->format);
    free(*n);
    *n = NULL;
}

/* The format comes from the operator, and strftime reads no arguments by it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
const char *archive_names_of_time(struct archive_names *n, int64_t time)
{
    time_t t = (time_t)time;
    struct tm tm;
    if ((n->local_time ? localtime_r(&t, &tm) : gmtime_r(&t, &tm)) == NULL ||
        strftime(n->last, sizeof n->last, n->format, &tm) == 0)
        snprintf(n->last, sizeof n->last, "%s", n->format);
    return n->last;
}
#pragma GCC diagnostic pop

struct archive_names_entry *archive_names_entry(struct archive_names *n, int64_t time)
{
    struct archive_names_entry *e = &n->entries[(uint64_t)time / (uint64_t)n->span % ENTRIES];
    if (e->used && time >= e->times.first && time <= e->times.last)
        return e;
    int64_t first = time - time % n->span, last = first + n->span - 1;
    char *name = mem_strdup(archive_names_of_time(n, first));
    bool one_name = strcmp(name, archive_names_of_time(n, last)) == 0;
    free(name);
    *e = (struct archive_names_entry){.times = {time, time}, .used = true};
    if (one_name)
        e->times = (struct archive_span){.first = first, .last = last};
    return e;
}

void archive_names_forget_parts(struct archive_names *n)
{
    for (size_t i = 0; i < ENTRIES; i++)
        n->entries[i].part = NULL;
}
