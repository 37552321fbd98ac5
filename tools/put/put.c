/* millrace put, also millrace file_to_queue: posts lines to the local queue.
 *
 * With --producer a repeated put continues where the producer's mark is, and stores nothing twice (put_batch.h,
 * put_sources.h). */
#include "tools/put/put_door.h"
#include "tools/put/put_files.h"
#include "tools/put/put_follow.h"
#include "tools/put/log_format.h"

#include "base/amount.h"
#include "base/io.h"
#include "base/rfc3339.h"
#include "base/url.h"
#include "config/reject_options.h"
#include "daemon/daemon.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>

/* Options of other programs that post files. */
#define WITHOUT_EFFECT(NAME, WHY)                                                                            \
    {                                                                                                        \
        .name = (NAME), .type = OPTION_STRING, .means = "", .help = "no effect" WHY                          \
    }

static const struct option_row rows[] = {
    PEER_OPTIONS("queue", "simplequeue", ""),
    TOOL_DATA_DIR_SETTING,
    SETTING_STRING("queue", "name of the queue", .fallback = "default"),
    SETTING_STRING(
        "producer", "name that makes the put repeatable: a repeated put continues after the stored lines"),
    SETTING_CHOICE("format", "lines", "lines|combined|vhost_combined|csv",
        "lines: each line is an event; combined: an access log (common or combined); vhost_combined: the "
        "same after the virtual host; csv: the first line of each file names the fields"),
    SETTING_STRING(
        "log_format", "format of an access log, of Apache ('%h %l %u %t ...') or nginx ('$remote_addr ...')"),
    SETTING_STRING("delimiter", "character between the values of --format=csv, or tab (default: found in the "
                                "first line, among , ; tab |)"),
    SETTING_STRING("encoding", "encoding of the files, by its name in iconv, such as windows-1252 (default: "
                               "UTF-8; with --format=csv also UTF-16 with a byte order mark)"),
    SETTING_STRING("time_field",
        "column of --format=csv whose values become times, under the same name; empty: none "
        "(default: [input] time). Lines and access logs have their own times"),
    SETTING_STRING("time_format", "form of the times of --format=csv, as in strptime(3): %d.%m.%Y %H:%M"),
    SETTING_STRING("time_zone", "zone of times without a zone, such as Europe/Berlin", .fallback = "UTC"),
    SETTING_BOOL("follow",
        "follow growing logs across rotations; FILE may be a pattern in quotes; needs --producer",
        .letter = 'f'),
    SETTING_STRING("state", "file of the contents that --producer has posted (default: in DATA_DIR/put, else "
                            "in $XDG_STATE_HOME/millrace or ~/.local/state/millrace); with --follow, file "
                            "that names the current log file (default: .FILE.PRODUCER beside the log)"),
    SETTING_STRING("rejects", "file of the lines that are not events, or that the queue refuses; lines over "
                              "64 MiB are not kept (default: none; with --follow, in DATA_DIR/put, else "
                              "beside the log). Without a file, the first such line ends the put"),
    REJECT_LIMIT_OPTIONS,
    SETTING_INT("rate", "0", 0, 100000000,
        "lines a second (0: unlimited); a burst has at most the lines of a tenth of a second"),
    SETTING_INT("batch", "2000", 1, 1000000, "lines in a request"),
    SETTING_DURATION("timeout", "60s", 100, 86400000, "s",
        "give up after this time without progress (with --follow: never, unless set)"),
    SETTING_STRING(
        "input_file", "file to post", .flags = OPTION_COMMAND_LINE | OPTION_OPERAND, .means = "FILE"),
    SETTING_STRING("simplequeue_url", "address of simplequeue", .means = "queue_url"),
    WITHOUT_EFFECT("max_queue_depth", ": while the queue is full (its max_depth), put waits"),
    WITHOUT_EFFECT("concurrent_requests", ": a request has `batch` lines"),
    WITHOUT_EFFECT("check_simplequeue_interval", ""),
    WITHOUT_EFFECT("stats_interval", ": put shows its progress"),
    SETTING_BOOL("quiet", "print no progress and no summary"),
    {.name = NULL},
};

static void on_signal(int sig)
{
    (void)sig;
    put_stopped = 1;
}

static void summary(struct put *p, usec_t began)
{
    struct buf text = {0};
    double seconds = (double)(clock_monotonic() - began) / USEC_PER_SEC;
    if (options_bool(p->o, "quiet"))
        return;
    progress_show(&p->progress, NULL, p->packed_before, p->packed, p->taken, true, clock_monotonic());
    buf_printf(
        &text, "%" PRIu64 " %s posted", p->numbers.posted, plural(p->numbers.posted, "event", "events"));
    if (p->numbers.duplicates > 0)
        buf_printf(&text, ", %" PRIu64 " %s stored before", p->numbers.duplicates,
            plural(p->numbers.duplicates, "was", "were"));
    if (p->replaced > 0)
        buf_printf(&text, ", %" PRIu64 " with invalid text", p->replaced);
    if (p->resumed > 0)
        buf_printf(&text, "; the first %" PRIu64 " bytes were stored before", p->resumed);
    tool_fail(0, "%.*s, %.2f s", (int)text.len, text.ptr, seconds);
    buf_free(&text);
}

