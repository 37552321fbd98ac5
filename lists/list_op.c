#include "lists/list_op.h"

#include "base/byte_order.h"

#include <assert.h>

#define HEAD 18 /* bytes before the id */

bool list_name_is_valid(struct bytes name)
{
    return name.len > 0 && name.len <= LIST_NAME_MAX && bytes_is_utf8(name);
}

void list_name_append(struct buf *names, struct bytes name)
{
    assert(name.len > 0 && name.len <= LIST_NAME_MAX);
    buf_append_char(names, (char)name.len);
    buf_append_bytes(names, name);
}

bool list_name_take(struct bytes *names, struct bytes *name)
{
    if (names->len == 0)
        return false;
    size_t len = (unsigned char)names->ptr[0];
    if (len == 0 || len >= names->len)
        return false;
    *name = bytes_of(names->ptr + 1, len);
    *names = bytes_of(names->ptr + 1 + len, names->len - 1 - len);
    return true;
}

static const char *names_error(struct bytes names, size_t max)
{
    struct bytes name;
    size_t n = 0;
    while (list_name_take(&names, &name))
        n++;
    if (names.len > 0)
        return "a name must have 1 to 255 bytes";
    return n > max ? "too many names" : NULL;
}

const char *list_op_error(const struct list_op *op)
{
    static const struct {
        enum list_op_type type;
        bool has_item;   /* data and time */
        size_t min, max; /* names */
    } types[] = {
        {LIST_ADD, true, 1, LIST_NAMES_MAX},
        {LIST_ADD_BY_AUTHOR, true, 1, 1},
        {LIST_REMOVE, false, 0, 0},
        {LIST_REMOVE_FROM, false, 1, LIST_NAMES_MAX},
        {LIST_FOLLOW, false, 1, LIST_NAMES_MAX},
        {LIST_UNFOLLOW, false, 1, LIST_NAMES_MAX},
    };
    size_t i = 0, n = sizeof types / sizeof *types;
    while (i < n && types[i].type != op->type)
        i++;
    if (i == n)
        return "unknown operation";
    if (op->id.len == 0 || op->id.len > LIST_NAME_MAX)
        return "an id must have 1 to 255 bytes";
    if (op->data.len > (types[i].has_item ? LIST_DATA_MAX : 0))
        return "the data is too long";
    if (op->time < 0 || op->time > (types[i].has_item ? LIST_TIME_MAX : 0))
        return "the time is out of range";
    if (op->names.len == 0 && types[i].min > 0)
        return "a name is missing";
    return names_error(op->names, types[i].max);
}

void list_op_append(struct buf *ops, const struct list_op *op)
{
    char head[HEAD] = {(char)op->type, (char)op->id.len};
    assert(!list_op_error(op));
    put_le32(head + 2, (uint32_t)op->data.len);
    put_le32(head + 6, (uint32_t)op->names.len);
    put_le64(head + 10, (uint64_t)op->time);
    buf_append(ops, head, HEAD);
    buf_append_bytes(ops, op->id);
    buf_append_bytes(ops, op->data);
    buf_append_bytes(ops, op->names);
}

bool list_op_take(struct bytes *ops, struct list_op *op)
{
    const char *p = ops->ptr;
    if (ops->len < HEAD)
        return false;
    size_t id = (unsigned char)p[1], data = get_le32(p + 2), names = get_le32(p + 6),
           size = HEAD + id + data + names;
    if (size > ops->len)
        return false;
    *op = (struct list_op){.type = (enum list_op_type)p[0],
        .id = bytes_of(p + HEAD, id),
        .data = bytes_of(p + HEAD + id, data),
        .time = (usec_t)get_le64(p + 10),
        .names = bytes_of(p + HEAD + id + data, names)};
    if (list_op_error(op))
        return false;
    *ops = bytes_of(p + size, ops->len - size);
    return true;
}
