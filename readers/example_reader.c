/* A complete reader: prints each message of the queue `default`. See dispatcher.h. */
#include "readers/dispatcher.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>

static void print(struct dispatcher *reader, struct dispatch_run *run, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < run->n; i++)
        printf("%.*s\n", (int)run->messages[i]->text.len, run->messages[i]->text.ptr);
    if (fflush(stdout) == 0)
        dispatcher_delivered(reader, run);
    else
        dispatcher_down(reader, run, "standard output is full", QUEUEREADER_BACKOFF);
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
    dispatcher_stop(reader);
}

int main(int argc, char **argv)
{
    struct event_base *base = event_base_new();
    struct dispatcher_config config = {.reader = {.base = base,
                                           .queue_url = argc > 1 ? argv[1] : "http://127.0.0.1:8080",
                                           .queue = "default",
                                           .reader = "example",
                                           .items = 100,
                                           .lease = 30 * USEC_PER_SEC,
                                           .on_stopped = stopped,
                                           .arg = base},
        .deliver = print};
    signal(SIGPIPE, SIG_IGN);
    struct dispatcher *reader = dispatcher_new(&config);
    if (!reader)
        return 64;
    struct event *interrupt = evsignal_new(base, SIGINT, on_interrupt, reader);
    event_add(interrupt, NULL);
    event_base_dispatch(base);
    event_free(interrupt);
    dispatcher_free(&reader);
    event_base_free(base);
    return 0;
}
