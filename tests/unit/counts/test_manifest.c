/* manifest: what is printed is parsed; what is no manifest is refused by name; which generation is in force. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "counts/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct error error;

static struct manifest sample(void)
{
    static struct manifest_stream streams[] = {{"clicks", "0123456789abcdef0123456789abcdef", 1ull << 60}};
    static struct manifest_file files[] = {
        {"shard-0-of-2.csv", 3, 99, 0xabc}, {"shard-1-of-2.csv", 0, 0, UINT64_MAX}};
    static struct manifest_file texts[] = {
        {"texts-0-of-2.csv", 1, 33, 0xdef}, {"texts-1-of-2.csv", 0, 0, 0x123}};
    static struct manifest_file set_texts[] = {{"sets-0-of-2.csv", 2, 44, 0x55}, {"", 0, 0, 0}};
    static struct manifest_file sets[] = {{"shard-0-of-2.sets", 1, 144, 0x66}, {"", 0, 0, 0}};
    static struct manifest_import imports[] = {{"2012 \"old\".csv", 5, 55, 0x456}};
    static char counters[] = "total u key = l\n\"quoted\"\n", retired[] = "total h key = host(u)\n";
    return (struct manifest){.generation = 7,
        .through = 12,
        .until = 1353283190,
        .made = 1353283200,
        .counters = counters,
        .retired = retired,
        .shards = 2,
        .files = files,
        .texts = texts,
        .set_texts = set_texts,
        .sets = sets,
        .hours_from = 1330560000,
        .imports = imports,
        .n_imports = 1,
        .streams = streams,
        .n_streams = 1,
        .recounted = {.content = 0x789, .made = 1353283100, .streams = streams, .n_streams = 1}};
}

static void what_is_printed_is_parsed(void **state)
{
    (void)state;
    struct manifest m = sample(), got;
    struct buf text = {0}, again = {0};
    counted_since_follow(
        &m.since, "total h key = h\n", "total u key = l\nsubtotal c.u key = c\n", 1353280000);
    coarse_add(&m.coarse, bytes_str("u"), COARSE_DAY, &(struct coarse_span){1353196800, 1353283200, "UTC"});
    coarse_add(&m.coarse, bytes_str("c.u"), COARSE_MONTH, &(struct coarse_span){1351728000, 1354320000, ""});
    value_sums_at(&m.sums, bytes_str("revenue"))->sum = VALUE_SUM_MAX;
    value_sums_at(&m.sums, bytes_str("cost"));
    manifest_print(&m, &text);
    value_sums_free(&m.sums);
    counted_since_free(&m.since);
    coarse_free(&m.coarse);
    assert_int_equal(manifest_parse(buf_bytes(&text), &got, &error), MANIFEST_OK);
    manifest_print(&got, &again);
    assert_true(bytes_equal(buf_bytes(&text), buf_bytes(&again)));
    assert_int_equal(got.until, 1353283190);
    assert_int_equal(got.streams[0].end, 1ull << 60);
    assert_int_equal(got.files[1].xxh3, UINT64_MAX);
    assert_int_equal(got.texts[0].bytes, 33);
    assert_int_equal(got.hours_from, 1330560000);
    assert_int_equal(got.n_imports, 1);
    assert_string_equal(got.imports[0].name, m.imports[0].name);
    assert_int_equal(got.imports[0].xxh3, 0x456);
    assert_int_equal(got.since.n, 2);
    assert_int_equal(counted_since_of(&got.since, bytes_str("c.u")), 1353280000);
    assert_int_equal(coarse_of(&got.coarse, bytes_str("c.u")).of[COARSE_MONTH].to, 1354320000);
    assert_string_equal(coarse_of(&got.coarse, bytes_str("u")).of[COARSE_DAY].zone, "UTC");
    assert_int_equal(got.sums.n, 2);
    assert_true(value_sums_find(&got.sums, bytes_str("c.revenue"))->sum == VALUE_SUM_MAX);
    assert_int_equal(got.sums.list[0].sum, 0);
    assert_int_equal(got.recounted.content, 0x789);
    assert_int_equal(got.recounted.made, 1353283100);
    assert_string_equal(got.recounted.streams[0].name, "clicks");
    assert_int_equal(got.recounted.streams[0].end, 1ull << 60);
    assert_string_equal(got.counters, m.counters);
    assert_string_equal(got.retired, m.retired);
    assert_true(manifest_content(&got) == manifest_content(&m));
    got.files[0].xxh3++;
    assert_false(manifest_content(&got) == manifest_content(&m));
    got.files[0].xxh3--;
    assert_true(manifest_has_sets(&got, 0));
    assert_false(manifest_has_sets(&got, 1));
    assert_int_equal(got.sets[0].bytes, 144);
    got.sets[0].xxh3++;
    assert_false(manifest_content(&got) == manifest_content(&m));
    manifest_free(&got);
    buf_free(&text);
    buf_free(&again);
}

/* The sample's text with `from` replaced by `to` must be refused. */
static enum manifest_result changed(const char *from, const char *to)
{
    struct manifest m = sample(), got;
    struct buf text = {0}, out = {0};
    manifest_print(&m, &text);
    buf_append_char(&text, '\0');
    char *at = strstr(text.ptr, from);
    assert_non_null(at);
    buf_append(&out, text.ptr, (size_t)(at - text.ptr));
    buf_append_str(&out, to);
    buf_append_str(&out, at + strlen(from));
    enum manifest_result r = manifest_parse(buf_bytes(&out), &got, &error);
    manifest_free(&got);
    buf_free(&text);
    buf_free(&out);
    return r;
}

