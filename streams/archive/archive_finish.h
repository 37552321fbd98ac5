/* archive_finish: publishes a staged file that is complete: compressed if asked, under its name, with a manifest beside it.
 *
 * The file waits in the staging directory as STAGED. Finishing makes NAME (or NAME.gz, NAME.zst) and NAME.manifest.json:
 *
 *     compressed only:  write STAGED.packed and STAGED.summary, sync, delete STAGED, sync
 *     both:             write STAGED.manifest, rename it to NAME.manifest.json, sync
 *                       rename STAGED or STAGED.packed to NAME with its suffix, sync
 *
 * 1. A published name stands for a whole file with its manifest. Both are complete and synced before they are renamed, the
 *    manifest first.
 * 2. It can be interrupted anywhere and run again. Renaming the data is the one step that publishes it: without STAGED and
 *    STAGED.packed the file has been published, even if somebody has moved it away since.
 * 3. A file without lines is deleted, not published.
 * 4. No rename replaces a file of somebody else. If NAME, NAME.gz, NAME.zst or NAME.manifest.json exists, the file becomes
 *    NAME.1, NAME.2 and so on, even if its manifest has a name already: that manifest is deleted first.
 * 5. Others may take published files away at once, and delete the directory when it is empty: it is made again.
 * 6. It checks what it reads against the length and the line count of the state. If they differ it fails and leaves STAGED. */
#ifndef MILLRACE_ARCHIVE_FINISH_H
#define MILLRACE_ARCHIVE_FINISH_H

#include "streams/archive/archive_manifest.h"

struct archive_finish_spec {
    const struct archive_file_state *file;
    const char *stream, *id;
    enum archive_compression compression;
    bool retried; /* an earlier attempt, perhaps of another process, may have published it */
};
/* 0, or -1 with the reason. *shortage: another attempt may succeed (io_is_shortage). Blocks. */
int archive_finish(const struct archive_finish_spec *spec, bool *shortage, char error[ARCHIVE_ERROR_TEXT]);

#endif
