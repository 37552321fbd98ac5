#include "api/zone_names.h"

#include "api/units.h"
#include "base/suggest.h"
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define DEPTH_MAX 3 /* maximum number of parts of a name, as in America/Argentina/Ushuaia */

static char **names;
static size_t n_names, room_names;
static bool is_listed;

static void add(const char *name)
{
    *ARRAY_ADD(names, n_names, room_names) = mem_printf("%s", name);
}

/* Adds the names below the directory `under`, which is "" or ends in a slash. Only names with a capital first
 * letter are zones. Other names are lists of zones, or directories with copies of all zones. */
static bool list(const char *under, int depth)
{
    char *path = mem_printf(ZONE_DIRECTORY "/%s", under);
    DIR *d = opendir(path);
    free(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (!isupper((unsigned char)e->d_name[0]))
            continue;
        bool is_directory = e->d_type == DT_DIR;
        char *name = mem_printf("%s%s%s", under, e->d_name, is_directory ? "/" : "");
        if (!is_directory)
            add(name);
        else if (depth < DEPTH_MAX)
            (void)list(name, depth + 1);
        free(name);
    }
    return d && closedir(d) == 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* Returns the first of the nearest names, or NULL. A text without a slash is also compared with the last part of
 * each name. A short name must match exactly, because PST does not mean EST. */
static const char *nearest_to(const char *written)
{
    struct suggest s = suggest_for(written);
    for (size_t i = 0; i < n_names; i++)
        suggest_try(&s, names[i]);
    const char *nearest = s.nearest;
    for (size_t i = 0; i < n_names && !strchr(written, '/'); i++) {
        const char *before = s.nearest;
        suggest_try(&s, last_part(names[i]));
        if (s.nearest != before)
            nearest = names[i];
    }
    return 4 * s.distance < strlen(written) ? nearest : NULL;
}

const char *zone_names_nearest(struct bytes written)
{
    struct zone zone;
    if (!is_listed) {
        is_listed = list("", 1);
        if (n_names > 0)
            qsort(names, n_names, sizeof *names, compare);
    }
    if (written.len > ZONE_NAME_MAX)
        return NULL;
    char *name = bytes_dup(written);
    const char *nearest = nearest_to(name);
    free(name);
    return nearest && zone_find(bytes_str(nearest), &zone) ? nearest : NULL;
}
