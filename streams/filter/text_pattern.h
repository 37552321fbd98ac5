/* text_pattern: a PCRE2 pattern of anybody's, looked for in a text of anybody's, at a cost that is bounded.
 *
 * 1. What it costs is counted in steps: one for each item of the pattern that is tried, and one more for each 16 bytes that
 *    were passed over since the one before (fewer than 16 for a long pattern, of which each byte may cost more). PCRE2's own limit
 *    counts neither the bytes nor the places at which a match is tried: `a*[bc]` on 64 KB of a stays far below it, and takes
 *    20 seconds without its compiler.
 *    An item that fails is charged for what it may have passed over first: n bytes for x{n}, all that is left for a back reference.
 * 2. After TEXT_PATTERN_STEPS_MAX, some milliseconds, it says that it cannot tell, and of a text over TEXT_PATTERN_TEXT_MAX at once: one item
 *    alone may pass over all of it. That depends on pattern and text alone, not on
 *    the time it took: asked again it says the same.
 * 3. A pattern that begins with a verb, as (*NO_JIT), is refused, and so is one with a script run, whose cost is not counted.
 *
 * Not thread-safe: one a thread. */
#ifndef MILLRACE_TEXT_PATTERN_H
#define MILLRACE_TEXT_PATTERN_H

#include "base/bytes.h"

#define TEXT_PATTERN_STEPS_MAX 100000
#define TEXT_PATTERN_TEXT_MAX ((size_t)1 << 20)

enum text_pattern_result {
    TEXT_PATTERN_FOUND,
    TEXT_PATTERN_NOT_FOUND,
    TEXT_PATTERN_UNDECIDED,
};

struct text_pattern;

/* NULL with the reason, and where. */
struct text_pattern *text_pattern_new(const char *pattern, char *error, size_t error_size);
void text_pattern_free(struct text_pattern **p);
/* The text is UTF-8. */
enum text_pattern_result text_pattern_find(struct text_pattern *p, struct bytes text);

#endif
