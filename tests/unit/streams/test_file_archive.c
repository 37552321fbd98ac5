#include "support/archive_fixture.h"
#include "streams/archive/archive_finish.h"
#include "base/log.h"
#include "support/power.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A crash can leave more open files than max_open. They are closed, so that the archive does not stay full. */
static void test_more_open_files_than_may_be(void **state)
{
    struct stream_cursor at = {.id = "0123456789abcdef0123456789abcdef"};
    (void)state;
    struct file_archive *a = open_archive(60);
    file_archive_begin(a, &at);
    take_minutes(a, 60);
    assert_int_equal(file_archive_flush(a), 0);
    file_archive_close(&a);
    a = open_archive(4);
    assert_int_equal(file_archive_numbers(a).open, 60);
    assert_true(file_archive_is_full(a));
    for (usec_t end = 0; file_archive_is_full(a) && is_early(&end);)
        tick(a);
    assert_false(file_archive_is_full(a));
    assert_int_equal(file_archive_numbers(a).open, 4);
    file_archive_close(&a);
}

static void write_state_of_an_empty_file(void)
{
    FILE *f = fopen(state_path, "w");
    assert_non_null(f);
    fprintf(f,
        "{\"format\":2,\"stream\":\"s\",\"id\":\"0123456789abcdef0123456789abcdef\",\"offset\":\"0\","
        "\"files\":["
        "{\"name\":\"%s/0000\",\"staged\":\"%s/0000.part\",\"length\":\"0\",\"lines\":\"0\",\"first\":\"0\","
        "\"end\":\"0\",\"finishing\":true}]}\n",
        directory, directory);
    fclose(f);
}

/* An empty file that a state names is deleted, and a new file of its name is not taken for it. */
static void test_a_new_file_of_the_name_of_an_empty_one(void **state)
{
    (void)state;
    write_state_of_an_empty_file();
    write_file("0000.part", "");
    struct file_archive *a = open_archive(4);
    take_line(a, 0);
    file_archive_roll(a);
    for (usec_t end = 0; file_archive_numbers(a).finishing > 0 && is_early(&end);)
        tick(a);
    check_content("0000", "{}\n");
    assert_false(is_there("0000.part"));
    file_archive_close(&a);
}

static int finish_lines(uint64_t lines, enum archive_compression how)
{
    char name[200], staged[210];
    struct error error;
    bool full;
    snprintf(name, sizeof name, "%s/x", directory);
    snprintf(staged, sizeof staged, "%s.part", name);
    struct archive_file_state file = {
        .name = name, .staged = staged, .length = 3 * lines, .lines = lines, .end = 3 * lines};
    return archive_finish(
        &(struct archive_finish_spec){
            .file = &file, .stream = "s", .id = "i", .compression = how, .retried = true},
        &full, &error);
}

static int finish_file(enum archive_compression how)
{
    return finish_lines(1, how);
}

/* Killed after the rename, and started again with another --compress. The file is finished, and does not change. */
static void test_finished_is_finished_whatever_the_compression(void **state)
{
    static const enum archive_compression all[] = {ARCHIVE_PLAIN, ARCHIVE_GZIP, ARCHIVE_ZSTD};
    (void)state;
    for (int i = 0; i < 9; i++) {
        write_file("x.part", "{}\n");
        assert_int_equal(finish_file(all[i / 3]), 0);
        assert_int_equal(finish_file(all[i % 3]), 0);
        assert_int_equal(is_there("x") + is_there("x.gz") + is_there("x.zst"), 1);
        assert_false(is_there("x.part"));
        remove_file("x");
        remove_file("x.gz");
        remove_file("x.zst");
        remove_file("x.manifest.json");
    }
}

/* Killed at any step. The next life finishes the file, and commits a state without it. Then the power is cut. */
static void test_killed_while_finishing_then_a_cut(void **state)
{
    static const enum archive_compression all[] = {ARCHIVE_PLAIN, ARCHIVE_GZIP};
    unsigned seed = 1;
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        unsigned lines = i < 2, killed = 1;
        for (unsigned at = 1; killed; at++) {
            write_file("x.part", lines ? "{}\n" : "");
            power_on(POWER_KILL, at);
            killed = finish_lines(lines, all[i % 2]) != 0;
            power_revive(POWER_NONE, 0);
            assert_int_equal(finish_lines(lines, all[i % 2]), 0);
            power_cut_now();
            power_off(&seed);
            assert_false(is_there("x.part"));
            assert_int_equal(is_there("x") + is_there("x.gz"), lines);
            assert_int_equal(is_there("x.manifest.json"), lines);
            remove_file("x");
            remove_file("x.gz");
            remove_file("x.manifest.json");
        }
    }
}

