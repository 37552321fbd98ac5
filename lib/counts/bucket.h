/* bucket: the bucket of a number, for histograms.
 *
 * A bucket is zero, or a sign, two significant digits and an exponent. The digits of a number are cut, not rounded: bucket
 * 12 has the numbers from 12 to below 13, bucket -0.0012 those from -0.0012 to above -0.0013. The middle of a bucket differs
 * from each of its numbers by at most 5 %.
 *
 *     number                  bucket     middle
 *     0, -0.0                 0          0
 *     12, 12.99, "12.5"       12         12.5
 *     1234                    1200       1250
 *     0.00123                 0.0012     0.00125
 *     12345678901             1.2e10     1.25e10
 *
 * A bucket's name is the number of the bucket that is nearest to zero. A name from 10^-6 to below 10^10 has no
 * exponent. Records contain the name, or the hash of a name with a point (records.h).
 *
 * In memory, a bucket is an integer: buckets are in the order of their numbers, and 0 is the bucket of zero.
 */
#ifndef MILLRACE_BUCKET_H
#define MILLRACE_BUCKET_H

#include "json/json_fields.h"

#define BUCKET_EXPONENT_MIN (-9) /* lowest exponent of the first digit of a number other than zero */
#define BUCKET_EXPONENT_MAX 18
#define BUCKET_LAST (90 * (BUCKET_EXPONENT_MAX - BUCKET_EXPONENT_MIN + 1)) /* the first is -BUCKET_LAST */
#define BUCKET_TEXT_MAX 16 /* bytes of a name or a middle, with NUL */

/* Sets *bucket to the bucket of a JSON number, or of a text -?[0-9]+(\.[0-9]+)?. Returns NULL, or the reason why the value
 * has no bucket ("is not a decimal"). */
const char *bucket_read(const struct json_value *v, int *bucket);
/* Reads the name of a bucket. Returns false if the text is not a name that bucket_print writes. */
bool bucket_parse(struct bytes name, int *bucket);
/* Write a bucket's name, and its middle. Both return the length. */
size_t bucket_print(int bucket, char out[BUCKET_TEXT_MAX]);
size_t bucket_print_middle(int bucket, char out[BUCKET_TEXT_MAX]);

#endif
