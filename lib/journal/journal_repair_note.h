/* journal_repair_note: the file `repair` in a journal's directory: the decisions of a repair, and its progress. */
#ifndef MILLRACE_JOURNAL_REPAIR_NOTE_H
#define MILLRACE_JOURNAL_REPAIR_NOTE_H

#include "journal/journal.h"

#define REPAIR_NOTE_NAME "repair"

enum repair_stage { REPAIR_MOVING, REPAIR_MOVED, REPAIR_DONE };

/* After a finished repair only `below` counts, for the next repair. */
struct repair_note {
    enum repair_stage stage;
    uint64_t sequence; /* the first damaged segment */
    uint64_t cut_at;   /* bytes of its file that are kept; 0: none */
    uint64_t first, end, lost;
    uint64_t below;  /* offsets below may have been used */
    char aside[128]; /* suffix of the directory for the damaged segments */
};

/* OK; *there is false without a note. IO, DAMAGED, NEWER with a message. */
enum journal_result repair_note_read(
    const char *dir, struct repair_note *n, bool *there, char *error, size_t error_size);
/* Replaces the note durably. 0, or -1 with errno. */
int repair_note_write(const char *dir, int dir_fd, const struct repair_note *n);
/* OK if no repair is unfinished. */
enum journal_result repair_note_check(const char *dir, char *error, size_t error_size);

#endif
