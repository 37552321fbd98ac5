/* fuzz_seeds NAME DIR: writes inputs to DIR for the fuzz target NAME to begin with, made by the product's own writers where it has
 * some. A target that is not named here begins with nothing. */
#include "base/io.h"
#include "counts/count_run.h"
#include "counts/manifest.h"
#include "counts/records.h"
#include "filter/filter.h"
#include "pubsub/stream/cursor_file.h"
#include "sets/set_chunk.h"
#include "sets/sets_file.h"
#include "simplequeue/queue/queue_log.h"
#include "streams/archive/archive_state.h"
#include "support/fuzz_file.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *to;
static unsigned n_saved;

static void save(struct bytes seed)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/seed-%u", to, n_saved++);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(seed.ptr, 1, seed.len, file) != seed.len || fclose(file) != 0)
        abort();
}

static void save_file(const char *flags, const char *path)
{
    struct buf seed = {0};
    char bytes[4096];
    buf_append_str(&seed, flags);
    FILE *file = fopen(path, "r");
    for (size_t n; file && (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
        buf_append(&seed, bytes, n);
    if (!file || fclose(file) != 0)
        abort();
    save(buf_bytes(&seed));
    buf_free(&seed);
}

static void seed_archive_state(void)
{
    struct archive_state s = {
        .stream = "clicks", .cursor = {.id = "0123456789abcdef0123456789abcdef", .offset = 900}};
    char name[] = "/a/x", staged[] = "/a/.s/1";
    struct archive_file_state f = {
        .name = name, .staged = staged, .length = 90, .lines = 3, .first = 10, .end = 100};
    archive_state_write(fuzz_file(BYTES_NONE), &s);
    save_file("", fuzz_file(BYTES_NONE));
    archive_state_add(&s, &f);
    staged[6] = '2';
    f.finishing = true;
    strcpy(f.opening, "019add00c7ef0123456789ab");
    strcpy(s.cursor.opening, "019add0000ef0123456789ab");
    archive_state_add(&s, &f);
    const char *path = fuzz_file(BYTES_NONE);
    archive_state_write(path, &s);
    save_file("", path);
    archive_state_free(&s);
}

static void on_notify(void *arg)
{
    (void)arg;
}

static bool is_stored;

static void on_stored(struct cursor_put *put, bool ok)
{
    (void)put;
    is_stored = ok;
}

static void seed_cursor_file(void)
{
    struct cursor_file *f;
    const struct cursor_record r = {.stream = "clicks",
        .name = "aggregator",
        .id = "0123456789abcdef0123456789abcdef",
        .offset = 1 << 20};
    const char *path = fuzz_file(BYTES_NONE);
    unlink(path);
    if (cursor_file_open(path, 2, on_notify, NULL, &f, NULL) != CURSOR_FILE_OK)
        abort();
    for (int i = 0; i < 3; i++) {
        struct cursor_put put = {.done = on_stored};
        is_stored = false;
        cursor_file_put(f, i == 2, &r, &put);
        while (!is_stored) {
            poll(NULL, 0, 0);
            cursor_file_poll(f);
        }
    }
    cursor_file_close(&f);
    save_file("\x02", path);
    save_file("\x01", path);
}

/* A source of few records. */
struct made_source {
    struct count_source base;
    unsigned record, value, most;
    struct buf key, text;
    char id[SET_CHUNK_ID];
};

static enum count_next made_record(struct count_source *s)
{
    struct made_source *m = (struct made_source *)s;
    static const char *const keys[] = {"c.u|a.c413,", "lookup|h0aMB8AuNw4=,", "u|a,", "u|abc,", "v.u|a.c41,"};
    if (m->record == sizeof keys / sizeof *keys)
        return COUNT_END;
    s->key = bytes_str(keys[m->record++]);
    m->value = 0;
    return COUNT_FOUND;
}

/* A chunk of a set: of two numbers, of a bitmap, and of two hashes. */
static void make_chunk(struct made_source *m)
{
    static const uint64_t firsts[] = {7, 65536, UINT64_C(0xa1b2c3d4e5f60718)};
    uint64_t codes[5000], first = firsts[m->value++];
    size_t n = first == 65536 ? 5000 : 2;
    for (size_t i = 0; i < n; i++)
        codes[i] = first + i;
    set_chunk_id(first, m->id);
    set_chunk_append(codes, n, &m->text);
    m->base.name = bytes_of(m->id, sizeof m->id);
    m->base.text = buf_bytes(&m->text);
}

static enum count_next made_value(struct count_source *s)
{
    struct made_source *m = (struct made_source *)s;
    bool is_lookup = count_key_is_lookup(s->key);
    if (m->value == (is_lookup ? 1 : m->record == 4 ? m->most : 3))
        return COUNT_END;
    buf_clear(&m->text);
    if (m->record == 5) {
        make_chunk(m);
        return COUNT_FOUND;
    }
    buf_printf(&m->text, "c%04u", m->value++);
    s->name = buf_bytes(&m->text);
    s->text = is_lookup ? s->name : BYTES_NONE;
    s->count = m->value * (uint64_t)977;
    return COUNT_FOUND;
}

static void made_close(struct count_source *s)
{
    buf_free(&((struct made_source *)s)->text);
}

static int append_block(void *arg, uint32_t block, struct bytes data)
{
    (void)block;
    buf_append_char(arg, (char)data.len);
    buf_append_char(arg, (char)(data.len >> 8));
    buf_append_bytes(arg, data);
    return 0;
}

/* `most`: values of the last record. */
static void save_count_run(unsigned most)
{
    static const struct count_source_kind kind = {made_record, made_value, made_close, NULL};
    struct made_source made = {.base = {.kind = &kind}, .most = most};
    struct count_source *source = &made.base;
    struct count_merge *m = count_merge_new(&source, 1);
    struct buf blocks = {0}, index = {0}, seed = {0};
    struct count_run_writer *w = count_run_writer_new(7, append_block, &blocks);
    bool failed;
    while (count_run_writer_copy(w, m, 1 << 20, &failed) == COUNT_FOUND)
        ;
    if (failed || count_run_writer_finish(w, &index) != 0)
        abort();
    for (char flags = 0; flags < 2; flags++) {
        buf_clear(&seed);
        buf_append_char(&seed, flags);
        append_block(&seed, 0, buf_bytes(&index));
        buf_append_bytes(&seed, buf_bytes(&blocks));
        save(buf_bytes(&seed));
    }
    count_run_writer_free(&w);
    count_merge_free(&m);
    count_source_close(&source);
    buf_free(&blocks);
    buf_free(&index);
    buf_free(&seed);
}

static void seed_count_run(void)
{
    save_count_run(2);
    save_count_run(3000);
}

static void seed_line_source(void)
{
    /* "one\ntwo\nthe third, which is long\nlast", compressed with gzip and zstd */
    save(BYTES_LITERAL(
        "\x07\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\xcf\x4b\xe5\x2a\x29\xcf\xe7\x2a\xc9\x48"
        "\x55\x28\xc9\xc8\x2c\x4a\xd1\x51\x28\xcf\xc8\x4c\xce\x50\xc8\x2c\x56\xc8\xc9\xcf\x4b\xe7"
        "\xca\x49\x2c\x2e\x01\x00\x75\x4a\xaa\x1f\x25\x00\x00\x00"));
    save(BYTES_LITERAL("\x07\x28\xb5\x2f\xfd\x04\x58\x29\x01\x00one\ntwo\nthe third, which is long\nlast"
                       "\x18\x5f\x4e\x85"));
    save(BYTES_LITERAL("\x03one\ntwo\r\n\nthe fourth, which is long\nlast"));
}

static void seed_archived_file(void)
{
    save(BYTES_LITERAL(
        "{\"format\":2,\"file\":\"clicks.ndjson.zst\",\"stream\":\"clicks\",\"id\":\"62528bf0\",\"opening\":"
        "\"c7ef\","
        "\"first\":\"120000\",\"end\":\"123456\",\"lines\":12,\"bytes\":3456,\"stored_bytes\":100,"
        "\"xxh3\":\"0123456789abcdef\"}\n"));
}

static void seed_manifest(void)
{
    struct manifest_file files[2] = {
        {.records = 3, .bytes = 60, .xxh3 = 77}, {.records = 1, .bytes = 20, .xxh3 = 78}};
    struct manifest_file texts[2] = {
        {.records = 1, .bytes = 20, .xxh3 = 79}, {.records = 0, .bytes = 0, .xxh3 = 80}};
    struct manifest_import import = {.name = "2012.csv", .records = 1, .bytes = 20, .xxh3 = 81};
    struct manifest_stream stream = {.name = "clicks", .id = "0123456789abcdef0123456789abcdef", .end = 4096};
    char counters[] = "total u key = l\n", retired[] = "";
    struct manifest m = {.generation = 7,
        .through = 6,
        .made = 1332633600,
        .counters = counters,
        .retired = retired,
        .shards = 2,
        .files = files,
        .texts = texts,
        .streams = &stream,
        .n_streams = 1,
        .recounted = {.content = 9, .made = 1332630000, .streams = &stream, .n_streams = 1}};
    struct buf text = {0};
    for (uint32_t k = 0; k < m.shards; k++) {
        manifest_file_name(MANIFEST_RECORDS, k, m.shards, files[k].name);
        manifest_file_name(MANIFEST_TEXTS, k, m.shards, texts[k].name);
    }
    counted_since_follow(&m.since, "total h key = h\n", counters, 1332620000);
    manifest_print(&m, &text);
    save(buf_bytes(&text));
    buf_clear(&text);
    m.imports = &import;
    m.n_imports = 1;
    m.hours_from = 1332633600;
    manifest_print(&m, &text);
    save(buf_bytes(&text));
    counted_since_free(&m.since);
    buf_free(&text);
}

static void seed_queue_log(void)
{
    const struct bytes messages[] = {BYTES_LITERAL("one"), BYTES_LITERAL(""), BYTES_LITERAL("three")};
    const struct queue_record_item items[] = {{.ids = {4, 4},
                                                  .tries = 2,
                                                  .message = messages[0],
                                                  .kept = KEPT_BURIED,
                                                  .time = 9,
                                                  .reason = messages[2]},
        {.ids = {6, 6}, .tries = 1, .message = messages[2], .kept = KEPT_DELAYED, .time = 8},
        {.ids = {7, 7}, .message = messages[0]}};
    struct buf b = {0};
    for (int type = 0; type < 4; type++) {
        buf_clear(&b);
        switch (type) {
        case 0:
            queue_log_put(&b, 5, messages, 3);
            break;
        case 1:
            queue_log_put_late(&b, 5, messages, 3, 1000);
            break;
        case 2:
            queue_log_move(&b, 9, items, 3);
            break;
        case 3:
            queue_log_keep(&b, 9, items, 3);
            break;
        }
        for (int i = 0; i < 3; i++) {
            buf_append_bytes(&b, type < 2 ? messages[i] : items[i].message);
            if (type == 3)
                buf_append_bytes(&b, items[i].reason);
        }
        save(buf_bytes(&b));
    }
    buf_clear(&b);
    queue_log_open(&b, 9, 100, &(struct queue_openings){.at = {{1, "0136d2f3a000aaaaaaaaaaaa"}}, .n = 1});
    save(buf_bytes(&b));
    buf_free(&b);
}

static void seed_texts(const char *const *texts)
{
    for (; *texts; texts++)
        save(bytes_str(*texts));
}

/* A NUL in an input is a tab here. */
static void seed_pairs(const char *const *texts)
{
    for (; *texts; texts++) {
        char *copy = bytes_dup(bytes_str(*texts));
        size_t n = strlen(copy);
        *strchr(copy, '\t') = '\0';
        save(bytes_of(copy, n));
        free(copy);
    }
}

static void seed_config(void)
{
    static const char *const texts[] = {
        "[simplequeue]\nport = 8080 ; here\nmax_depth = 5\n[stream clicks]\nretain_bytes = 1G\n",
        "# none\n[pubsub]\naddress = unix:/run/p.sock\n[total u]\nkey = \"x\"\n", "1500ms", "64M", "7d",
        "never", "-5", "two", "1000", "1001", "24h", "1d", "1024G", "1T", NULL};
    seed_texts(texts);
}

static void seed_event_time(void)
{
    static const char *const texts[] = {"2012-03-16T18:40:47Z", "2012-02-29T23:59:60.5+01:00", "1331923247",
        "2159-12-31T23:59:59-00:30", "2159-12-31T23:29:60-00:30", "{\"t\":1331923247.5,\"x\":[]}",
        "\"t\": 1331923247", NULL};
    seed_texts(texts);
}

static void seed_http_reply(void)
{
    static const char *const texts[] = {"\x03 HTTP/1.1 200 OK\r\nX: v\r\nContent-Length: 3\r\n\r\nabc",
        "\x01!HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: t\r\n\r\n",
        "\x07!HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 503 No\r\nRetry-After: 1\r\n\r\nbody", NULL};
    static const char nul[] =
        "\x01!HTTP/1.1 200 OK\r\nX: \0v\r\nX\0: v\r\n\r\n"; /* once read behind the head */
    seed_texts(texts);
    save(bytes_of(nul, sizeof nul - 1));
}

static void seed_json_doc(void)
{
    static const char *const texts[] = {"/a/0/b\t{\"a\":[{\"b\":\"\\u00e9\"},1.5e3]}",
        "/n\t{\"n\":\"18446744073709551615\"}", "\t{\"a\":{},\"b\":[],\"\\ud83d\\ude00\":null}", NULL};
    seed_pairs(texts);
}

static void seed_publish(void)
{
    static const char *const texts[] = {"one\ntwo\n", "one\r\ntwo\r", "a\n\nb", NULL};
    seed_texts(texts);
}

static void seed_query(void)
{
    static const char *const texts[] = {
        "user=a&unit=day&units=7&unit_reference_ts=1332633600&timezone=America/New_York",
        "ns=c.u&key=a&from=1331923247&to=1332633600&hour_offset=-5&sub=US",
        "user=a&by=country&limit=5&format=csv", "ns=all&unit=mweek&week_start=monday",
        "ns=u&key=a&key=b&period=all", "user=a&user=b&partial=allow", "user=a&by=country&top=5",
        "user=a&by=country&sub=US&sub=JP&round=hour", "ns=u&key=%C3%A9&unit=month",
        "ns=u&key=a&from=1331923247&to=1331923247", NULL};
    seed_texts(texts);
}

static void seed_stream_statement(void)
{
    save(BYTES_LITERAL("1332633600.250000 42 1332633601.000000 web1 restored"));
    save(BYTES_LITERAL("0.000000 0 1332633601.000000"));
}

static void seed_text_pattern(void)
{
    static const char *const texts[] = {"^(a|b)+[^c]{2,5}$\tababxyz", "(?i)x*\\d+(?=y)\txx12y",
        "(.)\\1\taabb", "ab(?)\tab", "(?:a*)*b\taaaaaaaaaaaaaaaaaaaa", NULL};
    seed_pairs(texts);
}

static void seed_condition(void)
{
    static const char *const texts[] = {
        "status >= 500 and not (bot = true or path(u) ~ ^/a/)\t{\"status\":503,\"u\":\"/b\"}",
        "c not in (US, \"New York\", null, -1.5e3) or [\"a b\"].x[0] !~ \"\\\"x\"\t{\"c\":\"JP\"}",
        "query(u,page) != 2 and lower(h)<=\"7\" or a\t{\"u\":\"/?page=3\",\"h\":5.5}",
        "status_class(s)=4xx and host(u) ~ (a|b)$\t{\"s\":404,\"u\":\"http://a/\"}", NULL};
    seed_pairs(texts);
}

static int append_piece(void *arg, struct bytes piece)
{
    buf_append_bytes(arg, piece);
    return 0;
}

static void seed_sets_file(void)
{
    static const char *const keys[] = {"v.u|a.c4", "v.u|a.c41", "w.u|b.c41l"};
    struct buf file = {0};
    struct sets_writer *w = sets_writer_new(append_piece, &file);
    uint64_t position;
    for (uint64_t k = 0; k < 3; k++) {
        struct set *s = set_new();
        for (uint64_t i = 0; i < 5 + k * 5000; i++)
            set_add(s, k == 1 ? i << 33 : i * (k + 1));
        struct set_view v = set_view_of(s);
        sets_writer_add(w, bytes_str(keys[k]), &v, &position);
        sets_writer_index(w, position);
        set_free(&s);
    }
    sets_writer_finish(w);
    sets_writer_free(&w);
    save(buf_bytes(&file));
    buf_free(&file);
}

static void seed_record_check(void)
{
    static const char *const lines[] = {"u|jehiah,c413:2 c41l:5", "u|a,vcvn:1 w0110:18446744073709551615",
        "c.u|jehiah.c41l,JP:1 US:4", "c.u|jehiah.c4,JP:1 h0aMB8AuNw4=:30", "r.u|h0aMB8AuNw4=.c41,a!x:1 a:2",
        "lookup|h0aMB8AuNw4=,http://www.facebook.com/", "v.u|a.c41,=17 65536 ~a1b2c3d4e5f60718",
        "v.u|a.c41,@000000EQDMAA 01a1b2GAf25dTDsqE", "v.u|a.c41l,#8211", "c.u|a.c41l,#8211:3 =4:1"};
    struct buf line = {0}, text = {0};
    char hash[COMPONENT_HASH + 1];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        save(bytes_str(lines[i]));
    buf_append_str(&text, "a,b\\\x01");
    component_hash(buf_bytes(&text), hash);
    buf_printf(&line, "lookup|%s,", hash);
    lookup_escape(buf_bytes(&text), &line);
    save(buf_bytes(&line));
    buf_free(&line);
    buf_free(&text);
}

static void seed_record_reader(void)
{
    static const char *const lines[] = {"c.u|a.c41l,JP:1 US:4\nu|a,c413:2 c41l:5",
        "v.u|a.c41,=17 65536 ~a1b2c3d4e5f60718\nv.u|a.c42,@000000EQDMAA 01a1b2GAf25dTDsqE\nv.u|b.c41l,#8211",
        NULL};
    seed_texts(lines);
}

static int keep_log(int fd, off_t length)
{
    (void)fd, (void)length;
    return 0;
}

/* The header of a filter with two layers, and the log of its last sync. */
static void seed_filter(void)
{
    static struct io_ops ops;
    struct filter_config config = {.path = fuzz_file(BYTES_NONE), .capacity = 4, .rate = 0.01};
    struct filter *f;
    struct buf log = {0}, seed = {0};
    char *log_path = mem_printf("%s.log", config.path);
    ops = io_system;
    ops.ftruncate = keep_log;
    io = &ops;
    unlink(config.path);
    if (filter_open(&config, &f, NULL) != FILTER_OK)
        abort();
    for (uint64_t i = 1; i < 10; i++)
        filter_add(f, bytes_str("text"), i, i, NULL);
    if (filter_sync(f, NULL) != FILTER_OK || io_read_file(config.path, 1 << 20, &seed) != 0 ||
        io_read_file(log_path, 1 << 20, &log) != 0)
        abort();
    filter_close(&f);
    seed.len = 4096;
    for (char flags = 0; flags < 4; flags++) {
        struct buf all = {0};
        buf_append_char(&all, flags);
        buf_append_char(&all, 3);
        buf_append_bytes(&all, buf_bytes(&seed));
        buf_append_bytes(&all, buf_bytes(&log));
        save(buf_bytes(&all));
        buf_free(&all);
    }
    buf_free(&seed);
    buf_free(&log);
    free(log_path);
}

static void seed_counters(void)
{
    save(BYTES_LITERAL("[input]\ntime = t\n[total u]\nkey = l\n[unique v.u]\nmember = host(v)\nby = hour\n"
                       "[unique w.u]\nmember = l\n\0{\"t\":1331923247,\"l\":\"a\",\"v\":\"http://b/\"}"));
}

static void seed_promql(void)
{
    save(BYTES_LITERAL("sum by (x) (rate(a[1m])) / on(x) group_left(y) topk(2, b{x=~\"1|2\",y!=''} offset "
                       "-15s) > bool 0x1f"));
    save(BYTES_LITERAL("histogram_quantile(0.9, h) or label_replace(a @ end(), \"z\", \"$1\", \"x\", `(.*)`) "
                       "unless absent(b)"));
    save(BYTES_LITERAL("-max_over_time((a + 1e3)[1m30s:15s]) ^ 2 and quantile without (y,) (0.5, a) # Inf"));
}

static const struct {
    const char *name;
    void (*write)(void);
} targets[] = {
    {"archive_state", seed_archive_state},
    {"archived_file", seed_archived_file},
    {"condition", seed_condition},
    {"config", seed_config},
    {"count_run", seed_count_run},
    {"counters", seed_counters},
    {"cursor_file", seed_cursor_file},
    {"event_time", seed_event_time},
    {"filter", seed_filter},
    {"http_reply", seed_http_reply},
    {"json_doc", seed_json_doc},
    {"line_source", seed_line_source},
    {"manifest", seed_manifest},
    {"promql", seed_promql},
    {"publish", seed_publish},
    {"query", seed_query},
    {"queue_log", seed_queue_log},
    {"record_check", seed_record_check},
    {"record_reader", seed_record_reader},
    {"sets_file", seed_sets_file},
    {"stream_statement", seed_stream_statement},
    {"text_pattern", seed_text_pattern},
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: fuzz_seeds NAME DIR\n");
        return 64;
    }
    to = argv[2];
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(argv[1], targets[i].name) == 0)
            targets[i].write();
    return 0;
}