/* After an error: prints how much of each file is stored, so that the operator can post the rest. */
static void print_posted(const struct put *p)
{
    struct buf text = {0};
    for (size_t i = 0; i < p->n_done; i++) {
        const struct put_done *d = &p->done[i];
        if (d->lines > 0)
            buf_printf(&text, "%s%s %" PRIu64 " %s of %s", text.len > 0 ? ", " : "",
                d->is_whole ? "all" : "the first", d->lines,
                p->form.is_csv ? plural(d->lines, "record", "records") : plural(d->lines, "line", "lines"),
                strcmp(d->name, "-") == 0 ? "standard input" : d->name);
    }
    tool_fail(0, "posted by this run: %s", text.len > 0 ? text.ptr : "nothing");
    buf_free(&text);
}

static struct put_form form_of(const struct options *o)
{
    const char *log = options_string(o, "log_format"), *format = options_string(o, "format");
    if (log || strcmp(format, "lines") == 0)
        return (struct put_form){.log_format = log};
    bool is_csv = strcmp(format, "csv") == 0;
    return (struct put_form){.is_csv = is_csv, .log_format = is_csv ? NULL : format};
}

/* Refuses options that would have no effect on lines and access logs. */
static int check_csv_options(const struct options *o)
{
    static const struct {
        const char *name, *shown;
    } of_csv[] = {
        {"delimiter", "--delimiter"}, {"time_field", "--time-field"}, {"time_format", "--time-format"}};
    for (size_t i = 0; i < sizeof of_csv / sizeof *of_csv; i++)
        if (options_is_set(o, of_csv[i].name))
            return tool_fail(EX_USAGE,
                "%s is for --format=csv. JSON lines are posted unchanged, and have their time in the field "
                "that "
                "`time` of [input] names. The time of a line of an access log becomes the field `time`",
                of_csv[i].shown);
    return 0;
}

/* Checks all options and files before the first line is sent, so that a mistyped name posts nothing. */
static int check(const struct options *o)
{
    struct url_address address;
    char **files;
    const char *url = options_string(o, "queue_url"), *producer = options_string(o, "producer");
    if (url && url_address_parse(url, 8080, &address) != 0)
        return tool_fail(EX_USAGE, "--queue-url: expected http://HOST:PORT or unix:PATH");
    size_t n = options_operands(o, &files);
    bool follows = options_bool(o, "follow");
    if (producer && !bytes_is_name(bytes_str(producer)))
        return tool_fail(EX_USAGE, "--producer=%s is not a name (letters, digits, _ . -)", producer);
    if (!producer && options_is_set(o, "state"))
        return tool_fail(EX_USAGE, "--state needs --producer");
    if (follows && !producer)
        return tool_fail(EX_USAGE, "--follow needs --producer, to continue at its mark");
    if (!form_of(o).is_csv && check_csv_options(o) != 0)
        return EX_USAGE;
    if (follows && form_of(o).is_csv)
        return tool_fail(EX_USAGE, "--format=csv reads whole files: omit --follow");
    if (options_string(o, "log_format") && options_is_set(o, "format"))
        return tool_fail(EX_USAGE, "--log-format takes the place of --format: omit one");
    for (size_t i = 0; follows && i < n; i++)
        if (strcmp(files[i], "-") == 0)
            n = 0;
    if (follows && n == 0)
        return tool_fail(EX_USAGE, "--follow needs files");
    if (follows && n > 1 && options_is_set(o, "state"))
        return tool_fail(EX_USAGE, "--state is for one log: omit --state");
    int status = n == 0 ? put_files_check("-") : 0;
    for (size_t i = 0; i < n && !follows; i++) {
        int one = put_files_check(files[i]);
        status = one != 0 ? one : status;
    }
    const char *rejects = options_text(o, "rejects");
    if (status != 0 || !rejects)
        return status;
    /* If the rejects file were also an input, its lines would be refused and added again endlessly. */
    bool found = follows && put_follow_could_read(files, n, rejects);
    found = found || (n == 0 && io_is_same_file("/dev/stdin", rejects));
    for (size_t i = 0; i < n; i++)
        found = found || io_is_same_file(strcmp(files[i], "-") == 0 ? "/dev/stdin" : files[i], rejects);
    return found ? tool_fail(EX_USAGE,
                       "--rejects names an input, or a file whose name starts with the log's; name "
                       "another file")
                 : 0;
}

static int run(struct put *p, char **files, size_t n)
{
    const struct options *o = p->o;
    bool follows = options_bool(o, "follow");
    usec_t began = clock_monotonic();
    progress_begin(&p->progress, "events", options_bool(o, "quiet"), began);
    int status = follows ? put_follow(p, files, n) : put_files(p, files, n);
    if (status == 0 || put_stopped)
        summary(p, began);
    else
        print_posted(p);
    put_rejects_report(&p->rejects, clock_monotonic(), true);
    return status;
}

