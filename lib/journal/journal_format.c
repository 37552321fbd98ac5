#include "journal/journal_format.h"

#include "journal/journal.h"
#include "base/byte_order.h"
#include "base/xxh3.h"

static const char magic[8] = "MILLRJNL";
static const char zeros[FRAME_HEADER];

enum header_at {
    H_MAGIC = 0,
    H_VERSION = 8,
    H_FLAGS = 12,
    H_ID = 16,
    H_SEQUENCE = 32,
    H_BASE = SEGMENT_BASE_AT,
    H_PREVIOUS_END = 48,
    H_PREVIOUS_SIZE = 56,
    H_DURABLE = 64,
    H_CREATED = 72,
    H_LATEST = 80,
    H_BOOT = 88,
    H_REACH = 104,
    H_SALT = 112,
    H_OPENING = 120,
    H_PREVIOUS = 132,
    H_CHECKSUM = 144,
};
#define H_FLAG_NEVER 1u
#define H_FLAG_RECYCLED 2u

enum frame_at {
    F_CHECKSUM = 0,
    F_LENGTH = 8,
    F_KIND = 12,
    F_NAME_LENGTH = 13,
    F_RESERVED = 14,
    F_OFFSET = FRAME_OFFSET_AT,
    F_TIME = 24,
    F_DURABLE = 32,
    F_DURABLE_POSITION = 40,
    F_MARK = 48,
};

void segment_header_encode(const struct segment_header *h, char out[SEGMENT_HEADER])
{
    memset(out, 0, SEGMENT_HEADER);
    memcpy(out + H_MAGIC, magic, sizeof magic);
    put_le32(out + H_VERSION, JOURNAL_FORMAT_VERSION);
    put_le32(out + H_FLAGS, (h->never ? H_FLAG_NEVER : 0) | (h->recycled ? H_FLAG_RECYCLED : 0));
    memcpy(out + H_ID, h->id, sizeof h->id);
    put_le64(out + H_SEQUENCE, h->sequence);
    put_le64(out + H_BASE, h->base);
    put_le64(out + H_PREVIOUS_END, h->previous_end);
    put_le64(out + H_PREVIOUS_SIZE, h->previous_size);
    put_le64(out + H_DURABLE, h->durable);
    put_le64(out + H_CREATED, (uint64_t)h->created);
    put_le64(out + H_LATEST, (uint64_t)h->latest);
    memcpy(out + H_BOOT, h->boot, sizeof h->boot);
    put_le64(out + H_REACH, h->reach);
    put_le64(out + H_SALT, h->salt);
    opening_encode(h->opening, out + H_OPENING);
    opening_encode(h->previous, out + H_PREVIOUS);
    put_le64(out + H_CHECKSUM, XXH3_64bits(out, H_CHECKSUM));
}

enum header_status segment_header_decode(struct bytes file, struct segment_header *out)
{
    if (file.len < SEGMENT_HEADER || memcmp(file.ptr, magic, sizeof magic) != 0)
        return HEADER_DAMAGED;
    if (get_le32(file.ptr + H_VERSION) != JOURNAL_FORMAT_VERSION)
        return HEADER_VERSION;
    if (get_le64(file.ptr + H_CHECKSUM) != XXH3_64bits(file.ptr, H_CHECKSUM))
        return HEADER_DAMAGED;
    memcpy(out->id, file.ptr + H_ID, sizeof out->id);
    out->sequence = get_le64(file.ptr + H_SEQUENCE);
    out->base = get_le64(file.ptr + H_BASE);
    out->previous_end = get_le64(file.ptr + H_PREVIOUS_END);
    out->previous_size = get_le64(file.ptr + H_PREVIOUS_SIZE);
    out->durable = get_le64(file.ptr + H_DURABLE);
    out->created = (usec_t)get_le64(file.ptr + H_CREATED);
    out->latest = (usec_t)get_le64(file.ptr + H_LATEST);
    memcpy(out->boot, file.ptr + H_BOOT, sizeof out->boot);
    out->reach = get_le64(file.ptr + H_REACH);
    out->salt = get_le64(file.ptr + H_SALT);
    opening_decode(file.ptr + H_OPENING, out->opening);
    opening_decode(file.ptr + H_PREVIOUS, out->previous);
    out->never = get_le32(file.ptr + H_FLAGS) & H_FLAG_NEVER;
    out->recycled = get_le32(file.ptr + H_FLAGS) & H_FLAG_RECYCLED;
    /* With offsets above JOURNAL_OFFSET_MAX, arithmetic on offsets could overflow. */
    const uint64_t offsets[] = {out->base, out->previous_end, out->durable, out->reach};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        if (offsets[i] > JOURNAL_OFFSET_MAX)
            return HEADER_DAMAGED;
    return HEADER_OK;
}

