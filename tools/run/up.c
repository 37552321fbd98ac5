/* millrace up: runs one pipeline in the foreground.
 *
 * 1. Daemons start in the order of the table; a daemon comes after the daemons on which it depends.
 * 2. Listening sockets are opened once, and stay open until the pipeline ends. An address in use is reported before a
 *    daemon starts. A port that the kernel has chosen (port 0) does not change when a daemon restarts.
 * 3. A daemon's data directory and archive are below the pipeline's directory. Each daemon gets the addresses of the
 *    daemons to which it sends requests. The daemon's section of the configuration overrides these defaults. */
#include "daemon/daemon.h"
#include "daemon/daemon_directory.h"
#include "daemon/listen.h"
#include "daemon/service_manager.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "config/options.h"
#include "config/peers.h"
#include "counts/slice_files.h"
#include "json/json_fields.h"
#include "tools/run/agreement.h"
#include "tools/run/handover.h"
#include "tools/run/orphans.h"
#include "tools/run/reload.h"
#include "tools/run/supervisor.h"
#include "tools/tool.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sysexits.h>
#include <unistd.h>

#define RUN_FILE "run.json"
#define TARGETS_FILE "targets.json" /* the addresses of the daemons, for the scraper */
#define N_COLOURS 6
#define N_SIGNALS 4
#define SEPARATORS " ,\t"
#define PEERS_MAX 12
#define COMPACT_EVERY "1d" /* default of the setting `every` of [compactor] */

static const struct option_row rows[] = {
    SETTING_STRING("data_dir", "directory of the pipeline; each daemon has a directory below it",
        .fallback = "millrace-data"),
    SETTING_STRING(
        "streams", "streams of the pipeline, separated by commas; the queue's events go to the first"),
    SETTING_STRING("auth_token_file", "file with the token of all daemons; unset: no token"),
    SETTING_STRING("run",
        "names of the daemons to run, separated by commas or spaces (default: all, with one relay: "
        "queue_to_nats if the file has a section [queue_to_nats], else queue_to_pubsub)"),
    SETTING_BOOL("metrics",
        "run metricdb and scraper, which keep the metrics of the pipeline's daemons; without, only a section "
        "[metricdb] or [scraper] runs the daemon",
        .fallback = "true"),
    SETTING_BOOL("free_ports",
        "use free ports instead of the configured ports; `millrace status` shows the ports, and the log "
        "shows the public port",
        .flags = OPTION_COMMAND_LINE),
    TOOL_COLOR_SETTING("colour of the daemon names before log lines"),
    SETTING_DURATION("restart_delay", "100ms", 1, 60000, "ms",
        "delay before a crashed daemon is restarted; doubles with each further crash"),
    SETTING_DURATION("restart_delay_max", "10s", 1, 3600000, "ms", "longest delay before a restart"),
    SETTING_DURATION(
        "stop_timeout", "30s", 100, 3600000, "ms", "time for a daemon to stop before it is killed"),
    {0},
};

struct daemon_row {
    const char *name;
    const char *read_again; /* restarted after a change in these kinds of sections; NULL: none */
    bool keeps_data, uses_archive, optional;
    bool is_of_metrics; /* runs by default with the setting `metrics` */
    bool compacts;      /* has no address, and gets the options of `millrace compact` */
    const char
        *peers[PEERS_MAX + 1]; /* daemons to which this daemon sends requests; the list ends with NULL */
};

/* Daemons in start order. pubsub and simplequeue are required to store events; all other daemons are optional. */
static const struct daemon_row daemon_rows[] = {
    {"pubsub", .keeps_data = true},
    {"simplequeue", .keeps_data = true},
    {"sortdb", .uses_archive = true, .optional = true},
    {"spamfilter", .keeps_data = true, .optional = true, .peers = {"pubsub"}},
    {"lists", .keeps_data = true, .optional = true, .peers = {"pubsub"}},
    {"aggregator", .keeps_data = true, .uses_archive = true, .optional = true, .read_again = RELOAD_COUNTERS,
        .peers = {"pubsub"}},
    {"queue_to_pubsub", .optional = true, .peers = {"simplequeue", "pubsub"}},
    {"queue_to_nats", .optional = true, .peers = {"simplequeue"}},
    {"nats_to_pubsub", .optional = true, .peers = {"pubsub"}},
    {"metricdb", .keeps_data = true, .optional = true, .is_of_metrics = true, .peers = {"pubsub"}},
    {"scraper", .optional = true, .is_of_metrics = true, .peers = {"pubsub"}},
    {"ruler", .keeps_data = true, .optional = true, .peers = {"metricdb", "simplequeue", "pubsub"}},
    {"api", .optional = true, .read_again = RELOAD_COUNTERS " " RELOAD_DOOR " " RELOAD_CELLS,
        .peers = {"sortdb", "aggregator", "simplequeue", "pubsub", "queue_to_pubsub", "queue_to_nats",
            "nats_to_pubsub", "spamfilter", "lists", "metricdb", "scraper", "ruler"}},
    {"compactor", .compacts = true, .optional = true, .peers = {"sortdb", "aggregator"}},
};
#define N_DAEMONS (sizeof daemon_rows / sizeof *daemon_rows)

/* A daemon's last error: the last logged error before the end of a process, or how the process ended. */
struct last_error {
    char *text;         /* NULL: none */
    char *remedy;       /* that the daemon has logged with the error; NULL: none */
    int64_t at;         /* Unix seconds */
    int64_t restarted;  /* time of the latest restart of the daemon (Unix seconds); 0: none */
    bool is_of_process; /* the process `pid` has logged the error */
    pid_t pid;          /* latest process of the daemon */
};

