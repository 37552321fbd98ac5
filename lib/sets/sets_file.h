/* sets_file: the file of a shard's sets in the archive, shard-K-of-S.sets. A writer makes the file once; readers map it
 * and use the sets in place.
 *
 * Layout, little endian:
 *   header   32 bytes: magic "MRSETS1\n", zeros
 *   sets     each at a multiple of 32 bytes, with zeros between the parts:
 *            - 40 bytes: number of members, bytes of the bitmap, number of hashes, length of the key, checksum
 *            - the key, without the separator
 *            - at a multiple of 32 bytes: the numbers as a frozen CRoaring bitmap
 *            - at a multiple of 8 bytes: the hashes, 8 bytes each, ascending
 *   index    at a multiple of 8 bytes: the position of each set (8 bytes), in the order of the keys
 *   footer   32 bytes: magic "MRSETIX\n", position of the index, number of sets, checksum
 *
 * The checksum of a set is the XXH3 (64 bits) of each part in this order, without the padding and its own 8 bytes. The
 * seed of each part's XXH3 is that of the part before, at first 0. The checksum of the index covers the footer, then the index.
 *
 * 1. The sets may be in any order. The index is in the order of key plus `,`, as in records, each key once.
 * 2. sets_file_open verifies the index. sets_file_view verifies a set, with its key, at the first use of the set. No
 *    member of an unverified set is used.
 * 3. An error names the file, and the key or the position of a damaged set.
 * 4. A truncated file is an error at opening. The caller maps the file through archive/mapping.h, so a later truncation is
 *    an error, too.
 * 5. Several threads may read one sets_file.
 * 6. The writer keeps one set and 8 bytes for each set in memory.
 */
#ifndef MILLRACE_SETS_FILE_H
#define MILLRACE_SETS_FILE_H

#include "base/error.h"
#include "sets/set.h"

enum sets_file_result { SETS_OK, SETS_ABSENT, SETS_DAMAGED };

/* Appends bytes to the file. Returns 0, or -1 to stop the writer. */
typedef int sets_write(void *arg, struct bytes piece);

struct sets_writer;

struct sets_writer *sets_writer_new(sets_write *write, void *arg);
void sets_writer_free(struct sets_writer **w);
/* Writes a set of at least one member. `key` has no separator. Returns 0 and sets *position, or returns -1 if `write`
 * failed. */
int sets_writer_add(struct sets_writer *w, struct bytes key, const struct set_view *v, uint64_t *position);
/* Adds a written set to the index. The calls are in the order of the keys, one for each set. */
void sets_writer_index(struct sets_writer *w, uint64_t position);
uint64_t sets_writer_count(const struct sets_writer *w); /* sets in the index */
/* Writes index and footer. Returns 0, or -1 if `write` failed. */
int sets_writer_finish(struct sets_writer *w);

struct sets_file;

/* `bytes` is the whole file, begins at a page, and outlives the sets_file. `name` appears in errors; copied. */
enum sets_file_result sets_file_open(
    struct bytes bytes, const char *name, struct sets_file **out, struct error *error);
void sets_file_free(struct sets_file **f);
uint64_t sets_file_count(const struct sets_file *f);

/* A set in the file. Zeroed: no set. */
struct set_opened {
    struct set_view view;
    struct bytes key;                /* borrowed from the file */
    struct roaring_bitmap_s *frozen; /* owned */
};
void set_opened_close(struct set_opened *o);
/* Opens the i-th set in the order of the keys. */
enum sets_file_result sets_file_view(
    struct sets_file *f, uint64_t i, struct set_opened *out, struct error *error);
/* Opens the set of a key. SETS_ABSENT: no set has this key. */
enum sets_file_result sets_file_find(
    struct sets_file *f, struct bytes key, struct set_opened *out, struct error *error);
/* Verifies again the sets from *i on: at least one set, and about `bytes` bytes. Sets *i to the next set, or to 0 after the
 * last set. After SETS_DAMAGED, *i is the set after the damaged set, which every later use verifies again. */
enum sets_file_result sets_file_scrub(struct sets_file *f, uint64_t *i, size_t bytes, struct error *error);

#endif
