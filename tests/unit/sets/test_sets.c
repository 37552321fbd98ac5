/* Sets against sorted arrays of codes: every function on random sets of numbers and hashes, sparse and dense. */
#include "support/cm.h"
#include "support/set_has.h"

#include "sets/set_algebra.h"
#include "sets/set_chunk.h"
#include "sets/sets_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* The model: ascending codes, each once. */
struct model {
    uint64_t *codes;
    size_t n, room;
};

static uint64_t state = 1;

static uint64_t rnd(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void settle(struct model *m)
{
    size_t n = 0;
    if (m->n > 0)
        qsort(m->codes, m->n, sizeof *m->codes, compare);
    for (size_t i = 0; i < m->n; i++)
        if (n == 0 || m->codes[n - 1] != m->codes[i])
            m->codes[n++] = m->codes[i];
    m->n = n;
}

static bool has(const struct model *m, uint64_t code)
{
    return m->n > 0 && bsearch(&code, m->codes, m->n, sizeof code, compare) != NULL;
}

static uint64_t hash_code(uint64_t i)
{
    char text[32];
    return set_code(
        bytes_of(text, (size_t)snprintf(text, sizeof text, "visitor %llu", (unsigned long long)i)));
}

/* A random set: some numbers of few chunks, dense or sparse, runs, and hashes. */
static struct model random_model(size_t size)
{
    struct model m = {0};
    uint64_t span = rnd(2) ? 70000 : UINT64_C(3) << 20;
    for (size_t i = 0; i < size; i++)
        *ARRAY_ADD(m.codes, m.n, m.room) = rnd(3) ? rnd(span) : hash_code(rnd(size));
    if (rnd(2)) {
        uint64_t from = rnd(span), n = rnd(9000);
        for (uint64_t i = 0; i < n; i++)
            *ARRAY_ADD(m.codes, m.n, m.room) = from + i;
    }
    settle(&m);
    return m;
}

static struct set *set_of(const struct model *m)
{
    struct set *s = set_new();
    for (size_t i = 0; i < m->n; i++) /* in no order, and some twice */
        set_add(s, m->codes[(i * 7919) % m->n]);
    for (size_t i = 0; i < m->n; i++)
        set_add(s, m->codes[i]);
    return s;
}

static struct model union_of(const struct model *list, size_t n)
{
    struct model m = {0};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < list[i].n; k++)
            *ARRAY_ADD(m.codes, m.n, m.room) = list[i].codes[k];
    settle(&m);
    return m;
}

#define CHUNKS_MAX 70000

struct chunk_list {
    struct buf ids, bytes;
    size_t ends[CHUNKS_MAX], n;
};

static void keep_chunk(struct chunk_list *c, struct bytes id, struct bytes chunk)
{
    assert_true(set_chunk_check(id, chunk));
    if (c->n > 0)
        assert_true(memcmp(c->ids.ptr + (c->n - 1) * SET_CHUNK_ID, id.ptr, SET_CHUNK_ID) < 0);
    buf_append_bytes(&c->ids, id);
    buf_append_bytes(&c->bytes, chunk);
    c->ends[c->n++] = c->bytes.len;
    assert_true(c->n < CHUNKS_MAX);
}

static struct bytes chunk_id(const struct chunk_list *c, size_t i)
{
    return bytes_of(c->ids.ptr + i * SET_CHUNK_ID, SET_CHUNK_ID);
}

static struct bytes chunk_at(const struct chunk_list *c, size_t i)
{
    size_t from = i > 0 ? c->ends[i - 1] : 0;
    return bytes_of(c->bytes.ptr + from, c->ends[i] - from);
}

static void free_chunks(struct chunk_list *c)
{
    buf_free(&c->ids);
    buf_free(&c->bytes);
    c->n = 0;
}

static void assert_equal(const struct set_view *v, const struct model *m)
{
    assert_int_equal(set_view_size(v), m->n);
    for (size_t i = 0; i < m->n; i++)
        assert_true(set_view_has(v, m->codes[i]));
}