/* Takes a finished file and its manifest away, as after an upload. Returns the number of files taken away. */
static int take_away(void)
{
    int there = is_there("x") + is_there("x.gz") + is_there("x.zst");
    assert_in_range(there, 0, 1);
    if (there)
        assert_true(is_there("x.manifest.json"));
    for (int i = 0; i < 3 && there; i++)
        remove_file(((const char *const[]){"x", "x.gz", "x.zst"})[i]);
    if (there)
        remove_file("x.manifest.json");
    return there;
}

/* Killed at any step. A file with its final name is taken away before the next life, which may have another
 * compression. The file is neither made again, nor missed. */
static void test_taken_away_as_soon_as_it_is_seen(void **state)
{
    static const enum archive_compression all[] = {ARCHIVE_PLAIN, ARCHIVE_GZIP, ARCHIVE_ZSTD};
    unsigned seed = 1, taken = 0;
    (void)state;
    for (int i = 0; i < 9; i++) {
        unsigned killed = 1;
        for (unsigned at = 1; killed; at++) {
            write_file("x.part", "{}\n");
            power_on(POWER_KILL, at);
            killed = finish_file(all[i / 3]) != 0;
            int seen = take_away();
            power_revive(POWER_NONE, 0);
            assert_int_equal(finish_file(all[i % 3]), 0);
            power_off(&seed);
            assert_int_equal(seen + take_away(), 1);
            assert_false(is_there("x.part") || is_there("x.part.packed"));
            remove_file("x.part.manifest");
            remove_file("x.part.summary");
            taken += killed && seen;
        }
    }
    assert_true(taken >= 9);
}

/* Another program has made a file with the name. This file does not change, and the archive's file is finished under
 * another name. */
static void test_a_name_that_somebody_has_taken_meanwhile(void **state)
{
    static const char *const names[] = {"x", "x.gz", "x.manifest.json"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        write_file("x.part", "{}\n");
        write_file(names[i], "theirs");
        write_file("x.1.zst", "theirs");
        assert_int_equal(finish_file(ARCHIVE_GZIP), 0);
        assert_true(is_there("x.2.gz") && is_there("x.2.manifest.json"));
        assert_false(is_there("x.part") || is_there("x.1.manifest.json"));
        check_content(names[i], "theirs");
        check_content("x.1.zst", "theirs");
        assert_int_equal(finish_file(ARCHIVE_GZIP), 0);
        check_content(names[i], "theirs");
        for (int k = 0; k < 3; k++)
            remove_file(names[k]);
        remove_file("x.2.gz");
        remove_file("x.2.manifest.json");
    }
}

static void remove_all_of(const char *name)
{
    static const char *const suffixes[] = {
        "", ".gz", ".zst", ".part.packed", ".part.summary", ".part.manifest", ".manifest.json"};
    char path[40];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(path, sizeof path, "%s%s", name, suffixes[i]);
        remove_file(path);
    }
}

/* Killed at step `at` of finishing with compression `how`, when `theirs` is made, and at step `again` of the next
 * life. All lines must be in x.1, or in x if it was there before the kill. False: the first life was not killed. */
static bool finish_beside(const char *theirs, enum archive_compression how, unsigned at, unsigned again)
{
    unsigned seed = 1;
    char own[40];
    write_file("x.part", "{}\n");
    power_on(POWER_KILL, at);
    bool killed = finish_file(how) != 0;
    bool seen = is_there("x") || is_there("x.gz") || is_there("x.zst");
    if (!seen)
        write_file(theirs, "hi\n");
    power_revive(POWER_KILL, again);
    (void)finish_file(how);
    power_revive(POWER_NONE, 0);
    assert_int_equal(finish_file(how), 0);
    power_off(&seed);
    snprintf(own, sizeof own, "x%s%s", seen ? "" : ".1", archive_suffixes[how]);
    assert_true(is_there(own));
    assert_false(is_there("x.part"));
    assert_int_equal(is_there("x.manifest.json"), seen);
    assert_int_equal(is_there("x.1.manifest.json"), !seen);
    if (!seen)
        check_content(theirs, "hi\n"); /* as long as our lines */
    remove_all_of("x");
    remove_all_of("x.1");
    return killed;
}

