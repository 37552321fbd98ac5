/* journal_fixture: a journal on real files in a directory of its own, for the journal's tests and those of its direct users. */
#ifndef MILLRACE_TEST_JOURNAL_FIXTURE_H
#define MILLRACE_TEST_JOURNAL_FIXTURE_H

#include "support/cm.h"
#include "base/io.h"
#include "journal/journal.h"
#include "journal/journal_internal.h"
#include "base/log.h"

struct fixture {
    char dir[64];
    char error[256];
    struct journal_set *set;
    struct journal *j;
};
struct answer {
    int calls;
    struct journal_commit commit;
};
struct seen {
    int calls;
    struct journal_window w;
    struct buf data;
};

/* Configuration of the next opening. */
extern int64_t sync_ms;
extern size_t segment_bytes;
extern size_t max_producers;
extern uint64_t lost_below;
extern bool shares_files, openings_begin_segments;

int setup(void **state);
int teardown(void **state);
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

enum journal_result try_open(struct fixture *f);
void reopen(struct fixture *f);
/* Replaces the directory by a copy of its present state, as if the process had been killed. */
void kill_into_copy(struct fixture *f);
void open_killed_copy(struct fixture *f);

void on_commit(const struct journal_commit *c, void *arg); /* arg: struct answer */
enum journal_result append(struct fixture *f, const char *producer, uint64_t mark, uint64_t next,
    const char *text, struct answer *answer);
struct answer put(struct fixture *f, const char *text);
/* Appends bytes that show their offset: byte i of the journal is i modulo 251. */
void append_pattern(struct fixture *f, size_t size, journal_append_fn *done, void *arg);
void assert_pattern(uint64_t offset, struct bytes text);
/* Lines of 1000 bytes, each committed, from `time` on. */
void fill_segments(struct fixture *f, int lines, usec_t time);
/* Waits until the reader thread has nothing to do. */
void settle(struct fixture *f);
void settle_committers(struct fixture *f); /* set_settle_committers */
/* Waits until no file is being prepared. */
void settle_filler(struct fixture *f);
/* Appends a line of 1000 bytes, and trims all but the newest segment. */
void fill_and_trim(struct fixture *f);
/* Repeats that until the newest segment is in a recycled file; the next one is ready then. */
void use_files_again(struct fixture *f);

void assert_content(struct fixture *f, const char *text);
void on_window(const struct journal_window *w, void *arg); /* arg: struct seen */
void wait_read(struct fixture *f, struct journal_reader *r, size_t max, struct seen *s);
/* Waits for the answer. */
enum journal_result seek_time(struct fixture *f, usec_t time, uint64_t *offset);
char *last_segment_path(struct fixture *f); /* the caller frees it */
void flip(const char *path, off_t at);      /* a bit */

#endif
