#include "simplequeue/server/load_wait.h"

#include "simplequeue/server/queue_server.h"

#include <stdlib.h>

struct load_wait {
    struct queue_server *server;
    struct http_request *req;
    struct load_line *line;
    struct load_wait *before, *after;
    load_wait_fn *go_on;
    void *arg;
};

static void unlink_parked(struct load_wait *p)
{
    struct load_line *line = p->line;
    if (p->before)
        p->before->after = p->after;
    else
        line->first = p->after;
    if (p->after)
        p->after->before = p->before;
    else
        line->last = p->before;
}

/* Leaves the line, and goes on. */
static void leave(struct load_wait *p, struct http_request *req)
{
    struct queue_server *server = p->server;
    unlink_parked(p);
    p->go_on(req, p->arg);
    free(p);
    server->pending--;
    server_check_drained(server);
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    leave(arg, NULL);
}

void load_wait_add(struct load_line *line, struct queue_server *server, struct http_request *req,
    load_wait_fn *go_on, void *arg)
{
    struct load_wait *p = mem_zalloc(sizeof *p);
    *p = (struct load_wait){
        .server = server, .req = req, .line = line, .before = line->last, .go_on = go_on, .arg = arg};
    if (line->last)
        line->last->after = p;
    else
        line->first = p;
    line->last = p;
    server->pending++;
    http_on_gone(req, on_gone, p);
}

/* Those that park again are behind `last`. */
void load_wait_resume(struct load_line *line)
{
    const struct load_wait *last = line->last;
    bool more = last != NULL;
    while (more && line->first) {
        struct load_wait *p = line->first;
        more = p != last;
        http_on_gone(p->req, NULL, NULL);
        leave(p, p->req);
    }
}

void load_wait_free(struct load_line *line)
{
    while (line->first)
        leave(line->first, NULL);
}
