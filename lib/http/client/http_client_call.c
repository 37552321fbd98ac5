/* How calls and links end, see http_client_internal.h. */
#include "http/client/http_client_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

void link_set_timer(struct http_link *l, usec_t after)
{
    struct timeval tv = {.tv_sec = after / USEC_PER_SEC, .tv_usec = after % USEC_PER_SEC};
    if (after > 0)
        event_add(l->timer, &tv);
    else
        event_del(l->timer);
}

void link_drop_socket(struct http_link *l)
{
    if (l->read_event)
        event_free(l->read_event);
    if (l->write_event)
        event_free(l->write_event);
    l->read_event = l->write_event = NULL;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

void addresses_release(struct http_addresses **a)
{
    if (*a && --(*a)->users == 0) {
        freeaddrinfo((*a)->first);
        free(*a);
    }
    *a = NULL;
}

void client_enter(struct http_client *c)
{
    c->depth++;
}

void client_leave(struct http_client *c)
{
    struct http_link *l;
    if (--c->depth > 0)
        return;
    while ((l = TAILQ_FIRST(&c->dead))) {
        TAILQ_REMOVE(&c->dead, l, entry);
        addresses_release(&l->addresses);
        event_free(l->timer);
        event_free(l->resume_event);
        buf_free(&l->kept);
        free(l);
    }
    if (!c->freed)
        return;
    event_free(c->start_event);
    addresses_release(&c->resolved);
    buf_free(&c->host_lines);
    free(c->read_buffer);
    free(c);
}

void client_start_soon(struct http_client *c)
{
    if (!c->freed && !TAILQ_EMPTY(&c->waiting))
        event_active(c->start_event, EV_TIMEOUT, 1);
}

void link_close(struct http_link *l)
{
    struct http_client *c = l->client;
    assert(l->state != HTTP_LINK_DEAD);
    l->state = HTTP_LINK_DEAD;
    l->call = NULL;
    event_del(l->timer);
    event_del(l->resume_event);
    link_drop_socket(l);
    TAILQ_REMOVE(&c->links, l, entry);
    c->n_links--;
    TAILQ_INSERT_TAIL(&c->dead, l, entry);
    client_start_soon(c);
}

/* Removes the call from its link or the queue before on_done, because on_done may do anything with the client. */
void call_end(struct http_call *call, enum http_client_result result, bool keep)
{
    struct http_client *c = call->client;
    struct http_link *l = call->link;
    assert(!call->ended);
    call->ended = true;
    if (!l) {
        TAILQ_REMOVE(&c->waiting, call, entry);
    } else if (keep) {
        l->state = HTTP_LINK_POOLED;
        l->call = NULL;
        event_del(l->timer);
        event_del(l->write_event);
    } else {
        link_close(l);
    }
    call->link = NULL;
    client_start_soon(c);
    struct http_reply_view view = {.status = call->status, .body = buf_bytes(&call->body), .call = call};
    if (call->on_done)
        call->on_done(result, &view, call->arg);
    buf_free(&call->request);
    buf_free(&call->head);
    buf_free(&call->body);
    free(call);
}

void call_requeue(struct http_call *call)
{
    struct http_client *c = call->client;
    link_close(call->link);
    call->link = NULL;
    TAILQ_INSERT_HEAD(&c->waiting, call, entry);
    client_start_soon(c);
}