struct disk_sample {
    int64_t at; /* Unix seconds */
    uint64_t free;
};
#define DISK_EVERY 600 /* seconds */
#define DISK_SAMPLES (86400 / DISK_EVERY)

struct up {
    const struct options *options;
    const struct config *config;
    struct config *counted; /* last accepted configuration, whose counters are used; NULL: config */
    char **argv;            /* the command line of this process */
    const char *data_dir;
    char *archive; /* directory of the archive */
    bool check_only, runs_metricdb;
    size_t n;
    struct supervisor_program daemons[N_DAEMONS];
    struct tool_args args[N_DAEMONS]; /* owns the argv of `daemons` */
    char *urls[N_DAEMONS];            /* address of each daemon; NULL: none */
    struct last_error errors[N_DAEMONS];
    struct disk_sample disk[DISK_SAMPLES]; /* ring of samples of the last day */
    size_t n_disk;                         /* number of samples taken */
    struct event_base *base;
    struct event *rewrite; /* retries a failed write of run.json */
    struct event *measure; /* takes a disk sample */
    struct supervisor *supervisor;
    int daemons_lock; /* -1: none */
    char *service;    /* systemd unit of this process; NULL: none */
    bool colours, is_up, ended, run_file_is_old;
    bool is_replaced;    /* after the end of the daemons, a new version replaces this program */
    bool is_stopping;    /* the pipeline is stopping, on request or because of `refused` */
    int64_t wrong_since; /* Unix time of the last reload if the configuration was refused; else 0 */
    uint64_t dropped;    /* number of dropped log lines in run.json */
    size_t refused;      /* index of the daemon whose end stops the pipeline; n: none */
    int status;
};

/* Returns the index of a daemon, or up->n if the daemon does not run. */
static size_t find_daemon(const struct up *up, const char *name)
{
    size_t i = 0;
    while (i < up->n && strcmp(up->daemons[i].name, name) != 0)
        i++;
    return i;
}

/* Without a section, a daemon of the metrics uses a free port if another process has its port, so that a feature that the
 * configuration does not mention never prevents a start. */
/* 0 with --free-ports. Returns -1 with the error. */
static int read_port(const struct up *up, const char *name, uint64_t *port, struct error *error)
{
    const char *text = config_setting(up->config, name, "port");
    *port = (uint64_t)peer_named(name)->port;
    if (text && (!bytes_to_u64(bytes_str(text), port) || *port > 65535))
        return config_fail(
            error, up->config, 0, "[%s] port = %s: expected a number from 0 to 65535", name, text);
    if (options_bool(up->options, "free_ports"))
        *port = 0;
    return 0;
}

static const char *address_of(const struct up *up, const char *name)
{
    const char *address = config_setting(up->config, name, "address");
    return address ? address : "127.0.0.1";
}

/* Checks that no daemon before the last one has the same address and port. */
static int check_port(const struct up *up, struct error *error)
{
    const char *name = up->daemons[up->n - 1].name, *address = address_of(up, name);
    uint64_t port, other;
    if (read_port(up, name, &port, error) != 0)
        return -1;
    for (size_t i = 0; i + 1 < up->n && port != 0 && strncmp(address, "unix:", 5) != 0; i++)
        if (peer_named(up->daemons[i].name) && strcmp(address, address_of(up, up->daemons[i].name)) == 0 &&
            read_port(up, up->daemons[i].name, &other, error) == 0 && other == port)
            return config_fail(error, up->config, 0,
                "[%s] and [%s] have the same port %" PRIu64 ": set port in one of them", up->daemons[i].name,
                name, port);
    return 0;
}

static int open_socket(struct up *up, const struct daemon_row *row, struct error *error)
{
    const char *name = row->name, *address = address_of(up, name);
    char url[300];
    uint64_t port;
    struct supervisor_program *d = &up->daemons[up->n - 1];
    if (read_port(up, name, &port, error) != 0)
        return -1;
    d->listen_fd = handover_take(name, address, (int)port);
    int low = d->listen_fd >= 0 ? d->listen_fd : listen_open(address, (int)port, error);
    bool is_in_use = low < 0 && errno == EADDRINUSE;
    if (is_in_use && row->is_of_metrics && !config_section(up->config, name, "")) {
        log_warn("the port is in use: a free port is used until the next start", LOG_S("daemon", name),
            LOG_S("error", error->text));
        low = listen_open("127.0.0.1", 0, error);
    } else if (is_in_use)
        return error_set(error, -1, "%s: %s: set [%s] %s, or start with --free-ports", name, error->text,
            name, strncmp(address, "unix:", 5) == 0 ? "address" : "port");
    if (low < 0)
        return error_set(error, -1, "%s: %s", name, error->text);
    if (low != d->listen_fd) {
        d->listen_fd = fcntl(low, F_DUPFD_CLOEXEC, SUPERVISOR_FD_MIN);
        close(low);
    }
    listen_url(d->listen_fd, url, sizeof url);
    up->urls[up->n - 1] = mem_strdup(url);
    return 0;
}

/* Passes the directory of sortdb's archive to the api. */
static void add_api_archive(const struct up *up, struct tool_args *a)
{
    if (!config_setting(up->config, "api", "archive"))
        tool_add_arg(a, "--archive=%s", up->archive);
}

