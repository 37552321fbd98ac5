#include "api/sql_child.h"

#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define KILL_AFTER 5   /* seconds after max_time */
#define ARGUMENTS 13   /* with the NULL at the end */
#define ERROR_MAX 2000 /* bytes of a child's error in a reply */

struct child {
    struct sql_children *all;
    struct http_request *req; /* NULL: the client is gone */
    pid_t pid;                /* 0: not started, or ended */
    int done, out, err;       /* a pidfd; files in memory with the child's output and errors */
    struct event *event;
};

struct sql_children {
    struct event_base *base;
    char *argv[ARGUMENTS]; /* `n` words, then the statement and NULL */
    size_t n;
    int64_t max_time;
    struct child *running[SQL_CHILDREN_MAX];
    bool drains;
};

/* Returns the path of `millrace`, from that of this program in libexec/millrace. */
static char *millrace_program(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    while (n > 0 && path[n - 1] != '/')
        n--;
    return mem_printf("%.*s../../bin/millrace", n > 0 ? (int)n : 0, path);
}

struct sql_children *sql_children_new(const struct sql_children_config *config)
{
    struct sql_children *c = mem_zalloc(sizeof *c);
    size_t n = 0;
    c->base = config->base;
    c->max_time = config->max_time;
    c->argv[n++] = millrace_program();
    c->argv[n++] = mem_strdup("sql");
    c->argv[n++] = mem_strdup("--format=json");
    c->argv[n++] = mem_strdup("--no-files");
    c->argv[n++] = mem_strdup("--single");
    c->argv[n++] = mem_printf("--max-rows=%" PRId64, config->max_rows);
    c->argv[n++] = mem_printf("--max-time=%" PRId64 "ms", config->max_time);
    c->argv[n++] = mem_printf("--max-memory=%" PRId64, config->max_memory);
    c->argv[n++] = mem_printf("--config=%s", config->config);
    if (config->data_dir)
        c->argv[n++] = mem_printf("--data-dir=%s", config->data_dir);
    c->argv[n++] = mem_strdup("--");
    c->n = n;
    return c;
}

/* Kills the child if it has not ended, and waits for its end. */
static void free_child(struct child *k)
{
    int fds[] = {k->done, k->out, k->err};
    if (k->pid > 0)
        kill(k->pid, SIGKILL);
    while (k->pid > 0 && waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    for (size_t i = 0; i < SQL_CHILDREN_MAX; i++)
        if (k->all->running[i] == k)
            k->all->running[i] = NULL;
    if (k->event)
        event_free(k->event);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(k);
}

void sql_children_free(struct sql_children **cp)
{
    struct sql_children *c = *cp;
    if (!c)
        return;
    for (size_t i = 0; i < SQL_CHILDREN_MAX; i++)
        if (c->running[i])
            free_child(c->running[i]);
    for (size_t i = 0; i < c->n; i++)
        free(c->argv[i]);
    free(c);
    *cp = NULL;
}

void sql_children_drain(struct sql_children *c)
{
    if (c)
        c->drains = true;
    for (size_t i = 0; c && i < SQL_CHILDREN_MAX; i++)
        if (c->running[i])
            kill(c->running[i]->pid, SIGKILL);
}

static void read_output(int fd, struct buf *out)
{
    char *path = mem_printf("/proc/self/fd/%d", fd);
    io_read_file(path, SQL_OUTPUT_MAX, out);
    free(path);
}

static void refuse(struct child *k, int status)
{
    struct buf text = {0};
    read_output(k->err, &text);
    text.len = text.len < ERROR_MAX ? text.len : ERROR_MAX;
    struct bytes why = bytes_trim(buf_bytes(&text)), name = BYTES_LITERAL("millrace sql: ");
    if (bytes_starts_with(why, name))
        why = bytes_of(why.ptr + name.len, why.len - name.len);
    bool is_limit = WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == EX_TEMPFAIL &&
                                               bytes_starts_with(why, BYTES_LITERAL("the statement ")));
    if (k->all->drains)
        http_problem(k->req, 503, "upstream-unavailable", NULL, "the API stops");
    else if (is_limit)
        http_problem(k->req, 422, "statement-limit",
            "see sql_max_rows, sql_max_time and sql_max_memory under [api]",
            "the statement exceeds a limit: %.*s", (int)why.len, why.len ? why.ptr : "");
    else if (WIFEXITED(status) && WEXITSTATUS(status) == EX_USAGE)
        http_problem(k->req, 400, "wrong-statement", NULL, "%.*s", (int)why.len, why.ptr);
    else
        http_problem(k->req, 503, "upstream-unavailable", NULL, "%.*s", (int)why.len, why.len ? why.ptr : "");
    buf_free(&text);
}

