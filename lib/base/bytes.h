/* bytes: spans of bytes, and a buffer that grows.
 *
 * A message, a line or a key may contain any byte, NUL included, so no function of this header looks for a
 * terminator. A `struct bytes` does not own its memory. A function uses a span argument only until the function
 * returns, unless a header says otherwise. `struct buf` owns its memory; a zeroed `struct buf` is empty and ready.
 * Appends cannot fail: if memory runs out, the process aborts. */
#ifndef MILLRACE_BYTES_H
#define MILLRACE_BYTES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bytes {
    const char *ptr;
    size_t len;
};

#define BYTES_LITERAL(s) ((struct bytes){"" s, sizeof s - 1})
#define BYTES_NONE ((struct bytes){NULL, 0})

static inline struct bytes bytes_of(const void *ptr, size_t len)
{
    return (struct bytes){(const char *)ptr, len};
}

static inline struct bytes bytes_str(const char *s)
{
    return (struct bytes){s, s ? strlen(s) : 0};
}

static inline bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool bytes_equal_str(struct bytes a, const char *s)
{
    return bytes_equal(a, bytes_str(s));
}

/* Compares as memcmp does; a prefix sorts before the longer span. */
int bytes_compare(struct bytes a, struct bytes b);
int bytes_compare_ended(struct bytes a, struct bytes b, char end); /* compares with `end` appended to both */
bool bytes_starts_with(struct bytes a, struct bytes prefix);
bool bytes_equal_nocase(struct bytes a, struct bytes b); /* ignores ASCII case */
struct bytes bytes_trim(struct bytes text);              /* without white space at either end */
struct bytes bytes_without_line_end(struct bytes text);  /* without CR, LF or CRLF at the end */
struct bytes bytes_without_mark(struct bytes text); /* without UTF-8's byte order mark at the beginning */
int bytes_hex_digit(char c);                        /* the value, or -1 */

/* Reads one or more decimal digits, without a sign or a space. Returns false and leaves *out unchanged if `text` has
 * another form or exceeds a uint64_t. */
bool bytes_to_u64(struct bytes text, uint64_t *out);
/* Reads seconds with an optional fraction ("1332612345.25") as microseconds. Ignores fraction digits after the sixth.
 * Returns false if `text` has another form or the microseconds exceed an int64_t. */
bool bytes_to_usec(struct bytes text, int64_t *out);
/* Like bytes_to_u64, but `text` may begin with '-'. */
bool bytes_to_i64(struct bytes text, int64_t *out);
/* Reads at most 15 digits with an optional minus and point, to the number that strtod reads. Returns false for all other texts. */
bool bytes_to_short_decimal(struct bytes text, double *out);

/* True if `text` is valid as the name of a queue, stream, producer or reader: [A-Za-z0-9_.-]{1,64}, but not "." or
 * "..". A valid name is safe as a file name. */
#define NAME_LEN_MAX 64
bool bytes_is_name(struct bytes text);
/* True if each byte is one of [A-Za-z0-9_.-]. */
bool bytes_are_of_name(struct bytes text);
/* Limit of a producer's name, a NUL and the tag of the producer's mark together, in bytes. */
#define MARK_LABEL_MAX 255

/* Removes the first word and the space after it from *text. Returns the word. */
struct bytes bytes_take_word(struct bytes *text);
/* Removes the next word from *list and stores the word in *word. *list may be NULL. Returns false if the list has no
 * more words. */
bool bytes_next_word(const char **list, const char *separators, struct bytes *word);
/* Removes the first line and its LF from *text, and stores the line without the LF in *line. The last line may end without
 * an LF. Returns false if *text is empty. */
static inline bool bytes_take_line(struct bytes *text, struct bytes *line)
{
    if (text->len == 0)
        return false;
    const char *lf = (const char *)memchr(text->ptr, '\n', text->len);
    *line = bytes_of(text->ptr, lf ? (size_t)(lf - text->ptr) : text->len);
    size_t used = line->len + (lf != NULL);
    *text = bytes_of(text->ptr + used, text->len - used);
    return true;
}
/* The number of LFs. */
uint64_t bytes_count_lines(struct bytes text);

