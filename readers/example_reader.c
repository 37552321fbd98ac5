/* A complete reader: prints each message of the queue `default`. See queuereader.h. */
#include "readers/queuereader.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>

static void print(struct queuereader *reader, const struct queuereader_run *run, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < run->n; i++)
        printf("%.*s\n", (int)run->messages[i].text.len, run->messages[i].text.ptr);
    if (fflush(stdout) == 0)
        queuereader_delivered(reader);
    else
        queuereader_faulted(reader, "standard output is full", QUEUEREADER_BACKOFF);
}

static void stopped(enum queuereader_end end, void *base)
{
    (void)end;
    event_base_loopbreak(base);
}

static void on_interrupt(evutil_socket_t fd, short what, void *reader)
{
    (void)fd;
    (void)what;
    queuereader_stop(reader);
}

int main(int argc, char **argv)
{
    struct event_base *base = event_base_new();
    struct queuereader_config config = {.base = base,
        .queue_url = argc > 1 ? argv[1] : "http://127.0.0.1:8080",
        .queue = "default",
        .reader = "example",
        .items = 100,
        .lease = 30 * USEC_PER_SEC,
        .destination = {.deliver = print},
        .on_stopped = stopped,
        .arg = base};
    signal(SIGPIPE, SIG_IGN);
    struct queuereader *reader = queuereader_new(&config);
    if (!reader)
        return 64;
    struct event *interrupt = evsignal_new(base, SIGINT, on_interrupt, reader);
    event_add(interrupt, NULL);
    event_base_dispatch(base);
    event_free(interrupt);
    queuereader_free(&reader);
    event_base_free(base);
    return 0;
}
