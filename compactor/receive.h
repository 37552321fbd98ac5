/* receive: publishes a generation that `millrace distribute` has copied from another host into copy-N of this archive.
 *
 * 1. The checksum of the generation's manifest.json is given, and the manifest has the checksums of all other files. A
 *    copy is published only if every file matches, so a damaged copy is never served.
 * 2. The copy is linked into N.tmp, and then the steps are those of a run: check and sync the files, rename N.tmp to N,
 *    replace `current`, make every sortdb serve N, remove old generations. A program that still writes to copy-N, such as
 *    the rsync of a connection that was cut, never changes N: rsync replaces files, and does not write into them.
 *    A call repeated after a kill at any point ends in the same state.
 * 3. The generations that a sortdb may still read remain: old ones are removed only after every sortdb serves N, and the
 *    newest `keep` remain in any case.
 * 4. A generation of another pipeline, or another one with the number N, is refused.
 *
 * The caller holds the lock of the archive. */
#ifndef MILLRACE_RECEIVE_H
#define MILLRACE_RECEIVE_H

#include "compactor/run.h"

struct receive_spec {
    const char *archive;
    uint64_t generation;
    uint64_t xxh3; /* XXH3 (64 bits, seed 0) of the bytes of manifest.json */
    bool looks;    /* change nothing */
    unsigned keep;
    const struct run_control *control;
    void (*on_progress)(uint64_t bytes, uint64_t total, void *arg); /* may be NULL */
    void *arg;
};

/* Reads "GENERATION/CHECKSUM". Returns false for another text. */
bool receive_parse(const char *text, struct receive_spec *spec);
/* Sets *is_needed, and changes nothing, if the generation is neither published nor completely copied. With `looks`, also
 * if it is not current. COMPACT_DAMAGED: the error names the file of the copy. */
enum compact_result receive_generation(const struct receive_spec *spec, bool *is_needed, struct error *error);

#endif