/* The manifest already has the name, and then another program makes a file with it. */
static void test_a_name_that_somebody_takes_behind_the_manifest(void **state)
{
    static const enum archive_compression all[] = {ARCHIVE_PLAIN, ARCHIVE_GZIP};
    static const char *const names[] = {"x", "x.gz"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool killed = true;
        for (unsigned at = 1; killed; at++)
            for (unsigned again = 1; again < 20; again++)
                killed = finish_beside(names[i % 2], all[i / 2], at, again);
    }
}

/* A symbolic link takes the name, too, also if its target does not exist. */
static void test_a_name_that_is_a_link_to_nothing(void **state)
{
    static const char *const names[] = {"x", "x.gz", "x.manifest.json"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char path[200], target[20];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        write_file("x.part", "{}\n");
        assert_int_equal(symlink("nothing", path), 0);
        alarm(60);
        assert_int_equal(finish_file(i == 0 ? ARCHIVE_PLAIN : ARCHIVE_GZIP), 0);
        alarm(0);
        assert_true(is_there(i == 0 ? "x.1" : "x.1.gz") && is_there("x.1.manifest.json"));
        assert_false(is_there("x.part"));
        assert_int_equal(readlink(path, target, sizeof target), 7);
        remove_all_of("x");
        remove_all_of("x.1");
    }
}

/* A missing part is an error, unless an earlier try may have finished the file. */
static void test_a_part_that_is_missing(void **state)
{
    char name[200], staged[210];
    struct error error;
    bool shortage;
    (void)state;
    snprintf(name, sizeof name, "%s/x", directory);
    snprintf(staged, sizeof staged, "%s.part", name);
    struct archive_file_state file = {.name = name, .staged = staged, .length = 3, .lines = 1, .end = 3};
    struct archive_finish_spec spec = {.file = &file, .stream = "s", .id = "i"};
    assert_int_equal(archive_finish(&spec, &shortage, &error), -1);
    assert_non_null(strstr(error.text, "No such file"));
    assert_false(shortage);
    spec.retried = true;
    uint64_t told = log_count(LOG_LEVEL_WARN);
    assert_int_equal(archive_finish(&spec, &shortage, &error), 0);
    assert_int_equal(log_count(LOG_LEVEL_WARN), told + 1);
}

/* The directory may not exist either, because the first write makes it. */
static void test_an_empty_file_that_was_never_made_is_finished(void **state)
{
    (void)state;
    assert_int_equal(finish_lines(0, ARCHIVE_PLAIN), 0);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(finish_lines(0, ARCHIVE_PLAIN), 0);
    assert_int_equal(mkdir(directory, 0777), 0);
}

/* A crash may leave a file without a line. Its deletion does not count as a finished file. */
static void test_an_empty_file_is_no_finished_one(void **state)
{
    (void)state;
    write_state_of_an_empty_file();
    struct file_archive *a = open_archive(4);
    uint64_t told = log_count(LOG_LEVEL_INFO);
    for (usec_t end = 0; file_archive_numbers(a).finishing > 0 && is_early(&end);)
        tick(a);
    assert_int_equal(file_archive_numbers(a).finishing, 0);
    assert_int_equal(file_archive_numbers(a).finished, 0);
    assert_int_equal(log_count(LOG_LEVEL_INFO), told);
    file_archive_close(&a);
}

static _Atomic int opened_for_writing;
static _Atomic char opened_last; /* the last digit of its first line's offset */
static _Atomic int opened_of_first;

static int count_opens(const char *path, int flags, mode_t mode)
{
    const char *behind = strstr(path, ".part.packed");
    if (behind != NULL)
        opened_last = behind[-1];
    opened_for_writing += behind != NULL;
    opened_of_first += strstr(path, "/0.part.packed") != NULL;
    return real_io->open(path, flags, mode);
}

static struct io_ops full_for_packed;

/* An archive with the complete files of `n` minutes. */
static struct file_archive *open_without_room_to_pack(int n)
{
    full_for_packed = *io;
    real_io = io;
    full_for_packed.open = count_opens;
    full_for_packed.pwrite = write_where_room;
    compression = ARCHIVE_GZIP;
    opened_for_writing = opened_of_first = 0;
    struct file_archive *a = open_begun(4);
    take_minutes(a, n);
    take_line(a, 0);
    io = &full_for_packed;
    file_archive_roll(a);
    for (usec_t end = 0; opened_for_writing < n && is_early(&end);)
        tick(a);
    for (usec_t end = 0; !file_archive_numbers(a).is_short && is_early(&end);)
        wait_a_moment(a);
    return a;
}

