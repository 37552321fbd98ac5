/* client_address: the address of the client, from the connection or from the header of a trusted proxy.
 *
 * Each proxy appends an address to the header: the address from which it has accepted the request. A client may send
 * the header with any content. So the header counts only if the request comes from a trusted proxy, and the client is
 * the rightmost address that is not a trusted proxy.
 *
 * 1. No content of the header can change the result if the request comes from another address than a trusted proxy.
 * 2. Content to the left of the client's address cannot change the result.
 * 3. An IPv4 address and its IPv4-mapped form (::ffff:192.0.2.7) are the same address.
 *
 * All functions take time linear in their input. */
#ifndef MILLRACE_CLIENT_ADDRESS_H
#define MILLRACE_CLIENT_ADDRESS_H

#include "base/bytes.h"
#include "base/error.h"
#include <netinet/in.h>

struct client_address {
    uint8_t bytes[16]; /* an IPv6 address; an IPv4 address in its mapped form */
};
#define CLIENT_ADDRESS_TEXT INET6_ADDRSTRLEN

/* Reads 192.0.2.7, 192.0.2.7:80, 2001:db8::1, [2001:db8::1] or [2001:db8::1]:80. Ignores a zone (%eth0). */
bool client_address_parse(struct bytes text, struct client_address *out);
bool client_address_is_v4(const struct client_address *a);
const char *client_address_print(const struct client_address *a, char out[CLIENT_ADDRESS_TEXT]);

/* The addresses of trusted proxies. A zeroed struct contains none. */
struct trusted_proxies {
    struct trusted_network {
        struct client_address address;
        unsigned bits;
    } * networks;
    size_t n, room;
    bool has_unix; /* connections over a Unix socket */
};
/* Reads addresses, networks such as 10.0.0.0/8, and the word `unix`, separated by blanks or commas. Returns 0, or -1 with
 * the error. The caller frees *out in both cases. */
int trusted_proxies_parse(const char *text, struct trusted_proxies *out, struct error *error);
void trusted_proxies_free(struct trusted_proxies *t);

/* Finds the client. `peer`: address of the connection, or "unix"; in a log, `peer` may be a list, whose last address
 * is that of the connection. `header`: addresses separated by commas, as in X-Forwarded-For. If all addresses are
 * trusted proxies, the leftmost address of the header is the client. Returns false if an address is malformed or
 * `unknown`, or if a trusted proxy has sent no header. */
bool client_address_find(
    const struct trusted_proxies *t, struct bytes peer, struct bytes header, struct client_address *out);

#endif
