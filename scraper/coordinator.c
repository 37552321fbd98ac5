#include "scraper/coordinator.h"

#include "base/error.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/url.h"
#include "scraper/share.h"
#include "scraper/target_files.h"
#include "scraper/target_names.h"

#include <event2/event.h>
#include <stdlib.h>
#include <zookeeper/zookeeper.h>

#define ROUNDS 4                      /* rounds in the timeout of a session */
#define RETRY_WAIT (USEC_PER_SEC / 5) /* after a failed attempt to connect */

struct coordinator {
    struct coordinator_config config;
    char *members, *targets, *node; /* the paths */
    char *addresses;                /* of the servers, as the library has them */
    zhandle_t *zh;                  /* NULL: no address is known yet */
    struct event *io, *timer;
    size_t n_open, n_reading; /* requests without an answer, and those of them that read targets */
    bool is_due;              /* a round shall begin once no request is open */
    bool is_ended;            /* the session; the handle is replaced outside the library's calls */
    bool is_list_due;         /* the next round reads the nodes of targets */
    bool is_list_whole;       /* all nodes of the round were read */
    bool is_synced, is_own, is_taken;
    usec_t sent; /* the beginning of the round, clock_boot */
    int fault;   /* the last error, as a code of the library */
    struct stats_counter *sessions, *rounds;
};

/* A request for a node of targets. */
struct reading {
    struct coordinator *c;
    char name[];
};

static void on_io(evutil_socket_t fd, short what, void *arg);

static void ask(struct coordinator *c, int result)
{
    c->n_open += result == ZOK;
    c->fault = result == ZOK ? c->fault : result;
}

/* Takes the result of a request. Returns true for an answer other than an error. */
static bool answered(struct coordinator *c, int result)
{
    c->n_open--;
    c->fault = result == ZOK || result == ZNONODE || result == ZNODEEXISTS ? c->fault : result;
    return result == ZOK;
}

/* The watcher of everything. A callback of the library only sets flags; `pump` acts. */
static void on_event(zhandle_t *zh, int type, int state, const char *path, void *arg)
{
    struct coordinator *c = arg;
    (void)zh;
    if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE)
        stats_add(c->sessions, 1);
    if (type == ZOO_SESSION_EVENT)
        c->is_ended = c->is_ended || state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE;
    else if (strncmp(path, c->targets, strlen(c->targets)) == 0)
        c->is_list_due = true;
    c->is_due = true;
}

static void on_created(int result, const char *path, const void *arg)
{
    struct coordinator *c = (struct coordinator *)(uintptr_t)arg;
    (void)path;
    answered(c, result);
    c->is_due = c->is_due || result == ZOK;
}

/* Creates the nodes above the scrapers' and the targets', without a wait for their answers. */
static void make_paths(struct coordinator *c)
{
    for (const char *path = c->targets; path; path = path == c->targets ? c->members : NULL)
        for (const char *end = path + 1; *end != '\0'; end++)
            if (end[1] == '/' || end[1] == '\0') {
                char *part = mem_printf("%.*s", (int)(end + 1 - path), path);
                ask(c, zoo_acreate(c->zh, part, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, on_created, c));
                free(part);
            }
}

static void on_synced(int result, const char *path, const void *arg)
{
    struct coordinator *c = (struct coordinator *)(uintptr_t)arg;
    (void)path;
    c->is_synced = answered(c, result);
}

static void on_node(int result, const struct Stat *stat, const void *arg)
{
    struct coordinator *c = (struct coordinator *)(uintptr_t)arg;
    bool is_there = answered(c, result);
    c->is_own = is_there && stat->ephemeralOwner == zoo_client_id(c->zh)->client_id;
    c->is_taken = is_there && !c->is_own;
    if (result == ZNONODE) {
        make_paths(c);
        ask(c, zoo_acreate(c->zh, c->node, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, on_created, c));
    }
}

static void on_members(int result, const struct String_vector *found, const void *arg)
{
    struct coordinator *c = (struct coordinator *)(uintptr_t)arg;
    struct share *share = c->config.share;
    if (!answered(c, result) || !c->is_synced)
        return;
    stats_add(c->rounds, 1);
    bool is_changed = share_set_members(
        share, (const char *const *)found->data, (size_t)found->count, c->is_own ? c->config.name : NULL);
    if (share->own < share->n)
        share_renew(share, c->sent, zoo_recv_timeout(c->zh) * USEC_PER_MSEC);
    else
        share_lose(share);
    if (!is_changed)
        return;
    log_info("members have changed", LOG_U("members", share->n), LOG_U("member", share->own < share->n));
    c->config.on_change(c->config.arg);
}

