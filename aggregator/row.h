/* row: the unit that counts are kept in, in memory and in a slice alike.
 *
 * A record (docs/formats/records.md) is a line `key,name:count name:count`. A row is one of its counts: the row key
 * is the record's key, the separator, and the name of the count.
 *
 *     u|jehiah,c413            -> 2       one hour of a total
 *     c.u|jehiah.c41l,US       -> 4       one sub key of an hour
 *     lookup|h0aMB8AuNw4=,     -> text    a lookup: the full text, nothing behind the separator
 *
 * 1. Keys and names hold no separator, so the first one in a row key ends the record's key.
 * 2. Byte order of row keys is the order of records, and inside a record the order of its counts: rows read in
 *    order are records in order.
 */
#ifndef MILLRACE_ROW_H
#define MILLRACE_ROW_H

#include "base/bytes.h"

struct row {
    struct bytes key;
    bool is_text;
    uint64_t count;    /* unless is_text */
    struct bytes text; /* when is_text */
};

#endif
