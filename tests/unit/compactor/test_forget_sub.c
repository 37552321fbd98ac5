/* forget_sub: random archives without a sub key have the bytes of archives in which its counts were imported as `(other)`. */
#include "compactor/forget_sub.h"
#include "compactor/archive.h"
#include "compactor/change.h"
#include "compactor/verify.h"
#include "support/cm.h"
#include "support/shell.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NS "u.l"
#define SPACES 2 /* NS and another subtotal of the same total */
#define LINKS 7
#define OTHER 3 /* the index of "(other)" */
#define LONG_TEXT "a user with a long name"
#define HALF "2012-04-02"
#define HASHED_ROUNDS 3
#define MANY 20000 /* more keys than the sort holds in a megabyte */

static const char *const spaces[SPACES] = {NS, "c.l"};
static const char *const texts[] = {
    "!a", "#0", "'", "(other)", "(p", "bitly", "jehiah", LONG_TEXT, "http://example.org/a,b", "zz"};
#define NAMES (sizeof texts / sizeof *texts)
/* The third hour is the only one of its day, and the last the only one of its month. */
static const char *const hours[] = {"c411", "c41l", "c421", "c433", "c43n", "c511"};
#define HOURS (sizeof hours / sizeof *hours)
static const char *const days[HOURS] = {"c41", "c41", "c42", "c43", "c43", "c51"};

struct model {
    uint64_t counts[SPACES][LINKS][HOURS][NAMES];
    bool is_key[NAMES]; /* the text is the key of a total, too */
};

struct settings {
    uint32_t shards;
    const char *hours_from; /* NULL: the archive has all hours */
};

static char root[64];
static struct error error;

static enum compact_result look(void *arg, uint64_t *open_slice, bool *is_empty, struct error *text)
{
    (void)arg, (void)text;
    *open_slice = 0;
    *is_empty = true;
    return COMPACT_OK;
}

static enum compact_result reload(
    void *arg, uint64_t generation, uint64_t content, bool *served, struct error *text)
{
    (void)arg, (void)generation, (void)content, (void)text;
    *served = false;
    return COMPACT_OK;
}

static const struct run_control control = {.look = look, .reload = reload};

