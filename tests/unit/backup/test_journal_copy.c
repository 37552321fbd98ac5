/* journal_copy: a copy ends where it must, has what was trimmed meanwhile, and can be opened. */
#include "support/cm.h"
#include "support/shell.h"
#include "support/test_dir.h"

#include "backup/journal_copy.h"
#include "simplequeue/queue/queue_log.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64], source[100], stage[100];
static struct error error;
static struct journal_set *set;
static struct journal *journal;
static struct journal_copy copy;

static void open_journal(const char *dir)
{
    const struct journal_config config = {.dir = dir, .segment_bytes = 4096};
    set = journal_set_new(&(struct journal_set_config){.sync_ms = JOURNAL_SYNC_NEVER});
    assert_int_equal(journal_open(set, &config, &journal, error.text, sizeof error.text), JOURNAL_OK);
}

static int set_up(void **state)
{
    (void)state;
    make_test_dir(root, sizeof root);
    snprintf(source, sizeof source, "%s/source", root);
    snprintf(stage, sizeof stage, "%s/stage/deep", root);
    open_journal(source);
    journal_copy_init(&copy, "q", source, stage);
    copy.is_queue = true;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    journal_copy_free(&copy);
    journal_close(&journal);
    journal_set_free(&set);
    shell("rm -rf %s", root);
    return 0;
}

/* The link before which the daemon makes the segment's file its spare file, when the link has found the file already; 0: none. */
static int recycled_by_link;

int link(const char *from, const char *to)
{
    char spare[200];
    if (recycled_by_link == 0 || --recycled_by_link > 0)
        return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
    snprintf(spare, sizeof spare, "%s/spare", source);
    assert_int_equal(rename(from, spare), 0);
    return linkat(AT_FDCWD, spare, AT_FDCWD, to, 0);
}

static void on_commit(const struct journal_commit *c, void *arg)
{
    (void)arg;
    assert_int_equal(c->result, JOURNAL_OK);
}

/* Appends the record, under a mark of the producer unless that is NULL, and empties the buffer. */
static void append(struct buf *record, const char *producer, uint64_t mark)
{
    struct bytes piece = buf_bytes(record);
    struct journal_append a = {.pieces = &piece, .n_pieces = 1};
    if (producer) {
        a.producer = bytes_str(producer);
        a.mark = journal_mark(journal, a.producer, NULL);
        a.next = mark;
    }
    assert_int_equal(journal_append(journal, &a, 1, on_commit, NULL, NULL), JOURNAL_OK);
    journal_set_flush(set);
    buf_free(record);
}

static void put(uint64_t id, size_t size)
{
    char text[8192];
    struct bytes message = bytes_of(text, size);
    struct buf record = {0};
    memset(text, 'm', sizeof text);
    queue_log_put(&record, id, &message, 1);
    buf_append_bytes(&record, message);
    append(&record, NULL, 0);
}

static void remove_id(uint64_t id, uint64_t next_id)
{
    struct id_ranges ids = {0};
    struct buf record = {0};
    id_ranges_add(&ids, id);
    queue_log_remove(&record, next_id, &ids);
    id_ranges_free(&ids);
    append(&record, NULL, 0);
}

static bool removes_from_2(const struct frame *f, void *arg)
{
    (void)arg;
    return journal_copy_removes(f, 2);
}

static bool list_record(const struct journal_scanned *frame, void *arg)
{
    struct queue_record r;
    const char *why;
    (void)frame->offset, (void)frame->time;
    assert_true(queue_log_decode(frame->payload, &r, &why));
    buf_append_char(arg, r.type == RECORD_PUT ? 'P' : 'R');
    return true;
}

/* Opens the copy as a daemon would, and compares the types of its records. */
static void assert_records(const char *expected)
{
    struct buf types = {0};
    journal_close(&journal);
    journal_set_free(&set);
    open_journal(stage);
    assert_int_equal(journal_cut_bytes(journal), 0);
    assert_int_equal(journal_scan(journal, journal_earliest(journal), list_record, &types), JOURNAL_OK);
    assert_true(bytes_equal_str(buf_bytes(&types), expected));
    buf_free(&types);
}

static void test_it_ends_before_the_first_unpublished_removal(void **state)
{
    (void)state;
    put(1, 10);
    remove_id(1, 2);
    put(2, 10);
    put(3, 10);
    remove_id(3, 4); /* before the pin: an operator emptied the queue */
    assert_int_equal(journal_copy_pin(&copy, &error), BACKUP_OK);
    put(4, 10);
    remove_id(1, 5);
    remove_id(2, 5);
    put(5, 10);
    assert_int_equal(journal_copy_extend(&copy, removes_from_2, NULL, &error), BACKUP_OK);
    assert_int_equal(copy.next_id, 5);
    assert_int_equal(journal_copy_cut(&copy, &error), BACKUP_OK);
    assert_records("PRPPRPR");
}

