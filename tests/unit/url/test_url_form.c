/* url_form: the rules of the URL Standard, one by one, and the parents of a URL. */
#include "support/cm.h"

#include "base/url.h"
#include "url/url_form.h"
#include "url/url_host.h"

#include <stdio.h>

struct pair {
    const char *text, *form;
};

static void check_forms(const struct pair *pairs, size_t n)
{
    struct url_form form = {0};
    for (size_t i = 0; i < n; i++) {
        enum url_error error = url_normalize(bytes_str(pairs[i].text), &form);
        if (error || !bytes_equal_str(buf_bytes(&form.text), pairs[i].form))
            fail_msg("%s: %s: %.*s instead of %s", pairs[i].text, url_strerror(error), (int)form.text.len,
                form.text.ptr, pairs[i].form);
    }
    url_form_free(&form);
}
#define CHECK_FORMS(...)                                                                                     \
    check_forms((const struct pair[]){__VA_ARGS__},                                                          \
        sizeof((const struct pair[]){__VA_ARGS__}) / sizeof(struct pair))

static void check_errors(enum url_error error, const char *const *texts, size_t n)
{
    struct url_form form = {0};
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(url_normalize(BYTES_LITERAL("a.example/b"), &form), URL_OK);
        enum url_error found = url_normalize(bytes_str(texts[i]), &form);
        if (found != error || form.text.len != 0)
            fail_msg("%s: %s instead of %s", texts[i], url_strerror(found), url_strerror(error));
    }
    url_form_free(&form);
}
#define CHECK_ERRORS(error, ...)                                                                             \
    check_errors(error, (const char *const[]){__VA_ARGS__},                                                  \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void blanks_and_line_ends(void **state)
{
    (void)state;
    CHECK_FORMS({" \x01\x1fhttp://one.example/a \t\x02", "one.example/a"},
        {"ht\ntp\t:/\r/o\nne.example/a\tb", "one.example/ab"},
        {"http://one.example/a b", "one.example/a%20b"}, {"http://one.example/a%0Ab", "one.example/a%0Ab"});
    struct url_form form = {0};
    assert_int_equal(url_normalize(BYTES_LITERAL("\0http://one.example/\0a\0"), &form), URL_OK);
    assert_true(bytes_equal_str(buf_bytes(&form.text), "one.example/%00a"));
    assert_int_equal(url_normalize(BYTES_LITERAL("http://[::1\0x]/"), &form), URL_HOST);
    url_form_free(&form);
}

static void schemes(void **state)
{
    (void)state;
    CHECK_FORMS({"HTTPS://one.example", "one.example/"}, {"http:one.example/a", "one.example/a"},
        {"http:/one.example/a", "one.example/a"}, {"http:\\\\\\/one.example\\a", "one.example/a"},
        {"one.example", "one.example/"}, {"//one.example/a", "one.example/a"},
        {"\\\\one.example/a", "one.example/a"}, {"one.example:8080/a:b", "one.example/a:b"},
        {"localhost:80", "localhost/"}, {"one.example/http://b", "one.example/http://b"},
        {"1st.example", "1st.example/"}, {"http", "http/"});
}

static void refused_schemes(void **state)
{
    (void)state;
    CHECK_ERRORS(URL_SCHEME, "ftp://one.example", "mailto:me@one.example", "javascript:alert(1)",
        "ws://one.example/", "/path", "\\path", "httpx://one.example", "data:,a",
        "one.example:", "a+b-c.d://one.example");
}

static void user_and_port(void **state)
{
    (void)state;
    CHECK_FORMS({"http://me@one.example/", "one.example/"},
        {"http://me:secret@one.example:81/", "one.example/"},
        {"http://two.example@one.example", "one.example/"}, {"http://a@b@one.example", "one.example/"},
        {"http://one.example/@b", "one.example/@b"},
        {"http://one.example\\@two.example", "one.example/@two.example"},
        {"http://one.example?@b", "one.example/?@b"}, {"http://one.example#@two.example", "one.example/"},
        {"http://one.example:/a", "one.example/a"}, {"http://one.example:65535", "one.example/"},
        {"https://one.example:000443/", "one.example/"}, {"http://[::1]:80/", "[::1]/"});
    CHECK_ERRORS(URL_PORT, "http://one.example:65536/", "http://one.example:a", "http://one.example:8a",
        "http://one.example:-1", "http://one.example:99999999999999999999", "one.example:80:80",
        "http://one.example: 80");
}

static void names(void **state)
{
    (void)state;
    CHECK_FORMS({"http://EXAMPLE.Com", "example.com/"}, {"http://%45xa%6dple.com", "example.com/"},
        {"http://one.example./", "one.example/"}, {"http://one.example../a", "one.example/a"},
        {"http://AZ_az.example", "az_az.example/"}, {"http://-a-.ex--ample", "-a-.ex--ample/"},
        {"http://.example", ".example/"}, {"http://a..example", "a..example/"},
        {"http://a!$&'()*+,;=~`{}\"b", "a!$&'()*+,;=~`{}\"b/"});
    CHECK_ERRORS(URL_HOST, "", " ", "http://", "http:///", "http://?a", "http://me@/", "http://:80",
        "http://.", "http://...", "http://a b.example", "http://a%20b", "http://a%", "http://a%4",
        "http://a%00b", "http://a%2Fb", "http://a%40b", "http://a%3ab", "http://a%23b", "http://a%3Fb",
        "http://a%5Cb", "http://a<b", "http://a>b", "http://a[b", "http://a]b", "http://a^b", "http://a|b",
        "http://a%7fb", "http://a%25b", "http://a\x7f.example");
}

static void international_names(void **state)
{
    (void)state;
    CHECK_FORMS({"http://bücher.example", "xn--bcher-kva.example/"},
        {"http://BÜCHER.example", "xn--bcher-kva.example/"},
        {"http://bu\xcc\x88"
         "cher.example",
            "xn--bcher-kva.example/"},
        {"http://b%C3%BCcher.example", "xn--bcher-kva.example/"},
        {"http://XN--BCHER-KVA.example", "xn--bcher-kva.example/"},
        {"http://straße.example", "xn--strae-oqa.example/"},
        {"http://βόλος.example", "xn--nxasmm1c.example/"}, {"http://☃.example", "xn--n3h.example/"},
        {"http://🍕.example", "xn--vi8h.example/"}, {"http://ｏｎｅ．example。", "one.example/"},
        {"http://o\xc2\xadne.example", "one.example/"}, {"http://xn--a.example", "xn--a.example/"},
        {"http://-ü.example", "xn----eha.example/"}, {"http://１２７.1", "127.0.0.1/"});
    CHECK_ERRORS(URL_HOST, "http://a\xff.example", "http://\xc3.example", "http://\xed\xa0\x80.example",
        "http://\xc2\xad",
        "http://a\xe2\x80\x8d"
        "b.example",
        "http://xn--a.ü", "http://ü%00.example", "http://ü⁄℀.example",
        "http://\xd7\x90"
        "a.example",
        "http://\xef\xbf\xbd.example");
}

static void ipv4_addresses(void **state)
{
    (void)state;
    CHECK_FORMS({"http://127.0.0.1", "127.0.0.1/"}, {"http://0x7f.1", "127.0.0.1/"},
        {"http://017700000001", "127.0.0.1/"}, {"http://2130706433", "127.0.0.1/"},
        {"http://0X7F000001.", "127.0.0.1/"}, {"http://127.0x0.1", "127.0.0.1/"},
        {"http://192.168.257", "192.168.1.1/"}, {"http://1.2", "1.0.0.2/"},
        {"http://4294967295", "255.255.255.255/"}, {"http://0x", "0.0.0.0/"}, {"http://1.2.3.0x", "1.2.3.0/"},
        {"http://%31.2.3.4", "1.2.3.4/"}, {"1.2.3.4:80/a", "1.2.3.4/a"}, {"http://1.2.3.4a", "1.2.3.4a/"},
        {"http://1.example", "1.example/"}, {"http://1.2.3.0xg", "1.2.3.0xg/"});
    CHECK_ERRORS(URL_HOST, "http://256.1.1.1", "http://1.2.3.256", "http://1.2.65536", "http://1.16777216",
        "http://4294967296", "http://1.2.3.4.5", "http://1.2.3.4.0", "http://1..2", "http://.1", "http://09",
        "http://1.08.3.4", "http://a.1", "http://a.0x1", "http://a.0x", "http://0x100000000000000000",
        "http://1.2.3.09");
}

static void ipv6_addresses(void **state)
{
    (void)state;
    CHECK_FORMS({"http://[::]", "[::]/"}, {"http://[0:0:0:0:0:0:0:1]", "[::1]/"},
        {"http://[1:0:0:2:0:0:0:3]", "[1:0:0:2::3]/"}, {"http://[1:0:0:2:3:0:0:4]", "[1::2:3:0:0:4]/"},
        {"http://[1:0:2:3:4:5:6:7]", "[1:0:2:3:4:5:6:7]/"}, {"http://[1::]:80/", "[1::]/"},
        {"http://[2001:DB8::00ff]", "[2001:db8::ff]/"}, {"http://[::ffff:1.2.3.4]", "[::ffff:102:304]/"},
        {"[::1]/a", "[::1]/a"}, {"http://[1:2:3:4:5:6::]", "[1:2:3:4:5:6::]/"});
    CHECK_ERRORS(URL_HOST, "http://[", "http://[]", "http://[::1", "http://[::1]a", "http://[::1]a:1",
        "http://[1]", "http://[1:2:3:4:5:6:7:8:9]", "http://[::1::2]", "http://[::12345]", "http://[::g]",
        "http://[fe80::1%25eth0]", "http://[::1.2.3]", "http://[::1.2.3.04]", "http://[%3A%3A1]",
        "http://[:::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::]");
    struct url_form form = {0};
    assert_int_equal(url_normalize(BYTES_LITERAL("[::1]"), &form), URL_OK);
    assert_true(form.is_address);
    url_form_free(&form);
}

static void paths(void **state)
{
    (void)state;
    CHECK_FORMS({"http://a.example", "a.example/"}, {"http://a.example/a/../b", "a.example/b"},
        {"http://a.example/a/./b", "a.example/a/b"}, {"http://a.example/a/%2e%2E/b/%2e", "a.example/b/"},
        {"http://a.example/a/b/..", "a.example/a/"}, {"http://a.example/..", "a.example/"},
        {"http://a.example/../../a", "a.example/a"}, {"http://a.example/a/.", "a.example/a/"},
        {"http://a.example/a/.%2e/b", "a.example/b"}, {"http://a.example/a\\b\\..\\c", "a.example/a/c"},
        {"http://a.example//a//", "a.example//a//"}, {"http://a.example/a//../b", "a.example/a/b"},
        {"http://a.example/...", "a.example/..."}, {"http://a.example/.a/..b/c.", "a.example/.a/..b/c."},
        {"http://a.example/a%2f..%2fb", "a.example/a%2F..%2Fb"},
        {"http://a.example/a%5cb", "a.example/a%5Cb"}, {"http://a.example/Ab", "a.example/Ab"});
}

static void escapes(void **state)
{
    (void)state;
    CHECK_FORMS({"http://a.example/ \"<>^`{}\x7f\xc3\xbc", "a.example/%20%22%3C%3E%5E%60%7B%7D%7F%C3%BC"},
        {"http://a.example/!$&'()*+,;=:@|[]", "a.example/!$&'()*+,;=:@|[]"},
        {"http://a.example/%c3%bc%3f", "a.example/%C3%BC%3F"},
        {"http://a.example/%61%5a%30%2d%5f%7E", "a.example/aZ0-_~"}, {"http://a.example/%", "a.example/%25"},
        {"http://a.example/%4", "a.example/%254"}, {"http://a.example/%zz", "a.example/%25zz"},
        {"http://a.example/%%34%31", "a.example/%2541"}, {"http://a.example/%2541", "a.example/%2541"},
        {"http://a.example/\xff", "a.example/%FF"});
}

static void queries(void **state)
{
    (void)state;
    CHECK_FORMS({"http://a.example?b=c", "a.example/?b=c"}, {"http://a.example/?", "a.example/"},
        {"http://a.example/b?#c", "a.example/b"}, {"http://a.example/?a?b/../c\\d", "a.example/?a?b/../c\\d"},
        {"http://a.example/? \"<>'", "a.example/?%20%22%3C%3E%27"},
        {"http://a.example/?^`{}|+", "a.example/?^`{}|+"},
        {"http://a.example/?%41%2b%zz", "a.example/?A%2B%25zz"},
        {"http://a.example/?a=\xc3\xbc", "a.example/?a=%C3%BC"}, {"http://a.example/a#b?c", "a.example/a"},
        {"http://a.example#", "a.example/"});
}

static void lengths(void **state)
{
    (void)state;
    struct buf text = {0};
    struct url_form form = {0};
    for (size_t len = URL_HOST_MAX; len <= URL_HOST_MAX + 1; len++) {
        buf_clear(&text);
        while (text.len < len)
            buf_append_char(&text, text.len % 2 ? '.' : 'a');
        text.ptr[len - 1] = 'a';
        assert_int_equal(url_normalize(buf_bytes(&text), &form), len > URL_HOST_MAX ? URL_HOST : URL_OK);
    }
    for (int is_over = 0; is_over <= 1;
         is_over++) { /* the host is encoded; "ü" 60 times needs some 66 bytes */
        buf_clear(&text);
        for (int i = 0; i < 60 * (is_over ? 4 : 3); i++)
            buf_append_str(&text, i % 60 == 59 ? "ü." : "ü");
        assert_int_equal(url_normalize(buf_bytes(&text), &form), is_over ? URL_HOST : URL_OK);
    }
    buf_clear(&text);
    buf_append_str(&text, "a/");
    while (text.len < URL_TEXT_MAX)
        buf_append_char(&text, 'A');
    assert_int_equal(url_normalize(buf_bytes(&text), &form), URL_OK);
    assert_int_equal(form.text.len, URL_TEXT_MAX);
    buf_append_char(&text, 'a');
    assert_int_equal(url_normalize(buf_bytes(&text), &form), URL_LENGTH);
    buf_clear(&text);
    buf_append_str(&text, "a");
    for (int i = 0; i < URL_HOST_TEXT_MAX / 3 + 1; i++)
        buf_append_str(&text, "%2E");
    assert_int_equal(url_normalize(buf_bytes(&text), &form), URL_HOST);
    url_form_free(&form);
    buf_free(&text);
}

/* Checks the parents, one a line. */
static void check_parents(const char *text, const char *expected)
{
    struct url_form form = {0};
    struct bytes parents[URL_PARENTS_MAX];
    struct buf found = {0};
    assert_int_equal(url_normalize(bytes_str(text), &form), URL_OK);
    for (size_t i = 0, n = url_parents(&form, parents); i < n; i++) {
        buf_append_bytes(&found, parents[i]);
        buf_append_char(&found, '\n');
    }
    buf_append_char(&found, '\0');
    assert_string_equal(found.ptr, expected);
    buf_free(&found);
    url_form_free(&form);
}

static void parents_of_urls(void **state)
{
    (void)state;
    check_parents("http://a.b.example.com/x/y/?q",
        "a.b.example.com/x/y/?q\na.b.example.com/x/y\na.b.example.com/x\n"
        "a.b.example.com\nb.example.com\nexample.com\n");
    check_parents("example.com", "example.com\n");
    check_parents("example.com/?q", "example.com/?q\nexample.com\n");
    check_parents("example.com/x/", "example.com/x\nexample.com\n");
    check_parents("example.com//x///y//", "example.com//x///y\nexample.com//x\nexample.com\n");
    check_parents("example.com///", "example.com\n");
    check_parents("localhost/x", "localhost/x\nlocalhost\n");
    check_parents("a.co.uk", "a.co.uk\nco.uk\n");
    check_parents(".a.example", ".a.example\na.example\n");
    check_parents("1.2.3.4/x", "1.2.3.4/x\n1.2.3.4\n");
    check_parents("[::ffff:1.2.3.4]/x", "[::ffff:102:304]/x\n[::ffff:102:304]\n");
}

/* Of 30,000 segments and 126 labels, those nearest to root and domain are parents. */
static void parents_are_bounded(void **state)
{
    (void)state;
    struct buf text = {0};
    struct url_form form = {0};
    struct bytes parents[URL_PARENTS_MAX];
    for (int i = 0; i < 126; i++)
        buf_append_str(&text, "a.");
    buf_append_str(&text, "b");
    for (int i = 0; i < 30000; i++)
        buf_append_str(&text, "/c");
    buf_append_str(&text, "?q");
    assert_int_equal(url_normalize(buf_bytes(&text), &form), URL_OK);
    assert_int_equal(url_parents(&form, parents), URL_PARENTS_MAX);
    assert_int_equal(parents[1].len, 253 + 2 * 30000);
    for (size_t i = 0; i < URL_PARENT_PATHS; i++)
        assert_int_equal(parents[2 + i].len, 253 + 2 * (URL_PARENT_PATHS - i));
    const struct bytes *hosts = parents + 2 + URL_PARENT_PATHS;
    assert_int_equal(hosts[0].len, 253);
    for (size_t i = 1; i < URL_PARENT_HOSTS; i++)
        assert_int_equal(hosts[i].len, 2 * (URL_PARENT_HOSTS - i) + 1);
    url_form_free(&form);
    buf_free(&text);
}

/* A text that resembles URLs: pieces with a meaning, and random bytes. */
static void random_text(struct buf *out)
{
    static const char *const pieces[] = {"http:", "https:", "//", "/", "\\", ".", "..", "%2e", "%", "%4",
        "%41", "%25", "?", "#", "@", ":", "80", "[", "]", "::", "1", "0x", "08", "a", "B", "example", ".com",
        "xn--", "ü", "ß", "ά", "。", "☃", "\xc2\xad", "\xff", "\t", " ", "-", "a/b", "c.d"};
    buf_clear(out);
    if (random() % 2)
        buf_append_str(out, "http://");
    for (long n = random() % 12; n >= 0; n--) {
        if (random() % 8 == 0)
            buf_append_char(out, (char)random());
        else
            buf_append_str(out, pieces[(size_t)random() % (sizeof pieces / sizeof *pieces)]);
    }
}

/* The laws of the header: the form of a form is the same form; each parent is its own first parent. */
static void laws_of_random_texts(void **state)
{
    (void)state;
    struct buf text = {0};
    struct url_form form = {0}, again = {0};
    struct bytes parents[URL_PARENTS_MAX], first[URL_PARENTS_MAX];
    size_t n_valid = 0;
    seeded();
    for (int i = 0; i < 200000; i++) {
        random_text(&text);
        if (url_normalize(buf_bytes(&text), &form))
            continue;
        n_valid++;
        for (size_t at = 0; at < form.text.len; at++)
            assert_true(form.text.ptr[at] > ' ' && form.text.ptr[at] < 0x7f);
        assert_int_equal(url_normalize(buf_bytes(&form.text), &again), URL_OK);
        if (!bytes_equal(buf_bytes(&form.text), buf_bytes(&again.text)) || form.host != again.host ||
            form.path != again.path)
            fail_msg(
                "%.*s became %.*s", (int)form.text.len, form.text.ptr, (int)again.text.len, again.text.ptr);
        for (size_t at = 0, n = url_parents(&form, parents); at < n; at++) {
            assert_int_equal(url_normalize(parents[at], &again), URL_OK);
            url_parents(&again, first);
            if (!bytes_equal(first[0], parents[at]))
                fail_msg("%.*s became %.*s", (int)parents[at].len, parents[at].ptr, (int)first[0].len,
                    first[0].ptr);
        }
    }
    assert_true(n_valid > 20000);
    url_form_free(&form);
    url_form_free(&again);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blanks_and_line_ends),
        cmocka_unit_test(schemes),
        cmocka_unit_test(refused_schemes),
        cmocka_unit_test(user_and_port),
        cmocka_unit_test(names),
        cmocka_unit_test(international_names),
        cmocka_unit_test(ipv4_addresses),
        cmocka_unit_test(ipv6_addresses),
        cmocka_unit_test(paths),
        cmocka_unit_test(escapes),
        cmocka_unit_test(queries),
        cmocka_unit_test(lengths),
        cmocka_unit_test(parents_of_urls),
        cmocka_unit_test(parents_are_bounded),
        cmocka_unit_test(laws_of_random_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