static const char *in_root(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static enum compact_result change(
    const char *archive, uint32_t shards, struct change_spec spec, struct change_report *report)
{
    struct run_outcome out;
    struct run_spec run = {
        .archive = archive, .slices = root, .shards = shards, .keep = 1, .now = 9, .control = &control};
    struct change *c = NULL;
    spec.archive = archive;
    spec.memory = 1 << 20;
    enum compact_result r = change_prepare(&spec, &run, &c, &error);
    if (r == COMPACT_OK)
        r = run_compact(&run, &out, &error);
    *report = change_report(c);
    change_free(&c);
    return r;
}

static void import(const char *name, const struct settings *s, char *file)
{
    char archive[128];
    struct change_report report;
    struct change_spec spec = {.imports = &file, .n_imports = 1};
    snprintf(archive, sizeof archive, "%s/%s", root, name);
    remove_tree(archive);
    assert_int_equal(mkdir(archive, 0700), 0);
    if (s->hours_from)
        assert_true(change_parse_date(s->hours_from, &spec.drop_hours_before));
    assert_int_equal(archive_init(archive, s->shards, 9, &error), COMPACT_OK);
    if (change(archive, s->shards, spec, &report) != COMPACT_OK)
        fail_msg("%s", error.text);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The stored forms, and the names in their order. */
static char stored[NAMES][COMPONENT_HASH + 1];
static size_t by_name[NAMES];

static void store_names(void)
{
    const char *sorted[NAMES];
    char space[COMPONENT_HASH + 1];
    for (size_t i = 0; i < NAMES; i++) {
        struct bytes b = component_store(bytes_str(texts[i]), space);
        snprintf(stored[i], sizeof stored[i], "%.*s", (int)b.len, b.ptr);
        sorted[i] = stored[i];
    }
    qsort(sorted, NAMES, sizeof *sorted, compare_names);
    for (size_t i = 0; i < NAMES; i++)
        by_name[i] = (size_t)(sorted[i] - stored[0]) / sizeof stored[0];
}

static void print_record(FILE *f, const struct model *m, size_t ns, int link, size_t hour)
{
    bool is_first = true;
    for (size_t i = 0; i < NAMES; i++) {
        uint64_t n = m->counts[ns][link][hour][by_name[i]];
        if (n == 0)
            continue;
        if (is_first)
            fprintf(f, "%s|link%d.%s,", spaces[ns], link, hours[hour]);
        fprintf(f, "%s%s:%llu", is_first ? "" : " ", stored[by_name[i]], (unsigned long long)n);
        is_first = false;
    }
    if (!is_first)
        fprintf(f, "\n");
}

static bool is_used(const struct model *m, size_t name)
{
    bool used = m->is_key[name];
    for (size_t i = 0; i < (size_t)SPACES * LINKS * HOURS; i++)
        used = used || m->counts[i / (LINKS * HOURS)][i / HOURS % LINKS][i % HOURS][name] > 0;
    return used;
}

static char *write_model(const struct model *m, const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s", in_root(name));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int link = 0; link < LINKS; link++)
        for (size_t hour = 0; hour < HOURS; hour++) {
            uint64_t sum = 0;
            for (size_t i = 0; i < NAMES; i++)
                sum += m->counts[0][link][hour][i];
            if (sum > 0)
                fprintf(f, "l|link%d,%s:%llu\n", link, hours[hour], (unsigned long long)sum);
            for (size_t ns = 0; ns < SPACES; ns++)
                print_record(f, m, ns, link, hour);
        }
    for (size_t i = 0; i < NAMES; i++) {
        if (m->is_key[i])
            fprintf(f, "u|%s,c411:1\n", stored[i]);
        if (component_is_hash(bytes_str(stored[i])) && is_used(m, i))
            fprintf(f, "lookup|%s,%s\n", stored[i], texts[i]);
    }
    fclose(f);
    return path;
}

static void fill(struct model *m)
{
    *m = (struct model){0};
    for (size_t i = 0; i < (size_t)SPACES * LINKS * HOURS; i++) {
        bool is_empty = random() % 4 == 0, has_other = random() % 2;
        size_t only = random() % 4 == 0 ? (size_t)random() % NAMES : NAMES; /* one sub key */
        for (size_t name = 0; name < NAMES; name++)
            if (!is_empty && (only < NAMES ? name == only : random() % 2 && (name != OTHER || has_other)))
                m->counts[i / (LINKS * HOURS)][i / HOURS % LINKS][i % HOURS][name] =
                    (uint64_t)random() % 1000 + 1;
    }
    /* Any of the places that use a text may be the only one. */
    for (size_t name = 0; name < NAMES; name++) {
        m->is_key[name] = name != OTHER && random() % 3 == 0;
        bool is_absent = random() % 2;
        for (size_t i = 0; i < (size_t)LINKS * HOURS; i++)
            if (is_absent)
                m->counts[1][i / HOURS][i % HOURS][name] = 0;
    }
}

/* Moves the counts of the name. Returns the number of records that had it. */
static uint64_t move(struct model *m, size_t name, const struct settings *s)
{
    uint64_t records = 0;
    for (int link = 0; link < LINKS; link++) {
        const char *day = "";
        for (size_t hour = 0; hour < HOURS; hour++) {
            uint64_t *counts = m->counts[0][link][hour];
            bool is_folded = s->hours_from && strcmp(days[hour], "c42") < 0;
            if (counts[name] > 0) {
                records += !is_folded || strcmp(day, days[hour]) != 0;
                day = days[hour];
            }
            counts[OTHER] += counts[name];
            counts[name] = 0;
        }
    }
    return records;
}

static void check_same(const char *what)
{
    char command[512];
    snprintf(command, sizeof command,
        "diff -r -x manifest.json %s/archive/current/ %s/expected/current/ && test $(ls %s/archive | wc -l) "
        "= 3",
        root, root, root);
    if (system(command) != 0)
        fail_msg("%s", what);
    struct verify_report report;
    char archive[128];
    snprintf(archive, sizeof archive, "%s", in_root("archive"));
    if (verify_archive(&(struct verify_spec){.archive = archive}, &report, &error) != COMPACT_OK)
        fail_msg("%s: %s", what, error.text);
}

static void check_name(const struct settings *s, size_t name, bool as_hash)
{
    struct model m;
    struct change_report report;
    char what[128], text[64], archive[128];
    snprintf(archive, sizeof archive, "%s", in_root("archive"));
    fill(&m);
    import("archive", s, write_model(&m, "text"));
    bool had_lookup = component_is_hash(bytes_str(stored[name])) && is_used(&m, name);
    uint64_t records = move(&m, name, s);
    import("expected", s, write_model(&m, "text"));
    snprintf(text, sizeof text, NS "|%s", as_hash ? stored[name] : texts[name]);
    for (int times = 0; times < 2; times++, records = 0, had_lookup = false) {
        snprintf(what, sizeof what, "%s, %u shards, hours from %s, time %d", text, s->shards,
            s->hours_from ? s->hours_from : "the first", times + 1);
        if (change(archive, s->shards, (struct change_spec){.forget_sub = text}, &report) != COMPACT_OK)
            fail_msg("%s: %s", what, error.text);
        check_same(what);
        assert_int_equal(report.moved, records);
        assert_int_equal(report.lookups, had_lookup && !is_used(&m, name));
    }
}

static void counts_go_to_other(void **state)
{
    (void)state;
    for (uint32_t shards = 1; shards <= 4; shards += 3)
        for (int drops = 0; drops < 2; drops++)
            for (size_t name = 0; name < NAMES; name++) {
                struct settings s = {shards, drops ? HALF : NULL};
                if (name == OTHER)
                    continue;
                check_name(&s, name, false);
                for (int i = 0; i < HASHED_ROUNDS && component_is_hash(bytes_str(stored[name])); i++)
                    check_name(&s, name, i % 2);
            }
}

/* The collected records exceed the memory for the sort. */
static void more_records_than_memory(void **state)
{
    (void)state;
    struct change_report report;
    static const char *const files[] = {"text", "expected-text"};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(in_root(files[i]), "w");
        assert_non_null(f);
        for (int k = 0; k < MANY; k++)
            fprintf(f, "%s|link%d.c411,%s\n", NS, k,
                i == 0  ? k % 2 ? "jehiah:3" : "(other):1 bitly:2 jehiah:3"
                : k % 2 ? "(other):3"
                        : "(other):4 bitly:2");
        fclose(f);
    }
    struct settings s = {2, NULL};
    char path[128], archive[128];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s", in_root(files[i]));
        import(i == 0 ? "archive" : "expected", &s, path);
    }
    snprintf(archive, sizeof archive, "%s", in_root("archive"));
    assert_int_equal(
        change(archive, 2, (struct change_spec){.forget_sub = NS "|jehiah"}, &report), COMPACT_OK);
    assert_int_equal(report.moved, MANY);
    check_same("many records");
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "jehiah", "u|jehiah", "u.l", "u.l|", "|jehiah", ".l|x", "u.|x",
        "u.l.x|y", "U.l|x", "a|b.c|d", "lookup.l|x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_non_null(strstr(forget_sub_check(wrong[i]), "expected the namespace"));
    assert_non_null(strstr(forget_sub_check("u.l|(other)"), "(other) cannot be removed"));
    assert_null(forget_sub_check("u.l|a|b.c"));

    struct change_report report;
    struct model m;
    struct settings s = {1, NULL};
    char archive[128];
    snprintf(archive, sizeof archive, "%s", in_root("archive"));
    fill(&m);
    import("archive", &s, write_model(&m, "text"));
    import("expected", &s, write_model(&m, "text"));
    for (size_t i = 0; i < 2; i++) {
        struct change_spec spec = {.forget_sub = i == 0 ? "u.c|jehiah" : "l.u|jehiah"};
        assert_int_equal(change(archive, 1, spec, &report), COMPACT_USAGE);
        assert_non_null(strstr(
            error.text, i == 0 ? "no subtotal or unique counter u.c" : "no subtotal or unique counter l.u"));
    }
    check_same("a refusal");
    remove_tree(archive);
    assert_int_equal(mkdir(archive, 0700), 0);
    assert_int_equal(archive_init(archive, 1, 9, &error), COMPACT_OK);
    assert_int_equal(
        change(archive, 1, (struct change_spec){.forget_sub = NS "|jehiah"}, &report), COMPACT_OK);
    assert_int_equal(report.moved, 0);
}

static int set_up(void **state)
{
    (void)state;
    seeded();
    store_names();
    make_test_dir(root, sizeof root);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    shell("rm -rf %s", root);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_go_to_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_records_than_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
