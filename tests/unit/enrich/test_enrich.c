/* enrich: only the door sets what it adds; the visitor is that of the client, the site and the period of the event. */
#include "support/cm.h"
#include "support/shell.h"
#include "support/test_dir.h"
#include "enrich/enrich.h"
#include "filter/filter.h"
#include "json/json_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY INT64_C(86400)
#define TODAY (INT64_C(20420) * DAY)
#define NOON ((TODAY + DAY / 2) * USEC_PER_SEC)
#define VISITOR 16

static char dir[64];
static struct config *config;
static struct door_settings *settings;
static struct enrich *door;
static struct error error;

static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    return 0;
}

static void close_door(void)
{
    enrich_free(&door);
    door_settings_free(&settings);
    config_free(&config);
}

static int tear_down(void **state)
{
    (void)state;
    close_door();
    shell("rm -r %s", dir);
    return 0;
}

/* Opens a door with the settings; `%s` in the text is the directory. */
static bool open_door(const char *format)
{
    static const struct enrich_input input = {.time_field = "meta.t", .units_a_second = 1000};
    close_door();
    char *text = mem_printf("%s", format), *place;
    while ((place = strstr(text, "DIR"))) {
        char *next = mem_printf("%.*s%s%s", (int)(place - text), text, dir, place + 3);
        free(text);
        text = next;
    }
    int r = config_parse("test.conf", bytes_str(text), &config, &error);
    free(text);
    if (r != 0 || door_settings_read(config, dir, &settings, &error) != 0)
        return false;
    if (settings)
        door = enrich_new(settings, &input, NULL, NOON, NOON, &error);
    return door != NULL;
}

static void begin(const char *peer, const char *agent, const char *host)
{
    enrich_begin(door,
        &(struct enrich_client){.peer = bytes_str(peer), .agent = bytes_str(agent), .host = bytes_str(host)},
        NOON, NOON);
}

/* Returns the event behind the door, in one of two buffers in turn. */
static const char *pass(const char *event)
{
    static struct buf out[2];
    static int turn;
    struct buf *b = &out[turn ^= 1];
    buf_clear(b);
    enrich_event(door, bytes_str(event), b);
    buf_append_char(b, '\0');
    return b->ptr;
}

#define VISIT "{\"meta\":{\"t\":%lld},\"url\":\"%s\"}"

/* Returns the visitor of an event at a time, in one of four buffers in turn; "" without a visitor. */
static const char *visitor(int64_t seconds, const char *url)
{
    static char out[4][VISITOR + 1];
    static int turn;
    char *to = out[turn = (turn + 1) % 4];
    char *event = mem_printf(VISIT, (long long)seconds * 1000, url);
    const char *at = strstr(pass(event), "\"visitor\":\"");
    free(event);
    snprintf(to, VISITOR + 1, "%s", at ? at + strlen("\"visitor\":\"") : "");
    assert_int_equal(strlen(to), at ? VISITOR : 0);
    assert_int_equal(
        strspn(to, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), strlen(to));
    return to;
}

#define KEYS "visitor_key_file = DIR/keys\n"
#define VISITORS "[door]\nadd = visitor\n" KEYS

static void test_settings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"[door]\n", "test.conf:1: [door] needs add"},
        {"[door]\nadd =\n", "[door] needs add"},
        {"[door]\nadd = visitr\n" KEYS,
            "test.conf:2: add: a door has no value 'visitr' (did you mean visitor?)"},
        {"[door]\nadd = ip visitor\n", "test.conf:2: add = visitor needs visitor_key_file = FILE"},
        {"[door]\nadd = bot city\n", "test.conf:2: add = city needs geo_file = FILE"},
        {"[door]\nadd = region\ngeo_file =\n", "add = region needs geo_file = FILE"},
        {"[door]\nadd = bot\nuser_agent_cache = 8X\n", "test.conf:3: user_agent_cache is not a size"},
        {"[door]\nadd = bot\nuser_agent_cache = 2G\n", "user_agent_cache is out of bounds: 0..1G"},
        {"[door]\nadd = ip\nclient_adress = peer\n",
            "has no setting 'client_adress' (did you mean client_address?)"},
        {VISITORS "visitor_key_period = month\n", "visitor_key_period is not one of day|week"},
        {VISITORS "visitor_site = host(\n", "visitor_site must be a field, a function"},
        {VISITORS "client_address = X Y\n",
            "client_address must be peer, or a header with a list of addresses such as X-Forwarded-For, not "
            "'X Y'"},
        {VISITORS "client_address = forwarded\n", "such as X-Forwarded-For, not 'forwarded'"},
        {VISITORS "client_address = X-Real-IP\ntrusted_proxies = ::1 10.0.0\n",
            "test.conf:5: trusted_proxies: `10.0.0` is not an address"},
        {"[door]\nadd = visitor\nvisitor_key_file = DIR/missing/keys\n", "missing/keys.lock: No such file"},
        {"[door]\nadd = country\ngeo_file = DIR/x.mmdb\n", "/x.mmdb: No such file or directory; download"},
        {"[door]\nadd = os\nuser_agent_rules = DIR/x.yaml\n", "/x.yaml: No such file or directory; install"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(open_door(wrong[i].text));
        if (!strstr(error.text, wrong[i].why))
            fail_msg("%s, not %s", error.text, wrong[i].why);
    }
    assert_false(open_door("[simplequeue]\n"));
    assert_null(settings);
    assert_true(open_door(VISITORS "visitor-key-period = week\nclient_address = X-Real-IP\n"));
    assert_string_equal(settings->address_header, "X-Real-IP");
    assert_int_equal(settings->proxies.n, 2);
    assert_true(settings->proxies.has_unix);
    assert_true(open_door("[door]\nadd = visitor\nvisitor_key_file = relative.keys\n"));
    shell("test -f %s/relative.keys", dir);
}

