/* millrace: the one command. `millrace NAME ...` runs a subcommand built in here, else the program NAME in libexec. */
#include "base/bytes.h"
#include "base/io.h"
#include "base/suggest.h"
#include "tools/tools.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

static int tool_help(int argc, char **argv);

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
    {"up", tool_up, "run the pipeline of a configuration in the foreground"},
    {"put", tool_put, "post events from files, logs or standard input to the local queue"},
    {"file_to_queue", tool_put, "the same"},
    {"query", tool_query, "ask for a series, a breakdown or the list of counters"},
    {"status", tool_status, "show every daemon of a pipeline; --wait until all is counted"},
    {"compact", tool_compact, "move what is counted so far into the archive"},
    {"journal", tool_journal, "check, dump or repair a journal's directory that is not in use"},
    {"help", tool_help, "this list; NAME: that subcommand's options"},
    {"version", tool_version, "the version"},
};
#define N_TOOLS (sizeof tools / sizeof *tools)

/* Programs of their own, in libexec. */
static const char *const programs[] = {"simplequeue", "queue_to_pubsub", "queue_to_http", "queue_exec",
    "pubsub", "aggregator", "sortdb", "compactor", "api", "ps_to_file", "ps_to_http", "pubsub_filtered",
    "clickgen"};
#define N_PROGRAMS (sizeof programs / sizeof *programs)

char *tool_libexec_dir(void)
{
    char self[4096];
    struct buf dir = {0};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    struct bytes path = bytes_of(self, n > 0 ? (size_t)n : 0);
    const char *slash = path.len ? memrchr(path.ptr, '/', path.len) : NULL;
    buf_append(&dir, self, slash ? (size_t)(slash - self) : 0);
    buf_append(&dir, "/../libexec/millrace", sizeof "/../libexec/millrace");
    return dir.ptr;
}

static const struct tool *find(const char *name)
{
    for (size_t i = 0; i < N_TOOLS; i++)
        if (strcmp(tools[i].name, name) == 0)
            return &tools[i];
    return NULL;
}

static void usage(FILE *out)
{
    fputs("usage: millrace NAME [OPTION...]\n\n", out);
    for (size_t i = 0; i < N_TOOLS; i++)
        fprintf(out, "  %-13s %s\n", tools[i].name, tools[i].help);
    fputs("\nDaemons and programs, run likewise:", out);
    for (size_t i = 0; i < N_PROGRAMS; i++)
        fprintf(out, "%s%s", i % 6 == 0 ? "\n  " : ", ", programs[i]);
    fputs("\n`millrace NAME --help` lists the options of each.\n", out);
}

/* Returns only when there is no such program, or it cannot be run: 0 or the system's reason. */
static int exec_program(char **argv)
{
    struct buf path = {0};
    char *dir = tool_libexec_dir();
    int why = 0;
    if (bytes_is_name(bytes_str(argv[0]))) {
        buf_printf(&path, "%s/%s", dir, argv[0]);
        execv(path.ptr, argv);
        why = errno == ENOENT ? 0 : errno;
    }
    buf_free(&path);
    free(dir);
    return why;
}

static const char *nearest(const char *name)
{
    struct suggest s = suggest_for(name);
    for (size_t i = 0; i < N_TOOLS; i++)
        suggest_try(&s, tools[i].name);
    for (size_t i = 0; i < N_PROGRAMS; i++)
        suggest_try(&s, programs[i]);
    return s.nearest;
}

static int run_program(char **argv)
{
    int why = exec_program(argv);
    const char *meant = why ? NULL : nearest(argv[0]);
    fprintf(stderr, "millrace: there is no \"%s\"%s%s", argv[0], why ? ": " : "", why ? strerror(why) : "");
    if (meant) {
        fprintf(stderr, "; did you mean \"millrace %s\"?\n", meant);
        return EX_USAGE;
    }
    fputc('\n', stderr);
    usage(stderr);
    return EX_USAGE;
}

static int dispatch(int argc, char **argv)
{
    const struct tool *t = find(argv[0]);
    return t ? t->run(argc, argv) : run_program(argv);
}

static int tool_help(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return EX_OK;
    }
    char option[] = "--help";
    char *args[] = {argv[1], option, NULL};
    return dispatch(2, args);
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
    else if (strcmp(argv[1], "--version") == 0)
        argv[1] = version;
    return dispatch(argc - 1, argv + 1);
}
