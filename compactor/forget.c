#include "compactor/forget.h"

#include "compactor/record_scan.h"
#include "compactor/record_source.h"
#include "sets/set_code.h"
#include <stdlib.h>

struct hash {
    char text[COMPONENT_HASH];
    bool is_used; /* a remaining record uses the hash */
};

struct forget {
    char *key; /* the key as the caller has given it */
    struct bytes ns, stored;
    char space[COMPONENT_HASH + 1];
    struct hash *hashes; /* hashes in the key's records; sorted after the first pass */
    size_t n, room;
    bool has_sets;                  /* the archive has sets */
    uint64_t records, as_sub, sets; /* `sets`: sets of other keys with the member */
    struct record_filter filter;
};

static int compare_hashes(const void *a, const void *b)
{
    return memcmp(((const struct hash *)a)->text, ((const struct hash *)b)->text, COMPONENT_HASH);
}

static void sort_hashes(struct forget *f)
{
    size_t n = 0;
    if (f->n == 0)
        return;
    qsort(f->hashes, f->n, sizeof *f->hashes, compare_hashes);
    for (size_t i = 1; i < f->n; i++)
        if (compare_hashes(&f->hashes[n], &f->hashes[i]) != 0)
            f->hashes[++n] = f->hashes[i];
    f->n = n + 1;
}

static void add_hash(struct forget *f, struct bytes text)
{
    if (!component_is_hash(text))
        return;
    if (f->n == f->room) {
        sort_hashes(f);
        if (f->n >= f->room / 2)
            ARRAY_ROOM(f->hashes, f->room, f->room + 1);
    }
    memcpy(f->hashes[f->n].text, text.ptr, COMPONENT_HASH);
    f->hashes[f->n++].is_used = false;
}

static struct hash *find_hash(const struct forget *f, struct bytes text)
{
    if (!component_is_hash(text) || f->n == 0)
        return NULL;
    return bsearch(text.ptr, f->hashes, f->n, sizeof *f->hashes, compare_hashes);
}

static void use_hash(struct forget *f, struct bytes text)
{
    struct hash *h = find_hash(f, text);
    if (h)
        h->is_used = true;
}

static bool is_of_key(const struct forget *f, const struct record_key *key)
{
    return !key->is_lookup && bytes_equal(key->key, f->stored) &&
           (!f->ns.ptr || record_filter_has_namespace(key->ns, f->ns));
}

static enum compact_result each_name(struct forget *f, struct count_source *s,
    void (*found)(struct forget *f, struct bytes), struct error *error)
{
    enum count_next r;
    while ((r = s->kind->next_value(s)) == COUNT_FOUND)
        found(f, s->name);
    return r == COUNT_FAILED ? record_source_failed(&s->error, error) : COMPACT_OK;
}

static enum compact_result collect(
    void *arg, struct count_source *s, const struct record_key *key, struct error *error)
{
    struct forget *f = arg;
    f->has_sets = f->has_sets || key->is_set;
    if (key->is_lookup && bytes_equal(key->key, f->stored))
        add_hash(f, key->key); /* even without a record of the key, because --drop-before keeps lookups */
    if (!is_of_key(f, key))
        return COMPACT_OK;
    f->records++;
    add_hash(f, key->key);
    return key->is_subtotal && !key->is_set ? each_name(f, s, add_hash, error) : COMPACT_OK;
}

static void use_name(struct forget *f, struct bytes name)
{
    use_hash(f, name);
    f->as_sub += bytes_equal(name, f->stored);
}

static enum compact_result keep_used(
    void *arg, struct count_source *s, const struct record_key *key, struct error *error)
{
    struct forget *f = arg;
    if (key->is_lookup || is_of_key(f, key))
        return COMPACT_OK;
    use_hash(f, key->key);
    if (key->is_set)
        return f->filter.without_member ? record_scan_find_member(s, f->filter.member, &f->sets, error)
                                        : COMPACT_OK;
    return key->is_subtotal ? each_name(f, s, use_name, error) : COMPACT_OK;
}

static bool is_kept(void *arg, const struct record_key *key, int64_t start)
{
    const struct forget *f = arg;
    (void)start;
    if (!key->is_lookup)
        return !is_of_key(f, key);
    const struct hash *h = find_hash(f, key->key);
    return !h || h->is_used;
}

static bool loses_member(void *arg, const struct record_key *key)
{
    return !is_of_key(arg, key);
}

struct bytes forget_namespace(const char *text)
{
    struct bytes key = bytes_str(text);
    const char *bar = memchr(key.ptr, '|', key.len), *dot = memchr(key.ptr, '.', key.len);
    if (!bar)
        return BYTES_NONE;
    struct bytes ns = bytes_of(key.ptr, (size_t)(bar - key.ptr));
    size_t before = dot && dot < bar ? (size_t)(dot + 1 - key.ptr) : 0;
    return namespace_is_valid(bytes_of(ns.ptr + before, ns.len - before)) ? ns : BYTES_NONE;
}

static void parse_key(struct forget *f)
{
    f->ns = forget_namespace(f->key);
    struct bytes key = bytes_str(f->ns.ptr ? f->key + f->ns.len + 1 : f->key);
    f->stored = component_is_hash(key) ? key : component_store(key, f->space);
    if (!set_code_parse(key, &f->filter.member))
        f->filter.member = set_code(key);
    f->filter.without_member = f->ns.ptr ? NULL : loses_member;
}

enum compact_result forget_refuse_hash(struct bytes text, struct error *error)
{
    if (!component_is_hash(text))
        return COMPACT_OK;
    return error_set(error, COMPACT_USAGE,
        "%.*s is the hash of a text, and sets do not have this hash. Give the text: `millrace compact "
        "--export` "
        "prints it after lookup|%.*s. To remove only the counts of a total, give NAMESPACE|%.*s",
        (int)text.len, text.ptr, (int)text.len, text.ptr, (int)text.len, text.ptr);
}

enum compact_result forget_scan(
    const char *archive, const struct manifest *m, const char *key, struct forget **out, struct error *error)
{
    struct forget *f = *out = mem_zalloc(sizeof *f);
    f->key = mem_strdup(key);
    f->filter = (struct record_filter){.keep = is_kept, .arg = f};
    parse_key(f);
    enum compact_result r = record_scan(archive, m, collect, f, error);
    sort_hashes(f);
    if (r == COMPACT_OK && f->has_sets && !f->ns.ptr)
        r = forget_refuse_hash(bytes_str(key), error);
    if (r == COMPACT_OK)
        r = record_scan(archive, m, keep_used, f, error);
    return r;
}

void forget_free(struct forget **fp)
{
    struct forget *f = *fp;
    if (!f)
        return;
    free(f->key);
    free(f->hashes);
    free(f);
    *fp = NULL;
}

const struct record_filter *forget_filter(const struct forget *f)
{
    return &f->filter;
}

void forget_report(const struct forget *f, uint64_t *forgotten, uint64_t *as_sub)
{
    *forgotten = f->records + f->sets;
    for (size_t i = 0; i < f->n; i++)
        *forgotten += !f->hashes[i].is_used;
    *as_sub = f->as_sub;
}