uint64_t segment_seed(const struct segment_header *h)
{
    char key[32];
    memcpy(key, h->id, 16);
    put_le64(key + 16, h->sequence);
    put_le64(key + 24, h->salt);
    return XXH3_64bits(key, sizeof key);
}

static uint64_t frame_checksum(const char *at, size_t size, uint64_t seed, uint64_t position)
{
    uint64_t place = seed ^ (position * UINT64_C(0x9E3779B97F4A7C15));
    return XXH3_64bits_withSeed(at + F_LENGTH, size - F_LENGTH, place);
}

size_t frame_size(size_t name, size_t payload)
{
    return (FRAME_HEADER + name + payload + 7) & ~(size_t)7;
}

void frame_append(struct buf *b, const struct frame *f, const struct bytes *pieces, size_t n_pieces)
{
    size_t size = frame_size(f->name.len, f->payload.len);
    buf_reserve(b, size);
    char *at = b->ptr + b->len;
    memset(at, 0, FRAME_HEADER);
    put_le32(at + F_LENGTH, (uint32_t)f->payload.len);
    at[F_KIND] = (char)f->kind;
    at[F_NAME_LENGTH] = (char)f->name.len;
    put_le64(at + F_OFFSET, f->offset);
    put_le64(at + F_TIME, (uint64_t)f->time);
    put_le64(at + F_MARK, f->mark);
    b->len += FRAME_HEADER;
    buf_append_bytes(b, f->name);
    for (size_t i = 0; i < n_pieces; i++)
        buf_append_bytes(b, pieces[i]);
    size_t used = FRAME_HEADER + f->name.len + f->payload.len;
    buf_append(b, zeros, size - used);
}

size_t frame_seal(char *at, const struct frame_place *place)
{
    size_t size = frame_size((uint8_t)at[F_NAME_LENGTH], get_le32(at + F_LENGTH));
    put_le64(at + F_DURABLE, place->durable);
    put_le64(at + F_DURABLE_POSITION, place->durable_position);
    put_le64(at + F_CHECKSUM, frame_checksum(at, size, place->seed, place->position));
    return size;
}

enum frame_status frame_measure(struct bytes at, size_t *size)
{
    size_t there = at.len < FRAME_HEADER ? at.len : FRAME_HEADER;
    bool has_kind = there > F_KIND && at.ptr[F_KIND] != 0;
    if (!has_kind && (there == 0 || memcmp(at.ptr, zeros, there) == 0))
        return FRAME_NONE;
    if (there < FRAME_HEADER)
        return FRAME_SHORT;
    uint8_t kind = (uint8_t)at.ptr[F_KIND], name = (uint8_t)at.ptr[F_NAME_LENGTH];
    uint32_t length = get_le32(at.ptr + F_LENGTH);
    if (kind < FRAME_DATA || kind > FRAME_CLOSE || length > JOURNAL_FRAME_MAX)
        return FRAME_BAD;
    if (at.ptr[F_RESERVED] || at.ptr[F_RESERVED + 1])
        return FRAME_BAD;
    *size = frame_size(name, length);
    return FRAME_OK;
}

size_t frame_payload_length(struct bytes at)
{
    return at.len < FRAME_HEADER ? 0 : get_le32(at.ptr + F_LENGTH);
}

enum frame_status frame_decode(
    struct bytes at, uint64_t seed, uint64_t position, bool trusted, struct frame *out)
{
    size_t size;
    enum frame_status status = frame_measure(at, &size);
    if (status != FRAME_OK)
        return status;
    if (at.len < size)
        return FRAME_SHORT;
    if (!trusted && get_le64(at.ptr + F_CHECKSUM) != frame_checksum(at.ptr, size, seed, position))
        return FRAME_BAD;
    out->kind = (enum frame_kind)at.ptr[F_KIND];
    out->offset = get_le64(at.ptr + F_OFFSET);
    out->time = (usec_t)get_le64(at.ptr + F_TIME);
    out->durable = get_le64(at.ptr + F_DURABLE);
    out->durable_position = get_le64(at.ptr + F_DURABLE_POSITION);
    out->mark = get_le64(at.ptr + F_MARK);
    out->name = bytes_of(at.ptr + FRAME_HEADER, (uint8_t)at.ptr[F_NAME_LENGTH]);
    out->payload = bytes_of(out->name.ptr + out->name.len, get_le32(at.ptr + F_LENGTH));
    if (out->name.len && out->name.ptr[0] == '\0')
        return FRAME_BAD;
    return FRAME_OK;
}

