/* client_address: the client is the rightmost address that is not a trusted proxy. */
#include "support/cm.h"
#include "enrich/client_address.h"

#include <stdlib.h>
#include <string.h>

#define PROXIES "127.0.0.0/8, 10.1.2.0/23 2001:db8:1::/48 unix"

static const char *text_of(const char *text)
{
    static char out[CLIENT_ADDRESS_TEXT];
    struct client_address a;
    return client_address_parse(bytes_str(text), &a) ? client_address_print(&a, out) : "";
}

static void test_forms_of_addresses(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"192.0.2.7", "192.0.2.7"},
        {" 192.0.2.7:80 ", "192.0.2.7"},
        {"::ffff:192.0.2.7", "192.0.2.7"},
        {"[::ffff:c000:207]:80", "192.0.2.7"},
        {"2001:DB8::1", "2001:db8::1"},
        {"[2001:db8::1]", "2001:db8::1"},
        {"[2001:db8::1]:65535", "2001:db8::1"},
        {"fe80::1%eth0", "fe80::1"},
        {"::", "::"},
    };
    static const char *const wrong[] = {"", " ", "unknown", "_hidden", "192.0.2",
        "192.0.2.7:", "192.0.2.7:65536", "192.0.2.7:x", "192.0.2.07.1", "[", "[]", "[::1", "[::1]x",
        "[::1]:", "[::1]:x", "::1]", "[192.0.2.7", ":80", "1:2:3:4:5:6:7:8:9", "192.0.2.7, 192.0.2.8",
        "http://192.0.2.7", "2001:0db8:0000:0000:0000:0000:0000:0000:0000:0000:0000:0001"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_string_equal(text_of(same[i][0]), same[i][1]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_string_equal(text_of(wrong[i]), "");
    struct client_address a;
    assert_false(client_address_parse(bytes_of("1.2.3.4\0", 8), &a));
}

static void test_wrong_networks_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "::/129",
        "::/99999999999999999999", "10.0.0", "localhost", "10.0.0.0/8/8", "10.0.0.1:80", "/8"};
    struct trusted_proxies t;
    struct error error;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = mem_printf("127.0.0.1 %s", wrong[i]);
        assert_int_equal(trusted_proxies_parse(text, &t, &error), -1);
        assert_non_null(strstr(error.text, wrong[i]));
        trusted_proxies_free(&t);
        free(text);
    }
}

static const char *client_of(const char *proxies, const char *peer, const char *header)
{
    static char out[CLIENT_ADDRESS_TEXT];
    struct trusted_proxies t;
    struct client_address a;
    struct error error;
    assert_int_equal(trusted_proxies_parse(proxies, &t, &error), 0);
    bool found = client_address_find(&t, bytes_str(peer), bytes_str(header), &a);
    trusted_proxies_free(&t);
    return found ? client_address_print(&a, out) : "";
}

static void test_clients(void **state)
{
    (void)state;
    static const struct {
        const char *peer, *header, *client;
    } cases[] = {
        /* An address that is not a proxy is the client, whatever it sends. */
        {"198.51.100.1:999", "", "198.51.100.1"},
        {"198.51.100.1:999", "192.0.2.7", "198.51.100.1"},
        {"[2001:db8:2::1]:9", "127.0.0.1", "2001:db8:2::1"},
        {"10.1.4.0:1", "192.0.2.7", "10.1.4.0"},
        /* A proxy's header */
        {"127.0.0.1:9", "192.0.2.7", "192.0.2.7"},
        {"unix", "192.0.2.7", "192.0.2.7"},
        {"10.1.3.255:9", "192.0.2.7:4711", "192.0.2.7"},
        {"[::ffff:127.0.0.1]:9", "192.0.2.7", "192.0.2.7"},
        {"127.0.0.1:9", "6.6.6.6, 192.0.2.7, 10.1.2.3,2001:db8:1::5", "192.0.2.7"},
        {"127.0.0.1:9", "garbage, 192.0.2.7, 10.1.2.3", "192.0.2.7"},
        {"127.0.0.1:9", "192.0.2.7,", "192.0.2.7"},
        /* Only proxies: the leftmost */
        {"127.0.0.1:9", "10.1.2.9, 10.1.2.3", "10.1.2.9"},
        /* Unknown clients */
        {"127.0.0.1:9", "", ""},
        {"127.0.0.1:9", " , ", ""},
        {"127.0.0.1:9", "192.0.2.7, unknown", ""},
        {"127.0.0.1:9", "192.0.2.7, unknown, 10.1.2.3", ""},
        {"nowhere", "192.0.2.7", ""},
        /* A log's list of addresses */
        {"6.6.6.6, 192.0.2.7, 127.0.0.1", "", "192.0.2.7"},
        {"192.0.2.7, 198.51.100.1", "6.6.6.6", "198.51.100.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = client_of(PROXIES, cases[i].peer, cases[i].header);
        if (strcmp(found, cases[i].client) != 0)
            fail_msg("%s, %s: `%s`, not `%s`", cases[i].peer, cases[i].header, found, cases[i].client);
    }
    assert_string_equal(client_of("", "127.0.0.1:9", "192.0.2.7"), "127.0.0.1");
    assert_string_equal(client_of("127.0.0.1", "unix", "192.0.2.7"), "");
    assert_string_equal(client_of("0.0.0.0/0", "1.2.3.4:1", "::1"), "::1");
    assert_string_equal(client_of("::/0", "1.2.3.4:1", "::1, 9.9.9.9"), "::1");
}

/* Whatever a client prepends to the proxy's list, the client's address stays. */
static void test_no_prefix_changes_the_client(void **state)
{
    (void)state;
    static const char bytes[] = " ,.:;=\"\\[]1af\t127.0.0.1";
    srand(7);
    for (int i = 0; i < 20000; i++) {
        char header[80];
        size_t n = (size_t)(rand() % 40);
        for (size_t k = 0; k < n; k++)
            header[k] = bytes[(size_t)rand() % (sizeof bytes - 1)];
        strcpy(header + n, ", 192.0.2.7, 10.1.2.3");
        assert_string_equal(client_of(PROXIES, "127.0.0.1:1", header), "192.0.2.7");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_of_addresses),
        cmocka_unit_test(test_wrong_networks_are_refused),
        cmocka_unit_test(test_clients),
        cmocka_unit_test(test_no_prefix_changes_the_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