static void what_is_no_manifest_is_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"{\"format\"", "\"format\""}, {"\"format\":5", "\"format\":-1"},
        {"\"generation\":7", "\"generation\":-7"}, {"\"through\":12", "\"through\":1.5"},
        {"\"until\":", "\"untie\":"}, {"\"made\":", "\"mode\":"}, {"\"shards\":2", "\"shards\":0"},
        {"\"shards\":2", "\"shards\":3"}, {"\"shards\":2", "\"shards\":99999999"},
        {"shard-1-of-2.csv", "shard-0-of-2.csv"}, {"shard-1-of-2.csv", "../shard-1-of-2.csv"},
        {"0000000000000abc", "0000000000000ABC"}, {"0000000000000abc", "abc"},
        {"\"records\":3", "\"records\":\"x\""}, {"\"clicks\"", "\"../x\""},
        {"\"counters\":\"", "\"kounters\":\""}, {"\"retired\":\"total h", "\"retired\":7,\"x\":\""},
        {"texts-1-of-2.csv", "shard-1-of-2.csv"}, {"\"texts\":[", "\"texts\":[],\"x\":["},
        {"\"files\":[", "\"files\":{\"a\":1,\"b\":2},\"files\":["}, {"\"hours_from\":1", "\"hours_from\":-1"},
        {"\"records\":5", "\"records\":-5"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(changed(bad[i][0], bad[i][1]), MANIFEST_BAD);
    assert_int_equal(changed("\"format\":5", "\"format\":2"), MANIFEST_VERSION);
    assert_int_equal(changed("\"made\"", "\"later\":[1],\"made\""), MANIFEST_OK);
    assert_int_equal(changed("\"made\"", "\"sums\":{\"r\":\"9223372036854775807\"},\"made\""), MANIFEST_OK);
    assert_int_equal(changed("\"made\"", "\"sums\":{\"r\":\"9223372036854775808\"},\"made\""), MANIFEST_BAD);
    assert_int_equal(changed("\"made\"", "\"sums\":{\"r\":-1},\"made\""), MANIFEST_BAD);
    assert_int_equal(changed("\"made\"", "\"sums\":{\"../r\":\"1\"},\"made\""), MANIFEST_BAD);
    assert_int_equal(changed("\"retired\"", "\"unknown\""), MANIFEST_BAD);
}

