/* targets: the list of what to scrape, from files in the form of Prometheus' file_sd:
 *
 *     [{"targets": ["db1:9100", "db2:9100"], "labels": {"job": "node", "rack": "4"}}]
 *
 * 1. A target's id is its URL and labels. The interval is not part of the id, so a changed interval keeps the series.
 * 2. The *slots* of a target are its times: hash(id) mod interval + k * interval, in milliseconds since 1970. They
 *    depend neither on the scraper nor on its start, and spread the targets over the interval.
 * 3. Several scrapers share the targets (share.h). */
#ifndef MILLRACE_TARGETS_H
#define MILLRACE_TARGETS_H

#include "base/error.h"
#include "scraper/scrape.h"
#include "scraper/share.h"

#define TARGET_INTERVAL_MIN 1000
#define TARGET_INTERVAL_MAX (24 * 3600 * 1000)

struct target {
    int users;    /* references */
    char *id;     /* the URL, a space, and the labels as JSON */
    size_t n_url; /* length of the URL in `id` */
    char *address, *path;
    char *name; /* the host, if it must be resolved; NULL: the address is numeric or a Unix socket */
    int port;
    struct target_labels labels; /* their texts are in `texts` */
    struct buf texts;
    int64_t interval, timeout; /* milliseconds */
    uint64_t hash;
};

struct target_list {
    struct target **all; /* each with a reference */
    size_t n, cap;
};

struct target_defaults {
    const char *job, *path;
    int64_t interval, timeout; /* milliseconds; a timeout above the interval of a target is the interval */
};

/* A label of a group in a file. The labels __metrics_path__, __param_NAME, __scheme__, __scrape_interval__ and
 * __scrape_timeout__ describe the request. Other labels that begin with __ are dropped. */
struct target_label {
    char *name, *value;
};

/* Makes a target of an address (HOST, HOST:PORT or unix:PATH) and labels. Returns NULL with the error. */
struct target *target_new(struct bytes address, const struct target_label *labels, size_t n,
    const struct target_defaults *defaults, struct error *error);
void target_release(struct target *t);

/* Appends the targets of a file's text. Returns 0, or -1 with the error. */
int targets_read(
    struct bytes text, const struct target_defaults *defaults, struct target_list *out, struct error *error);
void targets_add(struct target_list *list, struct target *t); /* takes a reference */
/* Sorts the list by id, drops repeated targets and those of other scrapers. */
void targets_select(struct target_list *list, const struct share *share);
void targets_free(struct target_list *list);

/* Returns the latest slot at or before `ms`. */
int64_t target_slot(const struct target *t, int64_t ms);

#endif
