#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define LONGEST 80
#define TOO_FAR 3

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Levenshtein's distance, a row at a time; known is shorter than LONGEST. */
static size_t distance(const char *name, const char *known)
{
    size_t row[LONGEST], n = strlen(known);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; name[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = diagonal + !same_letter(name[i - 1], known[j - 1]);
            size_t gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < gap ? change : gap;
        }
    }
    return row[n];
}

struct suggest suggest_for(const char *name)
{
    return (struct suggest){.name = name, .distance = TOO_FAR};
}

void suggest_try(struct suggest *s, const char *known)
{
    size_t n = strlen(known), m = strlen(s->name);
    bool may_be = n < LONGEST && n < m + TOO_FAR && m < n + TOO_FAR;
    size_t d = may_be ? distance(s->name, known) : TOO_FAR;
    /* Every character of a name of two would be another: that is no slip. */
    if (d < s->distance && d < n) {
        s->distance = d;
        s->nearest = known;
    }
}
