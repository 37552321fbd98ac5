/* The extension millrace.so, by which other programs, such as the shell sqlite3 and Python, read a pipeline
 * (docs/guide/sql.md). */
#include "config/pipeline_dirs.h"
#include "sql/sql_tables.h"

#include <limits.h>
#include <sqlite3ext.h>
#include <stdlib.h>
#include <sys/stat.h>

SQLITE_EXTENSION_INIT3

#define NO_PIPELINE                                                                                          \
    "no pipeline: set MILLRACE_CONFIG, or select millrace_open(PATH) of a configuration, a data directory "  \
    "or an archive"

int sqlite3_millrace_init(sqlite3 *db, char **text, const sqlite3_api_routines *api);

static void free_tables(void *arg)
{
    struct sql_tables *t = arg;
    sql_snapshot_free(&t->snapshot);
    free(t);
}

/* Shows the pipeline of a configuration or of a data directory, or an archive. Returns 0, or -1 with the error. */
static int show(struct sql_tables *t, const char *path, struct error *error)
{
    struct config *config = NULL;
    struct stat st, link;
    if (stat(path, &st) != 0)
        return error_errno(error, -1, path);
    if (!S_ISDIR(st.st_mode) && config_read(path, &config, error) != 0)
        return -1;
    const char *data_dir = config ? pipeline_dir(config, NULL) : path;
    char *current = mem_printf("%s/current", path);
    bool is_archive = lstat(current, &link) == 0;
    char *archive = is_archive ? mem_strdup(path) : pipeline_archive_dir(config, data_dir);
    char *slices = is_archive ? NULL : pipeline_daemon_dir(config, data_dir, "aggregator", "/slices");
    sql_snapshot_free(&t->snapshot);
    t->snapshot = sql_snapshot_new(archive, slices, NULL);
    free(current);
    free(archive);
    free(slices);
    config_free(&config);
    return 0;
}

/* millrace_open(PATH) makes the tables show another pipeline, and returns PATH. */
static void millrace_open(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    struct sql_tables *t = sqlite3_user_data(context);
    const char *path = (const char *)sqlite3_value_text(argv[0]);
    struct error error;
    (void)argc;
    if (!path)
        sqlite3_result_error(context, "millrace_open needs a path", -1);
    else if (t->snapshot && sql_snapshot_is_begun(t->snapshot))
        sqlite3_result_error(
            context, "millrace_open cannot be called while a statement reads the tables", -1);
    else if (show(t, path, &error) != 0)
        sqlite3_result_error(context, error.text, -1);
    else
        sqlite3_result_value(context, argv[0]);
}

int sqlite3_millrace_init(sqlite3 *db, char **text, const sqlite3_api_routines *api)
{
    char path[PATH_MAX];
    struct error error;
    SQLITE_EXTENSION_INIT2(api)
    struct sql_tables *t = mem_zalloc(sizeof *t);
    t->no_pipeline = NO_PIPELINE;
    int code = sql_tables_add(db, t, free_tables); /* on failure, calls free_tables */
    if (code == SQLITE_OK)
        code = sqlite3_create_function_v2(
            db, "millrace_open", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, t, millrace_open, NULL, NULL, NULL);
    if (code == SQLITE_OK && config_default(path, sizeof path) && show(t, path, &error) != 0) {
        *text = sqlite3_mprintf("%s", error.text);
        return SQLITE_ERROR;
    }
    return code;
}
