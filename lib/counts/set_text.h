/* set_text: the texts of a set in a record (docs/formats/records.md).
 *
 *     members   =17 204 ~a1b2c3d4e5f60718     all members, at most three (set_code_print)
 *     size      #8211                         the size of a larger set
 *     chunks    @000000EQDMAA 01a1b2GAf25dTDsqE   for each chunk the id in hexadecimal digits, then the base64 of the chunk
 *
 * 1. A word of a set never contains ':', and a word of counts always does.
 * 2. set_text_next accepts exactly the texts of members and chunks that the other functions write. The chunks that it
 *    returns have passed set_chunk_check, and their codes ascend.
 */
#ifndef MILLRACE_SET_TEXT_H
#define MILLRACE_SET_TEXT_H

#include "base/bytes.h"
#include "sets/set_chunk.h"

#define SET_TEXT_MEMBERS 3             /* a set with more members has the text of its size */
#define SET_TEXT_ID (2 * SET_CHUNK_ID) /* hexadecimal digits of a chunk id */
#define SET_TEXT_IS_SIZE "a size of a set cannot be imported; export the set with its members"

/* True if the value of a record that is not a lookup is the text of a set. The first SET_TEXT_PROBE bytes suffice. */
#define SET_TEXT_PROBE 16
bool set_text_is(struct bytes value);

/* Appends the place of a chunk in a set: the digits of the id, then for hashes those of the remaining bits of the first
 * code. An answer that ends inside a set has the place of the next chunk. */
void set_text_append_place(struct bytes id, struct bytes chunk, struct buf *out);
/* Reads a place: the next chunk begins at *code or later. Returns false if the text is not a place. */
bool set_text_parse_place(struct bytes text, uint64_t *code);
/* Appends the word of a chunk. The first word begins with '@', and a space precedes each other word. */
void set_text_append_chunk(bool is_first, struct bytes id, struct bytes chunk, struct buf *out);

/* The size and the smallest members of a set whose chunks are added in ascending order. Zeroed: no chunk. */
struct set_text_size {
    uint64_t size, members[SET_TEXT_MEMBERS];
};
void set_text_add(struct set_text_size *s, struct bytes id, struct bytes chunk);
/* Appends the text of the members or of the size. */
void set_text_append_size(const struct set_text_size *s, struct buf *out);

/* Reads the chunks in the text of a set. Zeroed: at the beginning of a record's value. */
struct set_text {
    char form; /* '=' or '@'; NUL: at the beginning */
    char id[SET_CHUNK_ID], next[SET_CHUNK_ID];
    uint64_t last; /* the last code of the last chunk, if this is a chunk of hashes */
    size_t n, at;  /* members of the text that were read, and those that were returned */
    uint64_t members[SET_TEXT_MEMBERS];
    struct buf chunk;
};
/* Begins another value and keeps the memory. */
void set_text_begin(struct set_text *t);
/* Sets *id and *chunk to the next chunk and removes its words from *rest. The results are valid until the next call.
 * *rest must hold all words of members, and at least one word of chunks. Returns false if no chunk remains or *why is
 * set to the reason why the text is malformed. */
bool set_text_next(
    struct set_text *t, struct bytes *rest, struct bytes *id, struct bytes *chunk, const char **why);
void set_text_free(struct set_text *t);

#endif
