#include "compactor/held_records.h"

#include "base/io.h"
#include <stdlib.h>

void held_records_init(struct held_records *h, const char *directory, size_t memory)
{
    *h = (struct held_records){.directory = directory, .name = directory, .memory = memory, .fd = -1};
}

void held_records_free(struct held_records *h)
{
    if (h->fd >= 0)
        io->close(h->fd);
    buf_free(&h->text);
    free(h->records);
}

void held_records_clear(struct held_records *h)
{
    buf_clear(&h->text);
    h->written = 0;
    h->n = 0;
}

struct held_record *held_records_begin(struct held_records *h)
{
    struct held_record *r = ARRAY_ADD(h->records, h->n, h->room);
    *r = (struct held_record){.at = h->text.len};
    return r;
}

static enum compact_result write_out(struct held_records *h, struct bytes piece, struct error *error)
{
    if (io_write_all(h->fd, piece.ptr, piece.len, (off_t)h->written) != 0)
        return error_errno(error, COMPACT_FAILED, h->directory);
    h->written += piece.len;
    return COMPACT_OK;
}

enum compact_result held_records_append(struct held_records *h, struct bytes piece, struct error *error)
{
    struct held_record *last = &h->records[h->n - 1];
    enum compact_result r = COMPACT_OK;
    last->len += piece.len;
    if (!last->in_file && h->text.len + piece.len <= h->memory) {
        buf_append_bytes(&h->text, piece);
        return COMPACT_OK;
    }
    if (h->fd < 0)
        r = compact_open_temporary(h->directory, &h->fd, error);
    if (!last->in_file && r == COMPACT_OK) {
        struct bytes begun = bytes_of(h->text.ptr + last->at, h->text.len - last->at);
        h->text.len = last->at;
        last->in_file = true;
        last->at = h->written;
        r = begun.len > 0 ? write_out(h, begun, error) : COMPACT_OK;
    }
    return r == COMPACT_OK ? write_out(h, piece, error) : r;
}

enum compact_result held_records_append_line(struct held_records *h, struct bytes line, struct error *error)
{
    if (h->text.len + line.len + 1 > h->memory) {
        enum compact_result r = held_records_append(h, line, error);
        return r == COMPACT_OK ? held_records_append(h, BYTES_LITERAL("\n"), error) : r;
    }
    buf_append_bytes(&h->text, line);
    buf_append_char(&h->text, '\n');
    h->records[h->n - 1].len = line.len + 1;
    return COMPACT_OK;
}

void held_records_read(const struct held_records *h, size_t i, struct record_reader *out)
{
    const struct held_record *e = &h->records[i];
    if (e->in_file)
        record_reader_of_range(out, h->fd, h->name, e->at, e->len);
    else
        record_reader_of_memory(out, h->name, held_records_text(h, i, i + 1));
}

struct bytes held_records_text(const struct held_records *h, size_t from, size_t to)
{
    /* Records in memory are adjacent, because a record in the file has no bytes in memory. */
    for (size_t i = from; i < to; i++)
        if (h->records[i].in_file)
            return BYTES_NONE;
    const struct held_record *first = &h->records[from], *last = &h->records[to - 1];
    return bytes_of(h->text.ptr + first->at, (size_t)(last->at + last->len - first->at));
}
