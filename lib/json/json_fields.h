/* json_fields: extracts selected fields of a JSON object with simdjson's DOM parser. Paths (json_path.h) name the fields.
 *
 * 1. The parser validates the whole line (UTF-8, escapes, numbers, nesting), whichever fields are selected. It
 *    refuses a byte order mark, numbers out of range, lone surrogates, and nesting deeper than 1000 levels, a
 *    scalar included.
 * 2. If a member occurs twice, the last one wins, also inside a path. Names are compared after unescaping. A path that leads
 *    nowhere yields JSON_MISSING.
 * 3. Memory grows only for a line that is longer than all lines before it, and is freed only by json_fields_free.
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
    enum json_type type; /* U64 only for numbers that do not fit I64 */
    union {
        bool boolean;
        int64_t i64;
        uint64_t u64;
        double f64;
        struct bytes string; /* unescaped; valid until the next extract or free */
    } v;
};

/* The paths are copied; n may be 0. Returns NULL if one is not a valid path. */
struct json_fields *json_fields_new(const char *const *paths, size_t n);
void json_fields_free(struct json_fields **f);

/* Sets values[i] to the field at paths[i]. Returns 0, or -1 with a static text in *reason: "not JSON: ...", "not an object". */
int json_fields_extract(
    struct json_fields *f, struct bytes line, struct json_value *values, const char **reason);

/* A small parsed document, such as another daemon's reply. json_doc_parse returns NULL if the text is not JSON. In a document that is NULL,
 * every value is absent. */
struct json_doc;
struct json_doc *json_doc_parse(struct bytes text);
void json_doc_free(struct json_doc **d);
/* Finds a value by JSON pointer ("/rows/0/n"). The type of an absent value is JSON_MISSING. Strings are valid until the
 * document is freed. */
struct json_value json_doc_at(const struct json_doc *d, const char *pointer);
/* Appends "/" and a member's name to a JSON pointer. */
void json_pointer_append(struct buf *pointer, struct bytes name);
/* The text of a string, or BYTES_NONE for any other value. */
struct bytes json_doc_text(const struct json_doc *d, const char *pointer, ...)
    __attribute__((format(printf, 2, 3)));
/* Copies a string without NUL that fits into `room` bytes, and terminates it. On failure *out is unchanged. */
bool json_doc_copy(const struct json_doc *d, char *out, size_t room, const char *pointer, ...)
    __attribute__((format(printf, 4, 5)));
/* Reads a non-negative integer, or a string of digits such as an offset above 2^53. On failure *out is unchanged. */
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
/* The same, but 0 instead of a failure. */
uint64_t json_doc_number(const struct json_doc *d, const char *pointer, ...)
    __attribute__((format(printf, 2, 3)));
size_t json_doc_length(
    const struct json_doc *d, const char *pointer); /* elements of an array, members of an object */
/* The name of an object's i-th member, or BYTES_NONE. Valid until the document is freed. */
struct bytes json_doc_name(const struct json_doc *d, const char *pointer, size_t i);

/* Calls `item` for each element of an array, in order, with a document of the element, which is valid during the call. An absent
 * array has no elements. False: the value is not an array, or `item` has returned false, and the rest was left out. Takes time in
 * proportion to the array, as json_doc_at for each element does not. */
bool json_doc_each(const struct json_doc *d, const char *pointer,
    bool (*item)(const struct json_doc *item, size_t i, void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
