/* cursor_file: stores named cursors in one file of slots, each with two copies of one record.
 *
 *     | header | slot 0, copy A | slot 0, copy B | slot 1, copy A | ...          units of 512 bytes
 *
 * Each copy has a sequence number and a checksum. A put overwrites the older copy of its slot and gets the next
 * sequence number. The valid copy with the higher sequence number is the record of the slot.
 *
 * 1. If the callback of a put reports success, the put survives a power cut, even if the streams are never synced.
 * 2. A torn write damages one copy and leaves the other copy intact. Only one batch is written at a time, with at
 *    most one write per slot. Therefore the last acknowledged record of a slot is never lost.
 * 3. The file has its full size from its creation on and never shrinks. Therefore a move of a cursor needs no disk
 *    space, and consumers can make progress when the disk is full.
 * 4. cursor_file_open syncs the file before any record is used, because the previous process may have been killed
 *    before its sync.
 * 5. If a write fails with ENOSPC or EDQUOT, only the puts of the same batch fail. After any other failure, all later
 *    puts fail, too.
 *
 * Call all functions on the owner's thread. Callbacks run in cursor_file_poll. A thread of this module writes, syncs
 * and calls `notify`, which must make the owner call cursor_file_poll soon. */
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
    char id[JOURNAL_ID_TEXT];    /* id of the stream */
    char key[CURSOR_KEY_TEXT];   /* key of the owner; "": any client may move the cursor */
    uint64_t offset;
    /* opening (run of the daemon) of the byte before `offset` (journal/opening.h); "": `offset` is 0 */
    char opening[OPENING_TEXT];
};

enum cursor_file_result {
    CURSOR_FILE_OK,
    CURSOR_FILE_DAMAGED, /* not a cursor file, or a slot with two invalid copies */
    CURSOR_FILE_VERSION, /* the file has an unknown format version; the file is unchanged */
    CURSOR_FILE_IO,
};

/* Opens or creates the file, with at least `slots` slots. Blocks. `error` may be NULL. */
enum cursor_file_result cursor_file_open(const char *path, size_t slots, void (*notify)(void *arg),
    void *notify_arg, struct cursor_file **out, struct error *error);
/* Waits for pending puts and runs their callbacks. */
void cursor_file_close(struct cursor_file **f);

size_t cursor_file_slots(const struct cursor_file *f);
/* Returns the record of the last put, even if the put is not stored yet. */
const struct cursor_record *cursor_file_at(const struct cursor_file *f, size_t slot);

/* A put in progress. The caller embeds a cursor_put in a struct that must be valid until `done` is called. */
struct cursor_put {
    struct cursor_put *next; /* in the file's list */
    void (*done)(struct cursor_put *put, bool stored);
};
/* Stores a copy of the record and calls put->done exactly once. Puts to the same slot are stored in order. */
void cursor_file_put(
    struct cursor_file *f, size_t slot, const struct cursor_record *record, struct cursor_put *put);
void cursor_file_poll(struct cursor_file *f);
/* returns the reason why puts are refused, or NULL */
const char *cursor_file_failure(const struct cursor_file *f);

#endif
