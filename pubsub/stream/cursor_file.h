/* cursor_file: where named cursors are kept: one file of slots, each holding one record, twice.
 *
 *     | header | slot 0, copy A | slot 0, copy B | slot 1, copy A | ...          units of 512 bytes
 *
 * A record is written over the older of its slot's two copies. Each copy has a number that rises and a checksum;
 * the copy with the higher number that is whole is the record.
 *
 * Invariants
 * 1. A put whose callback says true survives a power cut, whatever the streams' own policy is.
 * 2. A write that is torn leaves the copy it was not made over: a slot never is without the last record that was
 *    acknowledged. One batch of writes is under way at a time, and holds at most one write a slot.
 * 3. The file has its full size before it is used and is never cut: moving a cursor needs no room, so that a full
 *    disk can be drained by those who hold it.
 * 4. What an opening finds is as safe as what was acknowledged before it is told to anyone: the life before may have been
 *    killed before its last writes, or the file's name, were synced.
 * 5. ENOSPC and EDQUOT (a file system that copies on write) refuse the puts concerned; any other failure latches:
 *    every later put is refused.
 *
 * Threads: the owner makes every call and gets every callback, from inside cursor_file_poll. One thread writes and
 * syncs; it only calls `notify`, which must arrange that the owner calls cursor_file_poll soon.
 */
#ifndef MILLRACE_PUBSUB_CURSOR_FILE_H
#define MILLRACE_PUBSUB_CURSOR_FILE_H

#include "journal/journal.h"

#define CURSOR_FILE_SLOTS_MAX 4096 /* slots */

struct cursor_file;

struct cursor_record {
    char stream[NAME_LEN_MAX + 1];
    char name[NAME_LEN_MAX + 1]; /* "": the slot is free */
    char id[JOURNAL_ID_TEXT];    /* the stream's */
    uint64_t offset;
};

enum cursor_file_result {
    CURSOR_FILE_OK,
    CURSOR_FILE_DAMAGED, /* no file of cursors, or a slot whose copies both are not whole */
    CURSOR_FILE_NEWER,   /* written by a newer version: left alone */
    CURSOR_FILE_IO,
};

/* Opens or makes the file, with at least `slots` slots. Blocks. `error` gets the message for anything but OK. */
enum cursor_file_result cursor_file_open(const char *path, size_t slots, void (*notify)(void *arg),
    void *notify_arg, struct cursor_file **out, char *error, size_t error_size);
/* Waits for what is under way; its callbacks run. */
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
