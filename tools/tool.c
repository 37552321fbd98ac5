#include "tools/tool.h"
#include "base/bytes.h"
#include "base/child_fork.h"
#include "base/io.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rfc3339.h"
#include "base/suggest.h"
#include "json/json_fields.h"
#include "daemon/daemon.h"
#include "daemon/daemon_directory.h"
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define RUN_FILE_MAX (1 << 20)
#define STREAMS_SHOWN 5
#define HOLDER_TRIES 10
#define HOLDER_POLL (20 * USEC_PER_MSEC)
#define CELL_TIMEOUT (5 * USEC_PER_SEC)

static const char *running = ""; /* name of the running tool */

int tool_check_data_dir(const char *data_dir)
{
    char *file = mem_printf("%s/run.json", data_dir);
    struct buf owner = {0};
    int status = EX_OK;
    if (access(file, R_OK) != 0 && errno == EACCES) {
        io_append_owner(file, &owner);
        status =
            tool_fail(EX_CONFIG, "cannot read %s: Permission denied%s", file, owner.ptr ? owner.ptr : "");
    } else if (access(file, R_OK) != 0) {
        status = tool_fail(EX_CONFIG, "--data-dir=%s has no run.json: no pipeline has run there", data_dir);
    }
    buf_free(&owner);
    free(file);
    return status;
}

int tool_fail_at(int status, const char *path, const char *text)
{
    struct buf owner = {0};
    int why = access(path, R_OK) == 0 ? 0 : errno;
    if (why == EACCES)
        io_append_owner(path, &owner);
    tool_fail(status, "%s%.*s%s", text, (int)owner.len, owner.len ? owner.ptr : "",
        why == ENOENT ? "; " PIPELINE_PLACE_REMEDY : "");
    buf_free(&owner);
    return status;
}

struct name_search {
    const char *member;
    struct suggest suggest;
    char nearest[NAME_LEN_MAX + 1];
    bool is_found;
};

static bool try_name(const struct json_doc *element, size_t i, void *arg)
{
    struct name_search *n = arg;
    char name[NAME_LEN_MAX + 1];
    struct bytes text = json_doc_text(element, "/%s", n->member);
    (void)i;
    snprintf(name, sizeof name, "%.*s", (int)text.len, text.len ? text.ptr : "");
    n->is_found = n->is_found || strcmp(name, n->suggest.name) == 0;
    suggest_try(&n->suggest, name);
    if (n->suggest.nearest == name) {
        snprintf(n->nearest, sizeof n->nearest, "%s", name);
        n->suggest.nearest = n->nearest;
    }
    return true;
}

bool tool_finds_name(const struct json_doc *doc, const char *list, const char *member, const char *name,
    char hint[TOOL_HINT_TEXT])
{
    struct name_search n = {.member = member, .suggest = suggest_for(name)};
    json_doc_each(doc, list, try_name, &n);
    bool is_near = n.nearest[0] != '\0';
    snprintf(
        hint, TOOL_HINT_TEXT, "%s%s%s", is_near ? " (did you mean " : "", n.nearest, is_near ? "?)" : "");
    return n.is_found;
}

char *tool_stream_hint(const struct json_doc *streams, const char *name)
{
    char near[TOOL_HINT_TEXT];
    size_t n = json_doc_length(streams, "/streams");
    struct buf names = {0};
    if (tool_finds_name(streams, "/streams", "name", name, near))
        return NULL;
    for (size_t i = 0; i < n && i < STREAMS_SHOWN; i++) {
        struct bytes known = json_doc_text(streams, "/streams/%zu/name", i);
        buf_printf(&names, "%s%.*s", i > 0 ? ", " : "", (int)known.len, known.len ? known.ptr : "");
    }
    char *hint =
        near[0] ? mem_strdup(near)
        : n == 0
            ? mem_strdup(" (pubsub has no streams)")
            : mem_printf(
                  " (pubsub has %s%s; name one with --stream, or the pipeline's configuration with --config)",
                  names.ptr, n > STREAMS_SHOWN ? ", ..." : "");
    buf_free(&names);
    return hint;
}

