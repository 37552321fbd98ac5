/* Searches through an index against a walk over every line; an index of a text that changes. */
#include "support/build_index.h"
#include "support/cm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page;

struct text {
    struct buf bytes;
    size_t *lines; /* the starts, then the end of the text */
    size_t n;
};

static void text_free(struct text *t)
{
    buf_free(&t->bytes);
    free(t->lines);
    *t = (struct text){0};
}

static int compare_strings(const void *a, const void *b)
{
    const struct bytes *x = a, *y = b;
    return bytes_compare(*x, *y);
}

/* How the lines of a text are made. */
struct shape {
    size_t lines, alphabet, key_max, value_max;
    size_t long_each; /* one line in so many has a value of up to long_max bytes; 0: none */
    size_t long_max;
    const char *stem; /* of most keys */
    bool is_cut;      /* no LF at the end */
};

static struct bytes random_line(unsigned *seed, const struct shape *shape)
{
    static const char letters[] = "ab,!+-.|c\x01\t\x7f\x80\xff";
    struct buf line = {0};
    if (rand_r(seed) % 8)
        buf_append_str(&line, shape->stem);
    for (size_t n = (size_t)rand_r(seed) % (shape->key_max + 1); n > 0; n--)
        buf_append_char(&line, letters[(size_t)rand_r(seed) % shape->alphabet]);
    buf_append_char(&line, ',');
    bool is_long = shape->long_each && (size_t)rand_r(seed) % shape->long_each == 0;
    size_t max = is_long ? shape->long_max : shape->value_max;
    for (size_t n = (size_t)rand_r(seed) % (max + 1); n > 0; n--)
        buf_append_char(&line, letters[(size_t)rand_r(seed) % 3]);
    return buf_bytes(&line);
}

static struct text make_text(unsigned *seed, const struct shape *shape)
{
    struct text t = {.n = shape->lines};
    struct bytes *lines = mem_alloc((shape->lines + 1) * sizeof(*lines));
    t.lines = mem_alloc((shape->lines + 1) * sizeof(*t.lines));
    for (size_t i = 0; i < shape->lines; i++)
        lines[i] = random_line(seed, shape);
    qsort(lines, shape->lines, sizeof(*lines), compare_strings);
    for (size_t i = 0; i < shape->lines; i++) {
        t.lines[i] = t.bytes.len;
        buf_append_bytes(&t.bytes, lines[i]);
        if (i + 1 < shape->lines || !shape->is_cut)
            buf_append_char(&t.bytes, '\n');
        free((char *)(uintptr_t)lines[i].ptr);
    }
    t.lines[t.n] = t.bytes.len;
    free(lines);
    return t;
}

static bool line_is_before(struct bytes line, const struct sorted_target *target)
{
    struct buf whole = {0};
    buf_append_bytes(&whole, target->key);
    if (target->end != SORTED_NO_END)
        buf_append_char(&whole, (char)target->end);
    bool starts = bytes_starts_with(line, buf_bytes(&whole));
    bool is_before = starts ? target->is_past : bytes_compare(line, buf_bytes(&whole)) < 0;
    buf_free(&whole);
    return is_before;
}

static struct bytes line_of(const struct text *t, size_t i)
{
    struct bytes line = bytes_of(t->bytes.ptr + t->lines[i], t->lines[i + 1] - t->lines[i]);
    line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
    return line;
}

static size_t walk(const struct text *t, const struct sorted_target *target)
{
    size_t low = 0, high = t->n;
    while (low < high) { /* the whole walk in fewer steps: the lines are sorted */
        size_t middle = (low + high) / 2;
        if (line_is_before(line_of(t, middle), target))
            low = middle + 1;
        else
            high = middle;
    }
    return t->lines[low];
}