static void add_peers(const struct up *up, const struct daemon_row *row, struct tool_args *a)
{
    bool api_reads = tool_api_reads_archive(up->config, find_daemon(up, "sortdb") < up->n);
    size_t api = find_daemon(up, "api");
    for (const char *const *peer = row->peers; *peer != NULL; peer++) {
        const char *setting = peer_named(*peer)->setting;
        size_t i = find_daemon(up, *peer);
        bool is_sortdb = strcmp(*peer, "sortdb") == 0;
        if (is_sortdb && api_reads && strcmp(row->name, "api") == 0)
            add_api_archive(up, a);
        bool is_replaced = strcmp(row->name, "api") == 0 && (is_sortdb || strcmp(*peer, "aggregator") == 0) &&
                           tool_has_cells(up->config);
        if (is_replaced || i == up->n || !up->urls[i] || config_setting(up->config, row->name, setting))
            continue;
        if (is_sortdb && api_reads && row->compacts && api < up->n && up->urls[api])
            tool_add_arg(a, "--%s=%s,%s", setting, up->urls[i], up->urls[api]);
        else
            tool_add_arg(a, "--%s=%s", setting, up->urls[i]);
    }
}

/* Names the stream that metricdb reads, so that pubsub bounds its size. */
static void add_metrics_stream(const struct up *up, struct tool_args *a)
{
    const char *stream = config_setting(up->config, "metricdb", "stream");
    if (!config_setting(up->config, "pubsub", "metrics_stream"))
        tool_add_arg(a, "--metrics_stream=%s", stream ? stream : "metrics");
}

/* Makes the scraper scrape the daemons of this pipeline, unless the configuration names other targets. The token of the
 * daemons goes to no other target. */
static void add_targets(const struct up *up, struct tool_args *a)
{
    if (config_setting(up->config, "scraper", "files") || config_setting(up->config, "scraper", "dns"))
        return;
    const char *token = config_setting(up->config, "millrace", "auth_token_file");
    tool_add_arg(a, "--files=%s/" TARGETS_FILE, up->data_dir);
    if (token && !config_setting(up->config, "scraper", "target_token_file"))
        tool_add_arg(a, "--target_token_file=%s", token);
}

/* Writes the addresses of all daemons as a file of targets (docs/guide/metrics.md). Returns 0, or -1 with the error. */
static int write_targets(const struct up *up, struct error *error)
{
    static const char scheme[] = "http://";
    struct buf out = {0};
    for (size_t i = 0; i < up->n; i++) {
        const char *url = up->urls[i];
        if (!url)
            continue;
        buf_append_str(&out, out.len ? "},\n {\"targets\":[" : "[{\"targets\":[");
        buf_append_json(
            &out, bytes_str(strncmp(url, scheme, strlen(scheme)) == 0 ? url + strlen(scheme) : url));
        buf_printf(&out, "],\"labels\":{\"job\":\"%s\"}", up->daemons[i].name);
    }
    buf_append_str(&out, out.len ? "}]\n" : "[]\n");
    char *path = mem_printf("%s/" TARGETS_FILE, up->data_dir);
    int failed = io_replace_file(path, buf_bytes(&out), 0644);
    if (failed)
        error_errno(error, -1, path);
    free(path);
    buf_free(&out);
    return failed ? -1 : 0;
}

/* Builds a daemon's command line, and opens the daemon's socket. */
static int add_daemon(struct up *up, const struct daemon_row *row, struct error *error)
{
    struct supervisor_program *d = &up->daemons[up->n++];
    *d = (struct supervisor_program){.name = row->name, .listen_fd = -1, .optional = row->optional};
    struct tool_args *a = &up->args[up->n - 1];
    *a = tool_args_for(row->name);
    tool_add_arg(a, "--config=%s", up->config->path);
    if (row->keeps_data && !config_setting(up->config, row->name, "data_dir"))
        tool_add_arg(a, "--data_dir=%s/%s", up->data_dir, row->name);
    if (row->uses_archive && !config_setting(up->config, row->name, "archive") &&
        !config_setting(up->config, row->name, "db_file"))
        tool_add_arg(a, "--archive=%s", up->archive);
    if (strcmp(row->name, "simplequeue") == 0 && !config_setting(up->config, row->name, "lines"))
        tool_add_arg(a, "--lines");
    if (strcmp(row->name, "api") == 0 && !config_setting(up->config, "api", "run_file"))
        tool_add_arg(a, "--run_file=%s/" RUN_FILE, up->data_dir);
    if (strcmp(row->name, "api") == 0 && options_bool(up->options, "free_ports") &&
        config_setting(up->config, "api", "public_port"))
        tool_add_arg(a, "--public_port=0");
    if (strcmp(row->name, "scraper") == 0)
        add_targets(up, a);
    if (strcmp(row->name, "pubsub") == 0 && up->runs_metricdb)
        add_metrics_stream(up, a);
    if (row->compacts) {
        tool_add_compactor_paths(a, up->config, up->data_dir);
        if (!config_setting(up->config, row->name, "every"))
            tool_add_arg(a, "--every=%s", COMPACT_EVERY);
    }
    bool may_change = row->is_of_metrics && !config_section(up->config, row->name, "");
    if (!row->compacts && !may_change && check_port(up, error) != 0)
        return -1;
    if (up->check_only)
        tool_add_arg(a, "--check-config");
    else if (!row->compacts && open_socket(up, row, error) != 0)
        return -1;
    add_peers(up, row, a);
    d->argv = a->argv;
    return 0;
}

