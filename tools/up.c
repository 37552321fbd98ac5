/* millrace up: runs one pipeline in the foreground. */
#include "daemon/daemon.h"
#include "base/log.h"
#include "config/options.h"
#include "tools/supervisor.h"
#include "tools/tool.h"
#include "tools/up_plan.h"
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define RUN_FILE "run.json"
#define N_COLOURS 6

static const struct option_row rows[] = {
    {.name = "data_dir",
        .type = OPTION_STRING,
        .fallback = "millrace-data",
        .help = "directory of the pipeline; each daemon has a directory below it"},
    {.name = "run",
        .type = OPTION_STRING,
        .help = "names of the daemons to run, separated by commas or spaces (default: all)"},
    {.name = "free_ports",
        .type = OPTION_BOOL,
        .fallback = "false",
        .flags = OPTION_COMMAND_LINE,
        .help = "use free ports instead of the configured ones; millrace status shows them"},
    {.name = "color",
        .type = OPTION_CHOICE,
        .fallback = "auto",
        .choices = "auto|always|never",
        .help = "colour of the daemon names before log lines"},
    {.name = "restart_delay",
        .type = OPTION_DURATION,
        .fallback = "100ms",
        .min = 1,
        .max = 60000,
        .unit = "ms",
        .help = "delay before a crashed daemon is restarted; doubles with each further crash"},
    {.name = "restart_delay_max",
        .type = OPTION_DURATION,
        .fallback = "10s",
        .min = 1,
        .max = 3600000,
        .unit = "ms",
        .help = "longest delay before a restart"},
    {.name = "stop_timeout",
        .type = OPTION_DURATION,
        .fallback = "30s",
        .min = 100,
        .max = 3600000,
        .unit = "ms",
        .help = "time for a daemon to stop before it is killed"},
    {0},
};

struct up {
    struct event_base *base;
    struct up_plan plan;
    struct supervisor *supervisor;
    const char *config_path, *data_dir;
    bool colours, is_up, ended;
    int status;
};

static void on_line(size_t program, struct bytes line, void *arg)
{
    static const int colours[N_COLOURS] = {36, 32, 33, 35, 34, 31};
    const struct up *up = arg;
    struct buf out = {0};
    const char *name = up->plan.daemons[program].name;
    if (up->colours)
        buf_printf(&out, "\033[%dm%-15s |\033[0m ", colours[program % N_COLOURS], name);
    else
        buf_printf(&out, "%-15s | ", name);
    buf_append_bytes(&out, line);
    buf_append_char(&out, '\n');
    (void)!write(STDERR_FILENO, out.ptr, out.len);
    buf_free(&out);
}

/* run.json tells the other tools where each daemon listens. A rename replaces it, so readers see the old or the new file whole. */
static void write_run_file(const struct up *up)
{
    struct buf text = {0}, path = {0}, fresh = {0};
    buf_printf(&path, "%s/" RUN_FILE, up->data_dir);
    buf_printf(&fresh, "%s/" RUN_FILE ".new", up->data_dir);
    buf_printf(&text, "{\"pid\":%d,\"ended\":%s,\"config\":", (int)getpid(), up->ended ? "true" : "false");
    buf_append_json(&text, bytes_str(up->config_path));
    buf_append_str(&text, ",\"daemons\":{");
    for (size_t i = 0; i < up->plan.n; i++) {
        struct supervisor_report r = supervisor_report(up->supervisor, i);
        buf_printf(&text, "%s\n\"%s\":{\"pid\":%d,\"state\":\"%s\",\"restarts\":%u,\"url\":", i ? "," : "",
            up->plan.daemons[i].name, (int)r.pid, supervisor_state_name(r.state), r.restarts);
        buf_append_json(&text, bytes_str(up->plan.urls[i]));
        buf_append_str(&text, ",\"said\":");
        buf_append_json(&text, bytes_str(r.status_text));
        buf_append_char(&text, '}');
    }
    buf_append_str(&text, "\n}}\n");
    FILE *f = fopen(fresh.ptr, "we");
    bool ok = f != NULL && fwrite(text.ptr, 1, text.len, f) == text.len;
    ok = f != NULL && fclose(f) == 0 && ok && rename(fresh.ptr, path.ptr) == 0;
    if (!ok)
        log_warn("cannot write run.json: other tools will not find the daemons", LOG_S("path", path.ptr),
            LOG_S("error", strerror(errno)));
    buf_free(&text);
    buf_free(&path);
    buf_free(&fresh);
}

