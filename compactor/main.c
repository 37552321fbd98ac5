/* compactor: wires options, lock, HTTP and terminal to one run over an archive, or to a schedule of runs. */
#include "compactor/archive.h"
#include "compactor/control.h"
#include "compactor/repeat.h"
#include "daemon/daemon.h"
#include "base/io.h"
#include "base/log.h"
#include "base/progress.h"
#include "config/options.h"
#include "config/peers.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

static const struct option_row rows[] = {
    {.name = "archive", .type = OPTION_STRING, .min = 1, .max = 4000, .help = "directory of the archive"},
    {.name = "slices",
        .type = OPTION_STRING,
        .min = 1,
        .max = 4000,
        .help = "directory of the slices: the aggregator's data_dir followed by /slices"},
    {.name = "aggregator_url",
        .type = OPTION_STRING,
        .help = "address of the aggregator (default: [aggregator] of the file)"},
    {.name = "sortdb_url",
        .type = OPTION_STRING,
        .help = "addresses of all sortdbs that serve the archive, separated by commas; none: there is no "
                "sortdb, and slices are kept "
                "(default: [sortdb] of the file)"},
    {.name = "shards",
        .type = OPTION_INT,
        .min = 1,
        .max = MANIFEST_SHARDS_MAX,
        .help = "number of files in the archive (default: unchanged, 1 at first)"},
    {.name = "keep",
        .type = OPTION_INT,
        .fallback = "2",
        .min = 1,
        .max = 1000000,
        .unit = "generations",
        .help = "generations to keep, including the current one"},
    {.name = "init",
        .type = OPTION_BOOL,
        .fallback = "false",
        .flags = OPTION_COMMAND_LINE,
        .help = "create the empty generation 0 if there is none, and exit"},
    {.name = "every",
        .type = OPTION_DURATION,
        .fallback = "0",
        .max = INT64_C(366) * 24 * 3600 * 1000,
        .unit = "s",
        .help = "keep running, and compact in this interval; 0: compact once and exit"},
    {.name = "at",
        .type = OPTION_STRING,
        .fallback = "04:00",
        .help = "time of day of the runs of --every, in UTC"},
    {.name = "auth_token_file", .type = OPTION_STRING, .help = "file with the token of the daemons"},
    {.name = "log_format",
        .type = OPTION_CHOICE,
        .fallback = "text",
        .choices = "text|json",
        .help = "format of the log"},
    {0},
};

static int fail(const char *what, int status)
{
    log_error(what);
    return status;
}

static void show_progress(const struct run_progress *at, void *arg)
{
    progress_show(arg, at->step, at->done, at->total, at->records, false, clock_monotonic());
}

static int run_over_http(struct options *o)
{
    char error[COMPACT_ERROR_TEXT] = "", *token;
    struct config_error wrong;
    struct run_outcome out;
    struct progress progress;
    if (daemon_read_token(options_string(o, "auth_token_file"), &token, &wrong) != 0)
        return fail(wrong.text, EX_CONFIG);
    struct control *control = control_new(
        &(struct control_config){
            .aggregator_url = peer_url(o, "aggregator"),
            .sortdb_urls = peer_url(o, "sortdb"),
            .auth_token = token,
        },
        error);
    free(token);
    if (!control)
        return fail(error, EX_CONFIG);
    struct run_spec spec = {.archive = options_string(o, "archive"),
        .slices = options_string(o, "slices"),
        .shards = options_is_set(o, "shards") ? (uint32_t)options_int(o, "shards") : 0,
        .keep = (unsigned)options_int(o, "keep"),
        .now = clock_wall() / USEC_PER_SEC,
        .control = control_calls(control),
        .on_progress = show_progress,
        .arg = &progress};
    progress_begin(&progress, "records", false, clock_monotonic());
    enum compact_result r = run_compact(&spec, &out, error);
    progress_erase();
    control_free(&control);
    if (r != COMPACT_OK) {
        log_error(compact_strerror(r), LOG_S("error", error));
        return compact_exit_status(r);
    }
    log_info(out.published ? "published a new generation" : "nothing new to merge",
        LOG_U("generation", out.generation), LOG_U("through", out.through), LOG_U("slices", out.slices),
        LOG_U("records", out.records), LOG_U("bytes", out.bytes));
    if (out.collisions)
        log_warn("two texts have the same hash; kept the smaller one", LOG_U("lookups", out.collisions),
            LOG_S("last", out.collision));
    if (!out.served)
        log_warn("sortdb_url is none: the slices are kept");
    return EX_OK;
}

static int run_init(const struct options *o)
{
    char why[COMPACT_ERROR_TEXT] = "";
    const char *archive = options_string(o, "archive");
    uint32_t shards = options_is_set(o, "shards") ? (uint32_t)options_int(o, "shards") : 1;
    enum compact_result r = archive_recover(archive, why);
    if (r == COMPACT_OK)
        r = archive_init(archive, shards, clock_wall() / USEC_PER_SEC, why);
    if (r != COMPACT_OK)
        log_error(compact_strerror(r), LOG_S("error", why));
    return compact_exit_status(r);
}

/* One run, under the lock of the archive. */
static int run_locked(void *arg)
{
    struct options *o = arg;
    struct config_error error;
    if (daemon_lock_directory(options_string(o, "archive"), &error) != 0)
        return fail(error.text, errno == EWOULDBLOCK ? EX_TEMPFAIL : EX_CONFIG);
    daemon_raise_file_limit();
    return options_bool(o, "init") ? run_init(o) : run_over_http(o);
}

/* Reads --every and --at. Returns 0, or -1 with the error. */
static int read_schedule(const struct options *o, struct schedule *s, struct config_error *error)
{
    s->every = options_int(o, "every") / 1000;
    if (s->every < SCHEDULE_EVERY_MIN && options_int(o, "every") != 0)
        return options_refuse(o, "every", error, "expected 0, or at least one minute");
    if (!schedule_parse_at(bytes_str(options_string(o, "at")), &s->at))
        return options_refuse(o, "at", error, "expected a time of day in UTC, such as 04:00");
    return 0;
}

static int run_options(struct options *o)
{
    struct config_error error;
    struct repeat_spec repeat = {.archive = options_string(o, "archive"), .run = run_locked, .arg = o};
    if (read_schedule(o, &repeat.schedule, &error) != 0)
        return fail(error.text, EX_CONFIG);
    if (options_check_only(o)) {
        options_show_settings(o);
        return EX_OK;
    }
    if (!repeat.archive)
        return fail("archive is not set; it names the directory of the archive", EX_CONFIG);
    if (!options_bool(o, "init") && !options_string(o, "slices"))
        return fail("slices is not set; it names the aggregator's directory of slices", EX_CONFIG);
    return repeat.schedule.every > 0 && !options_bool(o, "init") ? repeat_runs(&repeat) : run_locked(o);
}

int main(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "compactor",
        .summary = "merges the aggregator's sealed slices into the archive",
        .rows = {rows, NULL}};
    struct options *o;
    io_reserve_stdio();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    enum options_result r = options_parse(&spec, argc, argv, &o);
    int status = r == OPTIONS_USAGE ? EX_USAGE : r == OPTIONS_CONFIG ? EX_CONFIG : EX_OK;
    bool json = r == OPTIONS_OK && strcmp(options_string(o, "log_format"), "json") == 0;
    log_init("compactor", LOG_LEVEL_INFO, json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT);
    if (r == OPTIONS_OK)
        status = run_options(o);
    else if (r != OPTIONS_EXIT)
        fprintf(stderr, "compactor: %s\n", options_error(o));
    options_free(&o);
    return status;
}
