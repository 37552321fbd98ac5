/* The counts of one day in a total's value, beside a reader that takes the value apart word by word. */
#include "support/cm.h"

#include "api/day_counts.h"
#include <stdio.h>
#include <stdlib.h>

#define HOURS "0123456789abcdefghijklmn"

static uint64_t state64 = 88172645463325252; /* of xorshift */

static unsigned at_random(unsigned n)
{
    state64 ^= state64 << 13;
    state64 ^= state64 >> 7;
    state64 ^= state64 << 17;
    return (unsigned)(state64 % n);
}

/* The length of the first count if it is to be taken, or 0. */
static size_t model_one(const struct day_counts *d, const char *text, int64_t *n)
{
    size_t word = strcspn(text, " ");
    if (word < d->len + 3 || strncmp(text, d->day, d->len) != 0 || text[d->len + 1] != ':')
        return 0;
    const char *number = text + d->len + 2;
    size_t sign = *number == '-', digits = word - d->len - 2 - sign;
    if (digits == 0 || digits > 15 || strspn(number + sign, "0123456789") != digits)
        return 0;
    const char *hour = strchr(HOURS, text[d->len]);
    if (!hour || hour < strchr(HOURS, d->first) || hour > strchr(HOURS, d->last))
        return 0;
    *n = strtoll(number, NULL, 10);
    return text[word] && !text[word + 1] ? 0 : word + (text[word] == ' ');
}

static void compare(const struct day_counts *d, const char *text)
{
    int64_t sum = 7, n, expected = 7;
    char latest = '\0';
    const char *at = text;
    for (size_t len; *at && (len = model_one(d, at, &n)) > 0; at += len) {
        latest = at[d->len];
        expected += n;
    }
    /* A copy of that size shows reads behind the end to the sanitizer. */
    char *copy = mem_alloc(*text ? strlen(text) : 1);
    memcpy(copy, text, strlen(text));
    struct bytes value = bytes_of(copy, strlen(text));
    char got = day_counts_take(d, &value, &sum);
    if (got != latest || sum != expected || value.ptr != copy + (at - text))
        fail_msg("%.*s %c..%c of \"%s\": %d %lld at %td, not %d %lld at %td", (int)d->len, d->day, d->first,
            d->last, text, got, (long long)sum, value.ptr - copy, latest, (long long)expected, at - text);
    assert_int_equal(value.len, strlen(at));
    free(copy);
}

static void append_value(struct buf *b, const char *day)
{
    static const char *const other_days[] = {"c42", "c4", "b41", "wc41", "xc41", "c4l"};
    unsigned counts = at_random(60), most = 1 + at_random(17), hour = at_random(12);
    for (unsigned i = 0; i < counts; i++, hour += 1 + at_random(2)) {
        buf_append_str(b, i ? " " : "");
        buf_append_str(b, hour >= 24 || at_random(40) == 0 ? other_days[at_random(6)] : day);
        buf_append_char(b, HOURS[hour % 24]);
        buf_append_str(b, at_random(5) == 0 ? ":-" : ":");
        for (unsigned digits = 1 + at_random(most); digits > 0; digits--)
            buf_append_char(b, (char)('0' + at_random(10)));
    }
    if (b->len > 0 && at_random(3) == 0)
        b->ptr[at_random((unsigned)b->len)] = " :0,az9~\x81o/-"[at_random(12)];
    buf_append_char(b, '\0');
}

static void the_counts_are_those_of_a_word_by_word_reader(void **state)
{
    (void)state;
    for (int i = 0; i < 60000; i++) {
        unsigned first = at_random(24), last = first + at_random(24 - first);
        bool is_late = at_random(4) == 0;
        struct day_counts d = {.len = is_late ? 4 : 3, .first = HOURS[first], .last = HOURS[last]};
        struct buf b = {0};
        memcpy(d.day, is_late ? "wc41" : "c41", d.len);
        if (at_random(2)) {
            d.first = '0';
            d.last = 'n';
        }
        append_value(&b, is_late ? "wc41" : "c41");
        compare(&d, b.ptr);
        buf_free(&b);
    }
}

static void a_day_of_hours_is_added_up(void **state)
{
    (void)state;
    struct day_counts d = {.day = "c41", .len = 3, .first = '0', .last = 'n'};
    struct buf b = {0};
    for (int hour = 0; hour < 24; hour++)
        buf_printf(&b, "c41%c:%d ", HOURS[hour], 1 + hour);
    buf_append_str(&b, "c420:5");
    struct bytes value = buf_bytes(&b);
    int64_t sum = 0;
    assert_int_equal(day_counts_take(&d, &value, &sum), 'n');
    assert_int_equal(sum, 300);
    assert_true(bytes_equal_str(value, "c420:5"));
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counts_are_those_of_a_word_by_word_reader),
        cmocka_unit_test(a_day_of_hours_is_added_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