static void files_have_names(void **state)
{
    (void)state;
    char name[MANIFEST_NAME_TEXT];
    manifest_file_name(MANIFEST_TEXTS, 1, 4, name);
    assert_string_equal(name, "texts-1-of-4.csv");
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void the_generation_in_force_is_what_current_names(void **state)
{
    (void)state;
    char dir[100], path[128], file[160];
    struct manifest m = sample(), got;
    struct buf text = {0};
    uint64_t generation;
    make_test_dir(dir, sizeof dir);
    assert_int_equal(manifest_read_current(dir, &got, &error), MANIFEST_ABSENT);
    snprintf(path, sizeof path, "%s/current", dir);
    assert_int_equal(symlink("000000000007", path), 0);
    assert_int_equal(manifest_current(dir, &generation, &error), MANIFEST_OK);
    assert_int_equal(generation, 7);
    assert_int_equal(manifest_read_current(dir, &got, &error), MANIFEST_BAD);
    snprintf(path, sizeof path, "%s/000000000007", dir);
    mkdir(path, 0777);
    manifest_print(&m, &text);
    buf_append_char(&text, '\0');
    snprintf(file, sizeof file, "%s/manifest.json", path);
    write_file(file, text.ptr);
    assert_int_equal(manifest_read_current(dir, &got, &error), MANIFEST_OK);
    manifest_free(&got);
    char *number = strstr(text.ptr, "\"generation\":7");
    number[strlen("\"generation\":")] = '8';
    write_file(file, text.ptr);
    assert_int_equal(manifest_read_current(dir, &got, &error), MANIFEST_BAD);
    assert_int_equal(strncmp(error.text, file, strlen(file)), 0);
    write_file(file, "{");
    assert_int_equal(manifest_read_current(dir, &got, &error), MANIFEST_BAD);
    assert_int_equal(strncmp(error.text, file, strlen(file)), 0);
    unlink(file);
    rmdir(path);
    snprintf(path, sizeof path, "%s/current", dir);
    unlink(path);
    assert_int_equal(symlink("7", path), 0);
    assert_int_equal(manifest_current(dir, &generation, &error), MANIFEST_BAD);
    unlink(path);
    rmdir(dir);
    buf_free(&text);
}

/* The least processor time of some attempts to parse a manifest of n imports, in nanoseconds. */
static int64_t time_to_parse(size_t n)
{
    struct manifest m = {.generation = 1, .shards = 1, .n_imports = n}, got;
    struct buf text = {0};
    int64_t least = INT64_MAX;
    m.files = mem_zalloc(sizeof(*m.files));
    m.texts = mem_zalloc(sizeof(*m.texts));
    manifest_file_name(MANIFEST_RECORDS, 0, 1, m.files[0].name);
    manifest_file_name(MANIFEST_TEXTS, 0, 1, m.texts[0].name);
    m.counters = mem_strdup("");
    m.retired = mem_strdup("");
    m.imports = mem_zalloc(n * sizeof(*m.imports));
    for (size_t i = 0; i < n; i++)
        snprintf(m.imports[i].name, sizeof(m.imports[i].name), "file-%zu.csv", i);
    manifest_print(&m, &text);
    for (int i = 0; i < 5; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        assert_int_equal(manifest_parse(buf_bytes(&text), &got, &error), MANIFEST_OK);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        assert_int_equal(got.n_imports, n);
        assert_string_equal(got.imports[n - 1].name, m.imports[n - 1].name);
        manifest_free(&got);
        int64_t took = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
        least = took < least ? took : least;
    }
    manifest_free(&m);
    buf_free(&text);
    return least;
}

static void many_imports_take_time_in_proportion(void **state)
{
    (void)state;
    int64_t few = time_to_parse(1000), many = time_to_parse(30000); /* 30 times as long, not 900 times */
    print_message("1,000 imports: %lld us, 30,000: %lld us\n", (long long)few / 1000, (long long)many / 1000);
    assert_true(many < 300 * few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_imports_take_time_in_proportion),
        cmocka_unit_test(what_is_printed_is_parsed),
        cmocka_unit_test(what_is_no_manifest_is_refused),
        cmocka_unit_test(files_have_names),
        cmocka_unit_test(the_generation_in_force_is_what_current_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
