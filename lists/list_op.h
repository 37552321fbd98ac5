/* list_op: the operations on lists, as the journal stores them.
 *
 * A change of the lists is one frame of the journal with one or more operations. The *sequence* of an operation is 1 plus the
 * journal's offset of its first byte. Sequences therefore increase in the order of the operations; 0 is none.
 *
 *   type (1 byte), length of id (1), of data (4), of names (4), time (8), id, data, names; each name: length (1), bytes
 *
 * Numbers are little endian. */
#ifndef MILLRACE_LISTS_LIST_OP_H
#define MILLRACE_LISTS_LIST_OP_H

#include "base/bytes.h"
#include "base/clock.h"

#define LIST_NAME_MAX 255               /* bytes of an id, a key, an author or a follower; at least 1 */
#define LIST_DATA_MAX ((size_t)1 << 20) /* bytes of an item's data; may be 0 */
#define LIST_NAMES_MAX 10000            /* names of an operation */
#define LIST_TIME_MAX (INT64_MAX / 2)   /* times are from 0 to LIST_TIME_MAX (usec) */

enum list_op_type {
    LIST_ADD = 'a',           /* add the item `id` to the lists of the keys `names` */
    LIST_ADD_BY_AUTHOR = 'b', /* add the item to the lists of the followers of the only name */
    LIST_REMOVE = 'r',        /* remove the item from all lists; no names */
    LIST_REMOVE_FROM = 'k',   /* remove the item from the lists of the keys `names` */
    LIST_FOLLOW = 'f',        /* make the names followers of the author `id` */
    LIST_UNFOLLOW = 'u',      /* the opposite */
};
struct list_op {
    enum list_op_type type;
    struct bytes id;
    struct bytes data;  /* of an added item; otherwise empty */
    usec_t time;        /* of an added item; otherwise 0 */
    struct bytes names; /* as list_name_append writes them */
};

/* True for UTF-8 of 1 to LIST_NAME_MAX bytes: JSON shows such a name as it is, so that the name can be asked again. */
bool list_name_is_valid(struct bytes name);
/* Appends a name of 1 to LIST_NAME_MAX bytes. */
void list_name_append(struct buf *names, struct bytes name);
/* Removes the first name from *names. Returns false if *names is empty, or if it does not begin with a name. */
bool list_name_take(struct bytes *names, struct bytes *name);

/* Returns NULL, or the reason why an operation is not valid: a limit above, or members that its type does not have. */
const char *list_op_error(const struct list_op *op);
/* Appends a valid operation. */
void list_op_append(struct buf *ops, const struct list_op *op);
/* Removes the first operation from *ops; its texts point into `ops`. Returns false if *ops does not begin with a valid one. */
bool list_op_take(struct bytes *ops, struct list_op *op);

#endif
