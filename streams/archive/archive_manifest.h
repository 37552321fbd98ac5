/* archive_manifest: what NAME.manifest.json says of a finished file (archive_finish.h has an example), and whose it is.
 *
 * Lines are told by the id of their stream and their place in it, which no other lines have: a manifest of the same ones was
 * written by another try to finish the same file, whatever it is called and however it was to be packed. */
#ifndef MILLRACE_ARCHIVE_MANIFEST_H
#define MILLRACE_ARCHIVE_MANIFEST_H

#include "streams/archive/archive_state.h"

enum archive_compression { ARCHIVE_PLAIN, ARCHIVE_GZIP, ARCHIVE_ZSTD };

#define ARCHIVE_XXH3_TEXT 17 /* 16 digits and a NUL */

struct archive_manifest {
    char stream[NAME_LEN_MAX + 1], id[STREAM_ID_TEXT];
    uint64_t first, end, lines, bytes, stored;
    char xxh3[ARCHIVE_XXH3_TEXT];
    enum archive_compression compression;
};

/* "", ".gz", ".zst": what stands behind the name of a finished file. */
const char *archive_suffix(enum archive_compression c);
/* Of the file NAME. */
void archive_manifest_print(const struct archive_manifest *m, const char *name, struct buf *out);
/* Whether a manifest is there, and one. */
bool archive_manifest_read(const char *path, struct archive_manifest *out);
bool archive_manifest_is_of_same_lines(const struct archive_manifest *a, const struct archive_manifest *b);

#endif
