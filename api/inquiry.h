/* inquiry: the questions of one request to the sources, one after the other, and the end of a request without an answer.
 *
 * The answer of a request may need several questions, and a later question may depend on earlier records. An inquiry is
 * a table of steps. A step asks zero or more questions:
 *
 *     prepare ─ASK──▶ records ──▶ end ──▶ prepare of the same step, with the next n
 *        └────NEXT─▶ prepare of the next step; after the last step, `answer`
 *
 * The first member of the owner is its inquiry, so the inquiry's address is the `arg` of all functions.
 *
 * 1. An inquiry ends once: with `answer`, with one error reply, or because the client has disconnected.
 * 2. The first error ends the inquiry, unless `fail` has handled the error.
 * 3. Only an inquiry asks the sources for records, and at most one question is open.
 * 4. The owner's memory and a question's piece count towards max_buffered, before a question is asked and after each piece.
 * 5. The completeness of the answer is that of its first question, but with the earliest complete_until and the missing
 *    sources of all questions.
 *    - A question omits the sources that an earlier question missed.
 *    - If a question misses a source that earlier questions had, the inquiry begins again without this source, so that
 *      all counts are of the same sources. An owner without `reset` goes on.
 * 6. A client that has shut down its sending side counts as gone after 2 seconds, because a closed connection looks the
 *    same. The question in progress then ends with the next piece of a reply, or with the timeout of a silent source.
 * 7. If the answer to a question has another quarters_since than the query, the owner is freed and `again` is called, so
 *    that all questions ask for the same periods.
 * 8. A question is to all cells (cells.h). The records of different cells are passed on in any order, and `end` follows
 *    the last answer.
 *
 * Ownership: the inquiry calls `free` after an error reply, or if the client has disconnected. After `answer`, or if a
 * function has returned without an answer (INQUIRY_WAIT, false), the owner ends the request and frees itself. */
#ifndef MILLRACE_INQUIRY_H
#define MILLRACE_INQUIRY_H

#include "api/cells.h"
#include "api/query.h"
#include "http/server/http_server.h"

enum inquiry_next {
    INQUIRY_ASK,  /* ask the prepared question */
    INQUIRY_NEXT, /* no further question of this step */
    INQUIRY_WAIT  /* the owner calls inquiry_go_on later, or has ended the request */
};

struct inquiry_step {
    /* Prepares the question number `n` of the step. Appends its target without NUL. *q already has `question`. */
    enum inquiry_next (*prepare)(void *owner, size_t n, struct source_question *q, struct buf *target);
    bool (*end)(void *owner); /* all records were added. Returns false if the owner has ended the request */
    struct source_question question; /* the functions for records */
};

/* One kind of owner. */
struct inquiry_spec {
    const struct inquiry_step *steps;
    size_t n_steps;
    size_t (*bytes)(const void *owner); /* memory of the owner */
    void (*answer)(void *owner);
    /* Returns true if the owner has ended the request, or continues the inquiry. NULL: false. */
    bool (*fail)(void *owner, enum source_result result, const char *why);
    void (*reset)(void *owner); /* discards all records; NULL: see rule 5 */
    void (*free)(void *owner);
    const char *hint; /* of a request that needs too much memory */
};

/* Parses and answers a request again, because the sources that answered have another quarters_since than its query. */
typedef void inquiry_again_fn(
    struct http_request *req, enum query_kind kind, int64_t quarters_since, void *arg);

struct inquiry {
    const struct inquiry_spec *spec;
    struct cells *cells;
    struct http_request *req; /* NULL: the client has disconnected */
    bool allows_partial;
    usec_t patience;
    const char *retry;         /* hint of a 503; NULL: according to allows_partial */
    const struct query *query; /* rule 7; NULL: the query does not depend on quarters_since */
    inquiry_again_fn *again;
    void *again_arg;
    struct cells_question *question; /* question in progress; NULL: none */
    size_t step, n;
    usec_t begun;
    bool has_answers;             /* `complete` is set */
    bool is_refused;              /* inquiry_pass_refusal has replied */
    enum http_hold hold;          /* result of the latest inquiry_hold */
    struct completeness latest;   /* of the latest question */
    struct completeness complete; /* rule 5 */
};

/* Begins with the first step. The owner must first set the members up to again_arg, except `question`. May be called again. */
void inquiry_begin(struct inquiry *q);
void inquiry_go_on(struct inquiry *q);
/* Counts the owner's memory and `piece`. Returns false if a limit is exceeded; the owner then calls inquiry_fail with
 * SOURCE_STOPPED. */
bool inquiry_hold(struct inquiry *q, size_t piece);
/* Ends the request with an error reply, unless the owner handles the error. */
void inquiry_fail(struct inquiry *q, enum source_result result, const char *why);
/* Adds the headers, and returns true if all rows of an answer whose last row ends at `end` are complete. In this case
 * complete_until becomes `end`, so that repeated answers have the same text. */
bool inquiry_settle(struct inquiry *q, int64_t end, bool is_approximate);
/* on_refused of a question whose refusal is the reply to the request. */
void inquiry_pass_refusal(void *owner, struct bytes problem);
/* Adds the headers of an answer: complete_until, and the missing sources. */
void inquiry_add_headers(struct http_request *req, const struct completeness *complete);

#endif
