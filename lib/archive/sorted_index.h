/* sorted_index: the index of a sorted text, which finds a line with about one access to the text (docs/formats/index.md).
 *
 * The text is divided into blocks of 256 bytes. The sample of block i is the first line that begins in the block, or the line that
 * covers the block. A search tree over the samples finds the last block with a sample before the target. The target is then in that
 * block, or at the start of the next line. The index also lists all lines over 4 KiB.
 *
 * A node has 15 samples. It holds 8 bytes of each, from the first byte in which the samples around the node differ. If these bytes equal
 * the target's, the search compares the lines themselves.
 *
 * 1. An index describes one text: its length and its XXH3. An index of another text is refused.
 * 2. An index is derived. Readers build a new one if the file is absent, damaged or refused.
 * 3. The search reads only bytes of the text, whatever the index contains. A forged index leads to wrong answers, not to a crash.
 * 4. The order is that of whole lines, so an index does not depend on the separator. Several lines may share a key.
 * 5. A file has at most 5 % of the bytes of the text, plus SORTED_INDEX_FOOTER and a node (128 bytes) for each level of the tree.
 *
 * An index never changes after it was opened; several threads may search it.
 */
#ifndef MILLRACE_SORTED_INDEX_H
#define MILLRACE_SORTED_INDEX_H

#include "base/bytes.h"

#define SORTED_INDEX_BLOCK ((size_t)256)      /* bytes of text for each sample */
#define SORTED_INDEX_LONG_LINE ((size_t)4096) /* bytes with LF; longer lines are listed */
#define SORTED_INDEX_FOOTER 64                /* bytes */
#define SORTED_INDEX_ERROR_TEXT 128

struct sorted_index;

/* Checks an index file and copies it. `xxh3` is the checksum of the text. The text must outlive the index. Returns NULL if the file is
 * damaged or of another text; the error says why. */
struct sorted_index *sorted_index_open(
    struct bytes file, struct bytes text, uint64_t xxh3, char error[SORTED_INDEX_ERROR_TEXT]);
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

/* A writer builds the index while the text is written. It holds less than 1 % of the text's length in memory. */
struct sorted_index_writer;

struct sorted_index_writer *sorted_index_writer_new(void);
/* Takes the next bytes of the text, in pieces of any size. Appends finished parts of the index file to `out`. The caller may write
 * `out` to the file and clear it after any call. */
void sorted_index_writer_feed(struct sorted_index_writer *w, struct bytes text, struct buf *out);
/* Appends the rest of the file. `xxh3` is the checksum of the whole text (64 bits, seed 0). */
void sorted_index_writer_finish(struct sorted_index_writer *w, uint64_t xxh3, struct buf *out);
void sorted_index_writer_free(struct sorted_index_writer **w);

#endif
