#include "counts/set_text.h"

#include "sets/set_code.h"

#include <inttypes.h>
#include <nettle/base64.h>
#include <string.h>

#define REST_DIGITS 12 /* hexadecimal digits of the bits of a hash that are not in the id */
#define REST_MASK ((UINT64_C(1) << 48) - 1)

static const char HEX[] = "0123456789abcdef";

bool set_text_is(struct bytes value)
{
    if (value.len == 0 || (*value.ptr != '=' && *value.ptr != '#' && *value.ptr != '@'))
        return false;
    for (size_t i = 1; i < value.len && i < SET_TEXT_PROBE && value.ptr[i] != ' ' && value.ptr[i] != '\n';
         i++)
        if (value.ptr[i] == ':')
            return false; /* a count whose name begins with such a character */
    return true;
}

static void append_id(struct bytes id, struct buf *out)
{
    for (size_t i = 0; i < id.len; i++) {
        buf_append_char(out, HEX[(unsigned char)id.ptr[i] >> 4]);
        buf_append_char(out, HEX[(unsigned char)id.ptr[i] & 15]);
    }
}

/* Reads hexadecimal digits. Returns false if the text has other characters. */
static bool parse_digits(struct bytes text, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char *digit = memchr(HEX, text.ptr[i], 16);
        if (!digit)
            return false;
        *out = *out << 4 | (uint64_t)(digit - HEX);
    }
    return true;
}

static bool parse_id(struct bytes text, char id[SET_CHUNK_ID])
{
    uint64_t digits;
    if (!parse_digits(text, &digits))
        return false;
    for (size_t i = SET_CHUNK_ID; i-- > 0; digits >>= 8)
        id[i] = (char)digits;
    return true;
}

void set_text_append_place(struct bytes id, struct bytes chunk, struct buf *out)
{
    append_id(id, out);
    if (set_chunk_is_hashes(id))
        buf_printf(out, "%012" PRIx64, set_chunk_hash(chunk, 0) & REST_MASK);
}

bool set_text_parse_place(struct bytes text, uint64_t *code)
{
    uint64_t kind;
    if (text.len < SET_TEXT_ID || !parse_digits(bytes_of(text.ptr, 2), &kind) ||
        !parse_digits(bytes_of(text.ptr + 2, text.len - 2), code))
        return false;
    if (kind == 0)
        *code <<= 16;
    return kind == 0 ? text.len == SET_TEXT_ID
                     : kind == 1 && text.len == SET_TEXT_ID + REST_DIGITS && *code >= SET_NUMBER_END;
}

static void append_base64(struct bytes b, struct buf *out)
{
    struct base64_encode_ctx c;
    base64_encode_init(&c);
    buf_reserve(out, BASE64_ENCODE_LENGTH(b.len) + BASE64_ENCODE_FINAL_LENGTH);
    out->len += base64_encode_update(&c, out->ptr + out->len, b.len, (const uint8_t *)b.ptr);
    out->len += base64_encode_final(&c, out->ptr + out->len);
    while (out->ptr[out->len - 1] == '=')
        out->len--;
}

/* Appends the decoded bytes. Returns false unless append_base64 can have written the text. The decoder skips blanks, and at
 * the padding it checks that unused bits are 0. */
static bool decode_base64(struct bytes text, struct buf *out)
{
    struct base64_decode_ctx c;
    size_t n, none, padding = (4 - text.len % 4) % 4;
    base64_decode_init(&c);
    buf_reserve(out, BASE64_DECODE_LENGTH(text.len));
    if (text.len % 4 == 1 || memchr(text.ptr, '=', text.len) ||
        !base64_decode_update(&c, &n, (uint8_t *)out->ptr + out->len, text.len, text.ptr))
        return false;
    out->len += n;
    return n == text.len * 6 / 8 && base64_decode_update(&c, &none, (uint8_t[2]){0}, padding, "===") &&
           base64_decode_final(&c);
}

void set_text_append_chunk(bool is_first, struct bytes id, struct bytes chunk, struct buf *out)
{
    buf_append_char(out, is_first ? '@' : ' ');
    append_id(id, out);
    append_base64(chunk, out);
}

void set_text_add(struct set_text_size *s, struct bytes id, struct bytes chunk)
{
    if (s->size < SET_TEXT_MEMBERS)
        set_chunk_codes(id, chunk, s->members + s->size, SET_TEXT_MEMBERS - (size_t)s->size);
    s->size += set_chunk_size(id, chunk);
}

