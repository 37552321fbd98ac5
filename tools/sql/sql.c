/* millrace sql: answers a question in SQL over the counts of a pipeline. */
#include "base/io.h"
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
    {.name = "archive",
        .type = OPTION_STRING,
        .help = "directory of an archive; only its counts are read (default: the archive and the slices of "
                "the pipeline)"},
    {.name = "format",
        .type = OPTION_CHOICE,
        .fallback = "table",
        .choices = SQL_PRINT_FORMATS,
        .help = "form of the rows"},
    {.name = "header",
        .type = OPTION_BOOL,
        .fallback = "true",
        .help = "print the names of the columns first"},
    {.name = "max_rows",
        .type = OPTION_INT,
        .fallback = "0",
        .max = INT64_MAX,
        .help = "rows of a statement; one more is an error (0: unlimited)"},
    {.name = "max_time",
        .type = OPTION_DURATION,
        .fallback = "0",
        .max = INT64_C(86400) * 1000,
        .unit = "ms",
        .help = "time of a statement; a longer statement ends with an error (0: unlimited)"},
    {.name = "max_memory",
        .type = OPTION_SIZE,
        .fallback = "0",
        .max = INT64_C(1) << 40,
        .unit = "bytes",
        .help = "memory of a statement; a larger one ends with an error (0: unlimited)"},
    {.name = NULL},
};

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
    signal(SIGPIPE, SIG_IGN);
    int status = sql_session_open(&(struct sql_session_config){.archive = own,
                                      .slices = slices,
                                      .format = options_string(o, "format"),
                                      .has_header = options_bool(o, "header"),
                                      .max_rows = options_int(o, "max_rows"),
                                      .max_memory = options_int(o, "max_memory"),
                                      .max_time = options_int(o, "max_time")},
        &s);
    if (status == EX_OK)
        status = n == 1                                                    ? sql_session_run(s, operands[0])
                 : isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 ? sql_shell_run(s)
                                                                           : run_input(s);
    sql_session_close(&s);
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
            "The table counts(ns, key, sub, period, unit, n) has the counts of the archive and of the "
            "aggregator's "
            "slices, which\nneed no daemon. The counts are those that the aggregator has committed "
            "(flush_interval, "
            "2 s). Without\nSTATEMENTS, they come from standard input; at a terminal, a shell reads them. "
            "`millrace help tables` has examples.\n",
        .rows = {rows, NULL}};
    return tool_run_on_files(&spec, argc, argv, sql_with);
}
