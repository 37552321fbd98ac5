#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define NAME_LENGTH_MAX 80
#define DISTANCE_MAX 3

/* The Levenshtein distance, but at most `most`. `known` is shorter than NAME_LENGTH_MAX. */
static size_t distance(const char *name, const char *known, size_t most)
{
    size_t row[NAME_LENGTH_MAX], n = strlen(known);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; name[i - 1] != '\0'; i++) {
        size_t diagonal = row[0], least = i;
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            bool same = tolower((unsigned char)name[i - 1]) == tolower((unsigned char)known[j - 1]);
            size_t change = diagonal + !same;
            size_t gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < gap ? change : gap;
            least = row[j] < least ? row[j] : least;
        }
        if (least >= most) /* the minimum of later rows is not smaller */
            return most;
    }
    return row[n];
}

struct suggest suggest_for(const char *name)
{
    return (struct suggest){.name = name, .distance = DISTANCE_MAX};
}

void suggest_try(struct suggest *s, const char *known)
{
    size_t n = strlen(known), m = strlen(s->name);
    bool may_be = n < NAME_LENGTH_MAX && n < m + DISTANCE_MAX && m < n + DISTANCE_MAX;
    size_t d = may_be ? distance(s->name, known, s->distance) : DISTANCE_MAX;
    /* If every character of `known` would have to change, the mistyped name does not resemble `known`. */
    if (d < s->distance && d < n) {
        s->distance = d;
        s->nearest = known;
    }
}
