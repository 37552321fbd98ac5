#include "tools/forget_files.h"

#include "backup/backup.h"
#include "backup/file_tree.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <sysexits.h>

#define REMEDY_UNKNOWN "the pipeline does not use it: search it with grep or zgrep, or delete it"
/* The remedies of the files that are searched, and reported only if they may have the value. */
static const char
    refused[] = "it contains lines that `millrace put` refused: delete the lines with the value",
    last_refused[] = "its last refused line has the value: stop `millrace put --follow`, and delete the file";

/* The first matching row applies. Paths are relative to the directory of the daemon, or of the pipeline if the
 * daemon is NULL. */
static const struct place {
    const char *daemon;
    const char *pattern;
    int components; /* number of components of the reported path */
    const char *
        remedy; /* NULL: `millrace forget` erases the file, or the file never contains the text of an event */
} places[] = {
    {NULL, "lock", 0, NULL},
    {NULL, "daemons.lock", 0, NULL},
    {NULL, "run.json*", 0, NULL},
    {NULL, "targets.json*", 0, NULL},
    {NULL, "visitor.keys*", 0, NULL},
    {NULL, "put/*.sources", 0, NULL},
    {NULL, "put/*.prom.lock", 0, NULL},
    {NULL, "put/*.prom", 2, last_refused},
    {NULL, "put/*.rejects*", 2, refused},
    {NULL, "put/*", 2, REMEDY_UNKNOWN},
    {NULL, "recount/*", 1,
        "made by `millrace recount`: delete the directory, and recount again if necessary"},
    {"simplequeue", "lock", 0, NULL},
    {"simplequeue", "queues/*~damaged-*", 2, "`millrace journal repair` has set it aside: delete it"},
    {"simplequeue", "queues/*/*", 0, NULL},
    {"pubsub", "lock", 0, NULL},
    {"pubsub", "cursors*", 0, NULL},
    {"pubsub", "streams/*~damaged-*", 2, "`millrace journal repair` has set it aside: delete it"},
    {"pubsub", "streams/*/*", 0, NULL},
    {"aggregator", "lock", 0, NULL},
    {"aggregator", "cursor-key*", 0, NULL},
    {"aggregator", "slices/[0-9]*.db", 0, NULL},
    {"aggregator", "slices/[0-9]*.db-*", 0, NULL},
    {"aggregator", "rejects/[0-9]*.ndjson", 0, NULL},
    {"spamfilter", "*", 0, NULL},
    {"lists", "*", 0, NULL},
    {"metricdb", "*", 0, NULL},
    {"ruler", "*", 0, NULL},
    {"archive", "lock", 0, NULL},
    {"archive", "current", 0, NULL},
    {"archive", "newest", 0, NULL},
    {"archive", "[0-9]*/*", 0, NULL},
};
#define PLACES (sizeof places / sizeof *places)

static const struct place backup_links = {
    NULL, NULL, 1, "left by an interrupted backup: run `millrace backup`, or delete the directory `.backup`"};
/* Below a daemon's directory, the complete path is reported, because the parent directory may contain the daemon's
 * files. */
#define WHOLE_PATH 99
static const struct place unknown = {NULL, NULL, 1, REMEDY_UNKNOWN};
static const struct place unknown_of_daemon = {NULL, NULL, WHOLE_PATH, REMEDY_UNKNOWN};

static const struct place *place_of(const char *daemon, const char *path)
{
    for (size_t i = 0; i < PLACES; i++) {
        const char *of = places[i].daemon;
        bool is_same = daemon && of ? strcmp(of, daemon) == 0 : of == daemon;
        if (is_same && fnmatch(places[i].pattern, path, 0) == 0)
            return &places[i];
    }
    if (strncmp(path, ".backup/", 8) == 0)
        return &backup_links;
    return daemon ? &unknown_of_daemon : &unknown;
}

struct roots {
    struct forget_match *match;
    char *paths
        [BACKUP_PLACES +
            1]; /* directories of the daemons, the archive and the pipeline; NULL: the directory does not exist */
};

static bool is_below(const char *path, const char *directory, size_t length)
{
    return strncmp(path, directory, length) == 0 && path[length] == '/';
}

