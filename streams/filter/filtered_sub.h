/* filtered_sub: /sub with a filter of the request's own, as bitly's pubsub_filtered served it.
 *
 * One stream is served, the program's. Its filter is for that one, and pubsub's token is the program's own: in any other stream
 * a request would see what it may not, in clear.
 *
 * Every request follows the source stream by a connection of its own, so that a slow client slows nobody. Its answer is
 * the lines that pass both the program's filter and the request's filter_subject and filter_pattern. Those that neither can judge
 * are left out, counted and logged. The bytes sent are
 * not the stream's, so a client cannot resume by counting: whoever must not miss or repeat a line re-publishes. */
#ifndef MILLRACE_FILTERED_SUB_H
#define MILLRACE_FILTERED_SUB_H

#include "streams/filter/line_counts.h"

struct event_base;
struct http_request;
struct filtered_subs;
struct line_scheduler;

struct filtered_subs_config {
    struct event_base *base;
    const char *pubsub_url, *stream;    /* the stream that is served; copied */
    const char *auth_token, *heartbeat; /* pubsub's, and the field of heartbeats; NULL: none; copied */
    size_t max_line;
    struct line_filter *filter;       /* borrowed */
    struct line_scheduler *scheduler; /* borrowed: no request's pattern has the loop to itself */
};
struct filtered_subs *filtered_subs_new(const struct filtered_subs_config *config);
/* Every answer under way ends. */
void filtered_subs_end(struct filtered_subs *s);
void filtered_subs_free(struct filtered_subs **s);
size_t filtered_subs_count(const struct filtered_subs *s);
/* Of all answers there were: a line that two of them read counts twice. */
const struct line_counts *filtered_subs_lines(const struct filtered_subs *s);

/* The handler. */
void filtered_sub_answer(struct filtered_subs *s, struct http_request *req);

#endif
