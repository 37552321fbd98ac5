/* known_series: the series of a target's last scrape, as texts. A set grows while a page is read, and finds a series that
 * occurs twice. A comparison with the next set shows which series have vanished. */
#ifndef MILLRACE_KNOWN_SERIES_H
#define MILLRACE_KNOWN_SERIES_H

#include "base/bytes.h"

struct series {
    uint32_t hash, at, len; /* hash and place of the text in `texts` */
};

/* A zeroed set is empty. */
struct known_series {
    struct series *all;
    size_t n, cap;
    uint32_t *slots; /* open addressing: the index of a series + 1; 0: free */
    size_t n_slots;  /* a power of two, or 0 */
    struct buf texts;
};

/* Adds the text that the caller has appended to s->texts at `at`. If the set has the text already, removes the text
 * from s->texts and returns false. A text must end below 4 GiB. */
bool known_series_add(struct known_series *s, size_t at);
bool known_series_has(const struct known_series *s, struct bytes text);
static inline struct bytes known_series_text(const struct known_series *s, size_t i)
{
    return bytes_of(s->texts.ptr + s->all[i].at, s->all[i].len);
}
/* Frees the memory. The set is empty afterwards. */
void known_series_free(struct known_series *s);

#endif
