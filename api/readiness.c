#include "api/readiness.h"

#include "api/local_archive.h"
#include "archive/generation.h"
#include "counts/manifest.h"
#include "daemon/daemon.h"
#include "daemon/loop_timer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#define CHECK_EVERY USEC_PER_SEC
#define CELLS_EVERY 10 /* seconds between checks of cells with a section */
#define HOSTS_EVERY 2  /* seconds between checks if an archive has several hosts */
#define PATIENCE (1500 * USEC_PER_MSEC)
#define CHECK "/mget?k=lookup%7CAAAAAAAAAAA%3D"

struct waiter {
    struct readiness *readiness;
    struct http_request *req;
    TAILQ_ENTRY(waiter) link;
};

/* The state of one cell. */
struct cell_check {
    const char *name;
    struct local_archive *archive; /* NULL: none is mapped */
    uint64_t through;              /* last slice of the archive, in the check in progress */
    uint64_t cleared;              /* last cleared slice, in the check in progress */
    uint64_t cleared_before;       /* `cleared` of the previous check */
    struct sources *sources;
    unsigned n_failed[SOURCES_MAX]; /* hosts that have failed in the check in progress */
    bool has_failed;                /* a source has failed in the check in progress: all its hosts */
    bool has_no_archive;            /* the aggregator is the only source */
    bool is_behind;                 /* slices that the archive does not include were cleared */
    bool is_ready;                  /* after the last check */
};

/* A connection of its own, so that a check does not wait for questions. */
struct check {
    struct readiness *readiness;
    struct cell_check *cell;
    const char *name;
    size_t source, host;
    struct http_client *client;
};

struct readiness {
    struct daemon *daemon;
    struct cell_check cells[CELLS_MAX];
    struct check checks[CELLS_MAX * (1 + REPLICAS_MAX)];
    size_t n_cells, n;
    bool has_hosts;    /* an archive has several hosts */
    size_t unanswered; /* number of checks in progress */
    struct loop_timer *again;
    usec_t checked;           /* end of the last check; 0: none has ended */
    struct buf failing, next; /* sources that failed: in the last check, and in the check in progress */
    char *error;
    TAILQ_HEAD(, waiter) waiters;
};

const char *readiness_error(const struct readiness *r)
{
    return r->error;
}

static bool has_archive(const struct cell_check *c)
{
    return !c->archive || local_archive_generation(c->archive);
}

/* Returns the cell that decides the remedy: one without an archive, or else one whose archive cannot be opened or is
 * behind. */
static const struct cell_check *worst_cell(const struct readiness *r)
{
    const struct cell_check *worst = &r->cells[0];
    for (const struct cell_check *c = r->cells; c < r->cells + r->n_cells; c++)
        if (!has_archive(c) ||
            (has_archive(worst) && ((c->archive && *local_archive_error(c->archive)) || c->is_behind)))
            worst = c;
    return worst;
}

/* Names the hosts that are not asked. */
static void warn_of_hosts(const struct readiness *r)
{
    struct buf text = {0};
    for (const struct cell_check *c = r->cells; r->has_hosts && c < r->cells + r->n_cells; c++)
        if (sources_replicas(c->sources, 0)->n > 1)
            replicas_describe(sources_replicas(c->sources, 0), &text);
    if (text.len > 0)
        buf_append_char(&text, '\0');
    daemon_set_notice(r->daemon, "hosts", NOTICE_WARNING,
        "start the sortdb of a host that is away; run `millrace distribute` for a host with an older "
        "generation; replace the archive of another pipeline on a host",
        text.ptr);
    buf_free(&text);
}

void readiness_judge(struct readiness *r)
{
    const struct cell_check *c = worst_cell(r);
    const char *error = c->archive ? local_archive_error(c->archive) : "", *of = *c->name ? " of cell " : "";
    bool is_open = has_archive(c);
    free(r->error);
    r->error = !is_open && *error ? mem_printf("cannot open the archive%s%s: %s", of, c->name, error)
               : !is_open         ? mem_printf("opening the archive%s%s", of, c->name)
               : r->failing.len > 0
                   ? mem_printf("%.*s; events are stored", (int)r->failing.len, r->failing.ptr)
                   : NULL;
    const char *remedy = is_open && c->is_behind ? MANIFEST_BEHIND_REMEDY
                         : is_open ? "repair the source that the reason names; queries then work again"
                         : *error  ? archive_remedy(error)
                                   : DAEMON_WAIT;
    daemon_set_refusing(r->daemon, "queries", remedy, r->error);
    char *notice = is_open && *error
                       ? mem_printf("cannot open the archive%s%s, the former generation stays in use: %s", of,
                             c->name, error)
                       : NULL;
    daemon_set_notice(r->daemon, "archive", NOTICE_WARNING, archive_remedy(error), notice);
    free(notice);
    warn_of_hosts(r);
}