static void finish_with_room(struct file_archive *a, uint64_t files)
{
    io = real_io;
    for (usec_t end = 0; file_archive_numbers(a).finished < files && is_early(&end);) {
        now += USEC_PER_SEC;
        wait_a_moment(a);
    }
    assert_int_equal(file_archive_numbers(a).finished, files);
    assert_false(file_archive_numbers(a).is_short);
    compression = ARCHIVE_PLAIN;
    file_archive_close(&a);
}

/* On a full disk, each try to finish reads and packs the whole file. So it is tried at most once a second, not in
 * every turn, and a failed try leaves no bytes on the disk. */
static void test_finishing_waits_for_room(void **state)
{
    (void)state;
    struct file_archive *a = open_without_room_to_pack(1);
    usec_t first = now;
    while (now - first < 500 * USEC_PER_MSEC)
        tick(a);
    assert_int_equal(opened_for_writing, 1);
    assert_true(file_archive_numbers(a).is_short);
    assert_false(is_there("@0.part.packed"));
    finish_with_room(a, 1);
    assert_true(is_there("0000.gz"));
}

/* Lines for which the disk has room are taken and committed meanwhile. The finish is tried less and less often, and
 * logged once a minute. */
static void test_lines_come_while_there_is_no_room_to_pack(void **state)
{
    bool final;
    (void)state;
    uint64_t told = log_count(LOG_LEVEL_ERROR), info = log_count(LOG_LEVEL_INFO);
    struct file_archive *a = open_without_room_to_pack(1);
    for (usec_t end = now + 100 * USEC_PER_SEC; now < end; now += 100 * USEC_PER_MSEC) {
        uint64_t commits = file_archive_numbers(a).commits;
        assert_false(file_archive_is_full(a));
        take_line(a, 60);
        for (usec_t late = 0; file_archive_numbers(a).commits == commits && is_early(&late);)
            tick(a);
        assert_int_not_equal(file_archive_numbers(a).commits, commits);
    }
    assert_true(opened_for_writing <= 8); /* after 0, 1, 3, 7, 15, 31, 61, 91 seconds */
    assert_non_null(strstr(file_archive_trouble(a, &final), "No space"));
    assert_false(final);
    assert_true(log_count(LOG_LEVEL_ERROR) - told <= 2);
    assert_int_equal(log_count(LOG_LEVEL_INFO), info);
    assert_int_equal(file_archive_numbers(a).shortages, 1);
    finish_with_room(a, 1);
    assert_true(log_count(LOG_LEVEL_INFO) > info);
}

/* Also after a full disk, whose first room is for complete files: the room may be enough for lines, but for no packed
 * file. */
static void test_lines_come_after_a_full_disk_though_nothing_can_be_packed(void **state)
{
    struct buf all = {0};
    (void)state;
    struct file_archive *a = open_without_room_to_pack(1);
    full_for_packed.pwritev = write_no_parts;
    take_line(a, 0);
    assert_int_equal(file_archive_flush(a), 0);
    no_room = true;
    take_run(a, &all, 'a', 1000);
    no_room = false;
    assert_true(file_archive_is_full(a));
    int tries = opened_for_writing;
    for (usec_t end = 0; file_archive_is_full(a) && is_early(&end); now += 10 * USEC_PER_MSEC)
        tick(a);
    assert_false(file_archive_is_full(a));
    assert_true(opened_for_writing > tries);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    check_file("@6.part", &all);
    finish_with_room(a, 1);
    buf_free(&all);
}

/* The shortest file is tried first, and alone, because it needs the least room, and the room that it frees may be
 * enough for the others. No pause is longer than a step of the clock, so at each step all files that are not being
 * packed are due. */
static void test_the_shortest_is_packed_first(void **state)
{
    (void)state;
    struct file_archive *a = open_without_room_to_pack(3);
    take_line(a, 60);
    for (int tries = 4; tries < 7; tries++) {
        for (usec_t end = 0; opened_for_writing < tries && is_early(&end); now += 60 * USEC_PER_SEC)
            wait_a_moment(a);
        assert_int_equal(opened_for_writing, tries);
        assert_int_equal(opened_last, '3');
    }
    finish_with_room(a, 3);
}

/* The number of tries until `time`: after 0, 1, 3, 7, 15, 31, 61, 91 seconds, and so on. */
static int most_tries(usec_t time)
{
    int tries = 0;
    for (usec_t pause = USEC_PER_SEC; time >= 0; pause *= 2, tries++)
        time -= pause < 30 * USEC_PER_SEC ? pause : 30 * USEC_PER_SEC;
    return tries;
}

