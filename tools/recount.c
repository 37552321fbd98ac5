/* `millrace recount`: makes an archive with changed counters from the lines of the streams, while the pipeline runs.
 *
 * The aggregator (aggregator/files/recount.h) and the compactor run as child processes in a separate directory, until
 * the new archive has the same end as the pipeline's archive. Killed child processes continue when the command is
 * repeated. `millrace compact --replace` then checks every condition again, and replaces the old archive by the new
 * archive. */
#include "base/xxh3.h"
#include "counts/counters.h"
#include "json/json_fields.h"
#include "counts/manifest.h"
#include "counts/slice_reader.h"
#include "tools/tool.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_STRING(
        "to_archive", "directory for the new archive (default: DATA_DIR/recount)", .min = 1, .max = 4000),
    SETTING_BOOL("from",
        "read the lines of each FILE from the file: files of ps_to_file, and files that were counted with "
        "`aggregator --input`",
        .flags = OPTION_COMMAND_LINE),
    {.name = NULL},
};

struct recount {
    const struct config *config;
    struct pipeline pipeline;
    char *archive, *to, *counting; /* counting: data directory of the child aggregator */
    struct counters *counters;
    struct manifest current;
};

/* Runs the program and waits for its end. Returns the exit status. */
static int run_child(struct tool_args *a)
{
    return tool_wait(tool_start(a, -1, -1));
}

#define MANIFEST_SUFFIX ".manifest.json"

/* True for a manifest of ps_to_file, which a glob for the files of ps_to_file may also match. */
static bool is_manifest(const char *path)
{
    size_t n = strlen(path), suffix = strlen(MANIFEST_SUFFIX);
    return n > suffix && strcmp(path + n - suffix, MANIFEST_SUFFIX) == 0;
}

/* True if ps_to_file has written the file. Such a file has a manifest in the same directory (archived_file.h). */
static bool has_manifest(const char *path)
{
    static const char *const packed[] = {"", ".gz", ".zst"};
    size_t n = strlen(path);
    bool has = false;
    for (size_t i = 0; i < sizeof packed / sizeof *packed && !has; i++) {
        size_t suffix = strlen(packed[i]);
        if (n <= suffix || strcmp(path + n - suffix, packed[i]) != 0)
            continue;
        char *name = mem_printf("%.*s" MANIFEST_SUFFIX, (int)(n - suffix), path);
        has = access(name, F_OK) == 0;
        free(name);
    }
    return has;
}

static int count(const struct recount *r, const char *mode, char **files, size_t n)
{
    struct tool_args a = tool_args_for("aggregator");
    tool_add_arg(&a, "--config=%s", r->config->path);
    tool_add_arg(&a, "--data-dir=%s", r->counting);
    tool_add_arg(&a, "--archive=%s", r->to);
    if (!config_setting(r->config, "aggregator", "pubsub_url"))
        tool_add_arg(&a, "--pubsub-url=%s", pipeline_url(&r->pipeline, "pubsub"));
    tool_add_arg(&a, "%s", mode);
    for (size_t i = 0; i < n; i++)
        tool_add_arg(&a, "%s", files[i]);
    return run_child(&a);
}

/* Counts the files that the pipeline has counted with --input, then the streams. Files of ps_to_file may replace
 * deleted lines of a stream. */
static int count_all(const struct recount *r, char **files, size_t n)
{
    char **parts = mem_zalloc((n + 1) * sizeof *parts), **inputs = mem_zalloc((n + 1) * sizeof *inputs);
    size_t n_parts = 0, n_inputs = 0;
    int status = EX_OK;
    for (size_t i = 0; i < n; i++) {
        if (is_manifest(files[i]))
            continue;
        if (has_manifest(files[i]))
            parts[n_parts++] = files[i];
        else
            inputs[n_inputs++] = files[i];
    }
    char *mode = mem_printf("--recount=%s", r->archive);
    if (n_inputs > 0)
        status = count(r, "--input", inputs, n_inputs);
    if (status == EX_OK)
        status = count(r, mode, parts, n_parts);
    free(mode);
    free(parts);
    free(inputs);
    return status;
}