static void end_list(struct coordinator *c)
{
    if (c->n_reading > 0)
        return;
    if (!c->is_list_whole) {
        c->is_list_due = true;
        return;
    }
    target_files_end_nodes(c->config.files);
    c->config.on_change(c->config.arg);
}

static void on_target(int result, const char *text, int length, const struct Stat *stat, const void *arg)
{
    struct reading *r = (struct reading *)(uintptr_t)arg;
    struct coordinator *c = r->c;
    (void)stat;
    if (answered(c, result)) {
        char *path = mem_printf("ZooKeeper %s/%s", c->targets, r->name);
        target_files_put_node(c->config.files, path, bytes_of(text, length > 0 ? (size_t)length : 0));
        free(path);
    }
    c->is_list_whole = c->is_list_whole && (result == ZOK || result == ZNONODE);
    free(r);
    c->n_reading--;
    end_list(c);
}

static void on_list(int result, const struct String_vector *found, const void *arg)
{
    struct coordinator *c = (struct coordinator *)(uintptr_t)arg;
    if (!answered(c, result))
        return;
    c->is_list_due = false;
    c->is_list_whole = true;
    target_files_begin_nodes(c->config.files);
    for (int i = 0; i < found->count; i++) {
        struct reading *r = mem_alloc(sizeof *r + strlen(found->data[i]) + 1);
        char *path = mem_printf("%s/%s", c->targets, found->data[i]);
        r->c = c;
        strcpy(r->name, found->data[i]);
        int sent = zoo_awget(c->zh, path, on_event, c, on_target, r);
        ask(c, sent);
        c->n_reading += sent == ZOK;
        c->is_list_whole = c->is_list_whole && sent == ZOK;
        if (sent != ZOK)
            free(r);
        free(path);
    }
    end_list(c);
}

static void begin_round(struct coordinator *c)
{
    c->is_due = c->is_synced = false;
    c->fault = ZOK;
    c->sent = clock_boot();
    ask(c, zoo_async(c->zh, c->members, on_synced, c));
    ask(c, zoo_aexists(c->zh, c->node, 0, on_node, c));
    ask(c, zoo_awget_children(c->zh, c->members, on_event, c, on_members, c));
    if (c->is_list_due)
        ask(c, zoo_awget_children(c->zh, c->targets, on_event, c, on_list, c));
}

/* Returns the addresses of the servers that are known, HOST:PORT,..., or NULL. The library wants no brackets around IPv6
 * addresses. */
static char *find_addresses(const struct coordinator *c)
{
    struct buf out = {0};
    struct url_address server;
    struct bytes word, host;
    const char *rest = c->config.servers;
    while (bytes_next_word(&rest, " ,", &word)) {
        char *text = bytes_dup(word);
        bool is_read = url_address_parse(text, COORDINATOR_PORT, &server) == 0;
        const char *hosts = is_read ? target_names_find(c->config.names, server.host) : NULL;
        free(text);
        while (bytes_next_word(&hosts, " []", &host))
            buf_printf(&out, "%s%.*s:%d", out.len > 0 ? "," : "", (int)host.len, host.ptr, server.port);
    }
    if (out.len > 0)
        buf_append_char(&out, '\0');
    return out.ptr;
}

static void close_session(struct coordinator *c)
{
    event_del(c->io);
    if (c->zh)
        zookeeper_close(c->zh); /* calls back for each open request */
    c->zh = NULL;
    c->is_ended = false;
    share_lose(c->config.share);
}

/* Begins a session, or gives a session without a connection the new addresses of its servers. */
static void use_addresses(struct coordinator *c)
{
    char *addresses = find_addresses(c);
    bool is_new = addresses && (!c->addresses || strcmp(addresses, c->addresses) != 0);
    if (is_new) {
        free(c->addresses);
        c->addresses = mem_strdup(addresses);
    }
    free(addresses);
    if (c->zh && is_new && zoo_state(c->zh) != ZOO_CONNECTED_STATE)
        zoo_set_servers(c->zh, c->addresses);
    if (c->zh || !c->addresses)
        return;
    c->is_list_due = true;
    c->zh = zookeeper_init(c->addresses, on_event, (int)(c->config.timeout / USEC_PER_MSEC), NULL, c, 0);
    c->fault = c->zh ? ZOK : ZSYSTEMERROR;
    if (c->zh)
        zoo_set_servers_resolution_delay(c->zh, -1);
}

