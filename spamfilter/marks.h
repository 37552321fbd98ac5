/* marks: the marked URLs, hosts and paths, and the exceptions from them.
 *
 * A mark or an exception is the first parent of a URL's form (url_form.h), and applies to everything below it: `bad.example`
 * to all its paths and subdomains, `bad.example/x` to all paths below /x. Marks are in a filter, so a check may find a text
 * that is not marked. Exceptions are exact.
 *
 * 1. marks_check asks the URL's texts from the most specific to the least. The first mark or exception decides. If a text is
 *    both, the exception decides.
 * 2. A URL below a mark is always found, unless an exception decides. For each other text, the error rate is the filter's.
 * 3. The number of an update is the journal's offset of its end. A start repeats the journal's updates in order. The filter
 *    ignores the updates that it has. An exception is in the table or not, so a repetition ends in the same table.
 * 4. Updates are in the files only after marks_sync. marks_sync writes the exceptions first, and the filter with the number
 *    of the last update (filter_number) last. So the files have all updates up to filter_sequence.
 * 5. A repeated add or removal, with the id of the text's last update, changes nothing while `recent` has the last update.
 *    `recent` has the same entries when a start repeats an update, so the update has the same result.
 *
 * The owner's thread makes all calls except marks_sync. During marks_sync in another thread, the owner does not call
 * marks_apply or marks_number. */
#ifndef MILLRACE_SPAMFILTER_MARKS_H
#define MILLRACE_SPAMFILTER_MARKS_H

#include "base/error.h"
#include "filter/mark_reader.h"

#define MARK_ID_MAX ((UINT64_C(1) << 53) - 1)   /* exact as a JSON number */
#define MARK_NEW_ID_MAX (UINT64_C(1) << 52)     /* of an add, so that further ids remain */
#define MARK_ID_OWN (UINT64_C(1) << 63)         /* a flag: spamfilter chose the id of an add without one */
#define MARKS_EXCEPTIONS_MAX ((size_t)64 << 20) /* memory of all exceptions */

struct marks_config {
    const char *dir;
    uint64_t capacity, recent; /* filter_config; window of the exact table (bytes) */
    double rate;
};

struct marks {
    struct filter *filter;
    struct exact_table recent; /* the adds and removals of the last `window` bytes of the journal */
    uint64_t window;
    struct exact_table exceptions; /* all exceptions */
    char *exceptions_path;
    bool exceptions_changed; /* since the last sync */
    uint64_t last_id;        /* of adds without an id */
};

enum mark_action { MARK_ADD, MARK_REMOVE, MARK_ALLOW, MARK_DISALLOW, MARK_LOAD, MARK_ACTIONS };
extern const char *const mark_actions[MARK_ACTIONS]; /* names */

struct mark_update {
    enum mark_action action;
    uint64_t id;       /* 0 for exceptions, loads and removals without an id */
    struct bytes text; /* of a load: the name of the file */
};

/* An update is a line of the journal: ACTION, ID and TEXT, separated by spaces. mark_update_read returns false for a
 * malformed line. The text points into the line. */
void mark_update_append(const struct mark_update *u, struct buf *out);
bool mark_update_read(struct bytes line, struct mark_update *out);

/* Returns the id of an add without one: the time, or more than all ids so far, with the flag MARK_ID_OWN. */
uint64_t marks_new_id(struct marks *m);

/* Opens or creates the files in an existing directory. Returns 0, or an enum filter_result with the error. The caller calls
 * marks_close also after an error. */
int marks_open(struct marks *m, const struct marks_config *config, struct error *error);
void marks_close(struct marks *m);

enum mark_result {
    MARK_DONE,
    MARK_REPEATED, /* the update was made before; nothing changed */
    MARK_ABSENT,   /* the mark or exception does not exist; nothing changed */
    MARK_NO_ID,    /* the removal has no id, and `recent` does not have the mark; nothing changed */
    MARK_FULL,     /* the layer of the add's id is full; nothing changed */
    MARK_FAILED /* nothing changed; error->code is FILTER_NO_SPACE, or all further adds, removals and syncs fail */
};
/* Makes an update. Without an id of its own, the update of a text whose add is in `recent` gets the id of this add. A load
 * only clears `recent`, because another filter follows. */
enum mark_result marks_apply(struct marks *m, struct mark_update *u, uint64_t number, struct error *error);
/* Sets the number of the last update, also if the update has not changed the filter. Call marks_number before marks_sync. */
void marks_number(struct marks *m, uint64_t number);
/* Makes all updates durable. Returns 0, or an enum filter_result with the error. After FILTER_NO_SPACE, marks_sync may be
 * called again. */
int marks_sync(struct marks *m, struct error *error);
/* The maximum disk space of marks_sync after this number of updates, whose lines have this number of bytes. */
uint64_t marks_sync_bytes(const struct marks *m, uint64_t updates, size_t bytes);

/* With an id, the match is not a false positive, because the table `recent` has the mark. */
struct mark_verdict marks_check(const struct marks *m, const struct url_form *form);

void marks_append_exceptions(const struct marks *m, struct buf *out); /* one a line */

#endif