static void test_only_the_door_sets_its_members(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "{\"ip\":\"192.0.2.7\"}"},
        {"{ }", "{\"ip\":\"192.0.2.7\"}"},
        {"{\"ip\":1}", "{\"ip\":\"192.0.2.7\"}"},
        {"{\"a\":1}", "{\"a\":1,\"ip\":\"192.0.2.7\"}"},
        {" { \"a\" : 1 , \"ip\" : {\"ip\":[1,{\"x\":\"}\"}]} , \"b\" : [ 1, 2 ] } ",
            "{\"a\" : 1,\"b\" : [ 1, 2 ],\"ip\":\"192.0.2.7\"}"},
        {"{\"ip\":\"a\",\"x\":{\"ip\":2},\"ip\":\"b\"}", "{\"x\":{\"ip\":2},\"ip\":\"192.0.2.7\"}"},
        {"{\"\\u0069p\":1,\"i\\u0070\":2,\"\\u0069\\u0070\":3,\"\\u0069P\":4}",
            "{\"\\u0069P\":4,\"ip\":\"192.0.2.7\"}"},
        {"{\"ip\\u0000\":1,\"ip2\":2,\"i\":3,\"\":4,\"\\\"ip\":5,\"\\u0169p\":6,\"i\\\\\":7}",
            "{\"ip\\u0000\":1,\"ip2\":2,\"i\":3,\"\":4,\"\\\"ip\":5,\"\\u0169p\":6,\"i\\\\\":7,\"ip\":\"192."
            "0.2.7\"}"},
        {"{\"a\":\"\\\"\\\\\",\"ip\":\",}\\\"\",\"b\":true}",
            "{\"a\":\"\\\"\\\\\",\"b\":true,\"ip\":\"192.0.2.7\"}"},
        {"{\"visitor\":\"kept\"}", "{\"visitor\":\"kept\",\"ip\":\"192.0.2.7\"}"},
    };
    assert_true(open_door("[door]\nadd = ip\n"));
    begin("192.0.2.7:80", "", "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(pass(cases[i][0]), cases[i][1]);
    begin("unix", "", "");
    assert_string_equal(pass("{\"a\":1,\"ip\":2}"), "{\"a\":1,\"ip\":null}");
    assert_string_equal(pass("{\"ip\":2}"), "{\"ip\":null}");
}

#define RULES                                                                                                \
    "user_agent_parsers:\n  - regex: '(Fire\"fox)'\nos_parsers:\n  - regex: '(Linux)'\n"                     \
    "device_parsers:\n  - regex: '(Spider)'\n"

/* The rules are those of a file of the test, below the data directory. */
static void test_values_of_agents(void **state)
{
    (void)state;
    static const char sent[] = "{\"bot\":\"no\",\"a\":1,\"device\":{},\"\\u0062ot\":false}";
    shell("cat > %s/rules.yaml <<'END'\n%sEND", dir, RULES);
    assert_true(open_door("[door]\nadd = bot browser os device\nuser_agent_rules = rules.yaml\n"));
    begin("192.0.2.7:80", "Mozilla/5.0 (X11; Linux) Fire\"fox/1", "");
    assert_string_equal(pass(sent), "{\"a\":1,\"browser\":\"Fire\\\"fox\",\"os\":\"Linux\",\"device\":"
                                    "\"desktop\",\"bot\":false}");
    begin("192.0.2.7:80", "", "");
    assert_string_equal(pass(sent), "{\"a\":1,\"browser\":\"Other\",\"os\":\"Other\",\"device\":\"other\","
                                    "\"bot\":true}");
    enrich_begin(door, &(struct enrich_client){.has_no_agent = true}, NOON, NOON);
    assert_string_equal(pass(sent), "{\"a\":1,\"browser\":null,\"os\":null,\"device\":null,\"bot\":null}");
    assert_true(open_door("[door]\nadd = bot\nuser_agent_rules = rules.yaml\nuser_agent_cache = 0\n"));
    begin("unix", "Spider", "");
    assert_string_equal(pass("{\"os\":1}"), "{\"os\":1,\"bot\":true}");
    begin("unix", "Mozilla/5.0 (Linux)", "");
    assert_string_equal(pass("{}"), "{\"bot\":false}");
}

