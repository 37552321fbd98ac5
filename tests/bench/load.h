/* load: one lean HTTP client for every server that is measured, so that ratios compare servers and nothing else.
 *
 * It keeps `connections` connections to 127.0.0.1 busy with one request each, the same bytes every time, until `requests`
 * replies have come, and reads replies only as far as it must: the head's end, Content-Length, that many bytes. */
#ifndef MILLRACE_BENCH_LOAD_H
#define MILLRACE_BENCH_LOAD_H

#include "bytes.h"

struct load {
    int port;
    int connections;
    uint64_t requests;
    struct bytes request; /* whole, head and body */
};

/* Seconds it took, or a negative number when the server failed or answered anything but 200. */
double load_run(const struct load *l);

/* Binds the calling thread to one processor; nothing on a machine with fewer. */
void load_pin(int processor);

/* A request with a body of `len` bytes, into out. */
void load_post(struct buf *out, const char *target, size_t len);

double load_median(double *values, size_t n); /* sorts them */

#endif