void set_text_append_size(const struct set_text_size *s, struct buf *out)
{
    char text[SET_CODE_TEXT];
    if (s->size > SET_TEXT_MEMBERS) {
        buf_append_char(out, '#');
        buf_append_u64(out, s->size);
        return;
    }
    for (size_t i = 0; i < s->size; i++) {
        buf_append_char(out, i == 0 ? '=' : ' ');
        buf_append(out, text, set_code_print(s->members[i], text));
    }
}

void set_text_begin(struct set_text *t)
{
    t->form = '\0';
    t->n = t->at = 0;
}

/* Removes the first word and the space after it from *rest. Returns false if the word is empty or no word follows the
 * space. */
static bool take_word(struct bytes *rest, struct bytes *word)
{
    const char *space = rest->len > 0 ? memchr(rest->ptr, ' ', rest->len) : NULL;
    *word = bytes_of(rest->ptr, space ? (size_t)(space - rest->ptr) : rest->len);
    size_t n = word->len + (space != NULL);
    *rest = bytes_of(rest->ptr + n, rest->len - n);
    return word->len > 0 && (!space || rest->len > 0);
}

static const char *read_members(struct set_text *t, struct bytes *rest)
{
    struct bytes word;
    do {
        if (t->n == SET_TEXT_MEMBERS)
            return "a set with `=` has more than three members";
        if (!take_word(rest, &word) || !set_code_parse(word, &t->members[t->n]))
            return "a member is malformed";
        if (t->n > 0 && t->members[t->n] <= t->members[t->n - 1])
            return "the members do not ascend";
        t->n++;
    } while (rest->len > 0);
    return NULL;
}

/* Makes the chunk of the next members that have the same id. */
static void make_chunk(struct set_text *t)
{
    size_t from = t->at;
    set_chunk_id(t->members[from], t->id);
    do {
        if (++t->at < t->n)
            set_chunk_id(t->members[t->at], t->next);
    } while (t->at < t->n && memcmp(t->id, t->next, SET_CHUNK_ID) == 0);
    set_chunk_append(t->members + from, t->at - from, &t->chunk);
}

static const char *read_chunk(struct set_text *t, struct bytes *rest, bool is_first)
{
    struct bytes word;
    if (!take_word(rest, &word) || word.len <= SET_TEXT_ID ||
        !parse_id(bytes_of(word.ptr, SET_TEXT_ID), t->next) ||
        !decode_base64(bytes_of(word.ptr + SET_TEXT_ID, word.len - SET_TEXT_ID), &t->chunk) ||
        !set_chunk_check(bytes_of(t->next, SET_CHUNK_ID), buf_bytes(&t->chunk)))
        return "a chunk is malformed";
    bool is_hashes = set_chunk_is_hashes(bytes_of(t->next, SET_CHUNK_ID));
    int order = is_first ? 1 : memcmp(t->next, t->id, SET_CHUNK_ID);
    if (order < 0 || (order == 0 && (!is_hashes || set_chunk_hash(buf_bytes(&t->chunk), 0) <= t->last)))
        return "the chunks do not ascend";
    memcpy(t->id, t->next, SET_CHUNK_ID);
    if (is_hashes)
        t->last = set_chunk_hash(buf_bytes(&t->chunk), t->chunk.len / sizeof t->last - 1);
    return NULL;
}

bool set_text_next(
    struct set_text *t, struct bytes *rest, struct bytes *id, struct bytes *chunk, const char **why)
{
    bool is_first = t->form == '\0';
    *why = NULL;
    if (is_first && rest->len > 0) {
        t->form = rest->ptr[0];
        *rest = bytes_of(rest->ptr + 1, rest->len - 1);
        *why = t->form == '='   ? read_members(t, rest)
               : t->form == '@' ? NULL
               : t->form == '#' ? SET_TEXT_IS_SIZE
                                : "a set begins with neither `=` nor `@`";
    }
    if (*why || (t->form == '@' ? !is_first && rest->len == 0 : t->at == t->n))
        return false;
    buf_clear(&t->chunk);
    if (t->form == '@')
        *why = read_chunk(t, rest, is_first);
    else
        make_chunk(t);
    *id = bytes_of(t->id, SET_CHUNK_ID);
    *chunk = buf_bytes(&t->chunk);
    return !*why;
}

void set_text_free(struct set_text *t)
{
    buf_free(&t->chunk);
}