/* Reports once that every daemon is ready or has failed. */
static void report_up(struct up *up)
{
    bool failed = false;
    for (size_t i = 0; i < up->plan.n; i++) {
        enum supervisor_state state = supervisor_report(up->supervisor, i).state;
        if (up->is_up || (state != SUPERVISOR_READY && state != SUPERVISOR_FAILED))
            return;
        failed = failed || state == SUPERVISOR_FAILED;
    }
    up->is_up = true;
    for (size_t i = 0; i < up->plan.n; i++)
        log_info("listening", LOG_S("daemon", up->plan.daemons[i].name), LOG_S("url", up->plan.urls[i]));
    if (failed)
        log_warn("pipeline runs without its failed daemons", LOG_S("data_dir", up->data_dir));
    else
        log_info("pipeline ready", LOG_S("data_dir", up->data_dir));
    sd_notify(0, failed ? "READY=1\nSTATUS=some daemons failed" : "READY=1\nSTATUS=ready");
}

static void on_change(size_t program, void *arg)
{
    struct up *up = arg;
    enum supervisor_state state = supervisor_report(up->supervisor, program).state;
    log_debug("state", LOG_S("daemon", up->plan.daemons[program].name),
        LOG_S("state", supervisor_state_name(state)));
    if (state == SUPERVISOR_FAILED)
        up_plan_close_socket(&up->plan, program);
    write_run_file(up);
    report_up(up);
}

static void on_stopped(int status, void *arg)
{
    struct up *up = arg;
    up->status = status;
    up->ended = true;
    event_base_loopbreak(up->base);
}

static void on_stop_signal(evutil_socket_t sig, short what, void *arg)
{
    struct up *up = arg;
    (void)what;
    log_info("stopping", LOG_S("signal", sig == SIGINT ? "SIGINT" : "SIGTERM"));
    sd_notify(0, "STOPPING=1");
    supervisor_stop(up->supervisor, EX_OK);
}

static void on_hangup(evutil_socket_t sig, short what, void *arg)
{
    struct up *up = arg;
    (void)what;
    for (size_t i = 0; i < up->plan.n; i++) {
        struct supervisor_report r = supervisor_report(up->supervisor, i);
        if (r.state == SUPERVISOR_READY)
            kill(r.pid, (int)sig);
    }
}

static int run_pipeline(struct up *up, const struct options *o)
{
    char error[200];
    struct supervisor_config config = {.base = up->base,
        .n = up->plan.n,
        .programs = up->plan.daemons,
        .delay_min = options_int(o, "restart_delay") * USEC_PER_MSEC,
        .delay_max = options_int(o, "restart_delay_max") * USEC_PER_MSEC,
        .stop_timeout = options_int(o, "stop_timeout") * USEC_PER_MSEC,
        .on_line = on_line,
        .on_change = on_change,
        .on_stopped = on_stopped,
        .arg = up};
    up->supervisor = supervisor_new(&config, error, sizeof error);
    if (up->supervisor == NULL) {
        log_error("cannot start the pipeline", LOG_S("error", error));
        return EX_TEMPFAIL;
    }
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct event *events[3];
    for (int i = 0; i < 3; i++) {
        events[i] = evsignal_new(up->base, signals[i], signals[i] == SIGHUP ? on_hangup : on_stop_signal, up);
        event_add(events[i], NULL);
    }
    supervisor_start(up->supervisor);
    event_base_dispatch(up->base);
    for (int i = 0; i < 3; i++)
        event_free(events[i]);
    write_run_file(up);
    supervisor_free(&up->supervisor);
    return up->status;
}

static int run_and_wait(char *const *argv)
{
    int status;
    pid_t pid;
    fflush(stdout);
    if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) != pid) {
        fprintf(stderr, "millrace up: cannot run %s: %s\n", argv[0], strerror(errno));
        return EX_CONFIG;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EX_SOFTWARE;
}

