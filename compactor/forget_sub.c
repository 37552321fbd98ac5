#include "compactor/forget_sub.h"

#include "compactor/external_sort.h"
#include "compactor/forget.h"
#include "compactor/record_scan.h"
#include "compactor/record_source.h"
#include "sets/set_code.h"
#include <stdio.h>
#include <stdlib.h>

struct forget_sub {
    char *text; /* NS|TEXT as the caller has given it */
    struct bytes ns, stored;
    char space[COMPONENT_HASH + 1];
    const struct manifest *archive; /* used only during the scan */
    struct external_sort *sort;
    struct buf line;
    uint64_t scanned, records; /* number of the archive's records, and of the records with the sub key */
    bool has_ns, has_lookup;
    bool is_used;  /* a remaining record uses the text */
    bool has_sets; /* the namespace is that of a unique counter */
    struct record_filter filter;
};

static bool parse(const char *text, struct bytes *ns, struct bytes *sub)
{
    const char *bar = strchr(text, '|');
    *ns = bytes_of(text, bar ? (size_t)(bar - text) : 0);
    *sub = bar ? bytes_str(bar + 1) : BYTES_NONE;
    const char *dot = ns->len > 0 ? memchr(text, '.', ns->len) : NULL;
    size_t before = dot ? (size_t)(dot - text) : 0;
    return dot && namespace_is_valid(bytes_of(text, before)) &&
           namespace_is_valid(bytes_of(dot + 1, ns->len - before - 1));
}

const char *forget_sub_check(const char *text)
{
    struct bytes ns, sub;
    if (!parse(text, &ns, &sub) || sub.len == 0)
        return "expected the namespace of a subtotal and a sub key, such as u.l|jehiah";
    if (bytes_equal_str(sub, COMPONENT_OTHER))
        return "(other) cannot be removed: it gets the counts of removed sub keys";
    return NULL;
}

static bool is_of_namespace(const struct forget_sub *f, const struct record_key *key)
{
    return key->is_subtotal && bytes_equal(key->ns, f->ns);
}

/* Reads the record's values up to the sub key. COUNT_END: the record does not have the sub key. */
static enum count_next find_sub(const struct forget_sub *f, struct count_source *s)
{
    enum count_next r;
    while ((r = s->kind->next_value(s)) == COUNT_FOUND && !bytes_equal(s->name, f->stored))
        ;
    return r;
}

static enum compact_result visit(
    void *arg, struct count_source *s, const struct record_key *key, struct error *error)
{
    struct forget_sub *f = arg;
    bool is_key = bytes_equal(key->key, f->stored), is_of_ns = is_of_namespace(f, key);
    f->scanned++;
    f->has_ns = f->has_ns || is_of_ns;
    f->has_lookup = f->has_lookup || (key->is_lookup && is_key);
    f->is_used = f->is_used || (!key->is_lookup && is_key);
    /* Only a hash has a lookup, so other uses of a plain text do not matter. */
    bool may_use = !f->is_used && component_is_hash(f->stored);
    f->has_sets |= is_of_ns && key->is_set;
    if (key->is_set)
        return is_of_ns ? record_scan_find_member(s, f->filter.member, &f->records, error) : COMPACT_OK;
    if (!key->is_subtotal || !(is_of_ns || may_use) ||
        !record_filter_is_counted((void *)(uintptr_t)f->archive, key, key->start))
        return COMPACT_OK;
    buf_clear(&f->line);
    buf_append_bytes(&f->line, s->key);
    enum count_next r = find_sub(f, s);
    if (r != COUNT_FOUND)
        return r == COUNT_FAILED ? record_source_failed(&s->error, error) : COMPACT_OK;
    if (!is_of_ns) {
        f->is_used = true;
        return COMPACT_OK;
    }
    f->records++;
    buf_append_str(&f->line, COMPONENT_OTHER ":");
    buf_append_u64(&f->line, s->count);
    return external_sort_add(f->sort, buf_bytes(&f->line), error);
}

static bool is_kept(void *arg, const struct record_key *key, int64_t start)
{
    const struct forget_sub *f = arg;
    (void)start;
    return !key->is_lookup || f->is_used || !bytes_equal(key->key, f->stored);
}

static bool loses_member(void *arg, const struct record_key *key)
{
    return is_of_namespace(arg, key);
}

static struct bytes without(void *arg, const struct record_key *key)
{
    const struct forget_sub *f = arg;
    return is_of_namespace(f, key) ? f->stored : BYTES_NONE;
}

/* Checks that the archive has the subtotal. An empty archive may have no counters yet, so it is accepted. */
static enum compact_result check_namespace(
    const struct forget_sub *f, const struct manifest *m, struct error *error)
{
    bool is_known = f->has_ns || f->scanned == 0 || counted_since_has(m->counters, f->ns) ||
                    counted_since_has(m->retired, f->ns);
    return is_known ? COMPACT_OK
                    : error_set(error, COMPACT_USAGE, "the archive has no subtotal or unique counter %.*s",
                          (int)f->ns.len, f->ns.ptr);
}

enum compact_result forget_sub_scan(const char *archive, const struct manifest *m, const char *text,
    size_t memory, struct forget_sub **out, struct error *error)
{
    struct forget_sub *f = *out = mem_zalloc(sizeof *f);
    struct bytes sub;
    f->text = mem_strdup(text);
    f->archive = m;
    f->sort = external_sort_new(archive, memory);
    f->filter =
        (struct record_filter){.keep = is_kept, .arg = f, .without = without, .without_member = loses_member};
    parse(f->text, &f->ns, &sub);
    if (!set_code_parse(sub, &f->filter.member))
        f->filter.member = set_code(sub);
    f->stored = component_is_hash(sub) ? sub : component_store(sub, f->space);
    enum compact_result r = record_scan(archive, m, visit, f, error);
    if (r == COMPACT_OK)
        r = check_namespace(f, m, error);
    if (r == COMPACT_OK && f->has_sets)
        r = forget_refuse_hash(sub, error);
    return r == COMPACT_OK ? external_sort_finish(f->sort, error) : r;
}

void forget_sub_free(struct forget_sub **fp)
{
    struct forget_sub *f = *fp;
    if (!f)
        return;
    external_sort_free(&f->sort);
    buf_free(&f->line);
    free(f->text);
    free(f);
    *fp = NULL;
}

const struct record_filter *forget_sub_filter(const struct forget_sub *f)
{
    return &f->filter;
}

const struct count_sources *forget_sub_sources(const struct forget_sub *f)
{
    return f->records > 0 ? external_sort_sources(f->sort) : NULL;
}

bool forget_sub_is_of_sets(const struct forget_sub *f)
{
    return f->has_sets;
}

void forget_sub_report(const struct forget_sub *f, uint64_t *records, uint64_t *lookups)
{
    *records = f->records;
    *lookups = f->has_lookup && !f->is_used;
}
