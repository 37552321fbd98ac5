/* url_host: the host of a URL, parsed and serialized as in the URL Standard (3.5, 3.6).
 *
 *     %45xample.COM.    example.com          a name: decoded, mapped by IDNA, in lowercase, without dots at the end
 *     Bücher.example   xn--bcher-kva.example
 *     017700000001      127.0.0.1            IPv4, if the last label is a number; octal, hexadecimal, 1 to 4 parts
 *     [0:0::1]          [::1]                IPv6, compressed
 *
 * 1. A host that this module returns is ASCII, and is its own result.
 * 2. A name contains none of the standard's forbidden domain code points, and its last label is not a number. */
#ifndef MILLRACE_URL_HOST_H
#define MILLRACE_URL_HOST_H

#include "base/bytes.h"

#define URL_HOST_MAX 253       /* bytes of a name in DNS */
#define URL_HOST_TEXT_MAX 2048 /* bytes of a host before decoding */

/* Appends the host to `out`. Returns false, and leaves `out` unchanged, if the text is not a valid host. */
bool url_host_append(struct bytes text, struct buf *out, bool *is_address);

#endif