static int compact(const struct recount *r)
{
    struct tool_args init = tool_args_for("compactor"), a = tool_args_for("compactor");
    tool_add_arg(&init, "--archive=%s", r->to);
    tool_add_arg(&init, "--shards=%" PRIu32, r->current.shards);
    tool_add_arg(&init, "--init");
    int status = run_child(&init);
    tool_free_args(&init);
    if (status != EX_OK)
        return status;
    tool_add_arg(&a, "--config=%s", r->config->path);
    tool_add_arg(&a, "--archive=%s", r->to);
    tool_add_arg(&a, "--slices=%s/slices", r->counting);
    tool_add_arg(&a, "--aggregator-url=stopped");
    tool_add_arg(&a, "--sortdb-url=none");
    tool_add_arg(&a, "--shards=%" PRIu32, r->current.shards);
    tool_add_arg(&a, "--keep=1");
    tool_add_arg(&a, "--every=0");
    return run_child(&a);
}

static int read_current(struct recount *r)
{
    struct error error;
    manifest_free(&r->current);
    if (manifest_read_current(r->archive, &r->current, &error) != MANIFEST_OK)
        return tool_fail_at(EX_CONFIG, r->archive, error.text);
    if (r->current.through == 0)
        return tool_fail(
            EX_CONFIG, "the archive %s has no counts yet; run `millrace compact` first", r->archive);
    return EX_OK;
}

/* Refuses the recount if a sealed slice has other counters than the configuration, and the archive does not include
 * the slice. */
static int check_sealed(const struct recount *r, const struct json_doc *slices)
{
    for (size_t i = 0; i < json_doc_length(slices, "/slices"); i++) {
        uint64_t number = json_doc_number(slices, "/slices/%zu/slice", i);
        struct slice_reader *reader = NULL;
        char *path = bytes_dup(json_doc_text(slices, "/slices/%zu/file", i));
        bool is_known = number <= r->current.through;
        bool is_other = !is_known && slice_reader_open_sealed(path, &reader, NULL) == SLICE_OK &&
                        strcmp(slice_reader_state(reader)->counters, r->counters->text) != 0;
        if (reader)
            slice_reader_close(&reader);
        free(path);
        if (is_other)
            return tool_fail(EX_CONFIG,
                "slice %" PRIu64 " has other counters, and the archive does not include it; run `millrace "
                "compact --config=%s` first",
                number, r->config->path);
    }
    return EX_OK;
}

/* Refuses a directory with other files, such as the directory of a daemon. The directory of the new archive may be
 * missing, empty, or from an earlier recount. */
static int check_directory(const struct recount *r)
{
    DIR *dir = access(r->counting, F_OK) != 0 ? opendir(r->to) : NULL;
    const struct dirent *e = dir ? readdir(dir) : NULL;
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0))
        e = readdir(dir);
    bool is_other = e != NULL;
    if (dir)
        closedir(dir);
    return is_other ? tool_fail(EX_CONFIG, "%s has other files; recount into another directory", r->to)
                    : EX_OK;
}

/* Checks early whether the aggregator has the new counters, as `compact --replace` requires. */
static int check_aggregator(const struct recount *r)
{
    struct error error;
    uint64_t hash = 0;
    int status = EX_OK;
    struct json_doc *slices = pipeline_ask(
        &r->pipeline, "aggregator", &(struct http_call_spec){.method = "GET", .target = "/slices"}, &error);
    if (!slices)
        status = tool_fail(EX_TEMPFAIL, "the aggregator at %s does not answer: %s",
            pipeline_url(&r->pipeline, "aggregator"), error.text);
    else if (!json_doc_u64(slices, "/counters", &hash) ||
             hash != XXH3_64bits(r->counters->text, strlen(r->counters->text)))
        status = tool_fail(EX_CONFIG,
            "the aggregator has other counters; restart it with %s first, then run `millrace compact`",
            r->config->path);
    else
        status = check_sealed(r, slices);
    json_doc_free(&slices);
    return status;
}