static void on_done(evutil_socket_t fd, short what, void *arg)
{
    struct child *k = arg;
    struct buf body = {0};
    int status = 0;
    (void)fd;
    if (what & EV_TIMEOUT)
        kill(k->pid, SIGKILL);
    if (what & EV_TIMEOUT || waitpid(k->pid, &status, WNOHANG) == 0) {
        event_add(k->event, NULL);
        return;
    }
    k->pid = 0;
    if (k->req && (!WIFEXITED(status) || WEXITSTATUS(status) != EX_OK)) {
        refuse(k, status);
    } else if (k->req) {
        read_output(k->out, &body);
        http_reply_buf(k->req, 200, "application/json", &body);
    }
    buf_free(&body);
    free_child(k);
}

static void on_gone(struct http_request *req, void *arg)
{
    struct child *k = arg;
    (void)req;
    k->req = NULL;
    kill(k->pid, SIGKILL);
}

/* Returns 0, or an error of the system. */
static int start(struct child *k, struct bytes statement)
{
    struct sql_children *c = k->all;
    const struct rlimit output = {SQL_OUTPUT_MAX, SQL_OUTPUT_MAX};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, k->out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, k->err, STDERR_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    c->argv[c->n] = bytes_dup(statement);
    int failed = posix_spawn(&k->pid, c->argv[0], &files, &attr, c->argv, environ);
    free(c->argv[c->n]);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (failed)
        return k->pid = 0, failed;
    prlimit(k->pid, RLIMIT_FSIZE, &output, NULL);
    k->done = (int)syscall(SYS_pidfd_open, k->pid, 0);
    return k->done < 0 ? errno : 0;
}

static size_t free_place(const struct sql_children *c)
{
    size_t i = 0;
    while (i < SQL_CHILDREN_MAX && c->running[i])
        i++;
    return i;
}

void sql_children_ask(struct sql_children *c, struct http_request *req)
{
    struct bytes q;
    size_t place = free_place(c);
    if (!http_param(req, "q", &q) || q.len == 0 || memchr(q.ptr, '\0', q.len)) {
        http_problem(req, 400, "missing-parameter", NULL, "q= must be a statement");
        return;
    }
    if (place == SQL_CHILDREN_MAX) {
        http_problem(req, 503, "overloaded", NULL, "%d statements are running", SQL_CHILDREN_MAX);
        return;
    }
    struct child *k = mem_zalloc(sizeof *k);
    *k = (struct child){.all = c,
        .req = req,
        .done = -1,
        .out = memfd_create("sql-output", MFD_CLOEXEC),
        .err = memfd_create("sql-errors", MFD_CLOEXEC)};
    int failed = k->out < 0 || k->err < 0 ? errno : start(k, q);
    if (failed) {
        http_problem(req, 503, "upstream-unavailable", NULL, "cannot run millrace sql: %s", strerror(failed));
        free_child(k);
        return;
    }
    c->running[place] = k;
    k->event = event_new(c->base, k->done, EV_READ, on_done, k);
    event_add(k->event, &(struct timeval){c->max_time / 1000 + KILL_AFTER, 0});
    http_on_gone(req, on_gone, k);
    http_set_long_poll(req);
}