/* False for a compactor with `every = 0`, which the operator runs, and for a compactor if sortdb serves no archive. */
static bool is_wanted(const struct up *up, const struct daemon_row *row)
{
    static const struct option_row every = {
        .name = "every", .type = OPTION_DURATION, .max = INT64_MAX, .unit = "s"};
    const char *text = row->compacts ? config_setting(up->config, row->name, "every") : NULL;
    int64_t ms;
    if (row->compacts && config_setting(up->config, "sortdb", "db_file"))
        return false;
    return !text || option_value_read(&every, text, &ms, NULL) != 0 || ms != 0;
}

static bool runs_here(const void *arg, const char *daemon)
{
    const struct up *up = arg;
    return find_daemon(up, daemon) < up->n;
}

/* Adds the daemons of --run, or all. Returns -1 with the error, such as an unknown daemon or an address in use. */
static int add_daemons(struct up *up, struct error *error)
{
    if (!*up->data_dir)
        return error_set(error, -1, "data_dir is empty: name the directory of the pipeline");
    const char *list = options_string(up->options, "run");
    bool all = list == NULL, runs[N_DAEMONS] = {false};
    struct bytes word;
    while (!all && bytes_next_word(&list, SEPARATORS, &word)) {
        struct buf known = {0};
        size_t i = 0;
        for (; i < N_DAEMONS && !bytes_equal_str(word, daemon_rows[i].name); i++)
            buf_printf(&known, " %s", daemon_rows[i].name);
        if (i == N_DAEMONS)
            config_fail(error, up->config, 0, "run: no daemon %.*s; expected any of:%.*s", (int)word.len,
                word.ptr, (int)known.len, known.ptr);
        buf_free(&known);
        if (i == N_DAEMONS)
            return -1;
        runs[i] = true;
    }
    for (size_t i = 0; i < N_DAEMONS; i++) {
        const struct daemon_row *row = &daemon_rows[i];
        bool is_default = row->is_of_metrics && options_bool(up->options, "metrics");
        runs[i] = (all ? is_default || peer_is_wanted(up->config, row->name) : runs[i]) && is_wanted(up, row);
        up->runs_metricdb = up->runs_metricdb || (runs[i] && strcmp(row->name, "metricdb") == 0);
    }
    for (size_t i = 0; i < N_DAEMONS; i++)
        if (runs[i] && add_daemon(up, &daemon_rows[i], error) != 0)
            return -1;
    handover_end();
    return agreement_check(&(struct agreement){up->config, runs_here, up}, error);
}

/* Closes a daemon's socket, so that new connections are refused instead of waiting in the backlog. */
static void close_socket(struct supervisor_program *d)
{
    if (d->listen_fd >= 0)
        close(d->listen_fd);
    d->listen_fd = -1;
}

/* Cuts the last field `remedy` from a logged error. The caller frees the remedy. NULL: none. */
static char *cut_remedy(struct bytes *error)
{
    static const char field[] = " remedy=";
    bool is_json = error->len > 0 && error->ptr[0] == '{';
    const char *at = is_json ? NULL : memmem(error->ptr, error->len, field, sizeof field - 1);
    const char *end = error->ptr + error->len;
    struct bytes value = at ? bytes_of(at + sizeof field - 1, (size_t)(end - at) - sizeof field + 1) : *error;
    struct json_doc *d = at || is_json ? json_doc_parse(value) : NULL;
    struct bytes text = json_doc_text(d, "%s", is_json ? "/remedy" : "");
    char *remedy = text.len > 0 ? bytes_dup(text) : NULL;
    if (at)
        error->len = (size_t)(at - error->ptr);
    json_doc_free(&d);
    return remedy;
}

static void set_error(struct last_error *e, struct bytes text, bool is_of_process)
{
    free(e->text);
    free(e->remedy);
    e->remedy = cut_remedy(&text);
    e->text = bytes_dup(text);
    e->at = clock_wall() / USEC_PER_SEC;
    e->is_of_process = is_of_process;
}

/* Returns TEXT of a line `TIME error DAEMON TEXT`, or a whole JSON line with the level error. BYTES_NONE: the line
 * is not an error. */
static struct bytes logged_error(struct bytes line)
{
    static const char level[] = " error ", json[] = "\"level\":\"error\"";
    const char *space = line.len ? memchr(line.ptr, ' ', line.len) : NULL;
    size_t rest = space ? (size_t)(line.ptr + line.len - space) : 0;
    if (line.len && line.ptr[0] == '{')
        return memmem(line.ptr, line.len, json, sizeof json - 1) ? line : BYTES_NONE;
    if (rest < sizeof level || memcmp(space, level, sizeof level - 1) != 0)
        return BYTES_NONE;
    const char *name = space + sizeof level - 1;
    const char *text = memchr(name, ' ', (size_t)(line.ptr + line.len - name));
    return text ? bytes_of(text + 1, (size_t)(line.ptr + line.len - text - 1)) : BYTES_NONE;
}

/* Writes the number of dropped log lines to run.json, for `millrace status`, at most once per second. */
static void note_dropped(struct up *up)
{
    if (log_dropped() != up->dropped && !evtimer_pending(up->rewrite, NULL))
        event_add(up->rewrite, &(struct timeval){.tv_sec = 1});
}

