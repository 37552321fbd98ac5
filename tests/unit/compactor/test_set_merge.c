/* Sets in the archive against arrays of codes: random imports, removals, changes of shards and exports, and damage in both
 * files. */
#include "archive/generation.h"
#include "base/io.h"
#include "compactor/archive.h"
#include "compactor/change.h"
#include "compactor/export.h"
#include "compactor/verify.h"
#include "counts/records.h"
#include "counts/set_text.h"
#include "sets/set_code.h"
#include "support/cm.h"
#include "support/set_has.h"
#include "support/shell.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_TEXT 256
#define KEY_TEXT 64
#define STEPS 12

static char root[64];
static struct error error;

/* The model: for each period of a key, ascending codes. */
struct codes {
    uint64_t *list;
    size_t n, room;
};

struct entry {
    char key[KEY_TEXT]; /* "v.u|a.c41" */
    struct codes codes;
};

struct model {
    struct entry *list; /* in the order of the archive */
    size_t n, room;
    int64_t hours_from;
};

static int compare_codes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void unite(struct codes *to, const struct codes *from)
{
    size_t n = 0;
    for (size_t i = 0; i < from->n; i++)
        *ARRAY_ADD(to->list, to->n, to->room) = from->list[i];
    qsort(to->list, to->n, sizeof *to->list, compare_codes);
    for (size_t i = 0; i < to->n; i++)
        if (n == 0 || to->list[n - 1] != to->list[i])
            to->list[n++] = to->list[i];
    to->n = n;
}

static void take_out(struct codes *c, uint64_t code)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->list[i] != code)
            c->list[n++] = c->list[i];
    c->n = n;
}

static int compare_entries(const void *a, const void *b)
{
    return record_key_compare(
        bytes_str(((const struct entry *)a)->key), bytes_str(((const struct entry *)b)->key), ',');
}

static struct record_key parse(const char *key)
{
    struct record_key k;
    if (!record_key_parse(bytes_str(key), &k))
        fail_msg("%s", key);
    return k;
}

static void add_set(struct model *m, const char *key, const struct codes *codes)
{
    struct entry new = {0}, *e = NULL;
    struct record_key k = parse(key);
    bool is_folded = k.unit == PERIOD_HOUR && k.start - k.start % SECONDS_PER_DAY < m->hours_from;
    snprintf(new.key, sizeof new.key, "%.*s", (int)(strlen(key) - is_folded), key);
    if (codes->n == 0)
        return;
    if (m->n > 0)
        e = bsearch(&new, m->list, m->n, sizeof new, compare_entries);
    if (!e) {
        *ARRAY_ADD(m->list, m->n, m->room) = new;
        qsort(m->list, m->n, sizeof new, compare_entries);
        e = bsearch(&new, m->list, m->n, sizeof new, compare_entries);
    }
    unite(&e->codes, codes);
}

static void model_free(struct model *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->list[i].codes.list);
    free(m->list);
    *m = (struct model){0};
}

/* The key of the period of length `unit` that contains the entry's period. */
static const char *enclosing(const struct entry *e, enum period_unit unit, char out[KEY_TEXT])
{
    snprintf(out, KEY_TEXT, "%.*s", (int)(strlen(e->key) - (size_t)(unit - parse(e->key).unit)), e->key);
    return out;
}

/* The number of different periods of length `inner` within a day or a month. */
static size_t count_parts(
    const struct model *m, const char *key, enum period_unit unit, enum period_unit inner)
{
    char of[KEY_TEXT], part[KEY_TEXT], last[KEY_TEXT] = "";
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (parse(m->list[i].key).unit > inner || strcmp(enclosing(&m->list[i], unit, of), key) != 0)
            continue;
        n += strcmp(enclosing(&m->list[i], inner, part), last) != 0;
        snprintf(last, sizeof last, "%s", part);
    }
    return n;
}

