/* archive_finish: turns a file that has got its last line into what people read: compressed when asked, under its own
 * name, with a manifest beside it.
 *
 * While it is written the file NAME is NAME.part. Finishing makes NAME (or NAME.gz, NAME.zst) and NAME.manifest.json:
 *
 *     {"format":1,"file":"clicks-05.ndjson.gz","stream":"clicks","id":"62528bf0...","first":"120000","end":"123456",
 *      "lines":"12","bytes":"3456","xxh3":"00f3...","compression":"gzip","stored_bytes":"871"}
 *
 * lines, bytes and xxh3 (64 bit, seed 0) are of the lines themselves, uncompressed.
 *
 * 1. A name that is there stands for a whole file with its manifest: both are written elsewhere, synced and renamed, the
 *    manifest first.
 * 2. It can be stopped anywhere and begun again: what is done already is found done. NAME.part is gone, safely, when the file gets
 *    its name, so one that was taken away as soon as it was seen is not made again: where there is no NAME.part, it is done but
 *    for the name of a packed file (NAME.gz.new) that is there.
 * 3. A file that no line came to is removed, not finished.
 * 4. Nothing that is there is replaced but a manifest of the same lines: where somebody else has made NAME, it is finished as the
 *    first of NAME.1, NAME.2 and so on that is free, also when the manifest has its name already: that goes from beside the other.
 * 5. It checks what it reads: as many bytes and lines as the state says, else it fails and leaves NAME.part.
 */
#ifndef MILLRACE_ARCHIVE_FINISH_H
#define MILLRACE_ARCHIVE_FINISH_H

#include "streams/archive/archive_manifest.h"

void archive_part_path(const char *name, struct buf *out); /* NAME.part, NUL-terminated */
/* Whether any of the names that NAME may take is in use. */
bool archive_name_is_taken(const char *name);

/* Whether this errno tells of a want that passes when others give back what they have: of room, descriptors or memory. */
bool archive_is_want(int error);

struct archive_finish_spec {
    const struct archive_file_state *file;
    const char *stream, *id;
    enum archive_compression compression;
    bool
        may_be_named; /* somebody has tried before, perhaps another life: without, a missing NAME.part is an error */
};
/* 0, or -1 with the reason; *wanting: for want of something (archive_is_want), so that another try may do. Blocks. */
int archive_finish(const struct archive_finish_spec *spec, bool *wanting, char error[ARCHIVE_ERROR_TEXT]);

#endif