/* True if the path is below a root that is below `own`. The files of such a root are listed separately. */
static bool is_of_other(const struct roots *roots, const char *own, const char *path)
{
    for (size_t i = 0; i <= BACKUP_PLACES; i++) {
        const char *other = roots->paths[i];
        if (other && is_below(other, own, strlen(own)) && is_below(path, other, strlen(other)))
            return true;
    }
    return false;
}

/* Cuts the path after `n` components below the root, unless another root is below the resulting directory. */
static void cut(const struct roots *roots, const char *root, int n, char *path)
{
    char *end = path + strlen(root);
    for (int i = 0; i < n && *end; i++)
        end = strchrnul(end + 1, '/');
    for (size_t i = 0; i <= BACKUP_PLACES; i++) {
        const char *other = roots->paths[i];
        if (other && strlen(other) > (size_t)(end - path) && is_below(other, path, (size_t)(end - path)))
            return;
    }
    *end = '\0';
}

/* Reports the files below `root`. A directory is reported once. */
static int list_root(const struct roots *roots, const char *daemon, const char *root, forget_files_fn *fn,
    void *arg, struct error *error)
{
    struct tree_list list;
    char *last = mem_strdup("");
    enum backup_result r = tree_list(root, &list, error);
    for (size_t i = 0; i < list.n && r == BACKUP_OK; i++) {
        const struct place *place = place_of(daemon, list.files[i].path);
        char *path = tree_path(root, list.files[i].path);
        bool is_left = place->remedy && !is_of_other(roots, root, path);
        if (is_left)
            cut(roots, root, place->components, path);
        if (is_left && (place->remedy == refused || place->remedy == last_refused))
            is_left = forget_match_file(roots->match, path);
        if (is_left && strcmp(last, path) != 0) {
            fn(path, place->remedy, arg);
            free(last);
            last = mem_strdup(path);
        }
        free(path);
    }
    free(last);
    tree_list_free(&list);
    return r == BACKUP_OK ? EX_OK : EX_NOINPUT;
}

static char *real_path(char *path)
{
    char *real = realpath(path, NULL);
    free(path);
    return real;
}

int forget_files_list(
    const struct pipeline *p, struct forget_match *match, forget_files_fn *fn, void *arg, struct error *error)
{
    struct roots roots = {.match = match};
    int status = EX_OK;
    for (size_t i = 0; i < BACKUP_ARCHIVE; i++)
        roots.paths[i] = real_path(pipeline_daemon_dir(p->config, p->data_dir, backup_place_names[i], ""));
    roots.paths[BACKUP_ARCHIVE] = real_path(pipeline_archive_dir(p->config, p->data_dir));
    roots.paths[BACKUP_PLACES] = real_path(mem_strdup(p->data_dir));
    for (size_t i = 0; i <= BACKUP_PLACES; i++) {
        const char *daemon = i < BACKUP_PLACES ? backup_place_names[i] : NULL;
        if (status == EX_OK && roots.paths[i])
            status = list_root(&roots, daemon, roots.paths[i], fn, arg, error);
    }
    for (size_t i = 0; i <= BACKUP_PLACES; i++)
        free(roots.paths[i]);
    return status;
}

void forget_files_configured(const struct config *config, forget_files_fn *fn, void *arg)
{
    static const struct {
        const char *kind, *setting, *remedy; /* kind NULL: sections of any kind */
    } files[] = {
        {"simplequeue", "overflow_log", "search the overflow log, and delete its lines with the value"},
        {"ps_to_file", "filename_format", "search the files, and delete their lines with the value"},
        {NULL, "request_log", "search the request log: it has the addresses of clients"},
        {"ps_to_dynamodb", "rejects", "search the lines that were left out, and delete those with the value"},
        {"ps_to_http", "rejects", "search the lines that were left out, and delete those with the value"},
    };
    for (size_t i = 0; i < config->n_sections; i++)
        for (size_t k = 0; k < sizeof files / sizeof *files; k++)
            for (size_t e = 0; e < config->sections[i].n_entries; e++)
                if ((!files[k].kind || strcmp(config->sections[i].kind, files[k].kind) == 0) &&
                    strcmp(config->sections[i].entries[e].key, files[k].setting) == 0)
                    fn(config->sections[i].entries[e].value, files[k].remedy, arg);
}
