/* json_fields: extracts selected fields of a JSON object with simdjson's DOM parser. Paths (json_path.h) select the
 * fields.
 *
 * 1. The parser validates the whole line (UTF-8, escapes, numbers, nesting), whichever fields are selected. The
 *    parser refuses a byte order mark, numbers out of range, lone surrogates, and more than 1000 nested levels. A
 *    scalar counts as a level.
 * 2. If an object has two members with the same name, the last member counts, also inside a path. Names are unescaped
 *    before they are compared. The value of a path that matches no member or element is JSON_MISSING.
 * 3. Memory grows only for a line that is longer than all earlier lines. Only json_fields_free frees the memory.
 *
 * Only one thread at a time may use a struct json_fields. */
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
    enum json_type type; /* JSON_U64 only for numbers above INT64_MAX */
    union {
        bool boolean;
        int64_t i64;
        uint64_t u64;
        double f64;
        struct bytes string; /* unescaped; valid until the next json_fields_extract or json_fields_free */
    } v;
};

/* Copies the paths; n may be 0. Returns NULL if a path is invalid. */
struct json_fields *json_fields_new(const char *const *paths, size_t n);
void json_fields_free(struct json_fields **f);

/* Sets values[i] to the field at paths[i]. Returns 0, or -1 with a static text in *reason: "not JSON: ..." or "not an
 * object". */
int json_fields_extract(
    struct json_fields *f, struct bytes line, struct json_value *values, const char **reason);

/* A small parsed document, such as another daemon's reply. json_doc_parse returns NULL if the text is not JSON. A
 * NULL document contains no values. */
struct json_doc;
struct json_doc *json_doc_parse(struct bytes text);
void json_doc_free(struct json_doc **d);
/* Finds a value by JSON pointer ("/rows/0/n"). The type of an absent value is JSON_MISSING. Strings are valid until the
 * document is freed. */
struct json_value json_doc_at(const struct json_doc *d, const char *pointer);
/* Appends "/" and a member's name to a JSON pointer. */
void json_pointer_append(struct buf *pointer, struct bytes name);
/* Returns the text of a string, or BYTES_NONE if the value is not a string. `pointer` is formatted as by printf. */
struct bytes json_doc_text(const struct json_doc *d, const char *pointer, ...)
    __attribute__((format(printf, 2, 3)));
/* Copies a string to `out` and terminates the copy. Fails and leaves *out unchanged if the value is not a string,
 * contains a NUL or does not fit in `room` bytes. */
bool json_doc_copy(const struct json_doc *d, char *out, size_t room, const char *pointer, ...)
    __attribute__((format(printf, 4, 5)));
/* Reads a non-negative integer, or a string of digits such as an offset above 2^53. Returns false and leaves *out
 * unchanged for any other value. */
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
/* Like json_doc_u64, but returns the number, or 0 on failure. */
uint64_t json_doc_number(const struct json_doc *d, const char *pointer, ...)
    __attribute__((format(printf, 2, 3)));
size_t json_doc_length(const struct json_doc *d,
    const char *pointer); /* number of elements of an array or members of an object */
/* Returns the name of an object's i-th member, or BYTES_NONE. The name is valid until the document is freed. */
struct bytes json_doc_name(const struct json_doc *d, const char *pointer, size_t i);

/* Calls `item` for each element of an array, in order. The document that `item` gets contains the element and is
 * valid during the call. Returns true for an absent array. Returns false if the value is not an array, or as soon as
 * `item` returns false. The time is linear in the array's length; json_doc_at for each element takes quadratic time. */
bool json_doc_each(const struct json_doc *d, const char *pointer,
    bool (*item)(const struct json_doc *item, size_t i, void *arg), void *arg);
/* Calls `member` for each member of an object, in order; of members with the same name only for the first, which is also
 * the one that json_doc_at finds. The document of the value is valid during the call. Returns false if the value is not
 * an object, or as soon as `member` returns false. */
bool json_doc_each_member(const struct json_doc *d, const char *pointer,
    bool (*member)(struct bytes name, const struct json_doc *value, void *arg), void *arg);
/* Appends the JSON of a value without white space. Appends nothing if the value is absent. */
void json_doc_print(const struct json_doc *d, const char *pointer, struct buf *out);

#ifdef __cplusplus
}
#endif
#endif
