/* archive_finish: publishes complete staged files in a few threads: compresses each if configured, writes its manifest
 * and renames it to its final name.
 *
 * A file waits in the staging directory as STAGED. Publishing makes NAME (or NAME.gz, NAME.zst) and NAME.manifest.json:
 *
 *     compressed only:  write STAGED.packed and STAGED.summary, sync, delete STAGED, sync
 *     both:             write STAGED.manifest, rename it to NAME.manifest.json, sync
 *                       rename STAGED or STAGED.packed to NAME with its suffix, sync
 *
 * 1. A published file is complete and has a manifest. Both are synced before they are renamed, the manifest first.
 * 2. An interrupted attempt can be repeated from any point. Only the rename of the data publishes the file. So if
 *    STAGED and STAGED.packed are missing, the file has been published, even if another program has since moved it
 *    away.
 * 3. A file without lines is deleted, not published.
 * 4. A rename never replaces another file. If NAME, NAME.gz, NAME.zst or NAME.manifest.json exists, the file becomes
 *    NAME.1, NAME.2 and so on. If an earlier attempt has published this file's manifest under a name that another file
 *    then got, that manifest is deleted first.
 * 5. Other programs may move published files away at once and delete the empty directory, which is then created again.
 * 6. The length and the line count of STAGED must match the state. Otherwise publishing fails and keeps STAGED.
 * 7. Each attempt packs the whole file again, so attempts are rare during a shortage. After a failed attempt, the delay
 *    before the next attempt for this file grows, and so does a delay for all files. Until an attempt succeeds, the
 *    threads try one file at a time, the shortest first.
 *
 * The manifest:
 *
 *     {"format":2,"file":"clicks-05.ndjson.gz","stream":"clicks","id":"62528bf0...","opening":"c7ef...",
 *      "first":"120000","end":"123456","lines":"12","bytes":"3456","xxh3":"00f3...","compression":"gzip",
 *      "stored_bytes":"871"}
 *
 * lines, bytes and xxh3 (64 bits, seed 0) describe the uncompressed lines. The stream's id, the opening of the byte
 * before `end` and the offsets identify the lines, also among restored copies of the stream. A manifest with the same id,
 * opening and offsets was written by an earlier attempt to publish the same file. The opening is omitted if it is
 * unknown. */
#ifndef MILLRACE_ARCHIVE_FINISH_H
#define MILLRACE_ARCHIVE_FINISH_H

#include "base/clock.h"
#include "streams/archive/archive_state.h"

/* The number of descriptors that the threads may need at the same time. */
#define ARCHIVE_FINISHER_DESCRIPTORS 12

enum archive_compression { ARCHIVE_PLAIN, ARCHIVE_GZIP, ARCHIVE_ZSTD };
#define ARCHIVE_COMPRESSIONS 3

extern const char *const archive_suffixes[ARCHIVE_COMPRESSIONS]; /* "", ".gz", ".zst" */

struct archive_finish_spec {
    const struct archive_file_state *file;
    const char *stream, *id;
    enum archive_compression compression;
    bool retried; /* an earlier attempt, perhaps of another process, may have published the file */
};
/* One attempt. Returns 0, or -1 with the error. Sets *shortage if another attempt may succeed (errno_is_shortage).
 * Blocks. */
int archive_finish(const struct archive_finish_spec *spec, bool *shortage, struct error *error);

struct archive_finisher;
struct archive_part;

struct archive_finished {
    struct archive_part *part; /* NULL: no attempt has ended */
    bool shortage;
    struct error error; /* code 0: success */
};

/* `done` is called from a thread. `stream` is borrowed. */
struct archive_finisher *archive_finisher_new(
    const char *stream, enum archive_compression compression, void (*done)(void *arg), void *arg);
/* Waits for the attempts under way. */
void archive_finisher_free(struct archive_finisher **f);
/* Starts attempts for files that are SETTLED and due. `at_once`: space is free again, so uncompressed files need not wait. */
void archive_finisher_start(struct archive_finisher *f, struct archive_part *const *parts, size_t n,
    const char *id, bool at_once, usec_t now);
/* Returns an attempt that has ended; call it until `part` is NULL. A part whose attempt failed is SETTLED again. */
struct archive_finished archive_finisher_collect(struct archive_finisher *f, usec_t now);

#endif