static void on_line(size_t program, struct bytes line, void *arg)
{
    static const int colours[N_COLOURS] = {36, 32, 33, 35, 34, 31};
    struct up *up = arg;
    struct bytes error = logged_error(line);
    if (error.len > 0)
        set_error(&up->errors[program], error, true);
    struct buf out = {0};
    const char *name = up->daemons[program].name;
    if (up->colours)
        buf_printf(&out, "\033[%dm%-15s |\033[0m ", colours[program % N_COLOURS], name);
    else
        buf_printf(&out, "%-15s | ", name);
    buf_append_bytes(&out, line);
    buf_append_char(&out, '\n');
    log_forward(buf_bytes(&out));
    buf_free(&out);
    note_dropped(up);
}

/* Appends the name and the last error of the daemon that stopped the pipeline. */
static void append_end_reason(const struct up *up, struct buf *out)
{
    const char *error = up->errors[up->refused].text;
    struct buf reason = {0};
    buf_printf(&reason, "%s ended with %s%s%s", up->daemons[up->refused].name,
        supervisor_report(up->supervisor, up->refused).last_end, error ? ": " : "", error ? error : "");
    buf_append_str(out, ",\"end_reason\":");
    buf_append_json(out, buf_bytes(&reason));
    buf_printf(out, ",\"end_daemon\":\"%s\"", up->daemons[up->refused].name);
    buf_free(&reason);
}

/* Returns the systemd unit whose main process is this process, such as "millrace", from systemd's variables and
 * /proc/self/cgroup. NULL: none. */
static char *service_name(void)
{
    static const char suffix[] = ".service";
    const char *main_pid = getenv("SYSTEMD_EXEC_PID");
    struct buf text = {0};
    char *name = NULL;
    if (main_pid && atol(main_pid) == getpid() && io_read_file("/proc/self/cgroup", 4096, &text) == 0) {
        struct bytes line = bytes_trim(buf_bytes(&text));
        const char *slash = memrchr(line.ptr, '/', line.len);
        size_t len = slash ? (size_t)(line.ptr + line.len - slash - 1) : 0;
        if (len > sizeof suffix - 1 &&
            memcmp(slash + 1 + len - (sizeof suffix - 1), suffix, sizeof suffix - 1) == 0)
            name = bytes_dup(bytes_of(slash + 1, len - (sizeof suffix - 1)));
    }
    buf_free(&text);
    return name;
}

/* Writes run.json, which contains the address of each daemon for other tools. A rename replaces the file, so
 * readers see either the whole old file or the whole new file. */
static void write_run_file(struct up *up)
{
    struct buf text = {0}, path = {0};
    buf_printf(&path, "%s/" RUN_FILE, up->data_dir);
    char *fresh = mem_printf("%s/" RUN_FILE ".new", up->data_dir);
    buf_printf(&text, "{\"pid\":%d,\"ended\":%s,\"config\":", (int)getpid(), up->ended ? "true" : "false");
    char *config = realpath(up->config->path, NULL); /* NULL: it was deleted */
    buf_append_json(&text, bytes_str(config ? config : up->config->path));
    free(config);
    buf_append_str(&text, ",\"data_dir\":");
    buf_append_json(&text, bytes_str(up->data_dir));
    buf_append_str(&text, ",\"daemons\":{");
    for (size_t i = 0; i < up->n; i++) {
        struct supervisor_report r = supervisor_report(up->supervisor, i);
        buf_printf(&text, "%s\n\"%s\":{\"pid\":%d,\"state\":\"%s\",\"restarts\":%u,\"url\":", i ? "," : "",
            up->daemons[i].name, (int)r.pid, supervisor_state_name(r.state), r.restarts);
        buf_append_json(&text, bytes_str(up->urls[i]));
        buf_append_str(&text, ",\"said\":");
        buf_append_json(&text, bytes_str(r.status_text));
        if (up->errors[i].text) {
            buf_printf(&text, ",\"error_at\":%" PRId64 ",\"error\":", up->errors[i].at);
            buf_append_json(&text, bytes_str(up->errors[i].text));
        }
        if (up->errors[i].remedy) {
            buf_append_str(&text, ",\"remedy\":");
            buf_append_json(&text, bytes_str(up->errors[i].remedy));
        }
        if (up->errors[i].restarted > 0)
            buf_printf(&text, ",\"restarted_at\":%" PRId64, up->errors[i].restarted);
        buf_append_char(&text, '}');
    }
    buf_append_str(&text, "\n}");
    if (up->service) {
        buf_append_str(&text, ",\"service\":");
        buf_append_json(&text, bytes_str(up->service));
    }
    up->dropped = log_dropped();
    buf_printf(&text, ",\"log_lines_dropped\":%" PRIu64, up->dropped);
    if (up->wrong_since)
        buf_printf(&text, ",\"wrong_since\":%" PRId64, up->wrong_since);
    if (up->ended && up->refused < up->n)
        append_end_reason(up, &text);
    if (up->n_disk > 0) {
        const struct disk_sample *first =
            &up->disk[up->n_disk < DISK_SAMPLES ? 0 : up->n_disk % DISK_SAMPLES];
        buf_printf(&text, ",\"disk\":{\"at\":%" PRId64 ",\"free\":%" PRIu64 "}", first->at, first->free);
    }
    buf_append_str(&text, "}\n");
    FILE *f = fopen(fresh, "we");
    bool ok = f && fwrite(text.ptr, 1, text.len, f) == text.len;
    ok = f && fclose(f) == 0 && ok && rename(fresh, path.ptr) == 0;
    if (!ok && !up->run_file_is_old)
        log_warn("cannot write run.json: other tools see an earlier state until it is written",
            LOG_S("path", path.ptr), LOG_S("error", strerror(errno)));
    up->run_file_is_old = !ok;
    if (!ok)
        event_add(up->rewrite, &(struct timeval){.tv_sec = 1});
    buf_free(&text);
    buf_free(&path);
    free(fresh);
}

