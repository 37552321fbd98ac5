/* scrape_loop: scrapes each target at its slots, from one event loop.
 *
 * 1. A scrape begins at its slot or less than an interval later, and ends before the next slot. Slots that the loop
 *    cannot serve are skipped and counted. No scrape is queued up.
 * 2. A target has at most one request in progress and keeps its connection.
 * 3. A page that is longer than body_size_limit, or that exceeds the memory for pages in progress, is dropped with its
 *    connection.
 * 4. A target that leaves the list is scraped no more. At its next slot its series get stale markers, unless it is back.
 *    A target that now belongs to another scraper gets no markers, because its series continue.
 * 5. While the lease of the share is not certain, no scrape begins and nothing is published.
 *
 * Slots follow the daemon's trusted time, so that a clock that is ahead for a short time moves no sample. */
#ifndef MILLRACE_SCRAPE_LOOP_H
#define MILLRACE_SCRAPE_LOOP_H

#include "scraper/targets.h"

struct daemon;
struct scrape_loop;
struct outbox;

struct scrape_loop_config {
    struct daemon *daemon;
    struct outbox *outbox;      /* freed after the loop */
    struct target_names *names; /* freed after the loop */
    const struct share *share;  /* its owner may change it at any time, and then calls scrape_loop_set */
    struct scrape_rules rules;
    size_t body_max, pages_max; /* bytes of a page, and of all pages in progress */
    const char *token;          /* sent to all targets; NULL: none; borrowed */
    bool has_fallback;          /* pages with an unknown content type have the format `fallback` */
    enum exposition_format fallback;
};

struct scrape_loop *scrape_loop_new(const struct scrape_loop_config *config);
/* Cancels the requests in progress. */
void scrape_loop_free(struct scrape_loop **l);
/* Replaces the list. Takes references to the targets. `list` is the result of targets_select. */
void scrape_loop_set(struct scrape_loop *l, const struct target_list *list);
/* Takes lines of a target that were not published. The next scrape repeats their stale markers. Markers of a target that the
 * loop has forgotten are lost. `hash` is the target's. */
void scrape_loop_take_back(struct scrape_loop *l, uint64_t hash, struct bytes lines);
/* Starts no more scrapes and cancels those in progress. */
void scrape_loop_stop(struct scrape_loop *l);
/* Appends the targets and their last scrapes as a JSON array. */
void scrape_loop_print(const struct scrape_loop *l, struct buf *out);
/* Appends the answer of metadata_print. A page is read for it when the number of its samples has changed. */
void scrape_loop_print_metadata(
    const struct scrape_loop *l, struct bytes metric, uint64_t limit, struct buf *out);

#endif