/* A file for which there is no room is tried less and less often, although other files are packed at once meanwhile.
 * It is reported as long as it is not packed. */
static void test_one_that_cannot_be_packed_keeps_its_pauses(void **state)
{
    bool final;
    (void)state;
    without_room = "/0.part.packed";
    usec_t began = now;
    struct file_archive *a = open_without_room_to_pack(1);
    for (int minute = 1; minute < 10; minute++) {
        take_line(a, 60 * minute);
        file_archive_roll(a);
        for (usec_t end = 0; file_archive_numbers(a).finished < (uint64_t)minute && is_early(&end);
             now += 10 * USEC_PER_MSEC)
            tick(a);
        assert_int_equal(file_archive_numbers(a).finished, minute);
        for (usec_t end = now + 10 * USEC_PER_SEC; now < end; now += 100 * USEC_PER_MSEC)
            tick(a);
        assert_true(file_archive_numbers(a).is_short);
        assert_non_null(strstr(file_archive_trouble(a, &final), "/0.part.packed"));
    }
    assert_in_range(
        opened_of_first, 4, most_tries(now - began)); /* the slower the disk, the more time passed */
    without_room = ".packed";
    finish_with_room(a, 10);
}

/* All times of a minute belong to one file if the first and the last second of the minute do, and only then. */
static void test_which_times_are_of_one_file(void **state)
{
    static const struct {
        const char *format;
        int64_t other; /* beside 65 */
        bool one_file;
    } cases[] = {
        {"%H%M", 60, true},
        {"%H%M", 119, true},
        {"%H%M", 59, false},
        {"%H%M", 120, false},
        {"%H%M%S", 66, false},
        {"%s", 66, false},
        {"%T", 66, false},
        {"%H", 60, true},
        {"%H", 0, true},
        {"%H", 3600, false},
        {"all", 7200, true},
    };
    (void)state;
    char *usual = strdup(format);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(format, sizeof format, "%s/%zu-%s", directory, i, cases[i].format);
        snprintf(state_path, sizeof state_path, "%s/state-%zu", directory, i);
        struct file_archive *a = open_archive(4);
        file_archive_begin(a, &(struct stream_cursor){.id = "0123456789abcdef0123456789abcdef"});
        take_line(a, 65);
        take_line(a, cases[i].other);
        take_line(a, 65);
        if (file_archive_numbers(a).open != (cases[i].one_file ? 1 : 2))
            fail_msg("case %zu", i);
        file_archive_roll(a);
        take_line(a, 65);
        assert_int_equal(file_archive_numbers(a).open, 1);
        file_archive_close(&a);
    }
    strcpy(format, usual);
    snprintf(state_path, sizeof state_path, "%s/state", directory);
    free(usual);
}

static size_t largest;

static ssize_t write_half(int fd, const void *data, size_t n, off_t at)
{
    largest = n > largest ? n : largest;
    if (!no_room)
        return real_io->pwrite(fd, data, n, at);
    (void)!real_io->pwrite(fd, data, n / 2, at);
    errno = ENOSPC;
    return -1;
}

static ssize_t write_half_of_parts(int fd, const struct iovec *parts, int n, off_t at)
{
    size_t all = 0;
    for (int i = 0; i < n; i++)
        all += parts[i].iov_len;
    largest = all > largest ? all : largest;
    ssize_t did = real_io->pwrite(fd, parts[0].iov_base, (parts[0].iov_len + 1) / 2, at);
    errno = ENOSPC;
    return no_room ? -1 : did;
}

static struct file_archive *open_and_begin(const struct io_ops *failing)
{
    struct file_archive *a = open_begun(4);
    take_minutes(a, 2);
    assert_int_equal(file_archive_flush(a), 0);
    real_io = io;
    io = failing;
    largest = 0;
    return a;
}

static bool no_descriptors, state_seen;
static int directories_opened, files_synced; /* before the state was written */

/* For the staging directory. */
static int open_no_directory(const char *path, int flags, mode_t mode)
{
    bool directory_wanted = (flags & O_DIRECTORY) != 0;
    state_seen = state_seen || strncmp(path, state_path, strlen(state_path)) == 0;
    directories_opened += directory_wanted && !state_seen;
    if (directory_wanted && no_descriptors && strstr(path, ".staging") != NULL) {
        errno = EMFILE;
        return -1;
    }
    return real_io->open(path, flags, mode);
}