/* Keeps the reason why the pipeline did not start, for `millrace status`. run.json remains that of the latest run. */
static void keep_start_error(const struct up *up, const char *text)
{
    char *path = mem_printf("%s/" PIPELINE_START_ERROR, up->data_dir);
    FILE *f = daemon_holds_directory(up->data_dir) ? fopen(path, "we") : NULL;
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    free(path);
}

static void drop_start_error(const struct up *up)
{
    char *path = mem_printf("%s/" PIPELINE_START_ERROR, up->data_dir);
    unlink(path);
    free(path);
}

static void on_rewrite(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    write_run_file(arg);
}

/* Takes a sample of the free disk space, from which `millrace status` computes how fast the disk fills. */
static void on_measure(evutil_socket_t fd, short what, void *arg)
{
    struct up *up = arg;
    struct statvfs fs;
    (void)fd;
    (void)what;
    if (statvfs(up->data_dir, &fs) != 0)
        return;
    up->disk[up->n_disk++ % DISK_SAMPLES] =
        (struct disk_sample){clock_wall() / USEC_PER_SEC, (uint64_t)fs.f_bavail * fs.f_frsize};
    write_run_file(up);
}

/* Stores how a process ended, if the process has not logged an error. */
static void note_end(struct up *up, size_t program, const struct supervisor_report *r)
{
    struct last_error *e = &up->errors[program];
    if ((r->state == SUPERVISOR_RESTARTING || r->state == SUPERVISOR_FAILED) && !e->is_of_process)
        set_error(e, bytes_str(r->last_end), false);
    if (r->state == SUPERVISOR_RESTARTING)
        e->restarted = clock_wall() / USEC_PER_SEC;
    if (r->pid != 0 && r->pid != e->pid) {
        e->pid = r->pid;
        e->is_of_process = false;
    }
    if (r->state == SUPERVISOR_STOPPED && !up->is_stopping) {
        up->refused = program;
        up->is_stopping = true;
    }
}

static void on_change(size_t program, void *arg)
{
    struct up *up = arg;
    struct supervisor_report report = supervisor_report(up->supervisor, program);
    enum supervisor_state state = report.state;
    note_end(up, program, &report);
    log_debug(
        "state", LOG_S("daemon", up->daemons[program].name), LOG_S("state", supervisor_state_name(state)));
    if (state == SUPERVISOR_FAILED)
        close_socket(&up->daemons[program]);
    write_run_file(up);
    /* Report the first time that every daemon is ready or has failed. */
    bool failed = false;
    for (size_t i = 0; i < up->n; i++) {
        state = supervisor_report(up->supervisor, i).state;
        if (up->is_up || (state != SUPERVISOR_READY && state != SUPERVISOR_FAILED))
            return;
        failed = failed || state == SUPERVISOR_FAILED;
    }
    up->is_up = true;
    for (size_t i = 0; i < up->n; i++)
        if (up->urls[i])
            log_info("listening", LOG_S("daemon", up->daemons[i].name), LOG_S("url", up->urls[i]));
    if (failed)
        log_warn("pipeline runs without its failed daemons", LOG_S("data_dir", up->data_dir));
    else
        log_info("pipeline ready", LOG_S("data_dir", up->data_dir));
    service_notify(SERVICE_READY, "%s", failed ? "some daemons failed" : "ready");
}

static void on_stopped(int status, void *arg)
{
    struct up *up = arg;
    up->status = status;
    up->ended = !up->is_replaced;
    event_base_loopbreak(up->base);
}

static const char *read_again(const char *daemon)
{
    size_t i = 0;
    while (strcmp(daemon_rows[i].name, daemon) != 0)
        i++;
    return daemon_rows[i].read_again;
}

#define UNCHECKED "the configuration could not be checked, see the line above: "

/* True if a program has exited because of an error in the configuration. */
static bool is_refusal(int status)
{
    return status == EX_CONFIG || status == EX_USAGE;
}

/* Reads the configuration again. If counters or the door have changed, restarts the daemons that use them. Logs the
 * names of other changed settings. */
static void reload(struct up *up)
{
    struct config *fresh = NULL;
    struct error error;
    const struct config *counted = up->counted ? up->counted : up->config;
    struct buf changes = {0};
    const struct supervisor_program own = {.argv = up->argv};
    int status = reload_judge(&own, 1);
    if (status == EX_OK && config_read(up->config->path, &fresh, &error) != 0)
        status = EX_CONFIG;
    if (status != EX_OK && !is_refusal(status)) {
        log_error(UNCHECKED "nothing changes; reload again");
        return;
    }
    if (status != EX_OK) {
        log_error("the configuration is wrong and changes nothing: see the line above");
        up->wrong_since = clock_wall() / USEC_PER_SEC;
        write_run_file(up);
        return;
    }
    up->wrong_since = 0;
    write_run_file(up);
    reload_append_changes(up->config, fresh, &changes);
    if (changes.len > 0) {
        buf_append_char(&changes, '\0');
        log_warn("these settings take effect after a restart", LOG_S("settings", changes.ptr));
    }
    buf_free(&changes);
    log_info("configuration read",
        LOG_S("counters", reload_changes(counted, fresh, RELOAD_COUNTERS) ? "changed" : "unchanged"),
        LOG_S("door", reload_changes(counted, fresh, RELOAD_DOOR) ? "changed" : "unchanged"));
    for (size_t i = 0; i < up->n; i++) {
        const char *kinds = read_again(up->daemons[i].name);
        if (!kinds || !reload_changes(counted, fresh, kinds))
            continue;
        if (supervisor_report(up->supervisor, i).state == SUPERVISOR_FAILED)
            log_warn("this daemon failed and starts only with `millrace up`: restart the pipeline",
                LOG_S("daemon", up->daemons[i].name));
        supervisor_renew(up->supervisor, i);
    }
    config_free(&up->counted);
    up->counted = fresh;
}

