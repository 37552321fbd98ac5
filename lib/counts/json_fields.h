/* json_fields: selected top-level fields of a JSON object, by simdjson's DOM parser behind a C header.
 *
 * 1. The whole line is validated (UTF-8, escapes, numbers, nesting), whichever fields are selected. Refused are text that is
 *    not JSON, a byte order mark, integers beyond 64 bits, doubles out of range, lone surrogates, and nesting past 1000
 *    levels, a scalar counted as one.
 * 2. Of duplicate fields the last wins. Names are compared after unescaping.
 * 3. Memory is allocated only for a line longer than all before it, and kept until free.
 *
 * One thread at a time. */
#ifndef MILLRACE_JSON_FIELDS_H
#define MILLRACE_JSON_FIELDS_H

#include "base/bytes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_fields;

enum json_type {
    JSON_MISSING,
    JSON_NULL,
    JSON_BOOL,
    JSON_I64,
    JSON_U64,
    JSON_F64,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json_value {
    enum json_type type; /* U64 only for what does not fit I64 */
    union {
        bool boolean;
        int64_t i64;
        uint64_t u64;
        double f64;
        struct bytes string; /* unescaped; valid until the next extract or free */
    } v;
};

/* The names are copied; n may be 0. */
struct json_fields *json_fields_new(const char *const *names, size_t n);
void json_fields_free(struct json_fields **f);

/* values[i] answers names[i]. 0, or -1 with *reason (static text): "not JSON: ...", "not an object". */
int json_fields_extract(
    struct json_fields *f, struct bytes line, struct json_value *values, const char **reason);

/* A small document, such as another daemon's reply. NULL when it is not JSON. */
struct json_doc;
struct json_doc *json_doc_parse(struct bytes text);
void json_doc_free(struct json_doc **d);
/* By JSON pointer ("/rows/0/n"); type JSON_MISSING when the document has no such value. Strings live as long as the doc. */
struct json_value json_doc_at(const struct json_doc *d, const char *pointer);
/* An integer of at least 0, also as a string of digits (offsets, which may pass 2^53). False leaves *out alone. */
static inline bool json_doc_u64(const struct json_doc *d, const char *pointer, uint64_t *out)
{
    struct json_value v = json_doc_at(d, pointer);
    if (v.type == JSON_STRING)
        return bytes_to_u64(v.v.string, out);
    if (v.type != JSON_U64 && (v.type != JSON_I64 || v.v.i64 < 0))
        return false;
    *out = v.type == JSON_U64 ? v.v.u64 : (uint64_t)v.v.i64;
    return true;
}
size_t json_doc_length(
    const struct json_doc *d, const char *pointer); /* elements of an array, members of an object */
/* The name of an object's i-th member, as long-lived as the doc; BYTES_NONE when there is none. */
struct bytes json_doc_name(const struct json_doc *d, const char *pointer, size_t i);

#ifdef __cplusplus
}
#endif
#endif