static void roll_up(struct model *m, enum period_unit unit)
{
    struct model rollups = {0};
    char key[KEY_TEXT];
    for (size_t i = 0; i < m->n; i++) {
        const struct entry *e = &m->list[i];
        if (parse(e->key).unit >= unit)
            continue;
        struct entry rollup = {0};
        enclosing(e, unit, key);
        snprintf(rollup.key, sizeof rollup.key, "%s", key);
        if (count_parts(m, key, unit, unit - 1) > 1 ||
            bsearch(&rollup, m->list, m->n, sizeof rollup, compare_entries))
            add_set(&rollups, key, &e->codes);
    }
    for (size_t i = 0; i < rollups.n; i++)
        add_set(m, rollups.list[i].key, &rollups.list[i].codes);
    model_free(&rollups);
}

/* Drops the months, the empty sets, and the sets that `drops` selects. */
static void drop_sets(
    struct model *m, bool (*drops)(const struct record_key *k, const void *arg), const void *arg)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct record_key k = parse(m->list[i].key);
        if (k.unit == PERIOD_MONTH || m->list[i].codes.n == 0 || (drops && drops(&k, arg)))
            free(m->list[i].codes.list);
        else
            m->list[n++] = m->list[i];
    }
    m->n = n;
}

static void settle(struct model *m)
{
    drop_sets(m, NULL, NULL);
    roll_up(m, PERIOD_DAY);
    roll_up(m, PERIOD_MONTH);
}

/* Random sets. */

static const char *const spaces[] = {"v.u", "w.u", "v.a"};
static const char *const keys[] = {"a", "a!x", "a-", "b", "(other)", "eleven_byte", "h0aMB8AuNw4="};
static const char *const days[] = {
    "bcu", "bcv", "c11", "c4", "c41", "c42", "c5", "vcv", "w011", "w012", "zvcv"};
#define CHUNK_EDGE 4096

static const char *random_key(bool by_hour)
{
    static char key[KEY_TEXT];
    static const char hours[] = "0123456789abcdefghijklmn";
    const char *day = days[(size_t)random() % (sizeof days / sizeof *days)];
    const char *of = keys[(size_t)random() % (sizeof keys / sizeof *keys)];
    bool is_month = strlen(day) < 3; /* any day of it */
    int n = snprintf(key, sizeof key, "%s|%s.%s", by_hour ? "w.u" : spaces[random() % 2 * 2], of, day);
    if (is_month)
        n += snprintf(key + n, sizeof key - (size_t)n, "%c", "123456789"[random() % 9]);
    if (by_hour)
        snprintf(key + n, sizeof key - (size_t)n, "%c", hours[random() % (random() % 2 ? 3 : 24)]);
    return key;
}

static uint64_t hash_code(long i)
{
    char text[32];
    return set_code(bytes_of(text, (size_t)snprintf(text, sizeof text, "visitor-%ld", i)));
}

/* Few members, so that texts have to become sets of the file, or numbers around the edge of a chunk's two forms. */
static struct codes random_codes(void)
{
    struct codes c = {0}, none = {0};
    size_t n = (size_t)random() % 5 + 1;
    uint64_t base = random() % 2 ? 0 : UINT64_C(0xfffe0000);
    if (random() % 6 == 0) {
        n = CHUNK_EDGE - 2 + (size_t)random() % 5;
        for (size_t i = 0; i < n; i++)
            *ARRAY_ADD(c.list, c.n, c.room) = base + i * (random() % 2 ? 1 : 15);
    } else if (random() % 10 == 0) { /* a chunk that is longer than a reader's smallest buffer */
        for (uint64_t i = 0; i < 2500; i++)
            *ARRAY_ADD(c.list, c.n, c.room) = (UINT64_C(7) << 48) + i * (random() % 2 ? 1 : 3);
    } else if (random() % 6 == 0) {
        for (long i = random() % 400; i >= 0; i--)
            *ARRAY_ADD(c.list, c.n, c.room) = random() % 2 ? hash_code(random() % 300) : (uint64_t)random();
    } else {
        for (size_t i = 0; i < n; i++)
            *ARRAY_ADD(c.list, c.n, c.room) =
                random() % 2 ? hash_code(random() % 5) : base + (uint64_t)(random() % 6);
    }
    unite(&c, &none);
    return c;
}

/* Prints the chunks without the product's code. */
static void print_base64(FILE *f, const unsigned char *b, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t of = n - i < 3 ? n - i : 3;
        unsigned three =
            (unsigned)b[i] << 16 | (of > 1 ? (unsigned)b[i + 1] << 8 : 0) | (of > 2 ? b[i + 2] : 0);
        for (size_t k = 0; k <= of; k++)
            fputc(digits[three >> (18 - 6 * k) & 63], f);
    }
}

