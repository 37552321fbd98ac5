/* cursor_file: stores named cursors in one file of slots, each with two copies of one record.
 *
 *     | header | slot 0, copy A | slot 0, copy B | slot 1, copy A | ...          units of 512 bytes
 *
 * A record overwrites the older copy of its slot. A copy has a rising number and a checksum; the valid copy with the higher
 * number counts.
 *
 * 1. A put whose callback says true survives a power cut, whatever the streams' sync policy is.
 * 2. A torn write leaves the other copy: a slot always has its last acknowledged record. One batch is written at a time, with
 *    at most one write a slot.
 * 3. The file has its full size from the start and never shrinks: moving a cursor needs no disk space, so the consumers of a
 *    full disk can go on.
 * 4. Opening syncs the file before any record is used: the previous process may have been killed before its sync.
 * 5. ENOSPC and EDQUOT refuse the puts concerned. Any other failure latches: every later put is refused.
 *
 * The owner thread makes every call and gets every callback, from cursor_file_poll. One thread writes and syncs; it calls
 * only `notify`, which makes the owner call cursor_file_poll soon.
 */
#ifndef MILLRACE_PUBSUB_CURSOR_FILE_H
#define MILLRACE_PUBSUB_CURSOR_FILE_H

#include "journal/journal.h"

#define CURSOR_FILE_SLOTS_MAX 4096 /* slots */
#define CURSOR_KEY_TEXT 33         /* 32 hexadecimal digits and NUL */

struct cursor_file;

struct cursor_record {
    char stream[NAME_LEN_MAX + 1];
    char name[NAME_LEN_MAX + 1]; /* "": the slot is free */
    char id[JOURNAL_ID_TEXT];    /* the stream's */
    char key[CURSOR_KEY_TEXT];   /* the owner's; "": anyone may move the cursor */
    uint64_t offset;
};

enum cursor_file_result {
    CURSOR_FILE_OK,
    CURSOR_FILE_DAMAGED, /* not a cursor file, or a slot with two invalid copies */
    CURSOR_FILE_NEWER,   /* written by a newer version: left alone */
    CURSOR_FILE_IO,
};

/* Opens or makes the file, with at least `slots` slots. Blocks. `error` gets the message for anything but OK. */
enum cursor_file_result cursor_file_open(const char *path, size_t slots, void (*notify)(void *arg),
    void *notify_arg, struct cursor_file **out, char *error, size_t error_size);
/* Waits for the puts under way; their callbacks run. */
void cursor_file_close(struct cursor_file **f);

size_t cursor_file_slots(const struct cursor_file *f);
/* The record as last put, committed or not. */
const struct cursor_record *cursor_file_at(const struct cursor_file *f, size_t slot);

typedef void cursor_file_done(bool stored, void *arg);
/* The record is copied. `done` is called exactly once; puts of one slot are stored in their order. */
void cursor_file_put(struct cursor_file *f, size_t slot, const struct cursor_record *record,
    cursor_file_done *done, void *arg);
void cursor_file_poll(struct cursor_file *f);
const char *cursor_file_failure(const struct cursor_file *f); /* NULL, or why puts are refused */

#endif