static void on_gone(struct http_request *req, void *arg)
{
    struct waiter *w = arg;
    (void)req;
    TAILQ_REMOVE(&w->readiness->waiters, w, link);
    free(w);
}

/* The metric cell_ready shows the last check of each section [cell NAME], so the checks are regular. */
static bool has_sections(const struct readiness *r)
{
    return *r->cells[0].name;
}

static void end_check(struct readiness *r)
{
    struct waiter *w;
    r->checked = clock_monotonic();
    buf_clear(&r->failing);
    buf_append_bytes(&r->failing, buf_bytes(&r->next));
    readiness_judge(r);
    if (r->failing.len > 0)
        loop_timer_set(r->again, CHECK_EVERY);
    else if (has_sections(r) || r->has_hosts)
        loop_timer_set(r->again, (r->has_hosts ? HOSTS_EVERY : CELLS_EVERY) * USEC_PER_SEC);
    while ((w = TAILQ_FIRST(&r->waiters))) {
        struct http_request *req = w->req;
        on_gone(req, w);
        http_reply_health(req);
    }
}

static void begin_check(struct readiness *r);

/* The aggregator clears a slice only after the archive includes the slice. So an archive that was asked after the
 * aggregator has shown a cleared slice, and does not include this slice, is behind. Returns false to ask again. */
static bool compare_slices(struct readiness *r, struct cell_check *c)
{
    struct manifest m;
    if (c->archive) /* the mapped generation may be older than the current generation */
        c->through = UINT64_MAX;
    if (c->archive && manifest_read_current(local_archive_dir(c->archive), &m, NULL) == MANIFEST_OK) {
        c->through = m.through;
        manifest_free(&m);
    }
    c->is_behind = c->through < c->cleared_before;
    bool is_new = !c->is_behind && c->through < c->cleared;
    c->cleared_before = c->cleared;
    if (c->is_behind)
        buf_printf(&r->next,
            "%sthe archive%s%s goes to slice %" PRIu64 ", but slices up to %" PRIu64 " were cleared",
            r->next.len ? "; " : "", *c->name ? " of cell " : "", c->name, c->through, c->cleared);
    return !is_new;
}

/* Returns false to ask again. */
static bool compare_cells(struct readiness *r)
{
    bool is_done = true;
    for (struct cell_check *c = r->cells; c < r->cells + r->n_cells; c++) {
        bool has_both = !c->has_failed && !c->has_no_archive;
        c->is_behind = c->is_behind && has_both;
        is_done &= !has_both || compare_slices(r, c);
        c->is_ready = !c->has_failed && !c->is_behind;
    }
    return is_done;
}

/* A source fails if all its hosts fail. */
static void note_failure(
    const struct check *check, enum http_client_result result, const struct http_reply_view *reply)
{
    struct buf *next = &check->readiness->next;
    struct replicas *hosts = sources_replicas(check->cell->sources, check->source);
    replicas_failed(hosts, check->host);
    if (++check->cell->n_failed[check->source] < hosts->n)
        return;
    buf_printf(next, "%s%s at %s does not answer queries (", next->len ? "; " : "", check->name,
        hosts->list[check->host].url);
    if (result == HTTP_CLIENT_OK)
        buf_printf(next, "answered with status %d)", reply->status);
    else
        buf_printf(next, "%s)", http_client_strerror(result));
    check->cell->has_failed = true;
}

static void note_reply(const struct check *check, const struct http_reply_view *reply)
{
    struct cell_check *c = check->cell;
    uint64_t through = 0;
    bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Cleared")), &c->cleared);
    bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Through")), &through);
    c->through = through > c->through ? through : c->through;
    replicas_replied(sources_replicas(c->sources, check->source), check->host, reply);
}

static void on_checked(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct check *check = arg;
    struct readiness *r = check->readiness;
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    /* 410: the aggregator has cleared slices, and answers questions that name the archive's last slice. */
    if (result != HTTP_CLIENT_OK || (reply->status != 200 && reply->status != 410))
        note_failure(check, result, reply);
    else
        note_reply(check, reply);
    if (--r->unanswered > 0)
        return;
    if (compare_cells(r))
        end_check(r);
    else
        begin_check(r);
}