static void test_codes(void **unused)
{
    (void)unused;
    char text[SET_CODE_TEXT];
    assert_int_equal(set_code(BYTES_LITERAL("0")), 0);
    assert_int_equal(set_code(BYTES_LITERAL("8211")), 8211);
    assert_int_equal(set_code(BYTES_LITERAL("4294967295")), 4294967295);
    static const char *const texts[] = {"", "007", "-1", "4294967296", "99999999999", "1.0", "bob", "1 "};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint64_t code = set_code(bytes_str(texts[i])), back;
        assert_true(code >= SET_NUMBER_END);
        assert_int_equal(set_code_print(code, text), 17);
        assert_true(set_code_parse(bytes_str(text), &back) && back == code);
    }
    uint64_t back;
    assert_int_equal(set_code_print(204, text), 3);
    assert_true(set_code_parse(bytes_str("204"), &back) && back == 204);
    static const char *const wrong[] = {"", "~", "~12", "0204", "4294967296", "x", "~00000000ffffffff",
        "~0123456789ABCDEF", "~0123456789abcdef0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(set_code_parse(bytes_str(wrong[i]), &back));
}

static void test_a_stored_code_never_changes(void **unused)
{
    (void)unused; /* XXH3 is a fixed function */
    assert_int_equal(set_code(BYTES_LITERAL("bob")), UINT64_C(0x1403c0c40f49b8e5));
}

/* The chunks of a set contain exactly its codes. Encoding these codes again gives the same bytes, and adding all
 * chunks to an empty set gives an equal set. */
static void test_chunks(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        struct model m = random_model(1 + rnd(20000));
        struct set *s = set_of(&m), *again = set_new();
        struct set_view v = set_view_of(s);
        static struct chunk_list c;
        uint64_t *codes = mem_alloc((m.n + 1) * sizeof *codes), n = 0;
        assert_equal(&v, &m);
        struct set_chunks chunks = {.view = &v};
        struct bytes id, chunk;
        while (set_chunks_next(&chunks, &id, &chunk))
            keep_chunk(&c, id, chunk);
        set_chunks_free(&chunks);
        for (size_t i = 0; i < c.n; i++) {
            uint64_t size = set_chunk_size(chunk_id(&c, i), chunk_at(&c, i));
            assert_int_equal(set_chunk_codes(chunk_id(&c, i), chunk_at(&c, i), codes + n, size), size);
            struct buf form = {0};
            set_chunk_append(codes + n, size, &form);
            assert_true(bytes_equal(buf_bytes(&form), chunk_at(&c, i)));
            buf_free(&form);
            n += size;
            set_add_chunk(again, chunk_id(&c, i), chunk_at(&c, i));
        }
        assert_int_equal(n, m.n);
        assert_memory_equal(codes, m.codes, m.n * sizeof *codes);
        v = set_view_of(again);
        assert_equal(&v, &m);
        free_chunks(&c);
        free(codes);
        free(m.codes);
        set_free(&s);
        set_free(&again);
    }
}

static void test_chunk_unions(void **unused)
{
    (void)unused;
    for (int round = 0; round < 400; round++) {
        struct model m[2] = {{0}, {0}};
        struct buf chunk[2] = {{0}, {0}}, both = {0}, expected = {0}, less = {0};
        bool is_hash = rnd(2);
        for (int k = 0; k < 2; k++) {
            size_t size = 1 + rnd(round % 2 ? 9000 : 9);
            for (size_t i = 0; i < size; i++)
                *ARRAY_ADD(m[k].codes, m[k].n, m[k].room) =
                    is_hash ? UINT64_C(0xabcd) << 48 | rnd(20000) : UINT64_C(7) << 16 | rnd(65536);
            settle(&m[k]);
            set_chunk_append(m[k].codes, m[k].n, &chunk[k]);
        }
        char id[SET_CHUNK_ID];
        set_chunk_id(m[0].codes[0], id);
        struct bytes i = bytes_of(id, sizeof id);
        struct model u = union_of(m, 2);
        set_chunk_append_union(i, buf_bytes(&chunk[0]), buf_bytes(&chunk[1]), &both);
        set_chunk_append(u.codes, u.n, &expected);
        assert_true(bytes_equal(buf_bytes(&both), buf_bytes(&expected)));
        for (size_t k = 0; k < u.n; k += 7)
            assert_true(set_chunk_has(i, buf_bytes(&both), u.codes[k]));
        for (uint64_t code = u.codes[0]; code < u.codes[0] + 99 && (code >> 16) == (u.codes[0] >> 16); code++)
            assert_int_equal(set_chunk_has(i, buf_bytes(&both), code), has(&u, code));
        set_chunk_append_without(i, buf_bytes(&both), u.codes[0], &less);
        buf_clear(&expected);
        if (u.n > 1)
            set_chunk_append(u.codes + 1, u.n - 1, &expected);
        assert_true(bytes_equal(buf_bytes(&less), buf_bytes(&expected)));
        for (int k = 0; k < 2; k++) {
            free(m[k].codes);
            buf_free(&chunk[k]);
        }
        free(u.codes);
        buf_free(&both);
        buf_free(&expected);
        buf_free(&less);
    }
}

