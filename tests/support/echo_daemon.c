/* The smallest daemon there is, to test what every daemon's life has in common: POST /echo answers its body,
 * /held answers when /let_go is asked or the daemon drains, /fail ends it, /drop is an act. */
#include "daemon/daemon.h"
#include "daemon/daemon_directory.h"
#include <sysexits.h>

struct echo {
    struct daemon *daemon;
    struct http_request *held;
};

static void echo(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_reply(req, 200, "application/octet-stream", http_body(req));
}

static void forget(struct http_request *req, void *arg)
{
    struct echo *e = arg;
    (void)req;
    e->held = NULL;
}

static void hold(struct http_request *req, void *ctx)
{
    struct echo *e = ctx;
    e->held = req;
    http_on_gone(req, forget, e);
}

static void release(struct echo *e)
{
    struct http_request *held = e->held;
    e->held = NULL;
    if (held != NULL)
        http_reply(held, 200, NULL, BYTES_LITERAL("held until now\n"));
}

static void let_go(struct http_request *req, void *ctx)
{
    release(ctx);
    http_reply(req, 200, NULL, BYTES_LITERAL("let go\n"));
}

static void fail(struct http_request *req, void *ctx)
{
    struct echo *e = ctx;
    http_reply(req, 200, NULL, BYTES_NONE);
    daemon_fail(e->daemon, EX_TEMPFAIL);
}

static void become_ready(void *arg)
{
    daemon_set_ready(arg);
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    static struct echo e;
    const char *dir = options_string(daemon_options(d), "data_dir");
    if (dir != NULL && daemon_lock_directory(dir, error) != 0)
        return EX_CONFIG;
    e.daemon = d;
    *ctx = &e;
    daemon_post(d, become_ready, d);
    return 0;
}

/* A held request is answered unless stubborn: then the drain never ends by itself. */
static void drain(void *ctx)
{
    struct echo *e = ctx;
    if (options_bool(daemon_options(e->daemon), "stubborn"))
        return;
    release(e);
    daemon_drained(e->daemon);
}

static const struct http_route routes[] = {
    {.path = "/echo", .methods = HTTP_GET_ | HTTP_POST_, .handler = echo, .help = "answers the body"},
    {.path = "/held", .methods = HTTP_GET_, .flags = HTTP_ROUTE_WHEN_READY, .handler = hold, .help = "waits"},
    {.path = "/let_go", .methods = HTTP_POST_, .handler = let_go, .help = "answers what waits"},
    {.path = "/fail", .methods = HTTP_POST_, .handler = fail, .help = "ends with 75"},
    {.path = "/drop",
        .methods = HTTP_POST_,
        .flags = HTTP_ROUTE_NEEDS_TOKEN,
        .handler = echo,
        .help = "an act"},
    {.path = NULL},
};

static const struct option_row rows[] = {
    {.name = "data_dir", .type = OPTION_STRING, .help = "a directory to own"},
    {.name = "stubborn", .type = OPTION_BOOL, .help = "never finish a drain"},
    {.name = "pace", .type = OPTION_INT, .fallback = "5", .min = 1, .max = 10, .help = "a bounded number"},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {.name = "simplequeue",
        .summary = "echo_daemon: for tests",
        .options = rows,
        .default_port = 0,
        .routes = routes,
        .start = start,
        .drain = drain};
    return daemon_main(&spec, argc, argv);
}
