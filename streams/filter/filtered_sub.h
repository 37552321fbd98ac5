/* filtered_sub: answers /sub with the filtered stream. As in bitly's pubsub_filtered, a request may add a filter of its own.
 *
 * Each request follows the source stream over its own connection, so a slow client does not delay the others. The answer has the lines
 * that pass the program's filter and then the request's filter_subject and filter_pattern. Lines that a filter cannot judge are
 * left out, counted and logged.
 *
 * Only the program's stream is served: the filter is made for that stream, and the token for pubsub may give access to other streams. The
 * answer's bytes are not the stream's, so a client cannot resume by counting them. A client that must not miss a line follows
 * a republished stream. */
#ifndef MILLRACE_FILTERED_SUB_H
#define MILLRACE_FILTERED_SUB_H

#include "streams/filter/line_counts.h"

struct event_base;
struct http_request;
struct filtered_subs;
struct line_scheduler;

struct filtered_subs_config {
    struct event_base *base;
    const char *pubsub_url, *stream;    /* copied */
    const char *auth_token, *heartbeat; /* NULL: none; copied */
    size_t max_line;
    struct line_filter *filter;       /* borrowed */
    struct line_scheduler *scheduler; /* borrowed */
};
struct filtered_subs *filtered_subs_new(const struct filtered_subs_config *config);
/* Ends all answers. */
void filtered_subs_end(struct filtered_subs *s);
void filtered_subs_free(struct filtered_subs **s);
size_t filtered_subs_count(const struct filtered_subs *s);
/* Counts the lines of all answers together: a line in two answers counts twice. */
const struct line_counts *filtered_subs_lines(const struct filtered_subs *s);

/* The request handler. */
void filtered_sub_answer(struct filtered_subs *s, struct http_request *req);

#endif