static void test_other_bytes_are_no_chunk(void **unused)
{
    (void)unused;
    static const char numbers[] = {0, 0, 7}, hashes[] = {1, 0, 0};
    struct bytes n = bytes_of(numbers, 3), h = bytes_of(hashes, 3);
    static const uint16_t list[] = {3, 3, 2};
    static const uint64_t codes[] = {UINT64_C(1) << 32, 5, UINT64_C(1) << 48};
    static char bitmap[SET_CHUNK_BITMAP];
    assert_true(set_chunk_check(n, bytes_of(list, 2)));
    assert_false(set_chunk_check(n, bytes_of(list, 0)));
    assert_false(set_chunk_check(n, bytes_of(list, 1)));
    assert_false(set_chunk_check(n, bytes_of(list, 4)));     /* twice the same */
    assert_false(set_chunk_check(n, bytes_of(list + 1, 4))); /* descending */
    assert_false(
        set_chunk_check(n, bytes_of(bitmap, sizeof bitmap))); /* a bitmap with less than 4,096 bits */
    memset(bitmap, 0xff, 512);
    assert_true(set_chunk_check(n, bytes_of(bitmap, sizeof bitmap)));
    bitmap[0] = 0;
    assert_false(set_chunk_check(n, bytes_of(bitmap, sizeof bitmap)));
    assert_true(set_chunk_check(h, bytes_of(codes, 8)));
    assert_false(set_chunk_check(h, bytes_of(codes + 1, 8))); /* a number */
    assert_false(set_chunk_check(h, bytes_of(codes + 2, 8))); /* of another chunk */
    assert_false(set_chunk_check(bytes_of("\2\0\0", 3), bytes_of(codes, 8)));
    assert_false(set_chunk_check(bytes_of("\0\0", 2), bytes_of(list, 2)));
}

static uint64_t model_cohort(const struct model *sets, const enum set_role *roles, size_t n)
{
    struct model all = union_of(sets, n);
    uint64_t found = 0;
    bool has_any = false;
    for (size_t k = 0; k < n; k++)
        has_any = has_any || roles[k] == SET_ANY;
    for (size_t i = 0; i < all.n; i++) {
        bool in_all = true, in_any = !has_any, in_not = false;
        for (size_t k = 0; k < n; k++) {
            bool is_in = has(&sets[k], all.codes[i]);
            in_all = in_all && (roles[k] != SET_ALL || is_in);
            in_any = in_any || (roles[k] == SET_ANY && is_in);
            in_not = in_not || (roles[k] == SET_NOT && is_in);
        }
        found += in_all && in_any && !in_not;
    }
    free(all.codes);
    return found;
}

#define SETS 12