static int count_syncs(int fd)
{
    files_synced += !state_seen;
    return real_io->fdatasync(fd);
}

/* A commit could not sync all files. The next commit syncs the other files before the state calls them durable. */
static void test_a_commit_that_lacks_descriptors_is_made_again(void **state)
{
    struct io_ops lacking = *io;
    bool final;
    (void)state;
    lacking.open = open_no_directory;
    lacking.fdatasync = count_syncs;
    real_io = io;
    struct file_archive *a = open_begun(4);
    take_minutes(a, 1);
    io = &lacking;
    no_descriptors = true;
    assert_int_equal(file_archive_flush(a), -1);
    assert_non_null(strstr(file_archive_trouble(a, &final), "Too many open files"));
    assert_false(final);
    assert_true(file_archive_is_full(a));
    assert_true(file_archive_numbers(a).is_short);
    no_descriptors = state_seen = false;
    directories_opened = files_synced = 0;
    now += USEC_PER_SEC;
    for (usec_t end = 0; file_archive_is_full(a) && is_early(&end);)
        wait_a_moment(a);
    assert_int_equal(directories_opened, 1);
    assert_int_equal(files_synced, 1);
    assert_int_equal(file_archive_committed(a)->offset, 3);
    assert_int_equal(file_archive_numbers(a).shortages, 1);
    file_archive_close(&a);
    io = real_io;
}

/* A large run is written without a copy, together with the small runs before it. If the disk has no room for a part,
 * the part waits, and is written later at its place. */
static void test_large_runs_are_written_as_they_lie(void **state)
{
    struct io_ops half = *io;
    struct buf all = {0};
    (void)state;
    half.pwrite = write_half;
    half.pwritev = write_half_of_parts;
    struct file_archive *a = open_and_begin(&half);
    take_run(a, &all, 'b', 3);
    assert_int_equal(largest, 0);
    take_run(a, &all, 'c', 1000);
    assert_int_equal(largest, 64192);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    no_room = true;
    take_run(a, &all, 'd', 1000);
    assert_int_equal(file_archive_numbers(a).pending, 64000);
    take_run(a, &all, 'e', 1000);
    wait_for_room(a);
    check_file("@0.part", &all);
    file_archive_close(&a);
    buf_free(&all);
}

#define RUNS 8

/* The runs go to two files in turn. Their memory is freed after the call. */
static void take_by_turns(struct file_archive *a, struct buf all[2], char letter)
{
    struct archive_run runs[RUNS];
    struct buf text = {0};
    for (int i = 0; i < RUNS; i++)
        append_lines(&text, (char)(letter + i), 300);
    for (int i = 0; i < RUNS; i++) {
        runs[i] = (struct archive_run){bytes_of(text.ptr + i * 19200, 19200), 300, i % 2 * 60};
        buf_append_bytes(&all[i % 2], runs[i].lines);
    }
    file_archive_take(a, opening, runs, RUNS);
    buf_free(&text);
}

/* Runs of one file are written together, although runs of another file are between them, also if each write takes
 * only a part. */
static void test_runs_of_two_files_that_take_turns(void **state)
{
    struct io_ops half = *io;
    struct buf all[2] = {{0}};
    (void)state;
    half.pwrite = write_half;
    half.pwritev = write_half_of_parts;
    struct file_archive *a = open_and_begin(&half);
    take_by_turns(a, all, 'a');
    assert_int_equal(largest, RUNS / 2 * 19200);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    no_room = true;
    take_by_turns(a, all, 'A');
    assert_int_equal(file_archive_numbers(a).pending, RUNS * 19200);
    wait_for_room(a);
    check_file("@0.part", &all[0]);
    check_file("@3.part", &all[1]);
    file_archive_close(&a);
    buf_free(&all[0]);
    buf_free(&all[1]);
}

/* If many bytes wait in memory, they are written, although each file has only a few. */
static void test_much_that_waits_is_written(void **state)
{
    struct buf all = {0};
    (void)state;
    struct file_archive *a = open_and_begin(io);
    for (int i = 0; i < 30; i++)
        take_run(a, &all, 'a', 100);
    size_t waits = file_archive_numbers(a).pending;
    assert_int_equal(waits, all.len);
    file_archive_write(a);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    check_file("@0.part", &all);
    file_archive_close(&a);
    buf_free(&all);
}

