/* sorted_index: an index in memory that finds a line of a sorted text with about one access to the text.
 *
 * The text is divided into blocks of 256 bytes. The sample of a block is the first line that begins in the block, or
 * the line that covers the whole block. A search tree over the samples finds the last block with a sample before the
 * target. The target line then begins in this block, or is the next line after the block. The index also lists all
 * lines over 4 KiB.
 *
 * A node of the tree has 15 samples. For each sample the node holds 8 bytes, from the first byte in which the samples
 * around the node differ. If these 8 bytes equal the same bytes of the target, the search compares the whole lines.
 *
 * 1. The search reads only bytes of the text, even if the text has changed after it was indexed. If the text has
 *    changed, a search may return a wrong line, but does not crash.
 * 2. The index uses the order of whole lines, so the index does not depend on the separator. Several lines may share a
 *    key.
 * 3. An index has at most 5 % of the bytes of the text, plus a node (128 bytes) for each level of the tree.
 *
 * A complete index never changes, so several threads may search the index at once.
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
/* Indexes the text up to the byte `end`. The last call has the length of the text; search only after the last call. */
void sorted_index_extend(struct sorted_index *i, size_t end);
void sorted_index_free(struct sorted_index **i);
/* Locks the index in memory (mlock). Returns 0, or -1 with errno. */
int sorted_index_lock(const struct sorted_index *i);

/* The target of a search is the first line at or after the text `key`, followed by the byte `end` unless `end` is
 * SORTED_NO_END. With `is_past`, the search also skips lines that begin with this text. */
#define SORTED_NO_END (-1)
struct sorted_target {
    struct bytes key;
    int end; /* 0..255, or SORTED_NO_END */
    bool is_past;
};
/* Returns the offset of the target line, or the length of the text if there is no such line. The text must be
 * sorted. */
size_t sorted_index_seek(const struct sorted_index *i, const struct sorted_target *target);
/* The end of the line that begins at `at`, after its LF. */
size_t sorted_index_line_end(const struct sorted_index *i, size_t at);

#endif
