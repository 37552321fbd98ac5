/* millrace: the command in PATH. `millrace NAME ...` runs a built-in subcommand, or the program NAME in libexec. */
#include "base/bytes.h"
#include "base/io.h"
#include "base/suggest.h"
#include "tools/tool.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

static int tool_help(int argc, char **argv);
static int tool_gen(int argc, char **argv);

static int tool_version(int argc, char **argv)
{
    (void)argc, (void)argv;
    puts("millrace " MILLRACE_VERSION);
    return EX_OK;
}

static const struct tool {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} tools[] = {
    {"init", tool_init, "write a configuration with comments: init website|shop|api|clicks"},
    {"up", tool_up, "run the pipeline of a configuration in the foreground"},
    {"put", tool_put, "post events from files, logs or standard input to the local queue"},
    {"file_to_queue", tool_put, "the same as put"},
    {"query", tool_query, "ask the API for a series, a breakdown or the list of counters"},
    {"sql", tool_sql, "answer a question in SQL over the counts"},
    {"status", tool_status, "show every daemon of a pipeline; --wait until all events are counted"},
    {"doctor", tool_doctor, "check disk, limits, files and that no event is lost or counted twice"},
    {"tail", tool_tail, "print the lines of a stream as they arrive"},
    {"top", tool_top, "show the most frequent values of a field over the last minute of a stream"},
    {"grep", tool_grep, "print the archive's records of the keys that contain a text"},
    {"compact", tool_compact, "move the counts into the archive"},
    {"distribute", tool_distribute, "copy the archive to other hosts, for more reads"},
    {"recount", tool_recount, "count all events again with changed counters, into a new archive"},
    {"journal", tool_journal, "check, dump or repair the journal of a queue or stream"},
    {"rejects", tool_rejects, "show the lines that could not be counted, or count them again"},
    {"forget", tool_forget, "erase the events with a value, and their counts"},
    {"slice", tool_slice, "print a slice of the aggregator"},
    {"producers", tool_producers, "show the marks of producers, and set one"},
    {"queue", tool_queue, "show, edit, delete or kick the buried messages of a queue"},
    {"compare_lists", tool_compare_lists, "compare all lists of two instances of lists"},
    {"cell", tool_cell, "show which cell copies each partition of a cluster, and move one"},
    {"dynamo", tool_dynamo, "print items of a DynamoDB table"},
    {"backup", tool_backup, "copy a pipeline while it runs, or verify a backup"},
    {"restore", tool_restore, "make a data directory from a backup"},
    {"gen", tool_gen, "generate clicks; the same as clickgen"},
    {"help", tool_help, "show this list, the options of a subcommand or a guide: help NAME|TOPIC"},
    {"version", tool_version, "show the version"},
};
#define TOOLS (sizeof tools / sizeof *tools)

static const char *const programs[] = {"simplequeue", "queue_to_pubsub", "queue_to_nats", "nats_to_pubsub",
    "queue_to_http", "queue_to_dynamodb", "queue_exec", "pubsub", "aggregator", "sortdb", "spamfilter",
    "lists", "metricdb", "scraper", "ruler", "compactor", "api", "ps_to_file", "ps_to_http", "ps_to_dynamodb",
    "pubsub_filtered", "clickgen", "bench"};
#define PROGRAMS (sizeof programs / sizeof *programs)

/* The guides that `millrace help TOPIC` prints: the rows of docs/README.md. A topic must not have the name of a
   subcommand or a program. */
static const struct topic {
    const char *name, *file, *help;
} topics[] = {
#include TOPICS_FILE
};
#define TOPICS (sizeof topics / sizeof *topics)

static void usage(FILE *out)
{
    fputs("usage: millrace NAME [OPTION...]\n\n", out);
    for (size_t i = 0; i < TOOLS; i++)
        fprintf(out, "  %-13s %s\n", tools[i].name, tools[i].help);
    fputs("\nDaemons and other programs:", out);
    for (size_t i = 0; i < PROGRAMS; i++)
        fprintf(out, "%s%s", i % 6 == 0 ? "\n  " : ", ", programs[i]);
    fputs("\n\nTopics of `millrace help TOPIC`:\n", out);
    for (size_t i = 0; i < TOPICS; i++)
        fprintf(out, "  %-13s %s\n", topics[i].name, topics[i].help);
    fputs("\n`millrace NAME --help` lists the options of NAME.\n", out);
}

