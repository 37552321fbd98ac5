/* text_pattern: searches untrusted text for an untrusted PCRE2 pattern, at a bounded cost.
 *
 * 1. The cost of a search is counted in steps. Each attempt to match an item of the pattern costs a step, and an
 *    eighth of a step for each group of the pattern. Each 16 bytes skipped since the previous item cost a further step
 *    (fewer bytes for a long pattern). For an item that fails, the
 *    skipped bytes are not known, so the maximum is charged: n bytes for x{n}, the rest of the text for a back
 *    reference. PCRE2's own limit does not bound the time, because PCRE2 does not count bytes or starting positions.
 * 2. After TEXT_PATTERN_STEPS_MAX steps (a few milliseconds) the result is TEXT_PATTERN_UNDECIDED. A text longer than
 *    TEXT_PATTERN_TEXT_MAX has the same result, because a single item may skip the whole text. The result depends only
 *    on pattern and text, never on the elapsed time.
 * 3. A pattern that begins with a verb such as (*NO_JIT), or has a script run, is refused, because its cost would not
 *    be counted.
 *
 * A text_pattern is not thread-safe: each thread needs its own text_pattern. */
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

/* Returns NULL with the error, which names the position in the pattern. */
struct text_pattern *text_pattern_new(const char *pattern, struct error *error);
void text_pattern_free(struct text_pattern **p);
/* The text must be UTF-8. */
enum text_pattern_result text_pattern_find(struct text_pattern *p, struct bytes text);
/* The steps of the last search. */
uint64_t text_pattern_steps(const struct text_pattern *p);
/* After TEXT_PATTERN_FOUND: the part of the text that a group matched, by the group's number or name. Empty if the group does not
 * exist or did not match. */
struct bytes text_pattern_group(const struct text_pattern *p, struct bytes text, struct bytes group);

#endif
