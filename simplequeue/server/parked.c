#include "simplequeue/server/parked.h"

#include "simplequeue/server/queue_app.h"

#include <stdlib.h>

struct parked {
    struct app *app;
    struct http_request *req;
    struct parked_line *line;
    struct parked *before, *after;
    parked_fn *go_on;
    void *arg;
};

static void unlink_parked(struct parked *p)
{
    struct parked_line *line = p->line;
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
static void leave(struct parked *p, struct http_request *req)
{
    struct app *app = p->app;
    unlink_parked(p);
    p->go_on(req, p->arg);
    free(p);
    app->pending--;
    app_check_drained(app);
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    leave(arg, NULL);
}

void parked_add(
    struct parked_line *line, struct app *app, struct http_request *req, parked_fn *go_on, void *arg)
{
    struct parked *p = mem_zalloc(sizeof *p);
    *p = (struct parked){
        .app = app, .req = req, .line = line, .before = line->last, .go_on = go_on, .arg = arg};
    if (line->last)
        line->last->after = p;
    else
        line->first = p;
    line->last = p;
    app->pending++;
    http_on_gone(req, on_gone, p);
}

/* Those that park again are behind `last`. */
void parked_resume(struct parked_line *line)
{
    const struct parked *last = line->last;
    bool more = last != NULL;
    while (more && line->first) {
        struct parked *p = line->first;
        more = p != last;
        http_on_gone(p->req, NULL, NULL);
        leave(p, p->req);
    }
}

void parked_free(struct parked_line *line)
{
    while (line->first)
        leave(line->first, NULL);
}