/* Returns a NUL-terminated copy from malloc, which the caller frees. */
char *bytes_dup(struct bytes b);

/* Reads a size with an optional unit: 512, 64K, 64M, 2G (powers of 1024; K, KB and KiB are the same). */
bool bytes_to_size(struct bytes text, uint64_t *out);

struct buf {
    char *ptr;
    size_t len;
    size_t cap;
};

void buf_grow(struct buf *b, size_t more); /* called by buf_reserve */

static inline void buf_reserve(struct buf *b, size_t more) /* makes room for `more` bytes after `len` */
{
    if (more > b->cap - b->len)
        buf_grow(b, more);
}

static inline void buf_append(struct buf *b, const void *ptr, size_t len)
{
    if (len == 0)
        return;
    buf_reserve(b, len);
    memcpy(b->ptr + b->len, ptr, len);
    b->len += len;
}

static inline void buf_append_char(struct buf *b, char c)
{
    buf_reserve(b, 1);
    b->ptr[b->len++] = c;
}

static inline void buf_append_bytes(struct buf *b, struct bytes s)
{
    buf_append(b, s.ptr, s.len);
}

static inline void buf_append_str(struct buf *b, const char *s)
{
    buf_append(b, s, strlen(s));
}

void buf_append_u64(struct buf *b, uint64_t n);     /* decimal digits */
void buf_append_hex(struct buf *b, struct bytes s); /* two hexadecimal digits for each byte */
/* Appends a text with control bytes, which could change a terminal, as \xHH. */
void buf_append_printable(struct buf *b, struct bytes s);
/* Appends the bytes that pairs of hexadecimal digits encode. Returns false at the first character outside a pair; the
 * bytes of earlier pairs stay appended. */
bool buf_append_unhex(struct buf *b, struct bytes hex);
/* buf_printf and buf_vprintf also write a terminating NUL, which `len` does not count. The other append functions
 * write no NUL. */
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
bool bytes_is_utf8(struct bytes s); /* RFC 3629 */
void buf_append_utf8(struct buf *b, uint32_t character);
/* Appends `s` as a JSON string with quotes. Escapes quotes, backslashes and control characters, and replaces invalid
 * UTF-8 by U+FFFD. */
void buf_append_json(struct buf *b, struct bytes s);
/* Appends the text between the quotes of a JSON string with its escapes decoded, at most text.len bytes. Returns false at
 * the first invalid escape; the text before it stays appended. */
bool buf_append_json_text(struct buf *b, struct bytes text);
/* Appends one CSV field, with quotes if RFC 4180 requires them. If a spreadsheet would read the text as a formula, an
 * apostrophe precedes the text. */
void buf_append_csv(struct buf *b, struct bytes s);
static inline void buf_clear(struct buf *b) /* keeps the memory */
{
    b->len = 0;
}
void buf_free(struct buf *b); /* frees the memory and zeroes *b */

static inline struct bytes buf_bytes(const struct buf *b)
{
    return (struct bytes){b->ptr, b->len};
}

/* The mem_ functions replace malloc, calloc, realloc and strdup, but abort with a message on stderr instead of
 * returning NULL. */
void *mem_alloc(size_t size);
void *mem_zalloc(size_t size);
void *mem_realloc(void *old, size_t size);
char *mem_strdup(const char *s);
/* Gives the array `ptr` room for `n` items. `cap` is the present room; `ptr` and `cap` start as zero. A growing array
 * at least doubles. ARRAY_ROOM and ARRAY_ADD evaluate their arguments several times. */
#define ARRAY_ROOM(ptr, cap, n)                                                                              \
    ((n) > (cap) ? (void)((ptr) = mem_grow((ptr), &(cap), (n), sizeof *(ptr))) : (void)0)
/* Adds an uninitialized item to an array of `n` items, and returns the address of the item. */
#define ARRAY_ADD(ptr, n, cap) (ARRAY_ROOM(ptr, cap, (n) + 1), &(ptr)[(n)++])
void *mem_grow(void *old, size_t *cap, size_t n, size_t size); /* called by ARRAY_ROOM */
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif

#endif
