#include "metricdb/store/label_match.h"

#include "base/text_hash.h"
#include "counts/text_pattern.h"

#include <stdlib.h>
#include <uthash.h>

#define KEPT_MAX 65536 /* values whose results are kept, for each pattern */
#define STEPS_MAX (1000 * (uint64_t)TEXT_PATTERN_STEPS_MAX) /* of all searches together */

struct kept_result {
    bool matches;
    UT_hash_handle hh;
    char value[];
};

struct one_match {
    const struct label_matcher *matcher;
    struct text_pattern *pattern; /* NULL: the matcher has a text */
    struct kept_result *kept;
};

struct label_match {
    size_t n;
    bool is_undecided;
    uint64_t steps;
    struct one_match all[];
};

/* The pattern must be valid alone, so that "a)|(?:b" cannot leave the group. */
static struct text_pattern *whole_pattern(struct bytes pattern, struct error *error)
{
    if (memchr(pattern.ptr ? pattern.ptr : "", 0, pattern.len) || !bytes_is_utf8(pattern)) {
        error_set(error, METRIC_BAD_PATTERN, "a pattern must be UTF-8 without NUL");
        return NULL;
    }
    char *alone = bytes_dup(pattern), *whole = mem_printf("\\A(?:%s)\\z", alone);
    struct text_pattern *p = text_pattern_new(alone, error);
    if (p) {
        text_pattern_free(&p);
        p = text_pattern_new(whole, error);
    }
    if (!p)
        error_set(error, METRIC_BAD_PATTERN, "%.200s: %s", alone, error->text);
    free(alone);
    free(whole);
    return p;
}

struct label_match *label_match_new(const struct label_matcher *matchers, size_t n, struct error *error)
{
    struct label_match *m = mem_zalloc(sizeof *m + n * sizeof *m->all);
    m->n = n;
    for (size_t i = 0; m && i < n; i++) {
        m->all[i].matcher = &matchers[i];
        if (matchers[i].type != MATCH_REGEX && matchers[i].type != MATCH_NOT_REGEX)
            continue;
        m->all[i].pattern = whole_pattern(matchers[i].value, error);
        if (!m->all[i].pattern)
            label_match_free(&m);
    }
    return m;
}

void label_match_free(struct label_match **mp)
{
    struct label_match *m = *mp;
    for (size_t i = 0; m && i < m->n; i++) {
        struct kept_result *k, *next;
        HASH_ITER(hh, m->all[i].kept, k, next)
        {
            HASH_DEL(m->all[i].kept, k);
            free(k);
        }
        text_pattern_free(&m->all[i].pattern);
    }
    free(m);
    *mp = NULL;
}

size_t label_match_count(const struct label_match *m)
{
    return m->n;
}

struct bytes label_match_name(const struct label_match *m, size_t i)
{
    return m->all[i].matcher->name;
}

struct bytes label_match_only(const struct label_match *m, size_t i)
{
    const struct label_matcher *matcher = m->all[i].matcher;
    return matcher->type == MATCH_EQUAL && matcher->value.len > 0 ? matcher->value : BYTES_NONE;
}

/* No value that is not UTF-8 matches a pattern. */
static bool find(struct label_match *m, struct one_match *one, struct bytes value)
{
    struct kept_result *k;
    HASH_FIND(hh, one->kept, value.len ? value.ptr : "", value.len, k);
    if (k || m->is_undecided)
        return k && k->matches;
    enum text_pattern_result r = bytes_is_utf8(value) ? text_pattern_find(one->pattern,
                                                            bytes_of(value.len ? value.ptr : "", value.len))
                                                      : TEXT_PATTERN_NOT_FOUND;
    m->steps += text_pattern_steps(one->pattern);
    m->is_undecided = r == TEXT_PATTERN_UNDECIDED || m->steps > STEPS_MAX;
    if (HASH_COUNT(one->kept) < KEPT_MAX) {
        k = mem_alloc(sizeof *k + value.len);
        k->matches = r == TEXT_PATTERN_FOUND;
        if (value.len > 0)
            memcpy(k->value, value.ptr, value.len);
        HASH_ADD(hh, one->kept, value, value.len, k);
    }
    return r == TEXT_PATTERN_FOUND;
}

bool label_match_value(struct label_match *m, size_t i, struct bytes value)
{
    struct one_match *one = &m->all[i];
    bool has = one->pattern ? find(m, one, value) : bytes_equal(one->matcher->value, value);
    return has == (one->matcher->type == MATCH_EQUAL || one->matcher->type == MATCH_REGEX);
}

bool label_match_series(struct label_match *m, const struct metric_label *labels, size_t n)
{
    for (size_t i = 0; i < m->n; i++) {
        size_t at = 0;
        while (at < n && !bytes_equal(labels[at].name, m->all[i].matcher->name))
            at++;
        if (!label_match_value(m, i, at < n ? labels[at].value : BYTES_NONE))
            return false;
    }
    return true;
}

bool label_match_failed(const struct label_match *m, struct error *error)
{
    if (m->is_undecided)
        error_set(error, METRIC_BAD_PATTERN, "a pattern takes too many steps: simplify it");
    return m->is_undecided;
}