static void add_mark(const char *mark)
{
    char *path = mem_printf("%s/own/marks", dir);
    struct filter_config filter = {.path = path, .capacity = 10, .rate = 0.0001};
    struct filter *f;
    shell("mkdir %s/own", dir);
    assert_int_equal(filter_open(&filter, &f, &error), FILTER_OK);
    assert_int_equal(filter_add(f, bytes_str(mark), 1, 1, &error), FILTER_OK);
    assert_int_equal(filter_sync(f, &error), FILTER_OK);
    filter_close(&f);
    free(path);
}

static void test_marked_links(void **state)
{
    (void)state;
    assert_true(open_door("[door]\nadd = marked\n[spamfilter]\ndata_dir = /a/b\n"));
    assert_string_equal(settings->marks_dir, "/a/b");
    assert_true(open_door("[door]\nadd = marked\n"));
    assert_string_equal(settings->marks_dir + strlen(dir), "/spamfilter");
    begin("unix", "", "");
    assert_string_equal(pass("{\"m\\u0061rked\":1,\"url\":\"a\"}"), "{\"url\":\"a\",\"marked\":null}");
    const char *problem = enrich_tend(door, NOON, NOON);
    assert_non_null(problem);
    assert_non_null(strstr(problem, "/spamfilter/marks: "));
    assert_non_null(strstr(enrich_remedy(door), "marks_dir"));
    add_mark("bad.example");
    assert_true(open_door("[door]\nadd = marked ip\nmarks_dir = own\nmarks_field = a.link\n"));
    begin("192.0.2.7:80", "", "");
    assert_string_equal(pass("{\"a\":{\"link\":\"//x.bad.example\"}}"),
        "{\"a\":{\"link\":\"//x.bad.example\"},\"marked\":\"bad.example\",\"ip\":\"192.0.2.7\"}");
    assert_string_equal(pass("{\"a\":[]}"), "{\"a\":[],\"marked\":null,\"ip\":\"192.0.2.7\"}");
    assert_null(enrich_tend(door, NOON, NOON));
}

static void test_without_ip_no_member_has_the_address(void **state)
{
    (void)state;
    assert_true(open_door(VISITORS));
    enrich_drop(door, "host");
    begin("192.0.2.7:80", "", "");
    assert_null(
        strstr(pass("{\"meta\":{\"t\":1},\"ip\":\"192.0.2.7\",\"host\":\"192.0.2.7\"}"), "192.0.2.7"));
    assert_true(open_door("[door]\nadd = visitor ip\n" KEYS));
    enrich_drop(door, "host");
    begin("192.0.2.7:80", "", "");
    const char *out = pass("{\"meta\":{\"t\":1},\"ip\":\"6.6.6.6\",\"host\":\"192.0.2.7\"}");
    assert_string_equal(
        out, "{\"meta\":{\"t\":1},\"host\":\"192.0.2.7\",\"visitor\":null,\"ip\":\"192.0.2.7\"}");
}