bool tool_has_queue(const char *url, const char *token, const char *queue)
{
    struct buf body = {0};
    const char *why;
    const struct http_call_spec call = {.method = "GET", .target = "/stats?format=json"};
    int status = tool_request(url, token, &call, &body, &why);
    struct json_doc *doc = status == 200 ? json_doc_parse(buf_bytes(&body)) : NULL;
    bool has = !doc || json_doc_text(doc, "/queues/%s/queue_id", queue).len > 0;
    json_doc_free(&doc);
    buf_free(&body);
    return has;
}

enum reads { READS_FILES, READS_PIPELINE, READS_STREAM };

/* Takes the settings that are inherited from the configuration of the running pipeline. */
static void adopt_config(struct options *o)
{
    struct pipeline p;
    pipeline_open(&p, NULL, options_string(o, "data_dir"));
    if (p.config_path)
        options_adopt(o, p.config_path);
    pipeline_close(&p);
}

static int run_with(const struct options_spec *spec, int argc, char **argv,
    int (*run)(const struct options *o), enum reads reads)
{
    struct options *o;
    struct options_spec own = *spec;
    own.is_tool = true;
    tool_begin(spec->program);
    enum options_result r = options_parse(&own, argc, argv, &o);
    int status = r == OPTIONS_USAGE ? EX_USAGE : r == OPTIONS_CONFIG ? EX_CONFIG : EX_OK;
    if (status != EX_OK) {
        tool_fail(status, "%s", options_error(o));
    } else if (r == OPTIONS_OK && options_check_only(o)) {
        options_show_settings(o);
    } else if (r == OPTIONS_OK) {
        bool is_given = reads != READS_FILES && options_is_set(o, "data_dir");
        status = is_given ? tool_check_data_dir(options_string(o, "data_dir")) : EX_OK;
        if (reads == READS_STREAM && !options_config(o))
            adopt_config(o);
        if (status == EX_OK)
            status = run(o);
    }
    options_free(&o);
    return status;
}

int tool_run(const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o))
{
    return run_with(spec, argc, argv, run, READS_PIPELINE);
}

int tool_run_on_stream(
    const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o))
{
    return run_with(spec, argc, argv, run, READS_STREAM);
}

int tool_run_on_files(
    const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o))
{
    return run_with(spec, argc, argv, run, READS_FILES);
}

int tool_request(
    const char *url, const char *token, const struct http_call_spec *call, struct buf *body, const char **why)
{
    int status = 0;
    enum http_client_result r = HTTP_CLIENT_REFUSED;
    struct event_base *base = event_base_new();
    struct http_client *c =
        http_client_new(&(struct http_client_config){.base = base, .url = url, .auth_token = token});
    if (c)
        r = http_client_fetch(c, call, &status, body);
    http_client_free(&c);
    event_base_free(base);
    *why = http_client_strerror(r);
    return r == HTTP_CLIENT_OK ? status : 0;
}

bool tool_has_color(const struct options *o, int fd)
{
    const char *color = options_string(o, "color"), *none = getenv("NO_COLOR");
    return strcmp(color, "auto") == 0 ? isatty(fd) && !(none && *none) : strcmp(color, "always") == 0;
}

void tool_begin(const char *name)
{
    running = name;
}

int tool_fail(int status, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    progress_leave();
    buf_printf(&text, "millrace %s: ", running);
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    buf_append_char(&text, '\n');
    log_forward(buf_bytes(&text));
    buf_free(&text);
    return status;
}

void tool_drop_messages(void)
{
    log_init(running, LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
}

bool tool_show(void)
{
    bool is_shown = fflush(stdout) == 0;
    if (!is_shown && errno == EPIPE)
        clearerr(stdout);
    return is_shown;
}

int tool_flush(int status)
{
    if ((tool_show() && !ferror(stdout)) || errno == EPIPE)
        return status;
    return tool_fail(EX_IOERR, "cannot write to standard output: %s", strerror(errno));
}

int tool_check_input(const char *path)
{
    struct stat st;
    int why = stat(path, &st) != 0 || access(path, R_OK) != 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;
    return why == 0 ? EX_OK : tool_fail(EX_NOINPUT, "%s: %s", path, strerror(why));
}

char *tool_program(const char *name)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    const char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    return mem_printf("%.*s/../libexec/millrace/%s", slash ? (int)(slash - self) : 0, self, name);
}

void tool_add_arg(struct tool_args *a, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    a->argv = mem_realloc(a->argv, (a->n + 2) * sizeof *a->argv);
    a->argv[a->n++] = text.ptr;
    a->argv[a->n] = NULL;
}

