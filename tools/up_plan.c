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
#define FD_MIN 10 /* above the numbers that a started program uses for passed descriptors */

struct row {
    const char *name;
    bool keeps_data, uses_archive;
    const char *peers[PEERS_MAX + 1]; /* daemons it sends requests to, ended by NULL */
};

/* In start order. */
static const struct row rows[] = {
    {"pubsub", true, false, {NULL}},
    {"simplequeue", true, false, {NULL}},
    {"sortdb", false, true, {NULL}},
    {"aggregator", true, true, {"pubsub", NULL}},
    {"queue_to_pubsub", false, false, {"simplequeue", "pubsub", NULL}},
    {"api", false, false, {"sortdb", "aggregator", "simplequeue", NULL}},
};
#define N_ROWS (sizeof rows / sizeof *rows)

static void add_arg(struct up_daemon *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_arg(struct up_daemon *d, const char *fmt, ...)
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
    const struct up_plan_spec *spec, const struct row *row, struct up_daemon *d, struct config_error *error)
{
    const char *address = config_setting(spec->config, row->name, "address");
    const char *port_text = config_setting(spec->config, row->name, "port");
    char reason[400], url[300];
    uint64_t port = (uint64_t)peer_named(row->name)->port;
    struct listen_name name;
    if (port_text != NULL && (!bytes_to_u64(bytes_str(port_text), &port) || port > 65535))
        return config_fail(error, spec->config, 0, "[%s] port = %s: expected a number from 0 to 65535",
            row->name, port_text);
    if (spec->free_ports)
        port = 0;
    int fd = listen_open(address != NULL ? address : "127.0.0.1", (int)port, reason, sizeof reason);
    if (fd < 0)
        return config_fail(error, NULL, 0, "%s: %s", row->name, reason);
    d->listen_fd = fcntl(fd, F_DUPFD_CLOEXEC, FD_MIN);
    close(fd);
    listen_name(d->listen_fd, &name);
    listen_url(&name, url, sizeof url);
    d->url = mem_strdup(url);
    return 0;
}

static void add_peers(
    const struct up_plan_spec *spec, const struct up_plan *plan, const struct row *row, struct up_daemon *d)
{
    for (const char *const *name = row->peers; *name != NULL; name++) {
        const char *setting = peer_named(*name)->setting;
        const struct up_daemon *peer = up_plan_find(plan, *name);
        if (peer != NULL && peer->url != NULL && config_setting(spec->config, row->name, setting) == NULL)
            add_arg(d, "--%s=%s", setting, peer->url);
    }
}

static int add_daemon(
    const struct up_plan_spec *spec, const struct row *row, struct up_plan *plan, struct config_error *error)
{
    struct up_daemon *d = &plan->daemons[plan->n++];
    *d = (struct up_daemon){.name = row->name, .listen_fd = -1};
    d->argv = mem_zalloc((ARGS_MAX + 1) * sizeof *d->argv);
    add_arg(d, "%s/%s", spec->libexec, row->name);
    add_arg(d, "--config=%s", spec->config_path);
    if (row->keeps_data && config_setting(spec->config, row->name, "data_dir") == NULL)
        add_arg(d, "--data_dir=%s/%s", spec->data_dir, row->name);
    if (row->uses_archive && config_setting(spec->config, row->name, "archive") == NULL &&
        config_setting(spec->config, row->name, "db_file") == NULL)
        add_arg(d, "--archive=%s", plan->archive);
    if (spec->check_only)
        add_arg(d, "--check-config");
    else if (open_socket(spec, row, d, error) != 0)
        return -1;
    add_peers(spec, plan, row, d);
    return 0;
}

static bool is_listed(const char *list, const char *name)
{
    struct bytes word;
    while (bytes_next_word(&list, SEPARATORS, &word))
        if (bytes_equal_str(word, name))
            return true;
    return false;
}

static int check_names(const struct up_plan_spec *spec, struct config_error *error)
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
    }
    return 0;
}

/* As configured for the compactor, else below the pipeline's directory. */
static char *archive_of(const struct up_plan_spec *spec)
{
    const char *configured = config_setting(spec->config, "compactor", "archive");
    struct buf path = {0};
    if (configured != NULL)
        return mem_strdup(configured);
    buf_printf(&path, "%s/archive", spec->data_dir);
    char *text = bytes_dup(buf_bytes(&path));
    buf_free(&path);
    return text;
}

int up_plan_make(const struct up_plan_spec *spec, struct up_plan *out, struct config_error *error)
{
    memset(out, 0, sizeof *out);
    out->archive = archive_of(spec);
    int rc = spec->run != NULL ? check_names(spec, error) : 0;
    for (size_t i = 0; i < N_ROWS && rc == 0; i++)
        if (spec->run == NULL || is_listed(spec->run, rows[i].name))
            rc = add_daemon(spec, &rows[i], out, error);
    if (rc != 0)
        up_plan_free(out);
    return rc;
}

void up_plan_free(struct up_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        struct up_daemon *d = &plan->daemons[i];
        if (d->listen_fd >= 0)
            close(d->listen_fd);
        if (strncmp(d->url != NULL ? d->url : "", "unix:", 5) == 0)
            unlink(d->url + 5);
        free(d->url);
        for (size_t a = 0; d->argv[a] != NULL; a++)
            free(d->argv[a]);
        free(d->argv);
    }
    free(plan->archive);
    *plan = (struct up_plan){0};
}

const struct up_daemon *up_plan_find(const struct up_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n; i++)
        if (strcmp(plan->daemons[i].name, name) == 0)
            return &plan->daemons[i];
    return NULL;
}