/* Prints the nearest program, and for help also the nearest topic. Returns an exit status. */
static int unknown_name(const char *written, bool is_help)
{
    struct suggest program = suggest_for(written), topic = program;
    for (size_t i = 0; i < TOOLS; i++)
        suggest_try(&program, tools[i].name);
    for (size_t i = 0; i < PROGRAMS; i++)
        suggest_try(&program, programs[i]);
    for (size_t i = 0; is_help && i < TOPICS; i++)
        suggest_try(&topic, topics[i].name);
    fprintf(
        stderr, "millrace: no subcommand%s \"%s\"", is_help ? ", program or topic" : " or program", written);
    const char *help = is_help ? "help " : "";
    bool is_topic_first = topic.nearest && topic.distance < program.distance;
    const char *first = is_topic_first ? topic.nearest : program.nearest;
    const char *second = is_topic_first ? program.nearest : topic.nearest;
    if (first && second)
        fprintf(
            stderr, "; did you mean \"millrace %s%s\" or \"millrace %s%s\"?\n", help, first, help, second);
    else if (first || second)
        fprintf(stderr, "; did you mean \"millrace %s%s\"?\n", help, first ? first : second);
    if (!first && !second) {
        fputc('\n', stderr);
        usage(stderr);
    }
    return EX_USAGE;
}

/* Runs a built-in subcommand, or replaces this process by a program in libexec. */
static int dispatch_or_help(int argc, char **argv, bool is_help)
{
    int error = ENOENT;
    for (size_t i = 0; i < TOOLS; i++)
        if (strcmp(tools[i].name, argv[0]) == 0) {
            tool_begin(tools[i].name);
            return tool_flush(tools[i].run(argc, argv));
        }
    if (bytes_is_name(bytes_str(argv[0]))) {
        char *path = tool_program(argv[0]);
        execv(path, argv);
        error = errno;
        free(path);
    }
    if (error != ENOENT) {
        fprintf(stderr, "millrace: cannot run \"%s\": %s\n", argv[0], strerror(error));
        return EX_USAGE;
    }
    return unknown_name(argv[0], is_help);
}

static int dispatch(int argc, char **argv)
{
    return dispatch_or_help(argc, argv, false);
}

static int tool_gen(int argc, char **argv)
{
    static char clickgen[] = "clickgen";
    argv[0] = clickgen;
    return dispatch(argc, argv);
}

/* Prints a document of share/doc. Returns an exit status. */
static int print_document(const char *file)
{
    char *docs = tool_program("../../share/doc/millrace"), piece[8192];
    size_t n;
    char *path = mem_printf("%s/%s", docs, file);
    FILE *f = fopen(path, "re");
    if (!f)
        tool_fail(EX_NOINPUT, "cannot read %s: %s", path, strerror(errno));
    while (f && (n = fread(piece, 1, sizeof piece, f)) > 0)
        fwrite(piece, 1, n, stdout);
    int status = f ? EX_OK : EX_NOINPUT;
    if (f)
        fclose(f);
    free(docs);
    free(path);
    return status;
}

static int tool_help(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < TOPICS; i++)
        if (strcmp(topics[i].name, argv[1]) == 0)
            return print_document(topics[i].file);
    if (argc < 2 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return EX_OK;
    }
    char option[] = "--help";
    char *args[] = {argv[1], option, NULL};
    return dispatch_or_help(2, args, true);
}

int main(int argc, char **argv)
{
    static char help[] = "help", version[] = "version";
    io_reserve_stdio();
    if (argc < 2) {
        usage(stderr);
        return EX_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        argv[1] = help;
    else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        argv[1] = version;
    return dispatch(argc - 1, argv + 1);
}