static unsigned chunk_of(uint64_t code)
{
    return code >> 32 ? 0x10000 | (unsigned)(code >> 48) : (unsigned)(code >> 16);
}

static void print_chunks(FILE *f, const struct codes *c)
{
    for (size_t i = 0, end; i < c->n; i = end) {
        unsigned id = chunk_of(c->list[i]);
        for (end = i; end < c->n && chunk_of(c->list[end]) == id;)
            end++;
        unsigned char *bytes = calloc(end - i + SET_CHUNK_BITMAP, 8);
        size_t n = 0;
        bool is_bitmap = id < 0x10000 && end - i >= CHUNK_EDGE;
        for (size_t k = i; k < end; k++) {
            uint64_t code = c->list[k];
            if (is_bitmap)
                bytes[(code & 0xffff) / 8] |= (unsigned char)(1 << code % 8);
            for (int byte = 0; !is_bitmap && byte < (id < 0x10000 ? 2 : 8); byte++)
                bytes[n++] = (unsigned char)(code >> 8 * byte);
        }
        fprintf(f, "%s%06x", i == 0 ? "@" : " ", id);
        print_base64(f, bytes, is_bitmap ? SET_CHUNK_BITMAP : n);
        free(bytes);
    }
}

static void print_short(FILE *f, const struct codes *c)
{
    if (c->n > SET_TEXT_MEMBERS)
        fprintf(f, "#%zu", c->n);
    for (size_t i = 0; i < c->n && c->n <= SET_TEXT_MEMBERS; i++) {
        fprintf(f, i ? " " : "=");
        fprintf(f, c->list[i] >> 32 ? "~%016llx" : "%llu", (unsigned long long)c->list[i]);
    }
}

/* Archives. */

static const char *in_root(const char *name)
{
    static char path[4][PATH_TEXT];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], PATH_TEXT, "%s/%s", root, name);
    return path[turn];
}

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

static enum compact_result change(
    const char *name, uint32_t shards, struct change_spec spec, struct change_report *report)
{
    char archive[PATH_TEXT];
    struct run_outcome out;
    struct change *c = NULL;
    snprintf(archive, sizeof archive, "%s", in_root(name));
    struct run_spec run = {
        .archive = archive, .slices = root, .shards = shards, .keep = 1, .now = 9, .control = &control};
    spec.archive = archive;
    spec.memory = 1 << 20;
    spec.again = true;
    enum compact_result r = change_prepare(&spec, &run, &c, &error);
    if (r == COMPACT_OK)
        r = run_compact(&run, &out, &error);
    if (report && r == COMPACT_OK)
        *report = change_report(c);
    change_free(&c);
    return r;
}

static void must_change(
    const char *name, uint32_t shards, struct change_spec spec, struct change_report *report)
{
    if (change(name, shards, spec, report) != COMPACT_OK)
        fail_msg("%s", error.text);
}

static void make_archive(const char *name, uint32_t shards)
{
    remove_tree(in_root(name));
    assert_int_equal(mkdir(in_root(name), 0700), 0);
    assert_int_equal(archive_init(in_root(name), shards, 9, &error), COMPACT_OK);
}

static void import_file(const char *name, uint32_t shards, const char *file)
{
    char path[PATH_TEXT], *paths = path;
    snprintf(path, sizeof path, "%s", in_root(file));
    must_change(name, shards, (struct change_spec){.imports = &paths, .n_imports = 1}, NULL);
}