static void test_what_is_trimmed_meanwhile_is_in_the_copy(void **state)
{
    (void)state;
    for (uint64_t id = 1; id <= 20; id++)
        put(id, 2000);
    assert_int_equal(journal_copy_pin(&copy, &error), BACKUP_OK);
    journal_trim(journal, journal_committed_end(journal));
    put(21, 2000);
    journal_copy_follow(&copy);
    for (uint64_t id = 22; id <= 24; id++)
        put(id, 2000);
    assert_int_equal(journal_copy_extend(&copy, NULL, NULL, &error), BACKUP_OK);
    journal_trim(journal, journal_committed_end(journal));
    assert_int_equal(journal_copy_cut(&copy, &error), BACKUP_OK);
    assert_int_equal(copy.next_id, 25);
    assert_int_equal(copy.earliest, 0);
    assert_records("PPPPPPPPPPPPPPPPPPPPPPPP");
}

static size_t segments(void)
{
    size_t n = 0;
    DIR *d = opendir(source);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strstr(e->d_name, ".seg") != NULL;
    closedir(d);
    return n;
}

static void test_a_gap_is_found(void **state)
{
    (void)state;
    usec_t end = 0;
    put(1, 2000);
    assert_int_equal(journal_copy_pin(&copy, &error), BACKUP_OK);
    for (uint64_t id = 2; id <= 20; id++)
        put(id, 2000);
    journal_trim(journal, journal_committed_end(journal));
    while (segments() > 2 && is_early(&end)) /* a thread removes them */
        sched_yield();
    assert_in_range(segments(), 1, 2);
    put(21, 10);
    assert_int_equal(journal_copy_extend(&copy, NULL, NULL, &error), BACKUP_CHANGED);
}

static void test_a_file_that_is_recycled_during_the_link_is_not_in_the_copy(void **state)
{
    char path[200];
    (void)state;
    for (uint64_t id = 1; id <= 9; id++)
        put(id, 2000);
    recycled_by_link = 1; /* the oldest segment: the copy begins after it */
    assert_int_equal(journal_copy_pin(&copy, &error), BACKUP_OK);
    assert_int_equal(copy.first, 2);
    snprintf(path, sizeof path, "%s/%016d.seg", stage, 1);
    assert_int_equal(access(path, F_OK), -1);
    for (uint64_t id = 10; id <= 15; id++)
        put(id, 2000);
    recycled_by_link = 1;
    assert_int_equal(journal_copy_extend(&copy, NULL, NULL, &error), BACKUP_CHANGED);
}

static void test_a_segment_that_is_truncated_after_the_copy(void **state)
{
    char path[200], copied[200];
    struct stat before, after;
    (void)state;
    for (uint64_t id = 1; id <= 6; id++)
        put(id, 2000);
    size_t n = segments();
    snprintf(path, sizeof path, "%s/%016zu.seg", source, n - 1);
    snprintf(copied, sizeof copied, "%s/%016zu.seg", stage, n - 1);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(
        truncate(path, before.st_size + 56), 0); /* as it is while the daemon begins the next segment */
    assert_int_equal(journal_copy_pin(&copy, &error), BACKUP_OK);
    assert_int_equal(journal_copy_extend(&copy, NULL, NULL, &error), BACKUP_OK);
    assert_int_equal(journal_copy_cut(&copy, &error), BACKUP_OK);
    assert_int_equal(stat(copied, &before), 0);
    assert_int_equal(truncate(path, before.st_size - 1), 0);
    assert_int_equal(stat(copied, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_records("PPPPPP");
}

static void test_marks_at_the_end(void **state)
{
    static const char id[] = "0123456789abcdef0123456789abcdef";
    struct buf record = {0};
    (void)state;
    buf_append_str(&record, "a line\n");
    append(&record, id, 7);
    buf_append_str(&record, "a line\n");
    append(&record, "a client", 9);
    assert_int_equal(journal_copy_pin(&copy, &error), BACKUP_OK);
    buf_append_str(&record, "a line\n");
    append(&record, id, 8);
    assert_int_equal(journal_copy_extend(&copy, NULL, NULL, &error), BACKUP_OK);
    assert_int_equal(journal_copy_mark(&copy, id), 8);
    assert_int_equal(copy.n_marks, 1);
    assert_int_equal(copy.end.offset, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_ends_before_the_first_unpublished_removal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_trimmed_meanwhile_is_in_the_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_gap_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_file_that_is_recycled_during_the_link_is_not_in_the_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_segment_that_is_truncated_after_the_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_marks_at_the_end, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