/* Another program, or an archive of another pattern, has taken the name since the file was begun. */
static void test_a_name_that_is_taken_while_lines_come(void **state)
{
    (void)state;
    struct file_archive *a = open_begun(4);
    take_minutes(a, 2);
    assert_int_equal(file_archive_flush(a), 0);
    write_file("0000", "theirs");
    file_archive_roll(a);
    for (usec_t end = 0; file_archive_numbers(a).finishing > 0 && is_early(&end);)
        tick(a);
    check_content("0000", "theirs");
    check_content("0000.1", "{}\n");
    check_content("0001", "{}\n");
    assert_true(is_there("0000.1.manifest.json"));
    assert_false(is_there("0000.manifest.json"));
    file_archive_close(&a);
}

static void wait_for_files(struct file_archive *a)
{
    for (usec_t end = 0;
         file_archive_numbers(a).open + file_archive_numbers(a).finishing > 0 && is_early(&end);)
        tick(a);
}

/* The second history has the same name, offsets, lines and bytes as the first. A crash meanwhile changes nothing. The
 * cursor stays while the stored state names a file. */
static void test_a_restored_copy_continues_before_the_cursor(void **state)
{
    struct io_ops full = *io;
    (void)state;
    real_io = io;
    full.pwrite = write_where_room;
    struct file_archive *a = open_begun(4);
    opening = "aaaaaaaaaaaaaaaaaaaaaaaa";
    take_minutes(a, 3);
    assert_int_equal(file_archive_flush(a), 0);
    for (int life = 0; life < 2; life++) {
        assert_int_equal(file_archive_cursor(a)->offset, 9);
        assert_string_equal(file_archive_cursor(a)->opening, opening);
        struct stream_cursor back = *file_archive_cursor(a);
        back.offset = 3;
        strcpy(back.opening, "1234567890abcdef12345678");
        file_archive_gap(a, &back);
        assert_true(file_archive_is_full(a));
        assert_int_equal(file_archive_cursor(a)->offset, 9);
        if (life == 0) {
            file_archive_close(&a);
            a = open_archive(4);
        }
    }
    usec_t deadline = 0;
    for (uint64_t commits = file_archive_numbers(a).commits;
         file_archive_numbers(a).commits == commits && is_early(&deadline);)
        tick(a);
    without_room = "state.new";
    io = &full;
    wait_for_files(a);
    for (int i = 0; i < 10; i++)
        tick(a);
    assert_int_equal(file_archive_cursor(a)->offset, 9);
    io = real_io;
    for (usec_t end = 0; file_archive_is_full(a) && is_early(&end);)
        tick(a);
    assert_false(file_archive_is_full(a));
    assert_int_equal(file_archive_cursor(a)->offset, 3);
    assert_string_equal(file_archive_cursor(a)->opening, "1234567890abcdef12345678");
    opening = "bbbbbbbbbbbbbbbbbbbbbbbb";
    take_line(a, 60);
    assert_int_equal(file_archive_flush(a), 0);
    assert_string_equal(file_archive_committed(a)->opening, opening);
    file_archive_roll(a);
    wait_for_files(a);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"0000", "0001", "0002", "0001.1"};
        char manifest[40];
        snprintf(manifest, sizeof manifest, "%s.manifest.json", names[i]);
        check_content(names[i], "{}\n");
        assert_true(is_there(manifest));
    }
    file_archive_close(&a);
}

#define STATE_ID "0123456789abcdef0123456789abcdef"
#define STATE_FILE(name, staged, length, lines, first, end)                                                  \
    "{\"name\":\"" name "\",\"staged\":\"" staged "\",\"length\":\"" length "\",\"lines\":\"" lines          \
    "\",\"first\":\"" first "\",\"end\":\"" end "\",\"finishing\":false}"

#define OPENING "019add00c7ef0123456789ab"
/* Behind the digits of another member. */
#define WITH_OPENING(opening) "\",\"opening\":\"" opening

/* A state names lengths to which files are cut, and the place to continue. So a state that ps_to_file cannot have
 * written is refused. */