/* A line's beginning up to anywhere, perhaps with another byte behind. No LF. */
static void random_target(unsigned *seed, const struct text *t, struct buf *space, struct sorted_target *out)
{
    struct bytes line = t->n ? line_of(t, (size_t)rand_r(seed) % t->n) : BYTES_NONE;
    size_t comma = line.len ? (size_t)((const char *)memchr(line.ptr, ',', line.len) - line.ptr) : 0;
    size_t n = rand_r(seed) % 2 ? comma : (size_t)rand_r(seed) % (comma + 1);
    buf_clear(space);
    buf_append(space, line.ptr, n);
    if (rand_r(seed) % 4 == 0)
        buf_append_char(space, "\x01!+-b\xff"[rand_r(seed) % 6]);
    *out = (struct sorted_target){buf_bytes(space), rand_r(seed) % 3 ? ',' : SORTED_NO_END, rand_r(seed) % 2};
}

static const struct shape shapes[] = {
    {.lines = 0, .alphabet = 3, .key_max = 3, .stem = ""},
    {.lines = 1, .alphabet = 3, .key_max = 3, .stem = "", .is_cut = true},
    {.lines = 12, .alphabet = 5, .key_max = 3, .value_max = 40, .stem = ""},
    {.lines = 600, .alphabet = 5, .key_max = 4, .value_max = 9, .stem = "a"}, /* many lines of one key */
    {.lines = 3000, .alphabet = 14, .key_max = 12, .value_max = 30, .stem = "c.u|user"},
    {.lines = 20000, .alphabet = 9, .key_max = 9, .value_max = 20, .stem = "c.u|user0001", .is_cut = true},
    {.lines = 900,
        .alphabet = 9,
        .key_max = 5,
        .value_max = 9,
        .long_each = 30,
        .long_max = 40000,
        .stem = "u|"},
    {.lines = 60,
        .alphabet = 2,
        .key_max = 300,
        .value_max = 600,
        .stem = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
    {.lines = 9,
        .alphabet = 3,
        .key_max = 2,
        .long_each = 1,
        .long_max = 200000,
        .stem = "k",
        .is_cut = true},
};

static void searches_agree_with_a_walk(void **state)
{
    unsigned seed = 3;
    struct buf space = {0};
    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        struct text t = make_text(&seed, &shapes[s]);
        struct sorted_index *index = build_index(buf_bytes(&t.bytes));
        for (int i = 0; i < 2000; i++) {
            struct sorted_target target;
            random_target(&seed, &t, &space, &target);
            assert_int_equal(sorted_index_seek(index, &target), walk(&t, &target));
        }
        for (size_t i = 0; i < t.n; i++)
            assert_int_equal(sorted_index_line_end(index, t.lines[i]), t.lines[i + 1]);
        sorted_index_free(&index);
        text_free(&t);
    }
    buf_free(&space);
}

static void an_index_grows_in_steps_of_any_size(void **state)
{
    static const size_t steps[] = {1, 3, 127, 128, 129, 255, 256, 257, 383, 384, 385, 1000, 65536};
    unsigned seed = 5;
    struct buf space = {0};
    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        struct text t = make_text(&seed, &shapes[s]);
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
            struct sorted_index *index = sorted_index_new(buf_bytes(&t.bytes));
            for (size_t at = 0; at < t.bytes.len;) {
                at = t.bytes.len - at < steps[i] ? t.bytes.len : at + steps[i];
                sorted_index_extend(index, at);
            }
            for (int n = 0; n < 100; n++) {
                struct sorted_target target;
                random_target(&seed, &t, &space, &target);
                assert_int_equal(sorted_index_seek(index, &target), walk(&t, &target));
            }
            for (size_t n = 0; n < t.n; n++)
                assert_int_equal(sorted_index_line_end(index, t.lines[n]), t.lines[n + 1]);
            sorted_index_free(&index);
        }
        text_free(&t);
    }
    buf_free(&space);
}