/* Reads the settings of the format. */
static int check_form(struct put *p)
{
    struct error error;
    const char *delimiter = options_string(p->o, "delimiter"), *column = options_string(p->o, "time_field");
    const char *zone = options_string(p->o, "time_zone"), *form = options_string(p->o, "time_format");
    const char *encoding = options_string(p->o, "encoding");
    char found = '\0';
    if (delimiter && !csv_read_delimiter(delimiter, &found))
        return tool_fail(EX_USAGE, "--delimiter: expected one character, or tab");
    if (encoding && options_bool(p->o, "follow"))
        return tool_fail(EX_USAGE, "--encoding reads whole files: omit --follow");
    if (encoding && !line_source_has_encoding(encoding))
        return tool_fail(
            EX_USAGE, "--encoding: unknown encoding %s; `iconv --list` prints those that exist", encoding);
    if (form && !rfc3339_form_is_valid(form))
        return tool_fail(EX_USAGE, "--time-format: %s is not a form of strptime(3)", form);
    p->form.csv = (struct csv_form){.delimiter = found,
        .time_column = column                ? column
                       : p->counted.counters ? p->counted.counters->time_field
                                             : config_setting(options_config(p->o), "input", "time"),
        .time_form = form,
        .has_zone = options_is_set(p->o, "time_zone")};
    p->counted.time_column = column;
    if (!rfc3339_use_zone(zone))
        return tool_fail(
            EX_USAGE, "--time-zone: unknown zone %s; expected a name such as Europe/Berlin", zone);
    struct log_format *log = p->form.log_format ? log_format_new(p->form.log_format, &error) : NULL;
    if (p->form.log_format && !log)
        return tool_fail(EX_USAGE, "%s", error.text);
    log_format_free(&log);
    return 0;
}

/* A follower is watched by other means (put_report.h). */
static bool is_counted(const struct options *o)
{
    const char *counted = config_setting(options_config(o), peer_relay(options_config(o)), "queue");
    return !options_bool(o, "follow") && !options_string(o, "queue_url") &&
           strcmp(options_string(o, "queue"), counted ? counted : "default") == 0;
}

static int put_with(const struct options *o)
{
    static char dash[] = "-";
    char *standard_input[] = {dash}, **files;
    size_t n = options_operands(o, &files);
    struct put p = {.o = o,
        .batch_lines = (size_t)options_int(o, "batch"),
        .producer = options_string(o, "producer"),
        .form = form_of(o)};
    struct sigaction stop = {.sa_handler = on_signal};
    struct error error;
    int status = check(o);
    bool follows = options_bool(o, "follow") && p.producer;
    if (follows) /* a follower does not wait for the reader of its messages, as no daemon does */
        tool_drop_messages();
    if (status != 0 && follows)
        put_follow_fail(&p, status);
    if (status != 0)
        return status;
    if (is_counted(o))
        put_counted_begin(&p.counted, options_config(o), options_string(o, "data_dir"));
    status = check_form(&p);
    if (status == 0 && p.form.log_format)
        status = put_open_door(&p, false);
    if (status == 0 && daemon_read_token(options_string(o, "queue_token_file"), &p.token, &error) != 0)
        status = tool_fail(EX_CONFIG, "%s", error.text);
    struct reject_file rejects = reject_options_file(o);
    bool is_usual = status == 0 && options_bool(o, "follow") && !rejects.path;
    char *usual = is_usual ? put_kept_path(&p, files[0], "rejects") : NULL;
    rejects.path = usual ? usual : rejects.path;
    if (status == 0 && put_rejects_open(&p.rejects, &rejects) != 0)
        status = EX_CANTCREAT;
    rate_limit_init(&p.rate, (uint64_t)options_int(o, "rate"));
    if (rate_limit_batch(&p.rate) < p.batch_lines)
        p.batch_lines = rate_limit_batch(&p.rate);
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    if (status == 0)
        status = run(&p, n > 0 ? files : standard_input, n > 0 ? n : 1);
    else if (follows)
        put_follow_fail(&p, status);
    put_door_report(p.form.door);
    put_door_close(&p.form.door);
    int counted = put_counted_report(&p.counted, p.numbers.posted + p.numbers.duplicates > 0);
    for (size_t i = 0; i < p.n_done; i++)
        free(p.done[i].name);
    free(p.done);
    free(usual);
    pipeline_close(&p.pipeline);
    free(p.token);
    return status != 0 ? status : counted;
}

int tool_put(int argc, char **argv)
{
    bool other_name = strcmp(argv[0], "file_to_queue") == 0;
    const struct options_spec spec = {.program = "put",
        .usage = other_name ? "millrace file_to_queue" : NULL,
        .summary = "posts events, one a line, to the local queue",
        .operands = "[FILE...|-]",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, put_with);
}
