/* millrace backup and millrace restore: copy a running pipeline, verify the copy, and make a data directory from
 * the copy. */
#include "backup/backup.h"
#include "base/log.h"
#include "base/progress.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

static const struct option_row backup_rows[] = {
    SETTING_STRING(
        "data_dir", "directory of the pipeline (default: [millrace] data_dir)", .excludes = "verify"),
    SETTING_BOOL("verify", "read every file of the backup DIR and compare its checksum"),
    {.name = NULL},
};
static const struct option_row restore_rows[] = {
    SETTING_STRING("to",
        "data directory to create (default: [millrace] data_dir); a directory that exists must be empty"),
    {.name = NULL},
};

static void on_progress(const char *step, uint64_t done, uint64_t total, void *arg)
{
    progress_show(arg, step, done, total, done >> 20, false, clock_monotonic());
}

/* Returns the operand without trailing slashes, or NULL if the number of operands is not one. */
static char *operand_of(const struct options *o)
{
    char **operands;
    if (options_operands(o, &operands) != 1)
        return NULL;
    struct bytes path = bytes_str(operands[0]);
    while (path.len > 1 && path.ptr[path.len - 1] == '/')
        path.len--;
    return bytes_dup(path);
}

/* Finds the data directory of each daemon of `millrace up`. The caller frees the paths. */
static void find_places(const struct options *o, const char *places[BACKUP_PLACES])
{
    const struct config *config = options_config(o);
    const char *data_dir = pipeline_dir(config, options_string(o, "data_dir"));
    for (size_t i = 0; i < BACKUP_ARCHIVE; i++)
        places[i] = pipeline_daemon_dir(config, data_dir, backup_place_names[i], "");
    places[BACKUP_ARCHIVE] = pipeline_archive_dir(config, data_dir);
}

/* Names the programs of the configuration whose files a backup does not contain. */
static void show_left_out(const struct config *c)
{
    static const char *const kinds[] = {"ps_to_file", "ps_to_http", "ps_to_dynamodb"};
    for (size_t i = 0; c && i < c->n_sections; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (strcmp(c->sections[i].kind, kinds[k]) == 0)
                printf("not in the backup: files and state of [%s%s%s]; copy them before the backup, with "
                       "the program stopped\n",
                    kinds[k], *c->sections[i].name ? " " : "", c->sections[i].name);
}

static int backup_with(const struct options *o)
{
    struct error error;
    char *to = operand_of(o);
    struct progress progress;
    struct backup_manifest m;
    bool verifies = options_bool(o, "verify");
    struct backup_spec spec = {.to = to, .on_progress = on_progress, .arg = &progress};
    if (!to)
        return tool_fail(EX_USAGE, "give the directory of the backup");
    if (options_config(o))
        spec.config = options_config(o)->path;
    find_places(o, spec.places);
    progress_begin(&progress, "MiB", false, clock_monotonic());
    enum backup_result r = verifies ? backup_verify(&spec, &m, &error) : backup_make(&spec, &m, &error);
    int status = EX_OK;
    if (r == BACKUP_OK) {
        progress_erase();
        printf("%s: %s\n", to, verifies ? "intact" : "complete");
        backup_manifest_show(&m);
        backup_manifest_free(&m);
        if (!verifies)
            show_left_out(options_config(o));
    } else {
        status = tool_fail(backup_exit_status(r), "%s", error.text);
    }
    for (size_t i = 0; i < BACKUP_PLACES; i++)
        free((void *)(uintptr_t)spec.places[i]);
    free(to);
    return status;
}

static int restore_with(const struct options *o)
{
    struct error error;
    char *from = operand_of(o);
    struct progress progress;
    struct backup_manifest m;
    char *to = mem_strdup(pipeline_dir(options_config(o), options_string(o, "to")));
    struct backup_spec spec = {.to = to, .on_progress = on_progress, .arg = &progress};
    int status;
    for (size_t n = strlen(to); n > 1 && to[n - 1] == '/'; n--)
        to[n - 1] = 0;
    progress_begin(&progress, "MiB", false, clock_monotonic());
    enum backup_result r = from ? backup_restore(&spec, from, &m, &error) : BACKUP_FAILED;
    if (!from) {
        status = tool_fail(EX_USAGE, "give the directory of the backup");
    } else if (r == BACKUP_OK) {
        progress_erase();
        printf("%s: restored\n", to);
        backup_manifest_show(&m);
        printf("missing: only events posted later\n");
        printf("start it with `millrace up` and a configuration with `data_dir = %s`; the configuration of "
               "the backup "
               "is %s/" BACKUP_CONFIG "\n",
            to, from);
        backup_manifest_free(&m);
        status = EX_OK;
    } else {
        status = tool_fail(backup_exit_status(r), "%s", error.text);
    }
    free(to);
    free(from);
    return status;
}

int tool_backup(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "backup",
        .summary = "copies a pipeline while it runs, or verifies such a copy",
        .operands = "DIR",
        .rows = {backup_rows, NULL}};
    log_init("backup", LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    return tool_run_on_files(&spec, argc, argv, backup_with);
}

int tool_restore(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "restore",
        .summary = "makes a data directory from a backup",
        .operands = "BACKUP",
        .rows = {restore_rows, NULL}};
    return tool_run_on_files(&spec, argc, argv, restore_with);
}