static void test_a_state_that_cannot_be_is_refused(void **state)
{
    static const struct {
        int format;
        const char *id, *offset, *files, *why; /* why NULL: good */
    } cases[] = {
        {2, STATE_ID, "9",
            STATE_FILE("a", "s/3.part", "6", "2", "3", "9") "," STATE_FILE(
                "a", "s/0.part", "3", "1", "0", "3"),
            NULL},
        {2, STATE_ID, "9",
            STATE_FILE("a", "s/3.part", "6", "2", "3", "9") "," STATE_FILE(
                "b", "s/3.part", "3", "1", "0", "3"),
            "twice"},
        {2, STATE_ID WITH_OPENING(OPENING), "9",
            STATE_FILE("a", "s/3.part", "6", "2", "3", "9" WITH_OPENING(OPENING)), NULL},
        {2, STATE_ID WITH_OPENING("c7ef"), "9", "", "invalid opening"},
        {2, STATE_ID WITH_OPENING(OPENING "0"), "9", "", "invalid opening"},
        {2, STATE_ID WITH_OPENING("019ADD00C7EF0123456789AB"), "9", "", "invalid opening"},
        {2, STATE_ID WITH_OPENING(""), "9", "", "invalid opening"},
        {2, STATE_ID "\",\"opening\":7,\"x\":\"", "9", "", "invalid opening"},
        {2, WITH_OPENING(OPENING), "0", "", "without a stream id"},
        {2, STATE_ID, "9", STATE_FILE("a", "s/3.part", "6", "2", "3", "9" WITH_OPENING("c7ef")), "member"},
        {1, STATE_ID, "9", "", "unknown format version"},
        {2, "", "0", "", NULL},
        {2, "../0123456789abcdef0123456789abc", "9", "", "invalid stream name or id"},
        {2, "0123", "9", "", "invalid stream name or id"},
        {2, "0123456789abcdef\\u00000123456789ab", "9", "", "missing"},
        {2, "", "9", "", "without a stream id"},
        {2, STATE_ID, "9", STATE_FILE("a\\u0000b", "a", "6", "2", "3", "9"), "member"},
        {2, STATE_ID, "9", STATE_FILE("a", "a", "6", "2", "4", "9"), "contradictory"},
        {2, STATE_ID, "9", STATE_FILE("a", "a", "6", "7", "3", "9"), "contradictory"},
        {2, STATE_ID, "9", STATE_FILE("a", "a", "6", "0", "3", "9"), "contradictory"},
        {2, STATE_ID, "8", STATE_FILE("a", "a", "6", "2", "3", "9"), "contradictory"},
        {2, STATE_ID, "9", STATE_FILE("a", "a", "0", "0", "9", "8"), "contradictory"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct archive_state s;
        struct buf text = {0};
        struct error error = {0};
        buf_printf(&text, "{\"format\":%d,\"stream\":\"s\",\"id\":\"%s\",\"offset\":\"%s\",\"files\":[%s]}",
            cases[i].format, cases[i].id, cases[i].offset, cases[i].files);
        buf_append_char(&text, '\0');
        write_file("state", text.ptr);
        int rc = archive_state_read(state_path, &s, &error);
        if (rc != (cases[i].why != NULL ? -1 : 1) || (rc < 0 && strstr(error.text, cases[i].why) == NULL))
            fail_msg("case %zu: %s", i, error.text);
        bool with = rc == 1 && strstr(cases[i].id, OPENING) != NULL;
        assert_int_equal(strncmp(s.cursor.opening, with ? OPENING : "", sizeof OPENING - 1), 0);
        assert_string_equal(
            with && s.n_files > 0 ? s.files[0].opening : "", with && s.n_files > 0 ? OPENING : "");
        archive_state_free(&s);
        buf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_more_open_files_than_may_be),
        T(test_a_new_file_of_the_name_of_an_empty_one), T(test_finished_is_finished_whatever_the_compression),
        T(test_killed_while_finishing_then_a_cut), T(test_taken_away_as_soon_as_it_is_seen),
        T(test_a_name_that_somebody_has_taken_meanwhile),
        T(test_a_name_that_somebody_takes_behind_the_manifest), T(test_a_name_that_is_a_link_to_nothing),
        T(test_a_part_that_is_missing), T(test_an_empty_file_that_was_never_made_is_finished),
        T(test_an_empty_file_is_no_finished_one), T(test_finishing_waits_for_room),
        T(test_one_that_cannot_be_packed_keeps_its_pauses), T(test_lines_come_while_there_is_no_room_to_pack),
        T(test_lines_come_after_a_full_disk_though_nothing_can_be_packed),
        T(test_the_shortest_is_packed_first), T(test_which_times_are_of_one_file),
        T(test_a_commit_that_lacks_descriptors_is_made_again), T(test_large_runs_are_written_as_they_lie),
        T(test_runs_of_two_files_that_take_turns), T(test_much_that_waits_is_written),
        T(test_a_name_that_is_taken_while_lines_come), T(test_a_restored_copy_continues_before_the_cursor),
        T(test_a_state_that_cannot_be_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
