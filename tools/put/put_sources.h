/* put_sources: records the contents that a producer has posted, and the posted part of each.
 *
 * A byte count alone does not show that a file is the one that was posted: a rotated log has the name of the log
 * before. So each mark of `millrace put` has a tag, which the queue commits together with the mark:
 *
 *     BASE.SUM.FIRST    hexadecimal: the mark of the content's first byte, the XXH3 of the bytes before the mark,
 *                       and the lower half of the XXH3 of the first line
 *
 * The state file has a line "END.SUM.FIRST" for each content before the current one.
 *
 * 1. A file continues a content if its first END bytes have the sum of the content. Then only the bytes after END
 *    are posted. Any other file is another content, and is posted whole. Names, directories and compression do not matter.
 * 2. A content is written to the state file before the tag of another content can replace its tag. So no content
 *    is forgotten.
 * 3. A content begins PUT_SOURCES_GAP after the mark of an earlier process. A request of that process which the
 *    queue stores late can therefore not be taken for a part of this content.
 * 4. The state file is locked, so one process at a time posts with this state file. A put with another state file
 *    may move the mark meanwhile. So a batch counts as stored only if the queue's tag is its tag (put_batch.h).
 * 5. An input that is not a regular file, such as a pipe, is a new content each time. No later input continues that
 *    content. SUM is then a random number. */
#ifndef MILLRACE_PUT_SOURCES_H
#define MILLRACE_PUT_SOURCES_H

#include "base/error.h"
#include "base/line_source.h"
#include "base/xxh3.h"

#define PUT_SOURCES_GAP (UINT64_C(1) << 40)
#define PUT_SOURCES_TAG 64 /* with its NUL */

/* The bytes of a file from its beginning up to `end`. */
struct put_content {
    XXH3_state_t *hash; /* NULL: not summed */
    uint64_t base, end; /* base: the mark of byte 0, modulo 2^64 */
    uint32_t first;
    uint64_t id; /* without a hash: random */
};
void put_content_begin(struct put_content *c, uint64_t base, uint32_t first);
void put_content_add(struct put_content *c, struct bytes bytes);
uint64_t put_content_sum(const struct put_content *c);
void put_content_free(struct put_content *c);
/* The tag of a content whose bytes before the mark have the sum. */
void put_content_tag(const struct put_content *c, uint64_t sum, char out[PUT_SOURCES_TAG]);

struct put_sources;
/* Opens and locks the state file, which is created if needed. Returns NULL with the reason on failure; EX_TEMPFAIL:
 * another process has the lock. */
struct put_sources *put_sources_open(const char *path, struct error *error);
void put_sources_close(struct put_sources **s);
/* Takes the producer's mark and tag from the queue. `is_own`: this process has stored a batch up to the mark. Returns
 * false if the tag is of another kind of input. The tag is empty if an operator has set the mark. */
bool put_sources_set_mark(struct put_sources *s, uint64_t mark, struct bytes tag, bool is_own);
/* Finds the posted part of a file's content, and reads *c up to its end. The caller frees *c. Returns 0, or -1 with the
 * reason. */
int put_sources_find(
    struct put_sources *s, struct line_source *source, struct put_content *c, struct error *error);
/* Stores the content that the mark is in, unless put_sources_find has found that the file continues this content. Call
 * put_sources_keep before the mark moves. Returns 0, or -1 with the reason. */
int put_sources_keep(struct put_sources *s, struct error *error);

#endif