/* Every set that a reader finds equals the model's, and there is no other set. */
static void check_sets(const char *name, const struct model *m)
{
    char archive[PATH_TEXT];
    snprintf(archive, sizeof archive, "%s", in_root(name));
    struct generation *g;
    size_t found = 0;
    if (generation_open(&(struct generation_source){.archive = archive}, NULL, NULL, &g, &error) !=
        SORTED_FILE_OK)
        fail_msg("%s", error.text);
    for (size_t i = 0; i < m->n; i++) {
        const struct entry *e = &m->list[i];
        struct bytes line;
        uint32_t shard;
        char *expected;
        size_t len;
        FILE *f = open_memstream(&expected, &len);
        fprintf(f, "%s,", e->key);
        print_short(f, &e->codes);
        fprintf(f, "\n");
        fclose(f);
        if (!generation_find(g, bytes_str(e->key), &line, &shard))
            fail_msg("no %s", e->key);
        if (!bytes_equal_str(line, expected))
            fail_msg("%.*sinstead of %s", (int)line.len, line.ptr, expected);
        free(expected);
        if (e->codes.n <= SET_TEXT_MEMBERS)
            continue;
        struct set_opened set;
        if (generation_set(g, shard, bytes_str(e->key), &set, &error) != 0)
            fail_msg("%s", error.text);
        assert_int_equal(set_view_size(&set.view), e->codes.n);
        for (size_t k = 0; k < e->codes.n; k++)
            assert_true(set_view_has(&set.view, e->codes.list[k]));
        set_opened_close(&set);
    }
    for (uint32_t k = 0; k < generation_info(g).shards; k++) {
        const struct sorted_text *t = generation_set_text(g, k);
        found += t ? bytes_count_lines(t->text) : 0;
        assert_true(!t || t->text.len > 0);
    }
    assert_int_equal(found, m->n);
    generation_unref(&g);
    struct verify_report report;
    if (verify_archive(&(struct verify_spec){.archive = archive}, &report, &error) != COMPACT_OK)
        fail_msg("%s", error.text);
}

/* The texts of two archives are equal. */
static void check_same_texts(const char *name, const char *other)
{
    shell("diff -r -x manifest.json -x '*.sets' %s/%s/current/ %s/%s/current/", root, name, root, other);
}

/* Writes random sets, and some counts beside them, to a file, and adds the sets to the model. */
static void write_random(const char *file, struct model *m, size_t n)
{
    FILE *f = fopen(in_root(file), "a");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        const char *key = random_key(random() % 2);
        struct codes c = random_codes();
        fprintf(f, "%s,", key);
        if (c.n <= SET_TEXT_MEMBERS && random() % 2)
            print_short(f, &c);
        else
            print_chunks(f, &c);
        fprintf(f, "\nc.u|%s.c41%c,JP:1\nu|%s,c411:1\n", keys[random() % 6], "0123456789"[random() % 10],
            keys[random() % 6]);
        add_set(m, key, &c);
        free(c.list);
    }
    fclose(f);
}

static void an_order_of_imports_changes_nothing(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        struct model m = {0};
        uint32_t shards = (uint32_t)random() % 4 + 1;
        make_archive("one", shards);
        make_archive("parts", shards);
        shell("rm -f %s/all", root);
        for (int part = 0; part < 4; part++) {
            shell("rm -f %s/part", root);
            write_random("part", &m, (size_t)random() % 20 + 1);
            shell("cat %s/part >> %s/all", root, root);
            import_file("parts", shards, "part");
            settle(&m);
            check_sets("parts", &m);
        }
        import_file("one", shards, "all");
        check_sets("one", &m);
        check_same_texts("one", "parts");
        model_free(&m);
    }
}

/* Random programs. */

struct removal {
    const char *ns, *key; /* NULL: any */
    int64_t before;       /* 0: any time */
};

static bool is_removed(const struct record_key *k, const void *arg)
{
    const struct removal *r = arg;
    return (!r->ns || record_filter_has_namespace(k->ns, bytes_str(r->ns))) &&
           (!r->key || bytes_equal_str(k->key, r->key)) && (!r->before || k->start < r->before);
}

static void remove_member(struct model *m, const char *ns, const char *text)
{
    for (size_t i = 0; i < m->n; i++) {
        struct record_key k = parse(m->list[i].key);
        if (!ns || bytes_equal_str(k.ns, ns))
            take_out(&m->list[i].codes, set_code(bytes_str(text)));
    }
}

static const char *const dates[] = {
    "2011-12-31", "2012-01-01", "2012-04-02", "2012-05-01", "2031-12-31", "2032-01-02"};
static const char *const members[] = {
    "0", "3", "visitor-2", "4294836225", "visitor-299", "absent", "(other)"};

static int64_t random_date(void)
{
    int64_t day;
    assert_true(change_parse_date(dates[(size_t)random() % (sizeof dates / sizeof *dates)], &day));
    return day;
}

