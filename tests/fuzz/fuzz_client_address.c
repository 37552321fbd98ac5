/* Any bytes as the header of a proxy, behind which the proxy has appended the client's address. The result must be
 * this client. An address that is read must be printed and read again. */
#include "enrich/client_address.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct bytes header)
{
    static struct trusted_proxies proxies;
    struct client_address found, want;
    struct error error;
    struct buf all = {0};
    if (proxies.n == 0 && trusted_proxies_parse("127.0.0.1", &proxies, &error) != 0)
        abort();
    if (!client_address_parse(BYTES_LITERAL("192.0.2.7"), &want))
        abort();
    buf_append_bytes(&all, header);
    buf_append_str(&all, ",192.0.2.7");
    if (!client_address_find(&proxies, BYTES_LITERAL("127.0.0.1:1"), buf_bytes(&all), &found) ||
        memcmp(&found, &want, sizeof found) != 0)
        abort();
    (void)client_address_find(&proxies, header, header, &found);
    buf_free(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);
    struct client_address a, again;
    char printed[CLIENT_ADDRESS_TEXT];
    struct trusted_proxies proxies;
    struct error error;
    if (client_address_parse(text, &a) &&
        (!client_address_parse(bytes_str(client_address_print(&a, printed)), &again) ||
            memcmp(&a, &again, sizeof a) != 0))
        abort();
    check(text);
    char *copy = bytes_dup(text);
    (void)trusted_proxies_parse(copy, &proxies, &error);
    trusted_proxies_free(&proxies);
    free(copy);
    return 0;
}