static void test_algebra(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        struct model m[SETS], operand_models[SETS];
        struct set *s[SETS];
        struct set_view v[SETS];
        struct set_operand operands[SETS];
        enum set_role roles[SETS];
        size_t n = 1 + rnd(SETS), k = 0, n_operands = 0;
        for (size_t i = 0; i < n; i++) {
            m[i] = random_model(1 + rnd(round % 10 ? 300 : 30000));
            s[i] = set_of(&m[i]);
            v[i] = set_view_of(s[i]);
        }
        struct model u = union_of(m, n);
        assert_int_equal(set_union_size(v, n), u.n);
        while (k < n) {
            size_t views = 1 + rnd(n - k);
            roles[n_operands] = n_operands == 0 ? SET_ALL + (enum set_role)rnd(2) : (enum set_role)rnd(3);
            operand_models[n_operands] = union_of(m + k, views);
            operands[n_operands] = (struct set_operand){roles[n_operands], v + k, views};
            n_operands++;
            k += views;
        }
        assert_int_equal(
            set_cohort_size(operands, n_operands), model_cohort(operand_models, roles, n_operands));
        for (size_t i = 0; i < n_operands; i++)
            free(operand_models[i].codes);
        for (size_t i = 0; i < n; i++) {
            free(m[i].codes);
            set_free(&s[i]);
        }
        free(u.codes);
    }
    assert_int_equal(set_union_size(NULL, 0), 0);
}

/* A client can choose hashes that lie close together. */
static void test_close_hashes_are_counted(void **unused)
{
    (void)unused;
    struct set *a = set_new(), *b = set_new();
    for (uint64_t i = 0; i < 100000; i++)
        set_add(i % 2 ? a : b, (UINT64_C(5) << 40) + i * 8);
    struct set_view v[2] = {set_view_of(a), set_view_of(b)};
    assert_int_equal(set_union_size(v, 2), 100000);
    set_free(&a);
    set_free(&b);
}

static void count_visit(void *arg, uint64_t groups)
{
    uint64_t *n = arg;
    n[groups == UINT64_MAX]++;
}

/* Many sets with the same close hashes take no more memory than one of them. */
static void test_close_hashes_in_many_sets_take_bounded_memory(void **unused)
{
    (void)unused;
    enum { VIEWS = 128, HASHES = 300000, MEGABYTES = 400 };
    struct set *s = set_new();
    struct rusage before, after;
    struct set_view v[VIEWS];
    uint32_t group_of[VIEWS];
    uint64_t n[2] = {0, 0};
    for (uint64_t i = 0; i < HASHES; i++)
        set_add(s, (UINT64_C(5) << 40) + i * 8);
    for (uint32_t i = 0; i < VIEWS; i++) {
        v[i] = set_view_of(s);
        group_of[i] = i % 64;
    }
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(set_union_size(v, VIEWS), HASHES);
    set_visit_hashes(v, group_of, VIEWS, count_visit, n);
    assert_int_equal(n[0], 0);
    assert_int_equal(n[1], HASHES);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < MEGABYTES * 1024);
    set_free(&s);
}

static void test_adding_a_view(void **unused)
{
    (void)unused;
    struct model m[2] = {random_model(5000), random_model(5000)};
    struct set *s = set_of(&m[0]), *other = set_of(&m[1]);
    struct set_view v = set_view_of(other);
    set_add_view(s, &v);
    struct model u = union_of(m, 2);
    v = set_view_of(s);
    assert_equal(&v, &u);
    assert_false(set_view_has(&v, hash_code(123456789)));
    set_free(&s);
    set_free(&other);
    for (int i = 0; i < 2; i++)
        free(m[i].codes);
    free(u.codes);
}

struct file {
    char *bytes; /* at a page */
    size_t n, room;
};

static int append(void *arg, struct bytes piece)
{
    struct file *f = arg;
    assert_true(f->n + piece.len <= f->room);
    memcpy(f->bytes + f->n, piece.ptr, piece.len);
    f->n += piece.len;
    return 0;
}

static const char *const keys[] = {"v.u|a!x.c41", "v.u|a.c4", "v.u|a.c41", "v.u|b.c41"};
#define KEYS 4