static void fold(struct model *m, int64_t hours_from)
{
    struct model old = *m;
    *m = (struct model){.hours_from = hours_from > old.hours_from ? hours_from : old.hours_from};
    for (size_t i = 0; i < old.n; i++)
        if (parse(old.list[i].key).unit != PERIOD_MONTH)
            add_set(m, old.list[i].key, &old.list[i].codes);
    model_free(&old);
}

static void forget_text(struct model *m, const char *text)
{
    struct change_report report;
    must_change("archive", 0, (struct change_spec){.forget = text}, &report);
    drop_sets(m, is_removed, &(struct removal){.key = text});
    remove_member(m, NULL, text);
}

static bool has_space(const struct model *m, const char *ns)
{
    for (size_t i = 0; i < m->n; i++)
        if (bytes_equal_str(parse(m->list[i].key).ns, ns))
            return true;
    return false;
}

static void import_some(struct model *m, uint32_t *shards)
{
    shell("rm -f %s/part", root);
    write_random("part", m, (size_t)random() % 30 + 1);
    import_file("archive", *shards, "part");
}

static void export_and_import(struct model *m, const uint32_t *shards)
{
    char path[PATH_TEXT], *paths = path;
    snprintf(path, sizeof path, "%s", in_root("exported"));
    assert_int_equal(export_archive(in_root("archive"), path, &error), COMPACT_OK);
    make_archive("other", *shards);
    must_change("other", *shards,
        (struct change_spec){.imports = &paths, .n_imports = 1, .drop_hours_before = m->hours_from}, NULL);
    settle(m);
    check_sets("other", m);
    check_same_texts("archive", "other");
}

static void act(struct model *m, uint32_t *shards)
{
    const char *member = members[(size_t)random() % (sizeof members / sizeof *members)];
    const char *ns = spaces[(size_t)random() % 3];
    struct removal r = {.before = random_date(), .ns = random() % 2 ? ns : NULL};
    char text[KEY_TEXT];
    switch (random() % 9) {
    case 0:
        *shards = (uint32_t)random() % 4 + 1;
        must_change("archive", *shards, (struct change_spec){0}, NULL);
        break;
    case 1:
        must_change("archive", 0, (struct change_spec){.drop_hours_before = r.before}, NULL);
        fold(m, r.before);
        break;
    case 2:
        if (r.ns && !has_space(m, r.ns))
            r.ns = NULL;
        must_change("archive", 0, (struct change_spec){.drop_before = r.before, .drop_ns = r.ns}, NULL);
        drop_sets(m, is_removed, &r);
        break;
    case 3:
        forget_text(m, random() % 2 ? member : keys[(size_t)random() % 3]);
        break;
    case 4:
        if (!has_space(m, ns) || strcmp(member, COMPONENT_OTHER) == 0)
            break;
        snprintf(text, sizeof text, "%s|%s", ns, member);
        must_change("archive", 0, (struct change_spec){.forget_sub = text}, NULL);
        remove_member(m, ns, member);
        break;
    case 5:
        export_and_import(m, shards);
        break;
    default:
        import_some(m, shards);
    }
}

static void any_sequence_equals_the_model(void **state)
{
    (void)state;
    const char *rounds = getenv("MILLRACE_ROUNDS");
    for (int round = rounds ? atoi(rounds) : 8; round > 0; round--) {
        struct model m = {0};
        uint32_t shards = (uint32_t)random() % 4 + 1;
        make_archive("archive", shards);
        import_some(&m, &shards);
        for (int i = 0; i < STEPS; i++) {
            settle(&m);
            check_sets("archive", &m);
            act(&m, &shards);
        }
        model_free(&m);
    }
}

