#include "lists/edge_lines.h"

void edge_lines_end(struct edge_lines *e, struct buf *ops)
{
    const struct list_op op = {.type = e->type, .id = buf_bytes(&e->author), .names = buf_bytes(&e->names)};
    if (e->n_names > 0)
        list_op_append(ops, &op);
    e->n_names = 0;
    buf_clear(&e->names);
}

const char *edge_lines_take(struct edge_lines *e, struct bytes line, struct buf *ops)
{
    line = bytes_without_line_end(line);
    if (line.len == 0)
        return NULL;
    const char *split = memchr(line.ptr, '\t', line.len);
    if (!split && !(split = memchr(line.ptr, ' ', line.len)))
        return "the line has no tab or space between follower and author";
    struct bytes follower = bytes_of(line.ptr, (size_t)(split - line.ptr)),
                 author = bytes_of(split + 1, line.len - follower.len - 1);
    if (!list_name_is_valid(follower) || !list_name_is_valid(author))
        return "a name is not UTF-8 of 1 to 255 bytes";
    if (e->n_names == LIST_NAMES_MAX || !bytes_equal(author, buf_bytes(&e->author))) {
        edge_lines_end(e, ops);
        buf_clear(&e->author);
        buf_append_bytes(&e->author, author);
    }
    list_name_append(&e->names, follower);
    e->n_names++;
    return NULL;
}

void edge_lines_free(struct edge_lines *e)
{
    buf_free(&e->author);
    buf_free(&e->names);
}
