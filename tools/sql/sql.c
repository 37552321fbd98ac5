/* millrace sql: answers a question in SQL over the counts of a pipeline. */
#include "base/io.h"
#include "counts/counters.h"
#include "daemon/daemon.h"
#include "tools/sql/sql_print.h"
#include "tools/sql/sql_session.h"
#include "tools/sql/sql_shell.h"
#include "tools/tool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define STATEMENTS_MAX ((size_t)16 << 20) /* bytes of standard input */

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_STRING("archive", "directory of an archive; only its counts are read (default: the archive and "
                              "the slices of the pipeline)"),
    SETTING_BOOL("files", "allow statements to read files through `events` with the condition file = 'PATH'",
        .fallback = "true"),
    PEER_OPTIONS("pubsub", "pubsub", ", for the lines of streams"),
    SETTING_CHOICE("format", "table", SQL_PRINT_FORMATS, "form of the rows"),
    SETTING_BOOL("header", "print the names of the columns first", .fallback = "true"),
    SETTING_BOOL("single", "refuse a text that is not exactly one statement"),
    SETTING_INT("max_rows", "0", 0, INT64_MAX,
        "maximum rows of a result; a longer result is an error (0: unlimited)"),
    SETTING_DURATION("max_time", "0", 0, INT64_C(86400) * 1000, "ms",
        "maximum time of a statement; a longer statement ends with an error (0: unlimited)"),
    SETTING_SIZE("max_memory", "0", 0, INT64_C(1) << 40,
        "maximum memory of a statement; a statement that needs more ends with an error (0: unlimited)"),
    {.name = NULL},
};

/* Sets what the table `events` needs. Without counters in the configuration, the times of events are unknown. */
static int read_events(const struct options *o, struct pipeline *p, char **token, struct counters **counters,
    struct sql_tables *out)
{
    struct error error;
    const char *url = options_text(o, "pubsub_url");
    if (daemon_read_token(options_text(o, "pubsub_token_file"), token, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", error.text);
    out->pubsub_url = url ? url : pipeline_url(p, "pubsub");
    out->pubsub_token = *token;
    if (!url && pipeline_is_stopped(p))
        out->no_pubsub =
            "the pipeline is stopped, so events needs file = 'PATH'; `millrace status` shows the reason";
    if (options_config(o) && counters_read(options_config(o), counters, &error) == 0)
        out->counters = *counters;
    return EX_OK;
}

static int run_input(struct sql_session *s)
{
    struct buf text = {0};
    int status = EX_OK;
    if (io_read_file("/dev/stdin", STATEMENTS_MAX, &text) != 0)
        status = tool_fail(EX_NOINPUT, "standard input: %s", strerror(errno));
    buf_append_char(&text, '\0');
    if (status == EX_OK)
        status = sql_session_run(s, text.ptr);
    buf_free(&text);
    return status;
}

static int sql_with(const struct options *o)
{
    char **operands;
    size_t n = options_operands(o, &operands);
    if (n > 1)
        return tool_fail(EX_USAGE, "expected one text of statements; see millrace sql --help");
    const struct config *config = options_config(o);
    const char *archive = options_text(o, "archive"),
               *data_dir = pipeline_dir(config, options_text(o, "data_dir"));
    char *own = archive ? mem_strdup(archive) : pipeline_archive_dir(config, data_dir);
    char *slices = archive ? NULL : pipeline_daemon_dir(config, data_dir, "aggregator", "/slices");
    struct sql_session *s = NULL;
    struct sql_tables tables = {0};
    struct pipeline pipeline;
    struct counters *counters = NULL;
    char *token = NULL;
    signal(SIGPIPE, SIG_IGN);
    pipeline_open(&pipeline, config, options_text(o, "data_dir"));
    int status = read_events(o, &pipeline, &token, &counters, &tables);
    if (status == EX_OK)
        status = sql_session_open(o, &tables, own, slices, &s);
    if (status == EX_OK && n == 1)
        status = sql_session_run(s, operands[0]);
    else if (status == EX_OK)
        status = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 ? sql_shell_run(s) : run_input(s);
    sql_session_close(&s);
    counters_free(&counters);
    pipeline_close(&pipeline);
    free(token);
    free(own);
    free(slices);
    return status;
}

int tool_sql(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "sql",
        .summary = "answers a question in SQL over the counts of a pipeline",
        .operands = "[STATEMENTS]",
        .more =
            "The tables are counts(ns, key, sub, period, unit, n) and events(stream, offset, time, line).\n"
            "counts has all committed counts (flush_interval, 2 s), and needs no daemon.\n"
            "Without STATEMENTS, they come from standard input; at a terminal, a shell reads them.\n"
            "`millrace help tables` has examples.\n",
        .rows = {rows, NULL}};
    return tool_run_on_files(&spec, argc, argv, sql_with);
}
