/* cursor_file: stores named cursors in one file of slots, each with two copies of one record.
 *
 *     | header | slot 0, copy A | slot 0, copy B | slot 1, copy A | ...          units of 512 bytes
 *
 * Each copy has a sequence number and a checksum. A put overwrites the older copy of its slot and gets the next
 * sequence number. Of the two copies, the valid one with the higher number is the record.
 *
 * 1. If the callback of a put reports success, the put survives a power cut, whatever the sync policy of the streams
 *    is.
 * 2. If a write is torn, the other copy is still intact. Only one batch is written at a time, and it writes at most
 *    once to each slot. So the last acknowledged record of a slot is never lost.
 * 3. The file has its full size from the start and never shrinks. So moving a cursor needs no disk space, and
 *    consumers can make progress when the disk is full.
 * 4. An opening syncs the file before any record is used, because the previous process may have been killed before
 *    its sync.
 * 5. If a write fails with ENOSPC or EDQUOT, the puts of its batch are refused. After any other failure all later
 *    puts are refused.
 *
 * All functions must be called from the owner's thread. Callbacks run in cursor_file_poll. Writes and syncs run in a
 * thread of this module. This thread calls only `notify`, and the owner must then call cursor_file_poll soon. */
#ifndef MILLRACE_PUBSUB_CURSOR_FILE_H
#define MILLRACE_PUBSUB_CURSOR_FILE_H

#include "base/error.h"
#include "journal/journal.h"

#define CURSOR_FILE_SLOTS_MAX 4096 /* slots */
#define CURSOR_KEY_TEXT 33         /* 32 hexadecimal digits and NUL */

struct cursor_file;

struct cursor_record {
    char stream[NAME_LEN_MAX + 1];
    char name[NAME_LEN_MAX + 1]; /* "": the slot is free */
    char id[JOURNAL_ID_TEXT];    /* of the stream */
    char key[CURSOR_KEY_TEXT];   /* of the owner; "": any client may move the cursor */
    uint64_t offset;
    char opening[OPENING_TEXT]; /* of the byte before `offset` (journal/opening.h); "": offset 0 */
};

enum cursor_file_result {
    CURSOR_FILE_OK,
    CURSOR_FILE_DAMAGED, /* not a cursor file, or a slot with two invalid copies */
    CURSOR_FILE_VERSION, /* unknown format version; left unchanged */
    CURSOR_FILE_IO,
};

/* Opens the file, or creates it, with at least `slots` slots. Blocks. The error may be NULL. */
enum cursor_file_result cursor_file_open(const char *path, size_t slots, void (*notify)(void *arg),
    void *notify_arg, struct cursor_file **out, struct error *error);
/* Waits for pending puts and runs their callbacks. */
void cursor_file_close(struct cursor_file **f);

size_t cursor_file_slots(const struct cursor_file *f);
/* Returns the record of the last put, even if that is not stored yet. */
const struct cursor_record *cursor_file_at(const struct cursor_file *f, size_t slot);

/* A put in progress. The caller embeds it in its own struct, which must be valid until `done` is called. */
struct cursor_put {
    struct cursor_put *next; /* in the file's list */
    void (*done)(struct cursor_put *put, bool stored);
};
/* Stores a copy of the record. put->done is called exactly once. Puts to the same slot are stored in order. */
void cursor_file_put(
    struct cursor_file *f, size_t slot, const struct cursor_record *record, struct cursor_put *put);
void cursor_file_poll(struct cursor_file *f);
const char *cursor_file_failure(const struct cursor_file *f); /* NULL, or the reason that puts are refused */

#endif
