/* aws_signature: signs a request by AWS Signature Version 4.
 *
 * The target is /. The signature covers the method, the target, the headers host, x-amz-date, content-type, x-amz-security-token and
 * x-amz-target, and the body. The service refuses a signature whose time differs from its own by more than a few minutes.
 */
#ifndef MILLRACE_AWS_SIGNATURE_H
#define MILLRACE_AWS_SIGNATURE_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

#define AWS_KEY_MAX 256
#define AWS_TOKEN_MAX 4096

struct aws_keys {
    char id[AWS_KEY_MAX], secret[AWS_KEY_MAX];
    char session[AWS_TOKEN_MAX]; /* session token; "": none */
};

struct aws_request {
    const char *region, *service, *method, *host;
    const char *content_type; /* NULL: none */
    const char *operation;    /* value of X-Amz-Target; NULL: none */
    struct bytes body;
};

/* Reads a file in the form of ~/.aws/credentials: the lines aws_access_key_id, aws_secret_access_key and, optionally,
 * aws_session_token of the section [default], or before any section. Returns 0, or -1 with the error. */
int aws_keys_read(const char *path, struct aws_keys *out, struct error *error);
/* Copies a key or token. Returns false if it is empty, too long, or has a character outside of ASCII's printable ones. */
bool aws_key_copy(struct bytes value, char *out, size_t room);
/* Appends the header lines X-Amz-Date, X-Amz-Target, X-Amz-Security-Token and Authorization, without a NUL. `time`: microseconds since 1970. */
void aws_sign(const struct aws_keys *keys, const struct aws_request *r, usec_t time, struct buf *headers);

#endif