struct tool_args tool_args_for(const char *name)
{
    struct tool_args a = {0};
    char *path = tool_program(name);
    tool_add_arg(&a, "%s", path);
    free(path);
    return a;
}

void tool_free_args(struct tool_args *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->argv[i]);
    free(a->argv);
    *a = (struct tool_args){0};
}

pid_t tool_start(struct tool_args *a, int fd, int as)
{
    pid_t parent = getpid(), pid;
    fflush(stdout);
    pid = child_fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent && (fd < 0 || dup2(fd, as) >= 0))
            execv(a->argv[0], a->argv);
        _exit(tool_fail(EX_OSERR, "cannot run %s: %s", a->argv[0], strerror(errno)));
    }
    if (pid < 0)
        tool_fail(EX_OSERR, "cannot start a process: %s", strerror(errno));
    tool_free_args(a);
    return pid;
}

int tool_wait(pid_t pid)
{
    int status;
    if (pid < 0)
        return EX_OSERR;
    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR)
            return EX_OSERR;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return tool_fail(EX_TEMPFAIL, "process %d of this command was ended by signal %d (%s)", (int)pid,
        WTERMSIG(status), strsignal(WTERMSIG(status)));
}

static void add_path(struct tool_args *a, const char *setting, char *path)
{
    tool_add_arg(a, "--%s=%s", setting, path);
    free(path);
}

void tool_add_compactor_paths(struct tool_args *a, const struct config *config, const char *data_dir)
{
    if (config_setting(config, "sortdb", "archive") || !config_setting(config, "compactor", "archive"))
        add_path(a, "archive", pipeline_archive_dir(config, data_dir));
    if (config_setting(config, "aggregator", "data_dir") || !config_setting(config, "compactor", "slices"))
        add_path(a, "slices", pipeline_daemon_dir(config, data_dir, "aggregator", "/slices"));
}

static char *text_at(const struct json_doc *run, const char *daemon, const char *member)
{
    struct bytes text = json_doc_text(run, "/daemons/%s/%s", daemon, member);
    return text.ptr ? bytes_dup(text) : NULL;
}

const char *pipeline_daemon_name(size_t i)
{
    return i < PEERS ? peers[i].name : "compactor";
}

static void read_daemon(const struct json_doc *run, const char *name, struct pipeline_daemon *d)
{
    *d = (struct pipeline_daemon){.url = text_at(run, name, "url"),
        .state = text_at(run, name, "state"),
        .status_text = text_at(run, name, "said"),
        .pid = (int64_t)json_doc_number(run, "/daemons/%s/pid", name),
        .restarts = (unsigned)json_doc_number(run, "/daemons/%s/restarts", name),
        .last_error = text_at(run, name, "error"),
        .remedy = text_at(run, name, "remedy"),
        .error_at = (int64_t)json_doc_number(run, "/daemons/%s/error_at", name),
        .restarted_at = (int64_t)json_doc_number(run, "/daemons/%s/restarted_at", name)};
    d->is_off = !d->state;
}

/* Returns the process that holds the directory of the pipeline, as daemon_directory_holder. While a `millrace up`
 * replaces itself by a new version, the lock is free for a moment. */
static int64_t find_holder(const char *data_dir, int64_t pid)
{
    int64_t holder = daemon_directory_holder(data_dir);
    for (int tries = 0; holder == 0 && pid > 0 && kill((pid_t)pid, 0) == 0 && tries < HOLDER_TRIES; tries++) {
        clock_sleep(HOLDER_POLL);
        holder = daemon_directory_holder(data_dir);
    }
    return holder;
}

/* True if a process uses the directory of a daemon of the pipeline. An operator can start daemons without `millrace up`. */
static bool is_any_held(const struct pipeline *p)
{
    static const char *const names[] = {"simplequeue", "pubsub", "aggregator"};
    bool is_held = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *dir = pipeline_daemon_dir(p->config, p->data_dir, names[i], "");
        is_held = is_held || daemon_directory_holder(dir) > 0;
        free(dir);
    }
    return is_held;
}

bool pipeline_is_stopped(const struct pipeline *p)
{
    return p->has_ended && !is_any_held(p);
}