/* Begins a due round, lets the library act, then waits for its socket or its next deadline. */
static void pump(struct coordinator *c)
{
    int fd = -1, interest = 0;
    struct timeval wait = {0};
    if (c->is_ended) {
        log_warn("the session with ZooKeeper has ended", LOG_S("path", c->node));
        close_session(c);
    }
    if (!c->zh)
        use_addresses(c);
    if (!c->zh)
        return;
    if (c->is_due && c->n_open == 0 && zoo_state(c->zh) == ZOO_CONNECTED_STATE)
        begin_round(c);
    int result = zookeeper_interest(c->zh, &fd, &interest, &wait);
    if (result != ZOK) {
        c->fault = result;
        c->is_ended = is_unrecoverable(c->zh) != 0;
        fd = -1;
    }
    if (fd < 0)
        wait = (struct timeval){0, RETRY_WAIT};
    event_del(c->io);
    event_assign(c->io, c->config.base, fd,
        fd < 0 ? 0
               : (short)((interest & ZOOKEEPER_READ ? EV_READ : 0) |
                         (interest & ZOOKEEPER_WRITE ? EV_WRITE : 0)),
        on_io, c);
    event_add(c->io, &wait);
}

static void on_io(evutil_socket_t fd, short what, void *arg)
{
    struct coordinator *c = arg;
    if (fd >= 0)
        zookeeper_process(
            c->zh, (what & EV_READ ? ZOOKEEPER_READ : 0) | (what & EV_WRITE ? ZOOKEEPER_WRITE : 0));
    pump(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct coordinator *c = arg;
    usec_t wait = c->config.timeout;
    (void)fd, (void)what;
    c->is_due = true;
    use_addresses(c);
    pump(c);
    if (c->zh && zoo_recv_timeout(c->zh) > 0)
        wait = zoo_recv_timeout(c->zh) * USEC_PER_MSEC;
    event_add(c->timer, &(struct timeval){wait / ROUNDS / USEC_PER_SEC, wait / ROUNDS % USEC_PER_SEC});
}

void coordinator_resolve(struct coordinator *c)
{
    use_addresses(c);
    pump(c);
}

const char *coordinator_trouble(const struct coordinator *c)
{
    static char text[ERROR_TEXT];
    if (share_is_certain(c->config.share, clock_boot()))
        return NULL;
    if (!c->zh)
        return "the servers of ZooKeeper have no address, so no target is scraped";
    if (c->is_taken)
        snprintf(text, sizeof text, "another process has the node %s, so no target is scraped", c->node);
    else
        snprintf(text, sizeof text, "no certain session with ZooKeeper at %s (%s), so no target is scraped",
            c->addresses, c->fault == ZOK ? "no answer" : zerror(c->fault));
    return text;
}

static double read_certain(void *arg)
{
    const struct coordinator *c = arg;
    return share_is_certain(c->config.share, clock_boot());
}

STATS_READ(read_members, ((struct coordinator *)ctx)->config.share->n)

struct coordinator *coordinator_new(const struct coordinator_config *config)
{
    static const struct stats_row rows[] = {
        {"lease_certain",
            "1 while the session with ZooKeeper is certain and this scraper scrapes; otherwise 0",
            read_certain},
        {"members", "Live scrapers that share the targets, as last read from ZooKeeper", read_members},
        {0},
    };
    struct coordinator *c = mem_zalloc(sizeof *c);
    c->config = *config;
    c->members = mem_printf("%s/scrapers", config->path);
    c->targets = mem_printf("%s/targets", config->path);
    c->node = mem_printf("%s/%s", c->members, config->name);
    c->io = event_new(config->base, -1, 0, on_io, c);
    c->timer = evtimer_new(config->base, on_timer, c);
    stats_gauges(config->stats, rows, NULL, c);
    c->sessions =
        stats_counter(config->stats, "zookeeper_connections_total", NULL, "Connections to ZooKeeper");
    c->rounds = stats_counter(
        config->stats, "zookeeper_rounds_total", NULL, "Answered rounds of requests to ZooKeeper");
    zoo_set_debug_level((ZooLogLevel)0); /* errors are in /health */
    on_timer(-1, 0, c);
    return c;
}

void coordinator_free(struct coordinator **cp)
{
    struct coordinator *c = *cp;
    if (!c)
        return;
    close_session(c);
    stats_remove_gauges(c->config.stats, c);
    event_free(c->io);
    event_free(c->timer);
    free(c->members);
    free(c->targets);
    free(c->node);
    free(c->addresses);
    free(c);
    *cp = NULL;
}