/* Damage. */

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(in_root(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A month with a rollup, a month of one set, and sets of both forms, in the texts and in the file. */
static void make_damageable(struct model *m)
{
    static const struct {
        const char *key;
        uint64_t codes[6];
        size_t n;
    } sets[] = {{"v.u|a.c31", {1, 2, 3, 4, 70000, 1 << 20}, 6}, {"v.u|a.c41", {0, 5, 7}, 3},
        {"v.u|a.c42", {5, 6, 8, 9}, 4}, {"v.u|b.c41", {1, 2}, 2}, {"w.u|a.c511", {1, 2, 3, 4}, 4},
        {"w.u|a.c512", {1}, 1}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct codes c = {0}, none = {0};
        for (size_t k = 0; k < sets[i].n; k++)
            *ARRAY_ADD(c.list, c.n, c.room) = i % 2 ? hash_code((long)sets[i].codes[k]) : sets[i].codes[k];
        unite(&c, &none);
        add_set(m, sets[i].key, &c);
        free(c.list);
    }
    settle(m);
    FILE *f = fopen(in_root("part"), "w");
    for (size_t i = 0; i < m->n; i++) {
        if (parse(m->list[i].key).unit == PERIOD_MONTH)
            continue;
        fprintf(f, "%s,", m->list[i].key);
        print_chunks(f, &m->list[i].codes);
        fprintf(f, "\n");
    }
    fclose(f);
    make_archive("archive", 1);
    import_file("archive", 1, "part");
    check_sets("archive", m);
}

static bool names_a_file_of_sets(void)
{
    return strstr(error.text, "/sets-0-of-1.csv") || strstr(error.text, "/shard-0-of-1.sets");
}

/* A reader's answer is the model's, or an error that names a file. */
static void read_damaged(const struct model *m)
{
    struct generation *g;
    struct generation_source source = {.archive = in_root("archive")};
    if (generation_open(&source, NULL, NULL, &g, &error) != SORTED_FILE_OK) {
        assert_true(names_a_file_of_sets());
        return;
    }
    for (size_t i = 0; i < m->n; i++) {
        const struct entry *e = &m->list[i];
        struct set_opened set;
        if (e->codes.n <= SET_TEXT_MEMBERS)
            continue;
        if (generation_set(g, 0, bytes_str(e->key), &set, &error) != 0) {
            assert_true(names_a_file_of_sets());
            assert_false(generation_has_sound_sets(g, &error));
            continue;
        }
        assert_int_equal(set_view_size(&set.view), e->codes.n);
        for (size_t k = 0; k < e->codes.n; k++)
            assert_true(set_view_has(&set.view, e->codes.list[k]));
        set_opened_close(&set);
    }
    generation_unref(&g);
}

/* The run refuses the damage by name, or makes an archive without the damage. */
static void run_damaged(const struct model *m, const char *import, uint32_t shards)
{
    char path[PATH_TEXT], *paths = path;
    snprintf(path, sizeof path, "%s", in_root(import ? import : ""));
    struct change_spec spec = {.imports = &paths, .n_imports = import != NULL};
    replace_tree(in_root("archive"), in_root("damaged"), true);
    enum compact_result r = change("damaged", shards, spec, NULL);
    if (r == COMPACT_OK)
        check_sets("damaged", m);
    else if (r != COMPACT_DAMAGED || !names_a_file_of_sets())
        fail_msg("%d: %s", (int)r, error.text);
}

static void damage_file(const char *name, const struct model *m)
{
    char path[PATH_TEXT];
    snprintf(path, sizeof path, "%s/archive/current/%s", root, name);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const char *text = getenv("MILLRACE_STRIDE");
    long stride = text ? atol(text) : 7;
    for (long at = random() % stride, end = ftell(f); at < end; at += stride) {
        fseek(f, at, SEEK_SET);
        int byte = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(byte ^ 1 << random() % 8, f);
        fflush(f);
        struct verify_report report;
        struct verify_spec spec = {.archive = in_root("archive")};
        if (verify_archive(&spec, &report, &error) != COMPACT_DAMAGED || !names_a_file_of_sets())
            fail_msg("byte %ld of %s: %s", at, name, error.text);
        read_damaged(m);
        run_damaged(m, "same", 1);
        run_damaged(m, NULL, 2);
        fseek(f, at, SEEK_SET);
        fputc(byte, f);
        fflush(f);
    }
    fclose(f);
}

static void a_changed_byte_is_named_and_never_counted(void **state)
{
    (void)state;
    struct model m = {0};
    make_damageable(&m);
    FILE *f = fopen(in_root("same"), "w");
    fprintf(f, "v.u|a.c41,");
    print_short(f, &((struct entry *)bsearch(
                         &(struct entry){.key = "v.u|a.c41"}, m.list, m.n, sizeof *m.list, compare_entries))
                        ->codes);
    fprintf(f, "\n");
    fclose(f);
    damage_file("sets-0-of-1.csv", &m);
    damage_file("shard-0-of-1.sets", &m);
    model_free(&m);
}

/* A set was used, and its bytes change afterwards: the scrub finds it. Other sets stay usable. */
static void a_scrub_finds_a_damaged_set(void **state)
{
    (void)state;
    struct model m = {0};
    make_damageable(&m);
    char path[PATH_TEXT];
    snprintf(path, sizeof path, "%s/archive/current/shard-0-of-1.sets", root);
    struct generation *g;
    struct generation_source source = {.archive = in_root("archive")};
    struct set_opened set;
    assert_int_equal(generation_open(&source, NULL, NULL, &g, &error), SORTED_FILE_OK);
    assert_int_equal(generation_set(g, 0, bytes_str("w.u|a.c511"), &set, &error), 0);
    set_opened_close(&set);
    FILE *f = fopen(path, "r+");
    char bytes[4096];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    const char *at = memmem(bytes, n, "w.u|a.c511", 10);
    assert_non_null(at);
    fseek(f, at - bytes + 32, SEEK_SET); /* a part of the bitmap */
    fputc(at[32] ^ 1, f);
    fclose(f);
    for (int i = 0; i < 20; i++)
        generation_scrub(g, 50);
    assert_int_equal(generation_set(g, 0, bytes_str("w.u|a.c511"), &set, &error), -1);
    assert_non_null(strstr(error.text, "shard-0-of-1.sets: damaged: set"));
    assert_non_null(strstr(error.text, "w.u|a.c511"));
    assert_int_equal(generation_set(g, 0, bytes_str("v.u|a.c31"), &set, &error), 0);
    set_opened_close(&set);
    assert_true(generation_is_whole(g, GENERATION_NO_SHARD, &error));
    generation_unref(&g);
    model_free(&m);
}

static void a_truncated_file_is_named(void **state)
{
    (void)state;
    struct model m = {0};
    char path[PATH_TEXT];
    static const char *const files[] = {"sets-0-of-1.csv", "shard-0-of-1.sets"};
    make_damageable(&m);
    for (size_t i = 0; i < 2; i++)
        for (off_t cut = 1; cut < 200; cut += 13) {
            struct stat st;
            copy_tree(in_root("archive"), in_root("cut"), true);
            snprintf(path, sizeof path, "%s/cut/current/%s", root, files[i]);
            assert_int_equal(stat(path, &st), 0);
            assert_int_equal(truncate(path, st.st_size > cut ? st.st_size - cut : 0), 0);
            assert_int_equal(change("cut", 2, (struct change_spec){0}, NULL), COMPACT_DAMAGED);
            assert_true(names_a_file_of_sets());
            struct generation *g;
            struct generation_source source = {.archive = in_root("cut")};
            assert_int_not_equal(generation_open(&source, NULL, NULL, &g, &error), SORTED_FILE_OK);
            assert_true(names_a_file_of_sets());
            remove_tree(in_root("cut"));
        }
    /* The file of sets of another generation. */
    write_file("more", "v.u|a.c31,=123456789\n");
    copy_tree(in_root("archive"), in_root("cut"), true);
    import_file("cut", 1, "more");
    snprintf(path, sizeof path, "%s/archive/current/shard-0-of-1.sets", root);
    assert_int_equal(unlink(path), 0);
    copy_one(in_root("cut/current/shard-0-of-1.sets"), path, 0644);
    assert_int_equal(change("archive", 2, (struct change_spec){0}, NULL), COMPACT_DAMAGED);
    assert_true(names_a_file_of_sets());
    model_free(&m);
}

static void a_line_that_is_no_set_is_refused_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *line, *why;
    } wrong[] = {{"v.u|a.c41,#8211", "a size of a set cannot be imported"},
        {"v.u|a.c41,#", "a size of a set cannot be imported"}, {"v.u|a.c4,=1 2", "the set of a month"},
        {"v.u|a.c4,@000000EQDMAA", "the set of a month"}, {"v.u|a.c41,=", "a member is malformed"},
        {"v.u|a.c41,=1 2 3 4", "more than three"}, {"v.u|a.c41,=2 1", "do not ascend"},
        {"v.u|a.c41,=1 1", "do not ascend"}, {"v.u|a.c41,=01", "a member is malformed"},
        {"v.u|a.c41,=1 ", "a member is malformed"}, {"v.u|a.c41,=4294967296", "a member is malformed"},
        {"v.u|a.c41,=~00000000ffffffff", "a member is malformed"}, {"v.u|a.c41,@", "a chunk is malformed"},
        {"v.u|a.c41,@000000", "a chunk is malformed"}, {"v.u|a.c41,@000000EQDMAA ", "a chunk is malformed"},
        {"v.u|a.c41,@000000EQDMAB", "a chunk is malformed"},
        {"v.u|a.c41,@000000EQDMAA 000004EAMQDA0001a1b2G2A", "a chunk is malformed"},
        {"v.u|a.c41,@000000zAARAA", "a chunk is malformed"},
        {"v.u|a.c41,@020000EQDMAA", "a chunk is malformed"},
        {"v.u|a.c41,@000000EQDMAA 000000EQDMAA", "the chunks do not ascend"},
        {"v.u|a.c41,@000001EQDMAA 000000EQDMAA", "the chunks do not ascend"},
        {"v.u|a.c41,@010000EQDMAA", "a chunk is malformed"}, {"u|a,=1 2", "a count has no `:`"},
        {"lookup|a,=1 2", "the key is not a key"}, {"v.u|a.c4z,=1", "the key is not a key"}};
    char path[PATH_TEXT], *paths = path, text[512], place[PATH_TEXT + 8];
    snprintf(path, sizeof path, "%s", in_root("wrong"));
    snprintf(place, sizeof place, "%s:2: ", path);
    make_archive("archive", 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "v.u|a.c43,=17\n%s\nv.u|a.c44,=17\n", wrong[i].line);
        write_file("wrong", text);
        struct change_spec spec = {.imports = &paths, .n_imports = 1};
        if (change("archive", 0, spec, NULL) != COMPACT_REFUSED || !strstr(error.text, place) ||
            !strstr(error.text, wrong[i].why))
            fail_msg("%s: %s", wrong[i].line, error.text);
        check_sets("archive", &(struct model){0});
    }
}

