/* sorted_index: the index of a sorted text in memory, which finds a line with about one access to the text.
 *
 * The text is divided into blocks of 256 bytes. The sample of block i is the first line that begins in the block, or the line that
 * covers the block. A search tree over the samples finds the last block with a sample before the target. The target is then in that
 * block, or at the start of the next line. The index also lists all lines over 4 KiB.
 *
 * A node has 15 samples. It holds 8 bytes of each, from the first byte in which the samples around the node differ. If these bytes equal
 * the target's, the search compares the lines themselves.
 *
 * 1. The search reads only bytes of the text, even if the text has changed since. A changed text leads to wrong answers, not to a crash.
 * 2. The order is that of whole lines, so an index does not depend on the separator. Several lines may share a key.
 * 3. An index has at most 5 % of the bytes of the text, plus a node (128 bytes) for each level of the tree.
 *
 * A complete index never changes; several threads may search it.
 */
#ifndef MILLRACE_SORTED_INDEX_H
#define MILLRACE_SORTED_INDEX_H

#include "base/bytes.h"
#include "base/error.h"

#define SORTED_INDEX_BLOCK ((size_t)256)      /* bytes of text for each sample */
#define SORTED_INDEX_LONG_LINE ((size_t)4096) /* bytes with LF; longer lines are listed */

struct sorted_index;

/* Begins the index of a text, which must outlive the index. */
struct sorted_index *sorted_index_new(struct bytes text);
/* Indexes the text up to the byte `end`. The last call has the length of the text; search only after that call. */
void sorted_index_extend(struct sorted_index *i, size_t end);
void sorted_index_free(struct sorted_index **i);
/* Locks the index in memory (mlock). Returns 0, or -1 with errno. */
int sorted_index_lock(const struct sorted_index *i);

/* What a search looks for: the first line that is not before `key` and, unless it is SORTED_NO_END, the byte `end`. With `is_past`, lines
 * that begin with these bytes are before the target as well. */
#define SORTED_NO_END (-1)
struct sorted_target {
    struct bytes key;
    int end; /* 0..255, or SORTED_NO_END */
    bool is_past;
};
/* The offset of that line, or the length of the text. The text must be sorted. */
size_t sorted_index_seek(const struct sorted_index *i, const struct sorted_target *target);
/* The end of the line that begins at `at`, after its LF. */
size_t sorted_index_line_end(const struct sorted_index *i, size_t at);

#endif
