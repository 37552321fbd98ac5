/* load: one lean client for every server that is measured, so that ratios compare servers and nothing else.
 *
 * It keeps `connections` connections to 127.0.0.1 busy with one request each until `requests` requests are answered.
 * A request may be a pipeline: `replies` replies answer it. Replies are read only as far as it takes to know where they
 * end and that they are what was wanted.
 *
 * With a `rate` the client is open-loop: request k is due at k / rate, whatever the server does, and its latency counts
 * from when it was due. So a stall costs every request that was due meanwhile, as it costs users. */
#ifndef MILLRACE_BENCH_LOAD_H
#define MILLRACE_BENCH_LOAD_H

#include "base/bytes.h"

#define LOAD_BAD SIZE_MAX

struct load_latency {
    double p50, p99, p999, worst; /* milliseconds */
};

struct load {
    int port;
    int connections;
    uint64_t requests;
    struct bytes request; /* the same bytes every time, unless `make` is set */
    /* The next request of a connection, from the reply before it (none: BYTES_NONE): replaces what is in `request`. */
    void (*make)(unsigned connection, struct bytes reply, struct buf *request);
    /* Length of the first reply in `have`; 0 when more must come first; LOAD_BAD when it is not what was wanted. */
    size_t (*reply_length)(struct bytes have);
    size_t replies; /* to one request; 0 is 1 */
    /* Sent when connected; everything up to the end of `hello_end` is its answer. Empty: none. */
    void (*hello)(unsigned connection, struct buf *out);
    const char *hello_end;
    double rate; /* requests a second; 0: as fast as they are answered */
};

/* Seconds it took, or a negative number when the server failed or answered what was not wanted. With a rate `latency`
 * is filled. */
double load_run(const struct load *l, struct load_latency *latency);

/* A connection to 127.0.0.1, or -1. */
int load_connect(int port);

/* Binds the calling thread to one processor; nothing on a machine with fewer. */
void load_pin(int processor);

/* This program and what it starts from now on go before all others, where that is allowed: what is to be measured is how
 * long a server takes, not how long it waits for a processor. Whoever never sleeps is halted now and then all the same: it
 * pauses before it measures. */
bool load_prefer(void);

double load_median(double *values, size_t n); /* sorts them */

/* Ticks (of 10 ms, mostly) that the machine below a virtual one gave the processors to others, since it was started: the
 * steal of /proc/stat, all processors together. What is measured while this grows is not what a server does. */
uint64_t load_stolen(void);
/* Whether what was measured since load_stolen was `stolen` counts: nothing was taken from the machine, or it was the last of
 * LOAD_MOST_TRIES, the first of which is 0. */
#define LOAD_MOST_TRIES 16
bool load_counts(uint64_t stolen, size_t tries);

#endif
