/* archive_finish: publishes a complete staged file: compresses it if asked, and gives it its name and a manifest.
 *
 * The file waits in the staging directory as STAGED. Publishing makes NAME (or NAME.gz, NAME.zst) and NAME.manifest.json:
 *
 *     compressed only:  write STAGED.packed and STAGED.summary, sync, delete STAGED, sync
 *     both:             write STAGED.manifest, rename it to NAME.manifest.json, sync
 *                       rename STAGED or STAGED.packed to NAME with its suffix, sync
 *
 * 1. A published name has a complete file and a manifest. Both are synced before they are renamed, the manifest first.
 * 2. An interrupted attempt can be repeated from any point. Only the rename of the data publishes it: if STAGED and STAGED.packed
 *    are missing, the file has been published, even if another program has since moved it away.
 * 3. A file without lines is deleted, not published.
 * 4. No rename replaces a foreign file. If NAME, NAME.gz, NAME.zst or NAME.manifest.json exists, the file becomes NAME.1, NAME.2 and so
 *    on. A manifest of this file that already has the taken name is deleted first.
 * 5. Other programs may move published files away at once, and delete the empty directory: it is made again.
 * 6. The length and the line count of STAGED must be those of the state. Otherwise publishing fails and leaves STAGED. */
#ifndef MILLRACE_ARCHIVE_FINISH_H
#define MILLRACE_ARCHIVE_FINISH_H

#include "streams/archive/archive_manifest.h"

struct archive_finish_spec {
    const struct archive_file_state *file;
    const char *stream, *id;
    enum archive_compression compression;
    bool retried; /* an earlier attempt, perhaps of another process, may have published the file */
};
/* Returns 0, or -1 with the reason. *shortage: another attempt may succeed (errno_is_shortage). Blocks. */
int archive_finish(const struct archive_finish_spec *spec, bool *shortage, char error[ARCHIVE_ERROR_TEXT]);

#endif