static bool ends_where(const struct manifest *m, const struct manifest *current)
{
    for (size_t i = 0; i < current->n_streams; i++) {
        bool found = current->streams[i].name[0] == '.';
        for (size_t k = 0; k < m->n_streams && !found; k++)
            found = strcmp(m->streams[k].name, current->streams[i].name) == 0 &&
                    m->streams[k].end == current->streams[i].end;
        if (!found)
            return false;
    }
    return true;
}

/* Counts and merges until the new archive has the same end as the pipeline's archive, which may grow meanwhile. */
static int make_archive(struct recount *r, char **files, size_t n)
{
    struct error error;
    struct manifest made = {0};
    int status;
    do {
        status = count_all(r, files, n);
        if (status == EX_OK)
            status = compact(r);
        if (status == EX_OK)
            status = read_current(r);
        manifest_free(&made);
        if (status == EX_OK && manifest_read_current(r->to, &made, &error) != MANIFEST_OK)
            status = tool_fail(EX_TEMPFAIL, "cannot read %s: %s", r->to, error.text);
    } while (status == EX_OK && !ends_where(&made, &r->current));
    manifest_free(&made);
    return status;
}

static int report(const struct recount *r)
{
    struct buf gone = {0};
    static char name[] = "rejects", count_option[] = "--count";
    char *rejects[] = {name, count_option, r->counting, NULL};
    fflush(stderr);
    int status = tool_rejects(3, rejects);
    counters_append_missing(r->current.retired, r->counters->text, &gone);
    counters_append_missing(r->current.counters, r->counters->text, &gone);
    if (gone.len > 0)
        fprintf(stderr, "The new archive has no counts of these counters, which the old one has:\n%.*s",
            (int)gone.len, gone.ptr);
    buf_free(&gone);
    fprintf(stderr,
        "`millrace rejects %s` prints the lines that the recount rejected, also those that the old archive "
        "counts.\n",
        r->counting);
    fprintf(stderr,
        "The new archive is complete. To put it in the place of the old one:\n"
        "    millrace compact --config=%s --replace=%s\n",
        r->config->path, r->to);
    return status;
}

static int run(const struct options *o)
{
    struct error error;
    struct recount r = {.config = options_config(o)};
    char **files;
    size_t n = options_operands(o, &files);
    if ((n > 0) != options_bool(o, "from"))
        return tool_fail(
            EX_USAGE, "--from needs files, and files need --from: millrace recount --from FILE...");
    if (!r.config)
        return tool_fail(EX_CONFIG, "--config must name the file with the new counters");
    if (counters_read(r.config, &r.counters, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", error.text);
    pipeline_open(&r.pipeline, r.config, options_string(o, "data_dir"));
    r.archive = pipeline_archive_dir(r.config, r.pipeline.data_dir);
    const char *to = options_text(o, "to_archive");
    r.to = to ? mem_strdup(to) : mem_printf("%s/recount", r.pipeline.data_dir);
    r.counting = mem_printf("%s/counting", r.to);
    int status = check_directory(&r);
    if (status == EX_OK)
        status = tool_check_runs(&r.pipeline);
    if (status == EX_OK)
        status = read_current(&r);
    if (status == EX_OK)
        status = check_aggregator(&r);
    if (status == EX_OK)
        status = make_archive(&r, files, n);
    if (status == EX_OK)
        status = report(&r);
    manifest_free(&r.current);
    counters_free(&r.counters);
    pipeline_close(&r.pipeline);
    free(r.archive);
    free(r.to);
    free(r.counting);
    return status;
}

int tool_recount(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "recount",
        .summary = "counts all events of the streams again with changed counters, into a new archive",
        .operands = "[--from FILE...]",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, run);
}