int tool_check_runs(const struct pipeline *p)
{
    return pipeline_is_stopped(p)
               ? tool_fail(EX_TEMPFAIL, "the pipeline of %s is stopped; `millrace status` shows the reason",
                     p->data_dir)
               : EX_OK;
}

/* Finds out whether the `millrace up` that wrote run.json still runs. Without a lock, its process id decides. Without
 * run.json, a free lock means that `millrace up` has ended before it started a daemon. */
static void judge_up(struct pipeline *p, const struct json_doc *run, const char *path)
{
    struct json_value ended = json_doc_at(run, "/ended");
    bool has_said_end = ended.type == JSON_BOOL && ended.v.boolean;
    int64_t pid = (int64_t)json_doc_number(run, "/pid");
    int64_t holder = find_holder(p->data_dir, has_said_end ? 0 : pid);
    struct stat st;
    bool is_gone = holder == 0 || (holder < 0 && pid > 0 && kill((pid_t)pid, 0) != 0 && errno != EPERM);
    p->starting = holder > 0 && (has_said_end || holder != pid) ? holder : 0;
    p->has_ended = !p->starting && (run ? has_said_end || is_gone : holder == 0 && !is_any_held(p));
    p->is_here = holder > 0 && holder == pid;
    p->pid = p->is_here ? pid : 0;
    p->was_killed = run && p->has_ended && !has_said_end;
    p->written = run && stat(path, &st) == 0 ? st.st_mtime : 0;
}

/* Reads the error of a `millrace up` that started no daemon. The next start that succeeds deletes it. */
static void read_start_error(struct pipeline *p)
{
    struct buf text = {0};
    struct stat st;
    char at[RFC3339_TEXT], *path = mem_printf("%s/" PIPELINE_START_ERROR, p->data_dir);
    if (p->has_ended && stat(path, &st) == 0 && io_read_file(path, ERROR_TEXT, &text) == 0 && text.len > 0) {
        free(p->end_reason);
        p->end_reason = mem_printf(
            "the start at %s failed: %.*s", rfc3339_write(st.st_mtime, at), (int)text.len, text.ptr);
        p->end_remedy = "correct this";
        p->was_killed = false;
    }
    buf_free(&text);
    free(path);
}

static void read_run(struct pipeline *p, const struct json_doc *run)
{
    struct bytes reason = json_doc_text(run, "/end_reason"), file = json_doc_text(run, "/config");
    p->config_path = file.len > 0 ? bytes_dup(file) : NULL;
    p->end_reason = p->has_ended && reason.len > 0 ? bytes_dup(reason) : NULL;
    struct bytes ender = p->end_reason ? json_doc_text(run, "/end_daemon") : BYTES_NONE;
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++)
        if (bytes_equal_str(ender, pipeline_daemon_name(i)))
            p->end_remedy = p->daemons[i].remedy;
    p->wrong_since = (int64_t)json_doc_number(run, "/wrong_since");
    struct bytes service = json_doc_text(run, "/service");
    p->service = service.len > 0 ? bytes_dup(service) : NULL;
    p->log_dropped = json_doc_number(run, "/log_lines_dropped");
    p->disk_at = (int64_t)json_doc_number(run, "/disk/at");
    p->disk_free = (int64_t)json_doc_number(run, "/disk/free");
}

void pipeline_open(struct pipeline *p, const struct config *config, const char *data_dir)
{
    struct json_doc *run = NULL; /* run.json; NULL: missing or unreadable */
    struct buf text = {0}, denied = {0};
    *p = (struct pipeline){.config = config, .data_dir = pipeline_dir(config, data_dir)};
    char *path = mem_printf("%s/run.json", p->data_dir);
    if (io_read_file(path, RUN_FILE_MAX, &text) == 0)
        run = json_doc_parse(buf_bytes(&text));
    else if (errno == EACCES)
        io_append_owner(path, &denied);
    p->denied = denied.ptr;
    p->is_known = run != NULL;
    judge_up(p, run, path);
    free(path);
    buf_free(&text);
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++) {
        struct pipeline_daemon *d = &p->daemons[i];
        if (run)
            read_daemon(run, pipeline_daemon_name(i), d);
        if (!run && i < PEERS)
            d->is_off = !peer_is_wanted(config, peers[i].name);
        if (!d->url && i < PEERS) {
            struct buf url = {0};
            peer_configured_url(&peers[i], config, &url);
            d->url = bytes_dup(buf_bytes(&url));
            buf_free(&url);
        }
    }
    if (run)
        read_run(p, run);
    read_start_error(p);
    json_doc_free(&run);
}