static void test_visitors(void **state)
{
    (void)state;
    assert_true(open_door(VISITORS));
    begin("192.0.2.7:80", "agent", "");
    char first[VISITOR + 1];
    strcpy(first, visitor(TODAY, "http://a.example/x"));
    assert_int_equal(strlen(first), VISITOR);
    assert_string_equal(visitor(TODAY + DAY / 2, "https://A.example:443/y?z"), first);
    assert_string_not_equal(visitor(TODAY, "http://b.example/"), first);
    begin("[::ffff:192.0.2.7]:99", "agent", "");
    assert_string_equal(visitor(TODAY, "http://a.example/"), first);
    begin("192.0.2.7:80", "agent", "A.example:8080");
    assert_string_equal(visitor(TODAY, "http://other.example/"), first);
    begin("192.0.2.7:80", "agent2", "");
    assert_string_not_equal(visitor(TODAY, "http://a.example/"), first);
    begin("192.0.2.8:80", "agent", "");
    assert_string_not_equal(visitor(TODAY, "http://a.example/"), first);
    begin("[2001:db8:0:1::1]:80", "agent", "");
    const char *v6 = visitor(TODAY, "http://a.example/");
    begin("[2001:db8:0:1:ffff:ffff:ffff:ffff]:80", "agent", "");
    assert_string_equal(visitor(TODAY, "http://a.example/"), v6);
    begin("[2001:db8:0:2::1]:80", "agent", "");
    assert_string_not_equal(visitor(TODAY, "http://a.example/"), v6);
    /* The next day has another key, also in a process that starts later. */
    assert_true(open_door(VISITORS));
    begin("192.0.2.7:80", "agent", "");
    assert_string_equal(visitor(TODAY, "http://a.example/"), first);
    enrich_begin(door,
        &(struct enrich_client){.peer = BYTES_LITERAL("192.0.2.7:80"), .agent = BYTES_LITERAL("agent")},
        NOON + DAY * USEC_PER_SEC, NOON + DAY * USEC_PER_SEC);
    assert_string_not_equal(visitor(TODAY + DAY, "http://a.example/"), first);
    assert_string_equal(visitor(TODAY, "http://a.example/"), first);
}

static void test_one_visitor_for_all_sites(void **state)
{
    (void)state;
    assert_true(open_door(VISITORS "visitor_site = \"all\"\n"));
    begin("192.0.2.7:80", "agent", "");
    const char *v = visitor(TODAY, "http://a.example/");
    assert_string_equal(visitor(TODAY, "http://b.example/"), v);
    begin("192.0.2.7:80", "agent", "c.example");
    assert_string_equal(visitor(TODAY, "http://b.example/"), v);
}

static void test_events_without_a_visitor_are_counted_by_reason(void **state)
{
    (void)state;
    assert_true(open_door(VISITORS));
    begin("192.0.2.7:80", "agent", "");
    assert_string_equal(visitor(TODAY + DAY, ""), "");
    assert_string_equal(visitor(TODAY - 1, ""), "");
    assert_string_equal(visitor(TODAY - 2, ""), "");
    assert_string_equal(pass("{\"visitor\":\"forged\",\"t\":1}"), "{\"t\":1,\"visitor\":null}");
    assert_string_equal(pass("{\"meta\":{\"t\":\"x\"}}"), "{\"meta\":{\"t\":\"x\"},\"visitor\":null}");
    begin("unix", "agent", "");
    assert_string_equal(visitor(TODAY, ""), "");
    shell("chmod 640 %s/keys", dir);
    enrich_begin(door, &(struct enrich_client){.peer = BYTES_LITERAL("192.0.2.7:80")},
        NOON + DAY * USEC_PER_SEC, NOON + DAY * USEC_PER_SEC);
    assert_string_equal(visitor(TODAY + DAY, ""), "");
    assert_int_equal(strlen(visitor(TODAY, "")), VISITOR);
    static const uint64_t want[ENRICH_MISSED] = {2, 1, 1, 2, 1};
    for (size_t i = 0; i < ENRICH_MISSED; i++)
        assert_int_equal(enrich_missed(door, (enum enrich_missed)i), want[i]);
    const char *why = enrich_tend(door, NOON + DAY * USEC_PER_SEC, NOON + DAY * USEC_PER_SEC);
    assert_non_null(strstr(why, "is open to other users"));
    shell("chmod 600 %s/keys", dir);
    assert_null(enrich_tend(door, NOON + (DAY + 10) * USEC_PER_SEC, NOON + (DAY + 10) * USEC_PER_SEC));
}

/* A clock that jumps ahead for a moment deletes no key. */
static void test_a_jump_of_the_clock_deletes_no_key(void **state)
{
    (void)state;
    assert_true(open_door(VISITORS));
    begin("192.0.2.7:80", "agent", "");
    const char *v = visitor(TODAY, "");
    assert_null(enrich_tend(door, NOON + 40 * DAY * USEC_PER_SEC, NOON + USEC_PER_SEC));
    enrich_begin(door,
        &(struct enrich_client){.peer = BYTES_LITERAL("192.0.2.7:80"), .agent = BYTES_LITERAL("agent")},
        NOON + 2 * USEC_PER_SEC, NOON + 2 * USEC_PER_SEC);
    assert_string_equal(visitor(TODAY, ""), v);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(settings),
        TEST(only_the_door_sets_its_members),
        TEST(values_of_agents),
        TEST(marked_links),
        TEST(without_ip_no_member_has_the_address),
        TEST(visitors),
        TEST(one_visitor_for_all_sites),
        TEST(events_without_a_visitor_are_counted_by_reason),
        TEST(a_jump_of_the_clock_deletes_no_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