static struct file make_file(struct model *m)
{
    struct file f = {.room = 8 << 20};
    f.bytes = aligned_alloc(4096, f.room);
    struct sets_writer *w = sets_writer_new(append, &f);
    uint64_t positions[KEYS];
    for (size_t i = KEYS; i-- > 0;) { /* not in the order of the index */
        m[i] = random_model(i == 0 ? 4 : 20000);
        struct set *s = set_of(&m[i]);
        struct set_view v = set_view_of(s);
        assert_int_equal(sets_writer_add(w, bytes_str(keys[i]), &v, &positions[i]), 0);
        set_free(&s);
    }
    for (size_t i = 0; i < KEYS; i++)
        sets_writer_index(w, positions[i]);
    assert_int_equal(sets_writer_finish(w), 0);
    assert_int_equal(sets_writer_count(w), KEYS);
    sets_writer_free(&w);
    return f;
}

static void test_file(void **unused)
{
    (void)unused;
    struct model m[KEYS];
    struct error error;
    struct file bytes = make_file(m);
    struct sets_file *f;
    assert_int_equal(sets_file_open(bytes_of(bytes.bytes, bytes.n), "sets", &f, &error), SETS_OK);
    assert_int_equal(sets_file_count(f), KEYS);
    for (size_t i = 0; i < KEYS; i++) {
        struct set_opened o;
        assert_int_equal(sets_file_find(f, bytes_str(keys[i]), &o, &error), SETS_OK);
        assert_equal(&o.view, &m[i]);
        set_opened_close(&o);
        assert_int_equal(sets_file_view(f, i, &o, &error), SETS_OK);
        assert_true(bytes_equal_str(o.key, keys[i]));
        assert_equal(&o.view, &m[i]);
        set_opened_close(&o);
    }
    static const char *const absent[] = {"", "v", "v.u|a", "v.u|a.c42", "v.u|a!", "z"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        struct set_opened o;
        assert_int_equal(sets_file_find(f, bytes_str(absent[i]), &o, &error), SETS_ABSENT);
    }
    uint64_t next = 0, scrubbed = 0;
    do {
        uint64_t from = next;
        assert_int_equal(sets_file_scrub(f, &next, 1000, &error), SETS_OK);
        scrubbed += (next ? next : KEYS) - from;
    } while (next > 0);
    assert_int_equal(scrubbed, KEYS);
    sets_file_free(&f);
    for (size_t i = 0; i < KEYS; i++)
        free(m[i].codes);
    free(bytes.bytes);
}

/* Any changed byte, and any truncation, is an error or lies in the padding: no number changes. */
static void test_damage_is_named(void **unused)
{
    (void)unused;
    struct model m[KEYS];
    struct error error;
    struct file bytes = make_file(m);
    unsigned refused = 0, tries = 600;
    for (unsigned t = 0; t < tries; t++) {
        size_t at = t % 3 == 0 ? bytes.n - 1 - rnd(100) : rnd(bytes.n), n = bytes.n;
        char old = bytes.bytes[at];
        bytes.bytes[at] ^= (char)(1 << rnd(8));
        bool is_damaged = false;
        if (t % 10 == 9)
            n = rnd(bytes.n);
        struct sets_file *f;
        error.text[0] = '\0';
        enum sets_file_result r = sets_file_open(bytes_of(bytes.bytes, n), "the file", &f, &error);
        is_damaged = r != SETS_OK;
        for (size_t i = 0; r == SETS_OK && i < KEYS; i++) {
            struct set_opened o;
            enum sets_file_result found = sets_file_find(f, bytes_str(keys[i]), &o, &error);
            is_damaged = is_damaged || found != SETS_OK; /* with a damaged key, other keys may be absent */
            if (found == SETS_OK)
                assert_equal(&o.view, &m[i]);
            set_opened_close(&o);
        }
        if (is_damaged && error.text[0])
            assert_non_null(strstr(error.text, "the file: "));
        refused += is_damaged;
        sets_file_free(&f);
        bytes.bytes[at] = old;
    }
    assert_true(refused > tries * 9 / 10);
    for (size_t i = 0; i < KEYS; i++)
        free(m[i].codes);
    free(bytes.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_a_stored_code_never_changes),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunk_unions),
        cmocka_unit_test(test_other_bytes_are_no_chunk),
        cmocka_unit_test(test_algebra),
        cmocka_unit_test(test_close_hashes_are_counted),
        cmocka_unit_test(test_close_hashes_in_many_sets_take_bounded_memory),
        cmocka_unit_test(test_adding_a_view),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_damage_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