/* Stops the daemons and keeps their sockets; run_up then executes the new version. */
static void replace(struct up *up)
{
    const struct supervisor_program own = {.argv = up->argv};
    if (up->is_stopping)
        return;
    int status = reload_judge(&own, 1);
    if (status != EX_OK) {
        log_error(is_refusal(status) ? "the new version refuses the configuration: the old one keeps running"
                                     : UNCHECKED "the old version keeps running");
        return;
    }
    log_info("changing to the new version");
    up->is_replaced = up->is_stopping = true;
    supervisor_stop(up->supervisor, EX_OK);
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
    struct up *up = arg;
    (void)what;
    if (sig == SIGUSR2) {
        replace(up);
        return;
    }
    for (size_t i = 0; i < up->n && sig == SIGHUP; i++) {
        struct supervisor_report r = supervisor_report(up->supervisor, i);
        if (r.state == SUPERVISOR_READY)
            kill(r.pid, SIGHUP);
    }
    if (sig == SIGHUP) {
        reload(up);
        return;
    }
    log_info("stopping", LOG_S("signal", sig == SIGINT ? "SIGINT" : "SIGTERM"));
    service_notify(SERVICE_STOPPING, NULL);
    up->is_stopping = true;
    up->is_replaced = false;
    supervisor_stop(up->supervisor, EX_OK);
}

/* Blocks or unblocks the signals for reload and replacement. Outside the event loop, these signals would kill this
 * process. */
static void hold_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR2);
    sigprocmask(how, &set, NULL);
}

static int run_pipeline(struct up *up)
{
    const struct options *o = up->options;
    char error[200];
    struct supervisor_config config = {.base = up->base,
        .n = up->n,
        .programs = up->daemons,
        .delay_min = options_int(o, "restart_delay") * USEC_PER_MSEC,
        .delay_max = options_int(o, "restart_delay_max") * USEC_PER_MSEC,
        .shared_fd = up->daemons_lock,
        .stop_timeout = options_int(o, "stop_timeout") * USEC_PER_MSEC,
        .on_line = on_line,
        .on_change = on_change,
        .on_stopped = on_stopped,
        .arg = up};
    up->supervisor = supervisor_new(&config, error, sizeof error);
    if (!up->supervisor) {
        log_error("cannot start the pipeline", LOG_S("error", error));
        keep_start_error(up, error);
        return EX_TEMPFAIL;
    }
    static const int signals[N_SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGUSR2};
    struct event *events[N_SIGNALS];
    for (int i = 0; i < N_SIGNALS; i++) {
        events[i] = evsignal_new(up->base, signals[i], on_signal, up);
        event_add(events[i], NULL);
    }
    hold_signals(SIG_UNBLOCK);
    up->refused = up->n;
    drop_start_error(up);
    supervisor_start(up->supervisor);
    event_base_dispatch(up->base);
    hold_signals(SIG_BLOCK); /* a new version of this program inherits the mask */
    for (int i = 0; i < N_SIGNALS; i++)
        event_free(events[i]);
    write_run_file(up);
    supervisor_free(&up->supervisor);
    return up->status;
}

/* Returns -1 with the error if sortdb runs here and its archive is missing after the first start, which has written
 * run.json. Before the first start, `aggregator --input` may have made slices. */
static int check_archive(const struct up *up, struct error *error)
{
    if (find_daemon(up, "sortdb") == up->n)
        return 0;
    char *slices = pipeline_daemon_dir(up->config, up->data_dir, "aggregator", "/slices"),
         *run_file = mem_printf("%s/" RUN_FILE, up->data_dir);
    bool is_first = access(run_file, F_OK) != 0;
    int failed = is_first ? 0 : slice_files_check_archive(slices, up->archive, error);
    free(run_file);
    free(slices);
    return failed;
}

/* Creates the empty generation 0 at the first start, because sortdb and aggregator need an archive. Does not change
 * an existing archive, because a compactor may be running. */
static int init_archive(const struct up *up)
{
    struct tool_args a = tool_args_for("compactor");
    tool_add_arg(&a, "--archive=%s", up->archive);
    tool_add_arg(&a, "--init");
    char *current = mem_printf("%s/current", up->archive);
    bool needed = find_daemon(up, "sortdb") < up->n && access(current, F_OK) != 0;
    int status = needed ? tool_wait(tool_start(&a, -1, -1)) : EX_OK;
    tool_free_args(&a);
    free(current);
    return status;
}