void pipeline_close(struct pipeline *p)
{
    free(p->denied);
    free(p->service);
    free(p->end_reason);
    free(p->config_path);
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++) {
        free(p->daemons[i].last_error);
        free(p->daemons[i].remedy);
        free(p->daemons[i].url);
        free(p->daemons[i].state);
        free(p->daemons[i].status_text);
    }
    *p = (struct pipeline){.has_ended = false};
}

const struct config_section *tool_next_cell(const struct config *config, const struct config_section *cell)
{
    const struct config_section *end = config ? config->sections + config->n_sections : NULL;
    for (cell = cell ? cell + 1 : config ? config->sections : NULL; cell < end; cell++)
        if (strcmp(cell->kind, "cell") == 0)
            return cell;
    return NULL;
}

bool tool_has_cells(const struct config *config)
{
    return tool_next_cell(config, NULL) != NULL;
}

void tool_each(void *list, size_t n, size_t size, void *(*fn)(void *item))
{
    pthread_t *threads = mem_zalloc((n + 1) * sizeof *threads);
    size_t begun = 0;
    while (begun < n && pthread_create(&threads[begun], NULL, fn, (char *)list + begun * size) == 0)
        begun++;
    for (size_t i = begun; i < n; i++)
        fn((char *)list + i * size);
    for (size_t i = 0; i < begun; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

bool tool_api_reads_archive(const struct config *config, bool runs_sortdb)
{
    if (config_setting(config, "api", "archive"))
        return true;
    return !tool_has_cells(config) && runs_sortdb && !config_setting(config, "api", "sortdb_url") &&
           !config_setting(config, "sortdb", "db_file");
}

const char *pipeline_url(const struct pipeline *p, const char *daemon)
{
    return p->daemons[peer_named(daemon) - peers].url;
}

int pipeline_token(const struct pipeline *p, const char *daemon, char **token, struct error *error)
{
    const char *file = config_setting(p->config, daemon, "auth_token_file");
    if (!file)
        file = config_setting(p->config, "millrace", "auth_token_file");
    return daemon_read_token(file, token, error);
}

/* `name` is that of the daemon in the error. */
static struct json_doc *ask(const char *name, const char *url, const char *token,
    const struct http_call_spec *call, struct error *error)
{
    struct buf body = {0};
    const char *why;
    int status = tool_request(url, token, call, &body, &why);
    struct json_doc *doc = status ? json_doc_parse(buf_bytes(&body)) : NULL;
    if (!doc || (status != 200 && status != 202)) {
        struct bytes detail = doc      ? json_doc_text(doc, "/detail")
                              : status ? BYTES_LITERAL("the reply is not JSON")
                                       : bytes_str(why);
        error_set(error, EX_TEMPFAIL, "%s: %s: %.*s", name, call->target, (int)detail.len,
            detail.len ? detail.ptr : "");
        json_doc_free(&doc);
    }
    buf_free(&body);
    return doc;
}

struct json_doc *pipeline_ask(
    const struct pipeline *p, const char *daemon, const struct http_call_spec *call, struct error *error)
{
    struct error why;
    char *token;
    if (pipeline_token(p, daemon, &token, &why) != 0) {
        error_set(error, EX_CONFIG, "%s", why.text);
        return NULL;
    }
    struct json_doc *doc = ask(daemon, pipeline_url(p, daemon), token, call, error);
    free(token);
    return doc;
}

struct json_doc *tool_ask_cell(
    const struct config_section *cell, const char *daemon, const char *target, struct error *error)
{
    const struct http_call_spec call = {.method = "GET", .target = target, .timeout = CELL_TIMEOUT};
    char *name = mem_printf("%s of cell %s", daemon, cell->name), *setting = mem_printf("%s_url", daemon);
    const char *url = config_value(cell, setting);
    char *token = NULL;
    struct json_doc *doc = NULL;
    if (!url)
        error_set(error, EX_CONFIG, "cell %s has no %s", cell->name, setting);
    else if (daemon_read_token(config_value(cell, "token_file"), &token, error) == 0)
        doc = ask(name, url, token, &call, error);
    free(token);
    free(setting);
    free(name);
    return doc;
}