/* Creates the empty generation 0 at the first start, because sortdb and aggregator need an archive. A compactor may be running on an existing
 * archive. */
static int init_archive(const struct up *up)
{
    struct buf program = {0}, archive = {0}, current = {0};
    char init[] = "--init";
    char *libexec = tool_libexec_dir();
    buf_printf(&program, "%s/compactor", libexec);
    buf_printf(&archive, "--archive=%s", up->plan.archive);
    buf_printf(&current, "%s/current", up->plan.archive);
    char *argv[] = {program.ptr, archive.ptr, init, NULL};
    bool needed = up_plan_find(&up->plan, "sortdb") < up->plan.n && access(current.ptr, F_OK) != 0;
    int status = needed ? run_and_wait(argv) : EX_OK;
    buf_free(&program);
    buf_free(&archive);
    buf_free(&current);
    free(libexec);
    return status;
}

/* The durability of an event is that of the weakest policy on its path. */
static void print_durability(const struct config *config)
{
    static const char *const keepers[] = {"simplequeue", "pubsub"};
    const char *weakest = NULL;
    for (size_t i = 0; i < 2; i++) {
        const struct config_section *s = config_section(config, keepers[i], "");
        const char *sync = s != NULL ? config_value(s, "sync") : NULL;
        if (sync != NULL && strcmp(sync, "never") == 0)
            weakest = weakest == NULL ? keepers[i] : weakest;
    }
    if (weakest != NULL)
        printf(
            "# durability: an acknowledged event survives kill -9 but not a power cut ([%s] sync = never)\n",
            weakest);
    else
        printf("# durability: an acknowledged event survives kill -9 and a power cut\n");
}

static int run_up(struct up *up, const struct options *o)
{
    struct config_error error;
    const char *colour = options_string(o, "color");
    if (options_config(o) == NULL) {
        fprintf(stderr, "millrace up: --config=FILE is missing; the file defines the counters (sample: "
                        "etc/clicks.conf)\n");
        return EX_USAGE;
    }
    up->config_path = options_config(o)->path;
    up->data_dir = options_string(o, "data_dir");
    up->colours = strcmp(colour, "always") == 0 || (strcmp(colour, "auto") == 0 && isatty(STDERR_FILENO));
    if (!options_check_only(o) && daemon_lock_directory(up->data_dir, &error) != 0) {
        log_error("cannot start the pipeline", LOG_S("error", error.text));
        return EX_CONFIG;
    }
    char *libexec = tool_libexec_dir();
    struct up_plan_spec spec = {.config = options_config(o),
        .data_dir = up->data_dir,
        .libexec = libexec,
        .run = options_string(o, "run"),
        .free_ports = options_bool(o, "free_ports"),
        .check_only = options_check_only(o)};
    int rc = up_plan_make(&spec, &up->plan, &error);
    free(libexec);
    if (rc != 0) {
        log_error("cannot start the pipeline", LOG_S("error", error.text));
        return EX_CONFIG;
    }
    int status = EX_OK;
    if (options_check_only(o)) {
        puts("# millrace up");
        options_show_settings(o);
        for (size_t i = 0; i < up->plan.n && status == EX_OK; i++) {
            printf("# %s\n", up->plan.daemons[i].name);
            status = run_and_wait(up->plan.daemons[i].argv);
        }
        if (status == EX_OK)
            print_durability(options_config(o));
    } else if ((status = init_archive(up)) == EX_OK) {
        up->base = event_base_new();
        status = run_pipeline(up, o);
        event_base_free(up->base);
    }
    up_plan_free(&up->plan);
    return status;
}

int tool_up(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "millrace",
        .usage = "millrace up",
        .summary = "runs a pipeline in the foreground until Ctrl-C",
        .rows = {rows, NULL}};
    struct options *o;
    struct up up = {0};
    log_init("up", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    enum options_result r = options_parse(&spec, argc, argv, &o);
    int status = r == OPTIONS_USAGE ? EX_USAGE : r == OPTIONS_CONFIG ? EX_CONFIG : EX_OK;
    if (r == OPTIONS_OK)
        status = run_up(&up, o);
    else if (r != OPTIONS_EXIT)
        fprintf(stderr, "millrace up: %s\n", options_error(o));
    options_free(&o);
    return status;
}