static void begin_check(struct readiness *r)
{
    buf_clear(&r->next);
    for (struct cell_check *c = r->cells; c < r->cells + r->n_cells; c++) {
        c->through = c->cleared = 0;
        c->has_failed = false;
        memset(c->n_failed, 0, sizeof c->n_failed);
    }
    for (; r->unanswered < r->n; r->unanswered++) {
        struct check *check = &r->checks[r->unanswered];
        const struct http_call_spec call = {.method = "GET",
            .target = CHECK,
            .timeout = PATIENCE,
            .may_resend = true,
            .arg = check,
            .on_done = on_checked};
        http_client_request(check->client, &call);
    }
}

void readiness_check(struct readiness *r)
{
    if (r->unanswered == 0 && (r->checked == 0 || clock_monotonic() - r->checked >= CHECK_EVERY))
        begin_check(r);
}

static void on_again(void *arg)
{
    struct readiness *r = arg;
    r->checked = 0;
    readiness_check(r);
}

bool readiness_answers(struct readiness *r, struct http_request *req)
{
    readiness_check(r);
    if (r->unanswered == 0 || r->failing.len > 0)
        return false;
    struct waiter *w = mem_zalloc(sizeof *w);
    *w = (struct waiter){.readiness = r, .req = req};
    TAILQ_INSERT_TAIL(&r->waiters, w, link);
    http_on_gone(req, on_gone, w);
    return true;
}

static double read_ready(void *arg)
{
    const struct cell_check *c = arg;
    return c->is_ready && has_archive(c);
}

static const struct replica *replica_of(const struct check *check)
{
    return &sources_replicas(check->cell->sources, check->source)->list[check->host];
}

STATS_READ(read_generation, replica_of(ctx)->generation)
STATS_READ(read_up, !replica_of(ctx)->is_away)

static void show_host(const struct readiness *r, struct check *check)
{
    static const struct stats_row rows[] = {
        {"archive_host_generation", "generation of the archive in the latest reply of a host",
            read_generation},
        {"archive_host_up", "1 if the latest request to a host of the archive was answered", read_up},
        {0},
    };
    struct buf labels = {0};
    buf_append_str(&labels, "host=");
    buf_append_json(&labels, bytes_str(replica_of(check)->url));
    buf_append_char(&labels, '\0');
    stats_gauges(daemon_stats(r->daemon), rows, labels.ptr, check);
    buf_free(&labels);
}

static void add_check(struct readiness *r, struct cell_check *c, const struct sources_config *config,
    size_t source, size_t host)
{
    const struct http_client_config client = {.base = config->base,
        .url = sources_replicas(c->sources, source)->list[host].url,
        .max_connections = 1,
        .auth_token = config->tokens[source]};
    r->checks[r->n++] = (struct check){r, c, config->names[source], source, host, http_client_new(&client)};
    r->has_hosts |= host > 0;
    if (sources_replicas(c->sources, source)->n > 1)
        show_host(r, &r->checks[r->n - 1]);
}

static void add_cell(struct readiness *r, const struct cell *cell, const struct sources_config *config)
{
    struct cell_check *c = &r->cells[r->n_cells++];
    *c = (struct cell_check){.name = cell->name,
        .archive = cell->archive,
        .sources = cell->sources,
        .has_no_archive = config->n < SOURCES_MAX};
    for (size_t i = 0; i < config->n; i++)
        for (size_t k = 0; k < sources_replicas(c->sources, i)->n; k++)
            add_check(r, c, config, i, k);
    char labels[NAME_LEN_MAX + 16];
    snprintf(labels, sizeof labels, "cell=\"%s\"", c->name);
    if (*c->name)
        stats_gauge(daemon_stats(r->daemon), "cell_ready", labels,
            "1 if all sources of the cell have answered the last check", read_ready, c);
}

struct readiness *readiness_new(
    struct daemon *daemon, const struct cells *cells, const struct sources_config *config)
{
    struct readiness *r = mem_zalloc(sizeof *r);
    r->daemon = daemon;
    for (size_t i = 0; i < cells->n; i++)
        add_cell(r, &cells->list[i], &config[i]);
    r->again = loop_timer_new(config->base, on_again, r);
    if (has_sections(r) || r->has_hosts)
        loop_timer_set(r->again, 0);
    TAILQ_INIT(&r->waiters);
    readiness_judge(r);
    return r;
}

void readiness_free(struct readiness **rp)
{
    struct readiness *r = *rp;
    *rp = NULL;
    if (!r)
        return;
    for (size_t i = 0; i < r->n_cells; i++)
        stats_remove_gauges(daemon_stats(r->daemon), &r->cells[i]);
    for (size_t i = 0; i < r->n; i++) {
        stats_remove_gauges(daemon_stats(r->daemon), &r->checks[i]);
        http_client_free(&r->checks[i].client);
    }
    loop_timer_free(&r->again);
    buf_free(&r->failing);
    buf_free(&r->next);
    free(r->error);
    free(r);
}
