#include "tools/up_plan.h"
#include "daemon/listen.h"
#include "config/peers.h"
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ARGS_MAX 16
#define SEPARATORS " ,\t"
#define PEERS_MAX 3
#define FD_MIN 10 /* a started program uses lower numbers for passed descriptors */

struct row {
    const char *name;
    bool keeps_data, uses_archive, optional;
    const char *peers[PEERS_MAX + 1]; /* daemons it sends requests to, ended by NULL */
};

/* In start order. queue_to_pubsub and api do not wait for the aggregator, because events can be stored without it. */
static const struct row rows[] = {
    {"pubsub", .keeps_data = true},
    {"simplequeue", .keeps_data = true},
    {"sortdb", .uses_archive = true},
    {"aggregator", .keeps_data = true, .uses_archive = true, .optional = true, .peers = {"pubsub"}},
    {"queue_to_pubsub", .peers = {"simplequeue", "pubsub"}},
    {"api", .peers = {"sortdb", "aggregator", "simplequeue"}},
};
#define N_ROWS (sizeof rows / sizeof *rows)

static void add_arg(struct supervisor_program *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_arg(struct supervisor_program *d, const char *fmt, ...)
{
    struct buf text = {0};
    size_t n = 0;
    va_list ap;
    while (d->argv[n] != NULL)
        n++;
    assert(n < ARGS_MAX);
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    d->argv[n] = bytes_dup(buf_bytes(&text));
    buf_free(&text);
}

static int open_socket(
    const struct up_plan_spec *spec, const char *daemon, int *fd, char **url, struct config_error *error)
{
    const char *address = config_setting(spec->config, daemon, "address");
    const char *port_text = config_setting(spec->config, daemon, "port");
    char reason[400], text[300];
    uint64_t port = (uint64_t)peer_named(daemon)->port;
    struct listen_name name;
    if (port_text != NULL && (!bytes_to_u64(bytes_str(port_text), &port) || port > 65535))
        return config_fail(
            error, spec->config, 0, "[%s] port = %s: expected a number from 0 to 65535", daemon, port_text);
    if (spec->free_ports)
        port = 0;
    int low = listen_open(address != NULL ? address : "127.0.0.1", (int)port, reason, sizeof reason);
    if (low < 0)
        return config_fail(error, NULL, 0, "%s: %s", daemon, reason);
    *fd = fcntl(low, F_DUPFD_CLOEXEC, FD_MIN);
    close(low);
    listen_name(*fd, &name);
    listen_url(&name, text, sizeof text);
    *url = mem_strdup(text);
    return 0;
}

static int add_daemon(
    const struct up_plan_spec *spec, const struct row *row, struct up_plan *plan, struct config_error *error)
{
    struct supervisor_program *d = &plan->daemons[plan->n];
    char **url = &plan->urls[plan->n++];
    *d = (struct supervisor_program){.name = row->name, .listen_fd = -1, .optional = row->optional};
    d->argv = mem_zalloc((ARGS_MAX + 1) * sizeof *d->argv);
    add_arg(d, "%s/%s", spec->libexec, row->name);
    add_arg(d, "--config=%s", spec->config->path);
    if (row->keeps_data && config_setting(spec->config, row->name, "data_dir") == NULL)
        add_arg(d, "--data_dir=%s/%s", spec->data_dir, row->name);
    if (row->uses_archive && config_setting(spec->config, row->name, "archive") == NULL &&
        config_setting(spec->config, row->name, "db_file") == NULL)
        add_arg(d, "--archive=%s", plan->archive);
    if (spec->check_only)
        add_arg(d, "--check-config");
    else if (open_socket(spec, row->name, &d->listen_fd, url, error) != 0)
        return -1;
    for (const char *const *peer = row->peers; *peer != NULL; peer++) {
        const char *setting = peer_named(*peer)->setting;
        size_t i = up_plan_find(plan, *peer);
        if (i < plan->n && plan->urls[i] != NULL && config_setting(spec->config, row->name, setting) == NULL)
            add_arg(d, "--%s=%s", setting, plan->urls[i]);
    }
    return 0;
}

/* Marks the daemons of --run: 0, or -1 with the error. */
static int read_list(const struct up_plan_spec *spec, bool runs[N_ROWS], struct config_error *error)
{
    const char *list = spec->run;
    struct bytes word;
    while (bytes_next_word(&list, SEPARATORS, &word)) {
        struct buf known = {0};
        size_t i = 0;
        for (; i < N_ROWS && !bytes_equal_str(word, rows[i].name); i++)
            buf_printf(&known, " %s", rows[i].name);
        if (i == N_ROWS)
            config_fail(error, spec->config, 0, "run: no daemon %.*s; expected any of:%.*s", (int)word.len,
                word.ptr, (int)known.len, known.ptr);
        buf_free(&known);
        if (i == N_ROWS)
            return -1;
        runs[i] = true;
    }
    return 0;
}

int up_plan_make(const struct up_plan_spec *spec, struct up_plan *out, struct config_error *error)
{
    const char *archive = config_setting(spec->config, "compactor", "archive");
    struct buf path = {0};
    bool runs[N_ROWS] = {false};
    if (archive != NULL)
        buf_append_str(&path, archive);
    else
        buf_printf(&path, "%s/archive", spec->data_dir);
    *out = (struct up_plan){.archive = bytes_dup(buf_bytes(&path))};
    buf_free(&path);
    int rc = spec->run != NULL ? read_list(spec, runs, error) : 0;
    for (size_t i = 0; i < N_ROWS && rc == 0; i++)
        if (spec->run == NULL || runs[i])
            rc = add_daemon(spec, &rows[i], out, error);
    if (rc != 0)
        up_plan_free(out);
    return rc;
}

void up_plan_close_socket(struct up_plan *plan, size_t daemon)
{
    struct supervisor_program *d = &plan->daemons[daemon];
    if (d->listen_fd >= 0)
        close(d->listen_fd);
    d->listen_fd = -1;
}

void up_plan_free(struct up_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        up_plan_close_socket(plan, i);
        if (strncmp(plan->urls[i] != NULL ? plan->urls[i] : "", "unix:", 5) == 0)
            unlink(plan->urls[i] + 5);
        free(plan->urls[i]);
        for (char **arg = plan->daemons[i].argv; *arg != NULL; arg++)
            free(*arg);
        free(plan->daemons[i].argv);
    }
    free(plan->archive);
    *plan = (struct up_plan){0};
}

size_t up_plan_find(const struct up_plan *plan, const char *name)
{
    size_t i = 0;
    while (i < plan->n && strcmp(plan->daemons[i].name, name) != 0)
        i++;
    return i;
}
