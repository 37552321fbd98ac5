/* sorted_peers: LMDB and cdb with the records of bench_sorted. Without the libraries (scripts/setup --bench) no peer exists. */
#ifndef MILLRACE_SORTED_PEERS_H
#define MILLRACE_SORTED_PEERS_H

#include "base/bytes.h"

/* Finds the record's value. False: no such record. */
typedef bool find_value(struct bytes key, struct bytes *value);

struct peer {
    const char *name;
    /* Writes all lines of a sorted text, and opens the result for reading. `path` is free. 0, or -1. */
    int (*load)(const char *path, struct bytes text, uint64_t records);
    find_value *find;
    void (*close)(const char *path); /* also deletes the files */
};

extern const struct peer sorted_peers[]; /* the list ends with a peer whose `name` is NULL */

#endif