void table_append_entry(struct buf *b, struct bytes name, uint64_t mark)
{
    char number[8];
    put_le64(number, mark);
    buf_append_char(b, (char)name.len);
    buf_append_bytes(b, name);
    buf_append(b, number, sizeof number);
}

bool table_next(struct bytes *table, struct bytes *name, uint64_t *mark, bool *bad)
{
    *bad = false;
    if (table->len == 0)
        return false;
    size_t length = (uint8_t)table->ptr[0];
    if (length == 0 || table->len < 1 + length + 8 || table->ptr[1] == '\0') {
        *bad = true;
        return false;
    }
    *name = bytes_of(table->ptr + 1, length);
    *mark = get_le64(table->ptr + 1 + length);
    *table = bytes_of(table->ptr + 1 + length + 8, table->len - (1 + length + 8));
    return true;
}

void open_encode(const struct session *session, char out[OPEN_PAYLOAD])
{
    memset(out, 0, OPEN_PAYLOAD);
    memcpy(out, session->boot, sizeof session->boot);
    opening_encode(session->opening, out + 16);
    out[28] = session->never;
}

bool open_decode(struct bytes payload, struct session *out)
{
    if (payload.len != OPEN_PAYLOAD)
        return false;
    memcpy(out->boot, payload.ptr, sizeof out->boot);
    opening_decode(payload.ptr + 16, out->opening);
    out->never = payload.ptr[28] != 0;
    return true;
}

void synced_end_encode(uint64_t position, uint64_t durable, uint64_t seed, char out[SYNCED_END])
{
    put_le64(out, position);
    put_le64(out + 8, durable);
    put_le64(out + 16, XXH3_64bits_withSeed(out, 16, seed));
}

/* Tests cheaply whether the bytes can be a frame, before the checksum is computed. Old frames in a recycled file fail
 * because their offsets are lower. Bytes that are not a frame rarely pass. */
static bool could_be_frame(struct bytes at, uint64_t position, uint64_t offset, size_t *size)
{
    uint64_t stated = get_le64(at.ptr + F_OFFSET);
    return at.ptr[F_KIND] != 0 && stated >= offset && get_le64(at.ptr + F_DURABLE) <= stated &&
           get_le64(at.ptr + F_DURABLE_POSITION) <= position && frame_measure(at, size) == FRAME_OK &&
           *size <= at.len;
}

void frames_scan_tail(struct bytes file, uint64_t from, uint64_t seed, uint64_t offset,
    const char stated[SYNCED_END], struct tail_scan *out)
{
    uint64_t end = file.len;
    while (end > from && file.ptr[end - 1] == 0)
        end--;
    *out = (struct tail_scan){.nonzero = end > from ? end - from : 0};
    if (get_le64(stated + 16) == XXH3_64bits_withSeed(stated, 16, seed) &&
        get_le64(stated + 8) <= JOURNAL_OFFSET_MAX) {
        out->position = get_le64(stated);
        out->durable = get_le64(stated + 8);
    }
    uint64_t left = 4 * (uint64_t)file.len + (1 << 20);
    for (uint64_t at = (from + 7) & ~UINT64_C(7); at < end && at + FRAME_HEADER <= file.len;) {
        struct frame f;
        size_t size;
        struct bytes rest = bytes_of(file.ptr + at, file.len - at);
        bool worth = could_be_frame(rest, at, offset, &size);
        if (worth && size > left) {
            out->too_many = true;
            return;
        }
        if (worth)
            left -= size;
        if (!worth || frame_decode(rest, seed, at, false, &f) != FRAME_OK) {
            at += 8;
            continue;
        }
        out->end = at += size;
        out->durable = f.durable > out->durable ? f.durable : out->durable;
        out->position = f.durable_position > out->position ? f.durable_position : out->position;
    }
}
