/* archive_finish: publishes complete staged files in a few threads. To publish a file, a thread compresses the file if
 * configured, writes its manifest and renames the file to its final name.
 *
 * In the staging directory, the file has the path STAGED. Its published name NAME gets the suffix .gz or .zst if the
 * file is compressed:
 *
 *     with compression:  write STAGED.packed and STAGED.summary, sync, delete STAGED, sync
 *     always:            write STAGED.manifest, rename STAGED.manifest to NAME.manifest.json, sync
 *                        rename STAGED or STAGED.packed to NAME with its suffix, sync
 *
 * 1. A published file is complete and has a manifest. Data and manifest are synced before their renames. The manifest
 *    is renamed before the data.
 * 2. An interrupted attempt can be repeated from any point. The file is published by the rename of its data. Therefore,
 *    if STAGED and STAGED.packed are missing, the file was published, even if no file exists under its published name.
 * 3. A file without lines is deleted, not published.
 * 4. A rename never replaces another file. If NAME, NAME.gz, NAME.zst or NAME.manifest.json exists, the published name
 *    is NAME.1, NAME.2 and so on. If an earlier attempt has published the manifest of this file as NAME.manifest.json,
 *    and another file has then got the name NAME, the attempt deletes NAME.manifest.json first.
 * 5. Other programs may move published files away immediately and delete the empty directory. The next attempt creates
 *    the directory again.
 * 6. If the length or the line count of STAGED differs from the state, the attempt fails and keeps STAGED.
 * 7. Each attempt compresses the whole file again, so attempts are rare while space, descriptors or memory are short. A
 *    failed attempt lengthens two delays: the delay before the next attempt for this file, and the delay before the
 *    next attempt for any file. Until an attempt succeeds, the threads try one file at a time, the shortest file first.
 *
 * A manifest looks like this:
 *
 *     {"format":2,"file":"clicks-05.ndjson.gz","stream":"clicks","id":"62528bf0...","opening":"c7ef...",
 *      "first":"120000","end":"123456","lines":"12","bytes":"3456","xxh3":"00f3...","compression":"gzip",
 *      "stored_bytes":"871"}
 *
 * `lines`, `bytes` and `xxh3` (64 bits, seed 0) describe the uncompressed lines. The lines are identified by the
 * stream's id, the offsets and the opening (id of a run of pubsub) of the byte before `end`. The opening is needed to
 * distinguish restored copies of the stream, and is omitted if unknown. If the id, the opening and the offsets of an
 * existing manifest are equal, an earlier attempt to publish the same file wrote the manifest. */
#ifndef MILLRACE_ARCHIVE_FINISH_H
#define MILLRACE_ARCHIVE_FINISH_H

#include "base/clock.h"
#include "streams/archive/archive_state.h"

/* Maximum number of descriptors that the threads use at the same time. */
#define ARCHIVE_FINISHER_DESCRIPTORS 12

enum archive_compression { ARCHIVE_PLAIN, ARCHIVE_GZIP, ARCHIVE_ZSTD };
#define ARCHIVE_COMPRESSIONS 3

extern const char *const archive_suffixes[ARCHIVE_COMPRESSIONS]; /* "", ".gz", ".zst" */

struct archive_finish_spec {
    const struct archive_file_state *file;
    const char *stream, *id;
    enum archive_compression compression;
    bool retried; /* an earlier attempt by this or an earlier process may have published the file */
};
/* Makes one attempt to publish a file; blocks. Returns 0, or -1 with the error. Sets *shortage if space, descriptors or
 * memory ran short, so that another attempt may succeed (errno_is_shortage). */
int archive_finish(const struct archive_finish_spec *spec, bool *shortage, struct error *error);

struct archive_finisher;
struct archive_part;

struct archive_finished {
    struct archive_part *part; /* file of the attempt that has ended; NULL: no attempt has ended */
    bool shortage;
    struct error error; /* error of the attempt; code 0: success */
};

/* Creates the threads, which call `done` after each attempt. `stream` is borrowed. */
struct archive_finisher *archive_finisher_new(
    const char *stream, enum archive_compression compression, void (*done)(void *arg), void *arg);
/* Waits for the attempts in progress, and frees the finisher. */
void archive_finisher_free(struct archive_finisher **f);
/* Starts attempts for files that are PART_SETTLED and due. `at_once` means that space is free again: uncompressed files
 * are then due without a delay. */
void archive_finisher_start(struct archive_finisher *f, struct archive_part *const *parts, size_t n,
    const char *id, bool at_once, usec_t now);
/* Returns the result of an attempt that has ended, and makes its part PART_SETTLED again. The caller repeats the call
 * until `part` is NULL. */
struct archive_finished archive_finisher_collect(struct archive_finisher *f, usec_t now);

#endif
