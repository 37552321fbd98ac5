/* mark_line: one update in a line of a request, a list or a stream, and the error of a line without an effect. */
#ifndef MILLRACE_MARK_LINE_H
#define MILLRACE_MARK_LINE_H

#include "spamfilter/marks.h"

/* The errors of a line: an enum url_error, or one of these. */
enum {
    MARK_LINE_FORM = URL_PORT + 1,
    MARK_LINE_JSON,
    MARK_LINE_OP,
    MARK_LINE_BAD_ID,
    MARK_LINE_NO_ID,
    MARK_LINE_ABSENT,
    MARK_LINE_LAYER_FULL,
    MARK_LINE_FULL
};

struct mark_line_error {
    int status; /* of an HTTP reply */
    const char *code, *detail;
};
struct mark_line_error mark_line_error(int error);
/* Returns the error of an update with this result; URL_OK: none. */
int mark_line_error_of(enum mark_result r);

/* Cuts a tab and an id off the line. Without a tab, *id stays as it is. Returns false if the id is outside its limits. */
bool mark_line_cut_id(struct bytes *line, uint64_t max, uint64_t *id);
uint64_t mark_line_id_max(enum mark_action action);
/* Appends the update of a URL to the lines of a change; `id` is 0 if the update has none. Returns URL_OK, or the error of the
 * line. `form` is for the URL's form. */
int mark_line_append(struct marks *m, enum mark_action action, struct bytes url, uint64_t id,
    struct url_form *form, struct buf *lines);

#endif