/* A text that changes under its index, and that ends at the end of the memory. */
static void a_changed_text_is_not_left(void **state)
{
    unsigned seed = 11;
    struct buf space = {0};
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t s = 2; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        struct text t = make_text(&seed, &shapes[s]);
        size_t room = (t.bytes.len + page - 1) / page * page;
        char *p = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(p != MAP_FAILED);
        assert_int_equal(mprotect(p + room, page, PROT_NONE), 0);
        char *at = p + room - t.bytes.len;
        struct bytes text = bytes_of(at, t.bytes.len);
        for (int round = 0; round < 20; round++) {
            memcpy(at, t.bytes.ptr, t.bytes.len);
            struct sorted_index *index = sorted_index_new(text);
            for (size_t half = 0; half < 2; half++) {
                for (size_t n = 0; n < text.len; n += 1 + (size_t)rand_r(&seed) % 20)
                    at[n] = "a\n\xff,"[rand_r(&seed) % 4];
                sorted_index_extend(index, half ? text.len : text.len / 2);
            }
            memcpy(at, t.bytes.ptr, round % 2 ? t.bytes.len : 0);
            for (int i = 0; i < 200; i++) {
                struct sorted_target target;
                random_target(&seed, &t, &space, &target);
                size_t found = sorted_index_seek(index, &target);
                assert_true(found <= text.len);
                size_t end = sorted_index_line_end(index, found);
                assert_true(found == text.len || (end > found && end <= text.len));
            }
            sorted_index_free(&index);
        }
        munmap(p, room + page);
        text_free(&t);
    }
    buf_free(&space);
}

static size_t touched;

static void on_touch(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    touched++;
    char *at = (char *)((uintptr_t)info->si_addr & ~(page - 1)); /* NOLINT(performance-no-int-to-ptr) */
    mprotect(at, page, PROT_READ);
}

/* The first page, the last one, the result's, perhaps the one behind; more where keys of the index are equal to the target's. */
static void a_search_reads_few_pages(void **state)
{
    struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO}, before;
    unsigned seed = 13;
    struct text t = make_text(&seed, &shapes[5]);
    struct buf space = {0};
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (t.bytes.len + page - 1) / page * page, sum = 0;
    char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED && room > 100 * page);
    memcpy(p, t.bytes.ptr, t.bytes.len);
    struct sorted_index *index = build_index(bytes_of(p, t.bytes.len));
    sigaction(SIGSEGV, &action, &before);
    for (int i = 0; i < 1000; i++) {
        struct sorted_target target;
        random_target(&seed, &t, &space, &target);
        mprotect(p, room, PROT_NONE);
        touched = 0;
        sorted_index_seek(index, &target);
        assert_in_range(touched, 0, 16);
        sum += touched;
    }
    sigaction(SIGSEGV, &before, NULL);
    assert_in_range(sum, 0, 8500);
    munmap(p, room);
    sorted_index_free(&index);
    text_free(&t);
    buf_free(&space);
}

/* The index lists it, so that its other pages are not read. */
static void the_end_of_a_long_line_is_known(void **state)
{
    struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO}, before;
    unsigned seed = 17;
    struct text t = make_text(&seed, &shapes[8]);
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (t.bytes.len + page - 1) / page * page, most = 0;
    char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memcpy(p, t.bytes.ptr, t.bytes.len);
    struct sorted_index *index = build_index(bytes_of(p, t.bytes.len));
    sigaction(SIGSEGV, &action, &before);
    for (size_t i = 0; i < t.n; i++) {
        mprotect(p, room, PROT_NONE);
        touched = 0;
        assert_int_equal(sorted_index_line_end(index, t.lines[i]), t.lines[i + 1]);
        assert_in_range(touched, 0, 2);
        most = t.lines[i + 1] - t.lines[i] > most ? t.lines[i + 1] - t.lines[i] : most;
    }
    sigaction(SIGSEGV, &before, NULL);
    assert_true(most > 10 * page);
    munmap(p, room);
    sorted_index_free(&index);
    text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(searches_agree_with_a_walk),
        cmocka_unit_test(a_search_reads_few_pages),
        cmocka_unit_test(the_end_of_a_long_line_is_known),
        cmocka_unit_test(an_index_grows_in_steps_of_any_size),
        cmocka_unit_test(a_changed_text_is_not_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
