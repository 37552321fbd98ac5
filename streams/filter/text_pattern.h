/* text_pattern: searches untrusted text for an untrusted PCRE2 pattern, at a bounded cost.
 *
 * 1. Cost is counted in steps. Each tried item of the pattern costs a step, and so does each 16 bytes skipped since the
 *    previous item (fewer bytes for a long pattern). A failing item also costs the bytes that it may have skipped: n
 *    for x{n}, the rest of the text for a back reference. PCRE2's own limit counts neither bytes nor starting
 *    positions, so it does not bound the time.
 * 2. After TEXT_PATTERN_STEPS_MAX steps (a few milliseconds) the result is UNDECIDED. A text over TEXT_PATTERN_TEXT_MAX
 *    is UNDECIDED too, because a single item may skip all of it. The result depends only on pattern and text, never on
 *    elapsed time.
 * 3. A pattern that begins with a verb such as (*NO_JIT), or has a script run, is refused: its cost would not be
 *    counted.
 *
 * Not thread-safe: use one per thread. */
#ifndef MILLRACE_TEXT_PATTERN_H
#define MILLRACE_TEXT_PATTERN_H

#include "base/bytes.h"
#include "base/error.h"

#define TEXT_PATTERN_STEPS_MAX 100000
#define TEXT_PATTERN_TEXT_MAX ((size_t)1 << 20)

enum text_pattern_result {
    TEXT_PATTERN_FOUND,
    TEXT_PATTERN_NOT_FOUND,
    TEXT_PATTERN_UNDECIDED,
};

struct text_pattern;

/* Returns NULL with the error, which names the position. */
struct text_pattern *text_pattern_new(const char *pattern, struct error *error);
void text_pattern_free(struct text_pattern **p);
/* The text must be UTF-8. */
enum text_pattern_result text_pattern_find(struct text_pattern *p, struct bytes text);

#endif