static int check_daemons(struct up *up)
{
    static const char *const keepers[] = {"simplequeue", "pubsub"};
    puts("# millrace up");
    options_show_settings(up->options);
    for (size_t i = 0; i < up->n; i++) {
        printf("# %s\n", up->daemons[i].name);
        int status = tool_wait(tool_start(&up->args[i], -1, -1));
        if (status != EX_OK)
            return status;
    }
    /* Name the weakest sync policy on the path of an event, which determines the durability of the event. */
    const char *weakest = NULL;
    for (size_t i = 0; i < 2 && !weakest; i++) {
        const char *sync = config_setting(up->config, keepers[i], "sync");
        if (sync && strcmp(sync, "never") == 0)
            weakest = keepers[i];
    }
    if (weakest)
        printf(
            "# durability: an acknowledged event survives kill -9 but not a power cut ([%s] sync = never)\n",
            weakest);
    else
        printf("# durability: an acknowledged event survives kill -9 and a power cut\n");
    return EX_OK;
}

/* Takes the locks of the data directory. Returns false with the exit status and the error. */
static bool take_directory(struct up *up, int *status, struct error *error)
{
    usec_t limit = options_int(up->options, "stop_timeout") * USEC_PER_MSEC;
    if (daemon_lock_directory(up->data_dir, error) != 0) {
        *status = daemon_start_status(errno);
        return false;
    }
    up->daemons_lock = orphans_wait(up->data_dir, limit, status, error);
    return up->daemons_lock >= 0;
}

static int run_up(const struct options *o, char **argv)
{
    struct error error;
    struct up up = {.options = o,
        .argv = argv,
        .config = options_config(o),
        .data_dir = options_string(o, "data_dir"),
        .check_only = options_check_only(o),
        .daemons_lock = -1,
        .colours = tool_has_color(o, STDERR_FILENO)};
    if (!up.config) {
        return tool_fail(EX_USAGE, "--config=FILE is missing; the file defines the counters (sample: "
                                   "etc/clicks.conf)");
    }
    up.service = service_name();
    char *path = up.archive = pipeline_archive_dir(up.config, up.data_dir);
    int status = EX_CONFIG;
    if ((!up.check_only && !take_directory(&up, &status, &error)) || add_daemons(&up, &error) != 0 ||
        check_archive(&up, &error) != 0 ||
        (!up.check_only && find_daemon(&up, "scraper") < up.n && write_targets(&up, &error) != 0)) {
        log_error(
            up.check_only ? "wrong configuration" : "cannot start the pipeline", LOG_S("error", error.text));
        if (!up.check_only)
            keep_start_error(&up, error.text);
    } else if (up.check_only) {
        status = check_daemons(&up);
    } else if ((status = reload_judge(up.daemons, up.n)) != EX_OK) {
        log_error(is_refusal(status) ? "the configuration is wrong: nothing was started"
                                     : UNCHECKED "nothing was started");
        error_set(&error, status,
            "the configuration %s: millrace up --check-config --config=%s shows the error",
            is_refusal(status) ? "is wrong" : "could not be checked", up.config->path);
        keep_start_error(&up, error.text);
    } else if ((status = init_archive(&up)) != EX_TEMPFAIL) { /* events are stored even without an archive */
        up.base = event_base_new();
        up.rewrite = evtimer_new(up.base, on_rewrite, &up);
        up.measure = event_new(up.base, -1, EV_PERSIST, on_measure, &up);
        event_add(up.measure, &(struct timeval){.tv_sec = DISK_EVERY});
        event_active(up.measure, EV_TIMEOUT, 1);
        status = run_pipeline(&up);
        if (up.is_replaced && status == EX_OK) {
            handover_exec(up.daemons, up.n, up.argv);
            log_error(
                "cannot run the new version", LOG_S("path", up.argv[0]), LOG_S("error", strerror(errno)));
            status = EX_OSERR;
        }
        event_free(up.rewrite);
        event_free(up.measure);
        event_base_free(up.base);
    } else {
        keep_start_error(&up, "the archive could not be created: see the log of `millrace up`");
    }
    for (size_t i = 0; i < up.n; i++) {
        close_socket(&up.daemons[i]);
        if (up.urls[i] && strncmp(up.urls[i], "unix:", 5) == 0)
            unlink(up.urls[i] + 5);
        free(up.urls[i]);
        free(up.errors[i].text);
        free(up.errors[i].remedy);
        tool_free_args(&up.args[i]);
    }
    free(up.service);
    if (up.daemons_lock >= 0)
        close(up.daemons_lock);
    config_free(&up.counted);
    free(path);
    return status;
}

int tool_up(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "millrace",
        .usage = "millrace up",
        .summary = "runs a pipeline in the foreground until Ctrl-C",
        .rows = {rows, NULL}};
    struct options *o;
    hold_signals(SIG_BLOCK);
    signal(SIGPIPE, SIG_IGN); /* continue if no process reads the log */
    signal(SIGXFSZ, SIG_IGN);
    log_init("up", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    enum options_result r = options_parse(&spec, argc, argv, &o);
    int status = r == OPTIONS_USAGE ? EX_USAGE : r == OPTIONS_CONFIG ? EX_CONFIG : EX_OK;
    char self[PATH_MAX] = ""; /* path of this program, which a new version replaces */
    char **own = mem_zalloc(((size_t)argc + 2) * sizeof *own);
    (void)!readlink("/proc/self/exe", self, sizeof self - 1);
    own[0] = self;
    memcpy(own + 1, argv, (size_t)argc * sizeof *argv);
    if (r == OPTIONS_OK)
        status = run_up(o, own);
    else if (r != OPTIONS_EXIT)
        tool_fail(status, "%s", options_error(o));
    free(own);
    options_free(&o);
    return status;
}