/* Without the counters of a slice, the archive does not know which counters are unique. The error names the key, and a
 * removal of the key helps. */
static void counts_and_sets_do_not_share_a_key(void **state)
{
    (void)state;
    static const char *const lines[] = {"v.u|a.c41l,JP:1\n", "v.u|a.c41l,=17\n"};
    char both[64], path[PATH_TEXT], *paths = path;
    for (size_t i = 0; i < 2; i++) {
        make_archive("archive", 1);
        write_file("part", lines[i]);
        import_file("archive", 1, "part");
        write_file("part", lines[1 - i]);
        import_file("archive", 1, "part");
        assert_int_equal(change("archive", 2, (struct change_spec){0}, NULL), COMPACT_DAMAGED);
        assert_non_null(strstr(error.text, "both counts and sets at \"v.u|a.c41l,\""));
        must_change("archive", 2, (struct change_spec){.forget = "v.u|a"}, NULL);
        check_sets("archive", &(struct model){0});
        snprintf(both, sizeof both, "%s%s", lines[i], lines[1 - i]);
        write_file("both", both);
        snprintf(path, sizeof path, "%s", in_root("both"));
        assert_int_not_equal(
            change("archive", 2, (struct change_spec){.imports = &paths, .n_imports = 1}, NULL), COMPACT_OK);
        if (!strstr(error.text, "both counts and sets at \"v.u|a.c41l"))
            fail_msg("%s", error.text);
    }
}

static int do_not_sync(int fd)
{
    (void)fd;
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    seeded();
    make_test_dir(root, sizeof root);
    static struct io_ops ops;
    ops = io_system;
    ops.fsync = do_not_sync;
    io = &ops;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    io = &io_system;
    shell("rm -rf %s", root);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_order_of_imports_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_sequence_equals_the_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_changed_byte_is_named_and_never_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_scrub_finds_a_damaged_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_truncated_file_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_that_is_no_set_is_refused_with_its_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_and_sets_do_not_share_a_key, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
