/* cursor_file: stores named cursors in one file of slots, each with two copies of one record.
 *
 *     | header | slot 0, copy A | slot 0, copy B | slot 1, copy A | ...          units of 512 bytes
 *
 * A put overwrites the older copy of its slot. Each copy has a rising sequence number and a checksum. The valid copy
 * with the higher number holds the record.
 *
 * 1. A put whose callback reports success survives a power cut, whatever the sync policy of the streams is.
 * 2. A torn write leaves the other copy intact. One batch is written at a time, with at most one write to a slot, so a
 *    slot always has its last acknowledged record.
 * 3. The file is created at its full size and never shrinks. Moving a cursor needs no disk space, so consumers make progress
 *    while the disk is full.
 * 4. Opening syncs the file before any record is used: the previous process may have been killed before its sync.
 * 5. ENOSPC and EDQUOT refuse the puts of their batch. Any other failure latches: every later put is refused.
 *
 * The owner thread makes every call; callbacks run in cursor_file_poll. The file's own thread writes and syncs. It
 * calls only `notify`; the owner must then call cursor_file_poll soon. */
#ifndef MILLRACE_PUBSUB_CURSOR_FILE_H
#define MILLRACE_PUBSUB_CURSOR_FILE_H

#include "journal/journal.h"

#define CURSOR_FILE_SLOTS_MAX 4096 /* slots */
#define CURSOR_KEY_TEXT 33         /* 32 hexadecimal digits and NUL */

struct cursor_file;

struct cursor_record {
    char stream[NAME_LEN_MAX + 1];
    char name[NAME_LEN_MAX + 1]; /* "": the slot is free */
    char id[JOURNAL_ID_TEXT];    /* of the stream */
    char key[CURSOR_KEY_TEXT];   /* of the owner; "": no owner, so any client may move the cursor */
    uint64_t offset;
};

enum cursor_file_result {
    CURSOR_FILE_OK,
    CURSOR_FILE_DAMAGED, /* not a cursor file, or a slot with two invalid copies */
    CURSOR_FILE_NEWER,   /* written by a newer version; left unchanged */
    CURSOR_FILE_IO,
};

/* Opens or creates the file, with at least `slots` slots. Blocks. On any result but OK, `error` gets the message. */
enum cursor_file_result cursor_file_open(const char *path, size_t slots, void (*notify)(void *arg),
    void *notify_arg, struct cursor_file **out, char *error, size_t error_size);
/* Waits for pending puts and runs their callbacks. */
void cursor_file_close(struct cursor_file **f);

size_t cursor_file_slots(const struct cursor_file *f);
/* The record of the last put, stored or not. */
const struct cursor_record *cursor_file_at(const struct cursor_file *f, size_t slot);

/* A put in progress, which the caller embeds in its own state and keeps until `done`. */
struct cursor_put {
    struct cursor_put *next; /* in the file's list */
    void (*done)(struct cursor_put *put, bool stored);
};
/* Copies the record. put->done is called exactly once. Puts of one slot are stored in order. */
void cursor_file_put(
    struct cursor_file *f, size_t slot, const struct cursor_record *record, struct cursor_put *put);
void cursor_file_poll(struct cursor_file *f);
const char *cursor_file_failure(const struct cursor_file *f); /* NULL, or the reason that puts are refused */

#endif
