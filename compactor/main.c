/* compactor: connects options, lock, HTTP and terminal with a run over an archive, or with a schedule of runs. */
#include "archive/archive_options.h"
#include "compactor/archive.h"
#include "compactor/change.h"
#include "compactor/control.h"
#include "compactor/export.h"
#include "compactor/forget_sub.h"
#include "compactor/import_options.h"
#include "compactor/receive.h"
#include "compactor/repeat.h"
#include "compactor/verify.h"
#include "daemon/daemon.h"
#include "daemon/daemon_directory.h"
#include "base/io.h"
#include "base/log.h"
#include "base/progress.h"
#include "config/options.h"
#include "config/peers.h"
#include "counts/slice_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define NONE "none" /* no aggregator, or no sortdb */
#define STOPPED "stopped"
#define DRY_NONE 2   /* exit status of --dry-run if no generation has the key */
#define NOT_COPIED 2 /* exit status of --receive if the generation must be copied */

static const struct option_row rows[] = {
    SETTING_STRING("archive", "directory of the archive", .min = 1, .max = 4000),
    SETTING_STRING("slices", "directory of the slices: the aggregator's data_dir followed by /slices",
        .min = 1, .max = 4000),
    SETTING_STRING("aggregator_url",
        "address of the aggregator (default: from [aggregator] in the configuration); none: merge no slices; "
        "stopped: merge the slices that the aggregator sealed before it was stopped"),
    SETTING_STRING("sortdb_url",
        "addresses, separated by commas, of all daemons that serve the archive (default: from [sortdb] in "
        "the configuration); none: no daemon serves the archive, and slices are kept"),
    SETTING_INT("threads", "0", 0, MANIFEST_SHARDS_MAX,
        "threads of the merge, at most one for each shard; 0: the number of processors",
        .excludes = "init|export|verify"),
    SETTING_BOOL("init", "create the empty generation 0 if the archive has no generation, and exit",
        .flags = OPTION_COMMAND_LINE),
    SETTING_STRING("receive",
        "used by `millrace distribute`: publish the generation that was copied to ARCHIVE/copy-N "
        "(GENERATION/CHECKSUM of its manifest); exit status 2 if it is not copied",
        .flags = OPTION_COMMAND_LINE),
    SETTING_BOOL("look", "with --receive: change nothing; exit status 2 if the generation is not current",
        .needs = "receive", .flags = OPTION_COMMAND_LINE),
    SETTING_DURATION("every", "0", 0, INT64_C(366) * 24 * 3600 * 1000, "s",
        "compact repeatedly, in this interval; 0: compact once and exit",
        .excludes = "init|import|export|verify|drop_before|drop_hours_before|forget|forget_sub|replace"),
    SETTING_STRING("at", "time of day of the runs of --every, in UTC", .fallback = "04:00", .needs = "every"),
    SETTING_DURATION("reply_timeout", "600s", 1000, INT64_C(24) * 3600 * 1000, "s",
        "timeout of a request to a daemon; while the daemon answers /ping, the request is repeated",
        .excludes = "init|export|verify"),
    SETTING_STRING("auth_token_file", "file with the token for the daemons of aggregator_url and sortdb_url",
        OPTION_INHERITS_TOKEN("aggregator")),
    SETTING_CHOICE("log_format", "text", "text|json", "format of the log"),
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

static int report_failure(enum compact_result r, const struct error *error)
{
    bool is_full = strstr(error->text, "disk space") || strstr(error->text, strerror(ENOSPC));
    daemon_log_error(compact_strerror(r), is_full ? DAEMON_FREE_DISK : "", error->text);
    return compact_exit_status(r);
}

struct session {
    bool has_aggregator;
    struct control *control;
    struct progress progress;
    struct run_spec spec;
    struct run_outcome out;
};

/* Returns 0, or the exit status after logging the error. */
static int session_open(struct session *s, struct options *o, bool merges_slices)
{
    struct error error;
    char *token;
    struct error wrong;
    const char *aggregator = peer_url(o, "aggregator");
    *s = (struct session){
        .has_aggregator = merges_slices && strcmp(aggregator, NONE) != 0 && strcmp(aggregator, STOPPED) != 0};
    if (daemon_read_token(options_string(o, "auth_token_file"), &token, &wrong) != 0)
        return fail(wrong.text, EX_CONFIG);
    s->control = control_new(
        &(struct control_config){
            .aggregator_url = merges_slices ? aggregator : NONE,
            .slices = options_string(o, "slices"),
            .sortdb_urls = peer_url(o, "sortdb"),
            .auth_token = token,
            .reply_timeout = options_int(o, "reply_timeout") * USEC_PER_MSEC,
        },
        &error);
    free(token);
    if (!s->control)
        return fail(error.text, EX_CONFIG);
    s->spec = (struct run_spec){.archive = options_string(o, "archive"),
        .slices = options_string(o, "slices"),
        .shards = options_is_set(o, "shards") ? (uint32_t)options_int(o, "shards") : 0,
        .keep = (unsigned)options_int(o, "keep"),
        .memory = (size_t)options_int(o, "memory"),
        .threads = (unsigned)options_int(o, "threads"),
        .now = clock_wall() / USEC_PER_SEC,
        .discards_newer = options_bool(o, "discard_newer"),
        .control = control_calls(s->control),
        .on_progress = show_progress,
        .arg = &s->progress};
    progress_begin(&s->progress, "records", false, clock_monotonic());
    return EX_OK;
}

/* On a terminal, asks whether to drop the changes that the error lists. */
static bool may_discard(const struct error *error)
{
    char answer[8] = "";
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return false;
    fprintf(stderr, "%s.\nDrop it now? [y/N] ", error->text);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static enum compact_result session_run(struct session *s, struct error *error)
{
    enum compact_result r = run_compact(&s->spec, &s->out, error);
    const struct run_outcome *out = &s->out;
    progress_erase();
    if (r != COMPACT_OK && out->must_ask && may_discard(error)) {
        s->spec.discards_newer = true;
        r = run_compact(&s->spec, &s->out, error);
        progress_erase();
    }
    if (r != COMPACT_OK)
        return r;
    log_info(out->published ? "published a new generation" : "nothing new to merge",
        LOG_U("generation", out->generation), LOG_U("through", out->through), LOG_U("slices", out->slices),
        LOG_U("records", out->records), LOG_U("bytes", out->bytes));
    if (out->collisions)
        log_warn("two texts have the same hash; kept the smaller text", LOG_U("lookups", out->collisions),
            LOG_S("last", out->collision));
    if (!out->served && s->has_aggregator)
        log_warn("sortdb_url is none: the slices are kept");
    return r;
}

static int run_merge(struct options *o)
{
    struct error error;
    struct session s;
    int status = session_open(&s, o, true);
    if (status != EX_OK)
        return status;
    s.spec.replace = options_text(o, "replace");
    enum compact_result r = session_run(&s, &error);
    control_free(&s.control);
    return r == COMPACT_OK ? EX_OK : report_failure(r, &error);
}

static int run_replace(struct options *o)
{
    struct error error;
    struct stat own, other;
    const char *archive = options_string(o, "archive"), *by = options_string(o, "replace");
    if (strcmp(peer_url(o, "aggregator"), NONE) == 0 || strcmp(peer_url(o, "aggregator"), STOPPED) == 0)
        return fail("--replace needs the running aggregator of the pipeline", EX_CONFIG);
    if (stat(by, &other) != 0 || !S_ISDIR(other.st_mode))
        return fail("--replace: there is no such directory; run `millrace recount` first", EX_NOINPUT);
    if (stat(archive, &own) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino)
        return fail("--replace names the archive itself", EX_CONFIG);
    if (daemon_lock_directory(by, &error) != 0)
        return fail(error.text, daemon_lock_status());
    return run_merge(o);
}

static enum compact_result prepare_archive(const struct options *o, struct error *error)
{
    const char *archive = options_string(o, "archive");
    uint32_t shards = options_is_set(o, "shards") ? (uint32_t)options_int(o, "shards") : 1;
    enum compact_result r = archive_recover(archive, error);
    return r == COMPACT_OK ? archive_init(archive, shards, clock_wall() / USEC_PER_SEC, error) : r;
}

static void report_change(const struct options *o, const struct change *c, const struct run_outcome *out)
{
    struct change_report report = change_report(c);
    if (options_bool(o, "import"))
        log_info("imported", LOG_U("records", report.imported));
    if (report.skipped.rows)
        log_warn("skipped wrong rows", LOG_U("rows", report.skipped.rows),
            LOG_S("first", report.first_skipped), LOG_U("lines", report.skipped.lines));
    if (report.collisions)
        log_warn("two texts have the same hash; kept the smaller text", LOG_U("lookups", report.collisions),
            LOG_S("last", report.collision));
    if (options_text(o, "forget"))
        log_info(
            "forgotten; slices after `through`, streams, rejects files and backups may still have the key",
            LOG_U("records", report.forgotten), LOG_U("through", out->through));
    if (report.as_sub)
        log_warn("the text remains as a sub key of other keys; --forget-sub moves its counts to (other)",
            LOG_U("records", report.as_sub));
    if (report.is_of_sets)
        log_info("removed the member from sets; slices after `through`, streams, rejects files and backups "
                 "may still "
                 "have the member",
            LOG_U("sets", report.moved), LOG_U("lookups", report.lookups), LOG_U("through", out->through));
    else if (options_text(o, "forget_sub"))
        log_info("moved the counts of the sub key to (other); slices after `through`, streams, rejects files "
                 "and backups may still have the sub key",
            LOG_U("records", report.moved), LOG_U("lookups", report.lookups), LOG_U("through", out->through));
}

static int check_forget_sub(const struct options *o)
{
    const char *text = options_text(o, "forget_sub"), *wrong = text ? forget_sub_check(text) : NULL;
    struct error error;
    if (!wrong)
        return 0;
    options_refuse(o, "forget_sub", &error, "%s", wrong);
    log_error(error.text);
    return -1;
}

static int read_date(const struct options *o, const char *name, int64_t *seconds)
{
    const char *text = options_text(o, name);
    struct error error;
    if (!text || change_parse_date(text, seconds))
        return 0;
    options_refuse(o, name, &error, "expected a day from 2000 to 2159, such as 2026-01-31");
    log_error(error.text);
    return -1;
}

static int run_change_in(struct session *s, struct options *o)
{
    struct error error;
    char **files = NULL;
    struct change *c = NULL;
    struct import_csv_spec csv;
    if (import_options_read(o, &csv, &error) != 0)
        return fail(error.text, error.code);
    struct change_spec spec = {.archive = options_string(o, "archive"),
        .again = options_bool(o, "again"),
        .memory = (size_t)options_int(o, "memory"),
        .drop_ns = options_text(o, "ns"),
        .forget = options_text(o, "forget"),
        .forget_sub = options_text(o, "forget_sub"),
        .on_progress = show_progress,
        .arg = &s->progress};
    read_date(o, "drop_before", &spec.drop_before);
    read_date(o, "drop_hours_before", &spec.drop_hours_before);
    if (options_bool(o, "import"))
        spec.n_imports = options_operands(o, &files);
    spec.imports = files;
    spec.csv = csv.counters ? &csv : NULL;
    struct counters *counters = NULL;
    if (options_config(o) && config_section(options_config(o), "input", "") &&
        counters_read(options_config(o), &counters, &error) != 0)
        return fail(error.text, EX_CONFIG);
    spec.counters = counters ? counters->text : NULL;
    if (spec.forget || spec.forget_sub)
        s->spec.keep = 1;
    enum compact_result r = prepare_archive(o, &error);
    if (r == COMPACT_OK)
        r = change_prepare(&spec, &s->spec, &c, &error);
    bool is_needed = r == COMPACT_OK && change_is_needed(c), dry = options_bool(o, "dry_run");
    if (is_needed && !dry)
        r = session_run(s, &error);
    progress_erase();
    if (r == COMPACT_OK && is_needed && dry)
        log_info("a generation has the key; nothing was changed");
    else if (r == COMPACT_OK && is_needed)
        report_change(o, c, &s->out);
    else if (r == COMPACT_OK)
        log_info("no generation has the key; nothing was changed", LOG_U("records", 0));
    change_free(&c);
    import_options_free(&csv);
    counters_free(&counters);
    if (r != COMPACT_OK)
        return report_failure(r, &error);
    return dry && !is_needed ? DRY_NONE : EX_OK;
}

/* Before a removal by key, a run merges the slices, so that the scan for the key reads all counts. */
static int run_change(struct options *o)
{
    struct session s;
    bool has_aggregator = strcmp(peer_url(o, "aggregator"), NONE) != 0;
    bool forgets = options_text(o, "forget") || options_text(o, "forget_sub");
    int status = forgets && has_aggregator && !options_bool(o, "dry_run") ? run_merge(o) : EX_OK;
    if (status == EX_OK)
        status = session_open(&s, o, !forgets);
    if (status == EX_OK) {
        status = run_change_in(&s, o);
        control_free(&s.control);
    }
    return status;
}

static int run_export(struct options *o)
{
    struct error error;
    char **files;
    const char *to = options_operands(o, &files) ? files[0] : NULL;
    enum compact_result r = export_archive(options_string(o, "archive"), to, &error);
    return r == COMPACT_OK ? EX_OK : report_failure(r, &error);
}

static void show_verified(uint64_t bytes, uint64_t total, void *arg)
{
    progress_show(arg, "verify", bytes, total, bytes, false, clock_monotonic());
}

static int run_verify(struct options *o)
{
    struct error error;
    struct progress progress;
    struct verify_report report;
    struct verify_spec spec = {.archive = options_string(o, "archive"),
        .slices = options_string(o, "slices"),
        .on_progress = show_verified,
        .arg = &progress};
    progress_begin(&progress, "bytes", false, clock_monotonic());
    enum compact_result r = verify_archive(&spec, &report, &error);
    progress_erase();
    if (r != COMPACT_OK)
        return report_failure(r, &error);
    log_info("verified", LOG_U("generation", report.generation), LOG_U("records", report.records),
        LOG_U("bytes", report.bytes),
        LOG_S("previous", report.compared ? "equal with its slices" : "not compared"));
    if (report.unequal)
        log_warn("some subtotals do not add up to their totals: a counter was added later, or is missing "
                 "from an import",
            LOG_U("periods", report.unequal), LOG_S("first", report.example));
    return EX_OK;
}

static int run_receive(struct options *o)
{
    struct error error;
    struct session s;
    bool is_needed;
    struct receive_spec spec = {.archive = options_string(o, "archive"),
        .looks = options_bool(o, "look"),
        .keep = (unsigned)options_int(o, "keep"),
        .on_progress = show_verified,
        .arg = &s.progress};
    if (!receive_parse(options_text(o, "receive"), &spec))
        return fail("--receive: expected GENERATION/CHECKSUM", EX_USAGE);
    int status = session_open(&s, o, false);
    if (status != EX_OK)
        return status;
    spec.control = control_calls(s.control);
    enum compact_result r = receive_generation(&spec, &is_needed, &error);
    progress_erase();
    control_free(&s.control);
    return r != COMPACT_OK ? report_failure(r, &error) : is_needed ? NOT_COPIED : EX_OK;
}

static int run_init(struct options *o)
{
    struct error error;
    enum compact_result r = prepare_archive(o, &error);
    return r == COMPACT_OK ? EX_OK : report_failure(r, &error);
}

/* The commands other than a usual run, with the option that selects each command. */
static const struct act {
    const char *option;
    int (*run)(struct options *o);
    size_t operands_min, operands_max;
    bool is_text;    /* the option has a value */
    bool changes;    /* the command also merges slices, so `slices` must be set */
    bool reads_only; /* the command needs no lock */
    bool creates;    /* the command creates a missing archive, even if there are slices */
} acts[] = {
    {"init", run_init, .operands_max = 0, .creates = true},
    {"export", run_export, .operands_max = 1, .reads_only = true},
    {"verify", run_verify, .operands_max = 0},
    {"import", run_change, 1, SIZE_MAX, .changes = true},
    {"drop_before", run_change, .is_text = true, .changes = true},
    {"drop_hours_before", run_change, .is_text = true, .changes = true},
    {"forget", run_change, .is_text = true, .changes = true},
    {"forget_sub", run_change, .is_text = true, .changes = true},
    {"replace", run_replace, .is_text = true, .changes = true},
    {"receive", run_receive, .is_text = true, .creates = true},
};
static const struct act merge_act = {"", run_merge, .changes = true};

/* Finds the command that the options select. Only an import can be combined with another command: drop_hours_before.
 * Returns NULL with the error. */
static const struct act *find_act(const struct options *o, struct error *error)
{
    const struct act *found = &merge_act;
    char **files;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        bool is_asked =
            acts[i].is_text ? options_text(o, acts[i].option) != NULL : options_bool(o, acts[i].option);
        bool joins = strcmp(found->option, "import") == 0 && strcmp(acts[i].option, "drop_hours_before") == 0;
        if (!is_asked || joins)
            continue;
        if (found != &merge_act) {
            error_set(error, EX_USAGE, "--%s and --%s cannot be combined", found->option, acts[i].option);
            return NULL;
        }
        found = &acts[i];
    }
    size_t n = options_operands(o, &files);
    if (n >= found->operands_min && n <= found->operands_max)
        return found;
    if (n < found->operands_min)
        error_set(error, EX_USAGE, "--%s needs a file", found->option);
    else
        error_set(error, EX_USAGE, "unexpected argument: %.200s", files[found->operands_max]);
    return NULL;
}

/* Locks the data directory of a stopped aggregator: the parent of its slices. */
static int lock_stopped(const struct options *o, struct error *error)
{
    char *parent = mem_printf("%s/..", options_string(o, "slices"));
    int failed = daemon_lock_directory(parent, error), saved = errno;
    free(parent);
    errno = saved;
    return failed;
}

/* Runs the command, under the archive's lock if the command writes. */
static int run_locked(void *arg)
{
    struct options *o = arg;
    struct error error;
    const struct act *act = find_act(o, NULL);
    if (!act->creates && options_string(o, "slices") &&
        slice_files_check_archive(options_string(o, "slices"), options_string(o, "archive"), &error) != 0)
        return fail(error.text, EX_CONFIG);
    if (!act->reads_only && !options_bool(o, "look") &&
        daemon_lock_directory(options_string(o, "archive"), &error) != 0)
        return fail(error.text, daemon_lock_status());
    if (act->changes && strcmp(peer_url(o, "aggregator"), STOPPED) == 0 && lock_stopped(o, &error) != 0)
        return fail(error.text, daemon_lock_status());
    daemon_raise_file_limit();
    int status = act->run(o);
    char *newest = mem_printf("%s/newest", options_string(o, "archive"));
    if (status == EX_OK && act == &merge_act)
        (void)utimensat(AT_FDCWD, newest, NULL, AT_SYMLINK_NOFOLLOW);
    free(newest);
    return status;
}

static int read_schedule(const struct options *o, struct schedule *s, struct error *error)
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
    struct error error;
    struct error wrong;
    struct repeat_spec repeat = {.archive = options_string(o, "archive"), .run = run_locked, .arg = o};
    const struct act *act = find_act(o, &wrong);
    int64_t day;
    if (!act)
        return fail(wrong.text, EX_USAGE);
    if (read_date(o, "drop_before", &day) != 0 || read_date(o, "drop_hours_before", &day) != 0 ||
        check_forget_sub(o) != 0)
        return EX_USAGE;
    if (import_options_check(o, &wrong) != 0)
        return fail(wrong.text, wrong.code);
    if (read_schedule(o, &repeat.schedule, &error) != 0)
        return fail(error.text, EX_CONFIG);
    if (options_check_only(o)) {
        options_show_settings(o);
        return EX_OK;
    }
    if (!repeat.archive)
        return fail("archive is not set; set it to the directory of the archive", EX_CONFIG);
    if (act->changes && !options_string(o, "slices") && strcmp(peer_url(o, "aggregator"), NONE) != 0)
        return fail("slices is not set; set it to the aggregator's directory of slices", EX_CONFIG);
    return repeat.schedule.every > 0 && act == &merge_act ? repeat_runs(&repeat) : run_locked(o);
}

int main(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "compactor",
        .summary = "merges the aggregator's sealed slices into the archive",
        .operands = "[FILE...]",
        .rows = {rows, archive_options, import_options, NULL}};
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
