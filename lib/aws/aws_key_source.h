/* aws_key_source: the keys that sign requests: from a file, the environment, or the metadata service of an EC2 instance.
 *
 * The file is used if one is set, else the instance if `instance` is set, else AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
 * AWS_SESSION_TOKEN of the environment.
 *
 * 1. The file is read for each request, so that replaced keys need no restart.
 * 2. The metadata service is asked only with `instance`, and only by IMDSv2 (a PUT for a session token first). Its address is
 *    http://169.254.169.254, or AWS_EC2_METADATA_SERVICE_ENDPOINT of the environment. The keys are fetched again before they
 *    expire. Until the first keys arrive, aws_key_source_get fails, and its caller tries again.
 * 3. Only the loop's thread may use a source. Nothing blocks, except aws_key_source_wait. */
#ifndef MILLRACE_AWS_KEY_SOURCE_H
#define MILLRACE_AWS_KEY_SOURCE_H

#include "aws/aws_signature.h"

struct event_base;
struct aws_key_source;

struct aws_key_source_config {
    struct event_base *base;
    const char *file; /* NULL: no file; copied */
    bool instance;
};

/* Returns NULL with the error if the address of the metadata service is invalid. */
struct aws_key_source *aws_key_source_new(const struct aws_key_source_config *config, struct error *error);
void aws_key_source_free(struct aws_key_source **s);
/* Returns 0, or -1 with the error. `now` is the wall clock. */
int aws_key_source_get(struct aws_key_source *s, usec_t now, struct aws_keys *out, struct error *error);
/* Runs the loop until the metadata service has answered. For command-line tools. */
void aws_key_source_wait(struct aws_key_source *s);

#endif
