/* scrape: turns the page of a target into the lines of a stream. A line has one sample, or successive samples of the page whose
 * labels differ only in the value of the label `by`:
 *
 *     {"t":1732977600.125,"labels":{"__name__":"m","instance":"db1:9100","job":"node"},"v":1}
 *     {"t":1732977600.125,"labels":{"__name__":"s_bucket","instance":"db1:9100","job":"node"},"by":"le","v":{"0.1":5,"+Inf":7}}
 *
 * 1. Labels are in the order of their names and have no empty values, so their text is the series' identity.
 * 2. A value is a number, or "NaN", "+Inf", "-Inf", or "stale": the series has ended before `t`. Stale markers have lines of their own.
 * 3. A page is taken as a whole or not at all. After a failure, all series of the target are stale, and `up` is 0.
 * 4. A sample's time is the slot of the scrape. With honor_timestamps, the page's own times are kept, and a series with
 *    times of its own never becomes stale.
 *
 * The core knows neither HTTP nor clocks. */
#ifndef MILLRACE_SCRAPE_H
#define MILLRACE_SCRAPE_H

#include "metrics/exposition.h"
#include "scraper/known_series.h"

/* Limits of a page; 0: unlimited, as in Prometheus. */
struct scrape_rules {
    uint64_t sample_limit, label_limit, label_name_limit, label_value_limit;
    size_t max_lines; /* bytes of the lines of a page's samples; never 0 */
    bool honor_labels, honor_timestamps;
};

/* The labels that a target adds to each sample. */
struct target_labels {
    struct exposition_label *all; /* in the order of their names, without empty values */
    size_t n;
};

/* The line in progress. */
struct scrape_line {
    size_t n;             /* samples; 0: no line is in progress */
    size_t begin, number; /* places of the line and of its only value in `out` */
    int64_t time;
    struct buf series; /* of the last sample */
    /* The places in `series` of the name and the value of the label `by`, and the end of the value; unused if n is 1. */
    size_t name, value, end;
};

struct scrape {
    int64_t slot;   /* milliseconds since 1970 */
    double seconds; /* duration */
    bool is_up;
    uint64_t samples;    /* of the page */
    uint64_t comments;   /* hash of the page's comments */
    uint64_t duplicates; /* samples of a series that the page or the scraper has already; dropped */
    uint64_t lines;
    struct buf out; /* the lines */
    struct scrape_line line;
    struct known_series series; /* of the page, after those of the scraper */
};

/* Reads a page, appends its samples to s->out and sets is_up. For an error in the page returns -1 without samples. */
int scrape_read(struct scrape *s, enum exposition_format format, struct bytes page,
    const struct scrape_rules *rules, const struct target_labels *labels, struct error *error);
/* Ends a scrape, also without a page. Appends stale markers for the series in *known that the scrape does not have, then
 * `up`, `scrape_duration_seconds` and `scrape_samples_scraped`. Replaces *known by the series of the scrape. */
void scrape_end(struct scrape *s, const struct target_labels *labels, struct known_series *known);
/* Appends stale markers for all series of a target that has vanished, and frees *known. */
void scrape_vanish(struct scrape *s, struct known_series *known);
/* Adds the series of the stale markers among `lines`, which were not published, to *known. So the next scrape repeats the
 * markers of those series that it does not have. */
void scrape_take_back(struct bytes lines, struct known_series *known);
void scrape_free(struct scrape *s);

#endif
