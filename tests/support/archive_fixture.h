/* archive_fixture: an archive in a directory of its own. Its lines have times of 1970-01-01, and each file is of a minute. */
#ifndef MILLRACE_TEST_ARCHIVE_FIXTURE_H
#define MILLRACE_TEST_ARCHIVE_FIXTURE_H

#include "support/cm.h"
#include "streams/archive/file_archive.h"
#include "base/io.h"

extern char directory[48], format[100], state_path[100];
extern usec_t now;
/* For the next open_archive. */
extern usec_t commit_every;
extern enum archive_compression compression;
extern const char *opening; /* of every byte */
extern _Atomic int woken;   /* also from threads, once there was a tick */

extern const struct io_ops *real_io; /* behind a test's table; wait_for_room restores it */
extern const char *without_room;     /* write_where_room fails for paths that contain it */
extern bool no_room;                 /* for a test's table, until wait_for_room */

int setup(void **state);
int teardown(void **state);
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

struct file_archive *open_archive(size_t max_open);
struct file_archive *open_begun(size_t max_open); /* which has no state yet */
/* The clock stands still, so that the threads may take their time. */
void wait_a_moment(struct file_archive *a);
void tick(struct file_archive *a);
void wait_for_room(struct file_archive *a);

void take_line(struct file_archive *a, int64_t time); /* {} */
void take_minutes(struct file_archive *a, int n);     /* such a line of each */
void append_lines(struct buf *out, char letter, size_t n);
void take_run(
    struct file_archive *a, struct buf *all, char letter, size_t lines); /* of minute 0, and behind `all` */

/* "@X" is the file X in the staging directory, any other name one in the directory. */
void write_file(const char *name, const char *text);
void remove_file(const char *name);
bool is_there(const char *name);
void check_content(const char *name, const char *expected);
void check_file(const char *name, const struct buf *expected); /* after the line that began it */
ssize_t write_where_room(int fd, const void *data, size_t n, off_t at);
ssize_t write_no_parts(int fd, const struct iovec *parts, int n, off_t at); /* while there is no_room */

#endif
