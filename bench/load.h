/* load: one client for all measured servers, so that ratios compare only the servers. The client does little work.
 *
 * The client keeps `connections` connections to 127.0.0.1 busy, each with one request, until `requests` requests are
 * answered. A request may be a pipeline, with `replies` replies. The client parses only the end and the success of a
 * reply.
 *
 * With a `rate` the client is open-loop: request k is due at k / rate, even if earlier replies are missing, and its
 * latency starts at that time. So a stall delays every request that is due meanwhile, as it delays users. */
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
    /* Replaces `request` by the next request of the connection. `reply` is the previous reply; BYTES_NONE: none. */
    void (*make)(unsigned connection, struct bytes reply, struct buf *request);
    /* Returns the length of the first reply in `have`; 0: it is incomplete; LOAD_BAD: it is an error. */
    size_t (*reply_length)(struct bytes have);
    size_t replies; /* per request; 0 means 1 */
    /* Appends the text to send after connecting. Its answer ends with `hello_end`. Empty: nothing is sent. */
    void (*hello)(unsigned connection, struct buf *out);
    const char *hello_end;
    double rate; /* requests a second; 0: as fast as they are answered */
};

/* Returns the duration in seconds, or a negative number if the server fails or answers with an error. With a rate,
 * sets *latency. */
double load_run(const struct load *l, struct load_latency *latency);

/* Returns a connection to 127.0.0.1, or -1. */
int load_connect(int port);

/* Binds the calling thread to one processor, if the machine has it. */
void load_pin(int processor);

/* Gives this program and its later children priority over all other programs, if this is allowed. With this priority,
 * the benchmark measures the server, not its wait for a processor. The kernel still interrupts a program that never
 * sleeps, so such a program sleeps before each measurement. */
bool load_prefer(void);

double load_median(double *values, size_t n); /* sorts them */

/* Returns the steal time of /proc/stat, in ticks (usually of 10 ms), summed over all processors: the time that the host
 * of a virtual machine gave to other machines. A measurement during which this time grows is not usable. */
uint64_t load_stolen(void);
#define LOAD_MOST_TRIES 16
/* Returns true if a measurement is usable: no time was stolen since load_stolen returned `stolen`, or this was the last
 * of LOAD_MOST_TRIES tries. The first try has tries 0. */
bool load_counts(uint64_t stolen, size_t tries);

#endif
