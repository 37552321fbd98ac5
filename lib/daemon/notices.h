/* notices: the conditions of a daemon that its operator should know.
 *
 * The daemon words each condition and its remedy where the cause is known. /health, /stats and the log show both.
 * `millrace status`, `millrace doctor` and the page print them and add nothing.
 *
 * 1. A remedy is the action that ends the condition, such as a command. "": the text contains the action, or the
 *    condition ends by itself. If the text ends in ": Permission denied", the remedy is instead to correct the owner or
 *    the mode of the file, and then to reload or restart if the state needs this.
 * 2. The highest state of a daemon's notices is the state of the daemon. From NOTICE_RECOVERING on, /health answers 503
 *    with the first notice of this state.
 * 3. A later notice with the same subject replaces the earlier one.
 *
 * The caller holds a lock. */
#ifndef MILLRACE_NOTICES_H
#define MILLRACE_NOTICES_H

#include "base/bytes.h"

enum notice_state {
    NOTICE_WARNING,    /* all requests work */
    NOTICE_ALARM,      /* all requests work, or part of the new events is refused */
    NOTICE_RECOVERING, /* not ready yet */
    NOTICE_REFUSING,   /* a part of the requests, until the cause ends */
    NOTICE_DAMAGED,    /* files; the daemon continues without them */
    NOTICE_FAILING,    /* until a restart */
    NOTICE_STOPPING,
    NOTICE_STATES
};

#define NOTICE_RELOAD "reload: systemctl reload millrace, or SIGHUP to `millrace up`"

#define NOTICE_START "start"   /* the subject of a daemon that is not ready, which precedes all others */
#define NOTICES_MAX 8          /* maximum number of subjects of a daemon */
#define NOTICES_UNNAMED_MAX 16 /* further notices without a subject are only counted */

struct notice {
    const char *of; /* the subject, a constant; NULL: none */
    enum notice_state state;
    char *text, *remedy; /* `text` NULL: the condition has ended */
};

struct notices {
    struct notice all[NOTICES_MAX + NOTICES_UNNAMED_MAX + 1]; /* notices with a subject come first */
    size_t n_unnamed;
};

/* Copies text and remedy. `text` NULL: removes the subject's notice. The first call must have the subject
 * NOTICE_START. */
void notices_set(
    struct notices *n, const char *of, enum notice_state state, const char *remedy, const char *text);
/* Adds a notice without a subject: a warning that lasts until the end of the process. */
void notices_add(struct notices *n, const char *remedy, const char *text);
void notices_free(struct notices *n);
/* Returns the notice of NOTICE_START, else the first notice of the highest state; NULL: no notices. */
const struct notice *notices_first(const struct notices *n);
/* Returns the number of notices with which /health stays 200. */
size_t notices_warnings(const struct notices *n);
/* Appends `warning: TEXT` and `remedy: REMEDY` as lines. */
void notices_print(const struct notices *n, struct buf *out);
/* Appends {"state":STATE,"notices":[{"level":...,"text":...,"remedy":...}]}, the first notice first. STATE is "ready",
 * "recovering", "refusing", "damaged", "failing" or "stopping". */
void notices_print_json(const struct notices *n, struct buf *out);

/* Appends `before` and {"level":...,"text":...,"remedy":...}. */
void notice_print(
    enum notice_state state, const char *text, const char *remedy, const char *before, struct buf *out);

/* Returns the remedy of rule 1 for a text. The caller frees the remedy. */
char *notice_remedy(enum notice_state state, const char *remedy, const char *text);

#endif
