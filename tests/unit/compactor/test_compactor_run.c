/* run: stopped at every file operation and every call to a daemon, then run again: the same bytes, nothing named before it
 * is synced, and no slice cleared before an archive that has it is in force and served. The daemons are a model that judges what it is told. */
#include "compactor/archive.h"
#include "base/io.h"
#include "compactor/change.h"
#include "support/make_slice.h"
#include "compactor/merge.h"
#include "compactor/run.h"
#include "support/shell.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNTERS "total u key = l\n"
#define KILLED 77
#define PATH_TEXT 256
#define SLICES 4 /* prepared ones; the fourth is empty */

#define CHANGED_MAX 64

/* What outlives a kill of the compactor: the daemons, and what the kernel has not written yet. */
struct world {
    char changed[CHANGED_MAX][PATH_TEXT]; /* paths that were changed and not synced since */
    uint64_t open, served, cleared;
    uint64_t events_until; /* the last slice that anything was counted in */
    char wrong[256];       /* what a daemon saw that must not be */
};
static struct world *world;

static char root[64], work[80];
static struct error error;

static void wrong(const char *what, uint64_t n)
{
    snprintf(world->wrong, sizeof world->wrong, "%s %llu", what, (unsigned long long)n);
}

static const char *in_work(const char *name, uint64_t n);

enum fault { NO_FAULT, KILL_BEFORE, KILL_AFTER, TEAR, FAIL, DISK_FULL, FAULTS };
static long operations, stop_at;
static enum fault fault;

static bool is_time(enum fault f)
{
    return operations == stop_at && fault == f;
}

/* True when the operation is to fail. */
static bool before(void)
{
    operations++;
    if (is_time(KILL_BEFORE))
        _exit(KILLED);
    if (is_time(FAIL))
        errno = EIO;
    return is_time(FAIL);
}

/* From the operation on, nothing can be stored. */
static bool is_full(void)
{
    if (fault != DISK_FULL || operations < stop_at)
        return false;
    errno = ENOSPC;
    return true;
}

static int after(int r)
{
    if (is_time(KILL_AFTER) || is_time(TEAR))
        _exit(KILLED);
    return r;
}

static void set_changed(const char *path, bool on)
{
    size_t room = 0;
    for (size_t i = CHANGED_MAX; i-- > 0;) {
        if (strcmp(world->changed[i], path) == 0)
            world->changed[i][0] = '\0';
        if (!world->changed[i][0])
            room = i;
    }
    if (on)
        snprintf(world->changed[room], PATH_TEXT, "%s", path);
}

static void parent_changed(const char *path)
{
    char parent[PATH_TEXT];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    set_changed(parent, true);
}

/* Nothing at or below the path may be left to lose. */
static void need_synced(const char *path, const char *what)
{
    size_t len = strlen(path);
    for (size_t i = 0; i < CHANGED_MAX; i++)
        if (strncmp(world->changed[i], path, len) == 0 &&
            (world->changed[i][len] == '/' || !world->changed[i][len]))
            snprintf(
                world->wrong, sizeof world->wrong, "%s before %.150s was synced", what, world->changed[i]);
}

static const char *path_of_fd(int fd, char out[PATH_TEXT])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_TEXT - 1);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

static int stop_open(const char *path, int flags, mode_t mode)
{
    if (before() || ((flags & O_CREAT) && is_full()))
        return -1;
    if (flags & O_CREAT) {
        set_changed(path, true);
        parent_changed(path);
    }
    return after(io_system.open(path, flags, mode));
}
static ssize_t stop_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (before() || is_full())
        return -1;
    char path[PATH_TEXT];
    if (!strstr(path_of_fd(fd, path),
            " (deleted)")) /* a temporary file has no name to be found by after a kill */
        set_changed(path, true);
    ssize_t did = io_system.pwrite(fd, p, is_time(TEAR) ? n / 2 : n, at);
    after(0);
    return did;
}
static int stop_fsync(int fd)
{
    char path[PATH_TEXT];
    if (before())
        return -1;
    set_changed(path_of_fd(fd, path), false);
    return after(0);
}
static int stop_rename(const char *from, const char *to)
{
    if (before())
        return -1;
    bool is_current = strcmp(strrchr(to, '/'), "/current") == 0, is_tmp = strstr(to, ".tmp") != NULL;
    if (is_current)
        need_synced(in_work("archive", 0), "put in force");
    else if (!is_tmp)
        need_synced(from, "named");
    parent_changed(to);
    return after(io_system.rename(from, to));
}
/* A directory that lost its generation's name must have lost it for good, whoever took it away. */
static void need_name_gone(const char *path)
{
    for (size_t i = 0; i < CHANGED_MAX && strstr(path, ".tmp/"); i++)
        if (strcmp(world->changed[i], in_work("archive", 0)) == 0)
            snprintf(
                world->wrong, sizeof world->wrong, "%.150s removed before its name's end was synced", path);
}
static int stop_unlink(const char *path)
{
    if (before())
        return -1;
    need_name_gone(path);
    set_changed(path, false);
    return after(io_system.unlink(path));
}
static int stop_symlink(const char *target, const char *path)
{
    return before() || is_full() ? -1 : after(io_system.symlink(target, path));
}
static int stop_mkdir(const char *path, mode_t mode)
{
    return before() || is_full() ? -1 : after(io_system.mkdir(path, mode));
}

static void use_stopping_io(void)
{
    static struct io_ops ops;
    ops = io_system;
    ops.open = stop_open;
    ops.pwrite = stop_pwrite;
    ops.fsync = stop_fsync;
    ops.rename = stop_rename;
    ops.unlink = stop_unlink;
    ops.symlink = stop_symlink;
    ops.mkdir = stop_mkdir;
    io = &ops;
}

static const char *in_work(const char *name, uint64_t n)
{
    static char path[PATH_TEXT];
    int len = snprintf(path, sizeof path, "%s/", work);
    if (n)
        snprintf(path + len, sizeof path - (size_t)len, "%s/%010llu.db", name, (unsigned long long)n);
    else
        snprintf(path + len, sizeof path - (size_t)len, "%s", name);
    return path;
}

/* Reads the manifest in force. This is no operation of the run. */
static enum manifest_result read_current(struct manifest *m)
{
    const struct io_ops *stopping = io;
    io = &io_system;
    enum manifest_result r = manifest_read_current(in_work("archive", 0), m, NULL);
    io = stopping;
    return r;
}

static uint64_t manifest_through(uint64_t *generation)
{
    struct manifest m;
    if (read_current(&m) != MANIFEST_OK) {
        *generation = UINT64_MAX;
        return 0;
    }
    uint64_t through = m.through;
    *generation = m.generation;
    manifest_free(&m);
    return through;
}

static enum compact_result look(void *arg, uint64_t *open, bool *is_empty, struct error *text)
{
    (void)arg, (void)text;
    if (before())
        return COMPACT_TRY_AGAIN;
    *open = world->open;
    *is_empty = world->open > world->events_until;
    after(0);
    return COMPACT_OK;
}

static enum compact_result seal(void *arg, uint64_t n, struct error *text)
{
    char from[PATH_TEXT];
    (void)arg, (void)text;
    if (before())
        return COMPACT_TRY_AGAIN;
    if (n > world->open)
        wrong("sealed past the open slice:", n);
    if (n == world->open) {
        snprintf(from, sizeof from, "%s", in_work("stash", n));
        rename(from, in_work("slices", n));
        world->open++;
    }
    after(0);
    return COMPACT_OK;
}

static uint64_t content_of_current(void)
{
    struct manifest m;
    assert_int_equal(read_current(&m), MANIFEST_OK);
    uint64_t content = manifest_content(&m);
    manifest_free(&m);
    return content;
}

static enum compact_result reload(
    void *arg, uint64_t generation, uint64_t content, bool *served, struct error *text)
{
    uint64_t in_force;
    (void)arg, (void)text;
    if (before())
        return COMPACT_TRY_AGAIN;
    need_synced(in_work("archive", 0), "reload");
    manifest_through(&in_force);
    if (in_force != generation)
        wrong("reload before it was in force:", generation);
    if (content != content_of_current())
        wrong("reload names another content than is in force:", content);
    world->served = in_force;
    *served = true;
    after(0);
    return COMPACT_OK;
}

static enum compact_result clear(void *arg, uint64_t through, struct error *text)
{
    uint64_t in_force;
    (void)arg, (void)text;
    if (before())
        return COMPACT_TRY_AGAIN;
    if (manifest_through(&in_force) < through)
        wrong("cleared what the archive has not:", through);
    if (world->served != in_force)
        wrong("cleared while sortdb served", world->served);
    for (; world->cleared < through; world->cleared++)
        unlink(in_work("slices", world->cleared + 1));
    after(0);
    return COMPACT_OK;
}

static const struct change_spec *change_spec; /* NULL: the run merges slices only */

static const struct run_control control = {NULL, look, seal, reload, clear, NULL, NULL};

static enum compact_result compact_once(uint32_t shards, struct run_outcome *out)
{
    char archive[PATH_TEXT], slices[PATH_TEXT];
    snprintf(archive, sizeof archive, "%s/archive", work);
    snprintf(slices, sizeof slices, "%s/slices", work);
    struct run_spec spec = {.archive = archive,
        .slices = slices,
        .shards = shards,
        .keep = 1,
        .threads = 1,
        .now = 9,
        .control = &control};
    if (!change_spec)
        return run_compact(&spec, out, &error);
    struct change_spec change = *change_spec;
    struct change *c = NULL;
    change.archive = archive;
    enum compact_result r = archive_recover(archive, &error);
    if (r == COMPACT_OK)
        r = change_prepare(&change, &spec, &c, &error);
    if (r == COMPACT_OK)
        r = run_compact(&spec, out, &error);
    change_free(&c);
    return r;
}

/* In a process of its own; its result, or KILLED. */
static int run_child(uint32_t shards, long at, enum fault f)
{
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        struct run_outcome out;
        operations = 0;
        stop_at = at;
        fault = f;
        use_stopping_io();
        enum compact_result r = compact_once(shards, &out);
        if (f == DISK_FULL && r != COMPACT_OK && !strstr(error.text, "No space left"))
            r = COMPACT_DAMAGED; /* the error must say it */
        if (r != COMPACT_OK && r != COMPACT_REFUSED && f < FAIL)
            fprintf(stderr, "%s\n", error.text);
        _exit(operations < at ? 100 + (int)r : (int)r);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Slices 1-3 overlap in keys and hours, and in the members of sets; the fourth has nothing to merge but its cursors. */
static void make_slices(void)
{
    char key[6][32];
    for (uint64_t n = 1; n <= SLICES; n++) {
        /* Subtotals of one day, then of another hour of it, then of another day: each run makes other rollups. */
        static const char *const hours[][2] = {{"c.u|k.c411,US", "c.u|k.c411,ZA"},
            {"c.u|k.c411,US", "c.u|k.c412,US"}, {"c.u|k.c421,US", "c.u|k.c511,US"}};
        static const char *const days[] = {"v.u|k.c41,=", "v.u|k.c41,=", "v.u|k.c42,="};
        struct slice_row rows[17] = {{NULL, 0, NULL}};
        for (int i = 0; i < 5 && n < SLICES; i++) /* the first member is in every slice */
            rows[9 + i] = (struct slice_row){days[n - 1], i * 70000 + (i > 0 ? (int64_t)n : 0), NULL};
        if (n < SLICES) {
            rows[14] = (struct slice_row){"w.u|k.c411,=", 7, NULL};
            rows[15] = (struct slice_row){n == 1 ? "w.u|k.c412,=" : "w.u|l.c412,=", (int64_t)n, NULL};
        }
        for (int i = 0; i < 2 && n < SLICES; i++)
            rows[i] = (struct slice_row){hours[n - 1][i], (int64_t)n + i, NULL};
        for (int i = 0; i < 6 && n < SLICES; i++) {
            snprintf(key[i], sizeof key[i], i % 2 ? "u|k%d,c41%llu" : "u|k%d,c413", i + (int)n,
                (unsigned long long)n);
            rows[i + 3] = (struct slice_row){key[i], (int64_t)n * 10 + i, NULL};
        }
        if (n < SLICES)
            rows[2] = (struct slice_row){"lookup|h0aMB8AuNw4=,", 0, "http://www.facebook.com/"};
        make_slice(in_work("stash", n), n, COUNTERS, rows);
    }
}

static int set_up(void **state)
{
    (void)state;
    make_test_dir(root, sizeof root);
    snprintf(work, sizeof work, "%s/work", root);
    shell("mkdir -p %s/archive %s/slices", work, work);
    shell("mkdir -p %s/stash", work);
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(world != MAP_FAILED);
    *world = (struct world){.open = 1, .events_until = SLICES};
    make_slices();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    munmap(world, sizeof *world);
    shell("rm -rf %s", root);
    return 0;
}

/* Every directory that bears a generation's name is complete, and no count is lost: a slice that the archive does not
 * include is still there. */
static void check_now(const char *when)
{
    char path[PATH_TEXT];
    uint64_t generation, through = manifest_through(&generation);
    if (world->wrong[0])
        fail_msg("%s: %s", when, world->wrong);
    for (uint64_t n = through + 1; n <= SLICES; n++)
        if (access(in_work("slices", n), F_OK) != 0 && access(in_work("stash", n), F_OK) != 0)
            fail_msg("%s: slice %llu is in no archive and gone", when, (unsigned long long)n);
    for (uint64_t g = 0; g < 6; g++) {
        struct manifest m;
        snprintf(path, sizeof path, "%s/archive/%012llu", work, (unsigned long long)g);
        if (access(path, F_OK) != 0)
            continue;
        if (manifest_read(path, &m, NULL) != MANIFEST_OK)
            fail_msg("%s: the manifest is bad", when);
        if (m.until != (int64_t)m.through * 1000)
            fail_msg("%s: complete until %lld", when, (long long)m.until);
        for (uint32_t k = 0; k < m.shards; k++) {
            struct stat st;
            char file[PATH_TEXT + MANIFEST_NAME_TEXT];
            snprintf(file, sizeof file, "%s/%s", path, m.files[k].name);
            if (stat(file, &st) != 0 || (uint64_t)st.st_size != m.files[k].bytes)
                fail_msg("%s: %s is not what its manifest says", when, file);
            snprintf(file, sizeof file, "%s/%s", path, m.texts[k].name);
            if (stat(file, &st) != 0 || (uint64_t)st.st_size != m.texts[k].bytes)
                fail_msg("%s: %s is not what its manifest says", when, file);
            const struct manifest_file *sets[] = {&m.set_texts[k], &m.sets[k]};
            for (int i = 0; i < 2 && manifest_has_sets(&m, k); i++) {
                snprintf(file, sizeof file, "%s/%s", path, sets[i]->name);
                if (stat(file, &st) != 0 || (uint64_t)st.st_size != sets[i]->bytes)
                    fail_msg("%s: %s is not what its manifest says", when, file);
            }
        }
        manifest_free(&m);
    }
}

static void start_again(struct world was)
{
    char start[256];
    snprintf(start, sizeof start, "%s/start", root);
    replace_tree(start, work, true);
    *world = was;
}

/* Stops it everywhere with one kind of fault, each time from the same start; how many places there were. */
static long stop_everywhere(uint32_t shards, enum fault f, struct world was)
{
    char when[96];
    /* In the ordinary suite, each fault stops a run at other operations. */
    const char *text = getenv("MILLRACE_STRIDE");
    long stride = text ? atol(text) : change_spec ? 47 : 23;
    for (long at = 1 + (long)f % stride;; at += stride) {
        start_again(was);
        int r = run_child(shards, at, f);
        snprintf(when, sizeof when, "fault %d at operation %ld", (int)f, at);
        check_now(when);
        if (r == 100 + COMPACT_OK)
            return at - 1;
        if (f == DISK_FULL) {
            if (r != COMPACT_OK && r != COMPACT_FAILED)
                fail_msg("%s: the run ended with %d", when, r);
            shell("test -z \"$(ls -d %s/archive/*.tmp 2>/dev/null)\"", work);
        } else if (f == FAIL ? r == COMPACT_DAMAGED || r == COMPACT_REFUSED || r > COMPACT_FAILED
                             : r != KILLED)
            fail_msg("%s: the run ended with %d", when, r);
        if (at % 3 == 0) /* and the next one soon after its start, too */
            run_child(shards, at / 3, KILL_AFTER);
        check_now(when);
        r = run_child(shards, -1, NO_FAULT);
        if ((r == COMPACT_REFUSED || r == COMPACT_USAGE) && change_spec) {
            /* The change is already in the archive; after a drop, the namespace may be gone. A run does the remaining
             * steps, and the files are compared below. */
            const struct change_spec *change = change_spec;
            change_spec = NULL;
            r = run_child(shards, -1, NO_FAULT);
            change_spec = change;
        }
        if (r != COMPACT_OK)
            fail_msg("%s: the next run ended with %d", when, r);
        check_now(when);
        /* A slice that could not be sealed comes a generation later, and so does a change that is repeated. */
        shell("diff -r %s %s/expected %s/archive/current/",
            f >= FAIL || change_spec ? "-x manifest.json" : "", root, work);
    }
}

static void stop_with_every_fault(uint32_t shards)
{
    struct world was = *world;
    shell("cp -a %s %s/start", work, root);
    assert_int_equal(run_child(shards, -1, NO_FAULT), COMPACT_OK);
    check_now("undisturbed");
    shell("cp -aL %s/archive/current %s/expected", work, root);
    for (enum fault f = KILL_BEFORE; f < FAULTS; f++) {
        long places = stop_everywhere(shards, f, was);
        print_message("fault %d: %ld places\n", (int)f, places);
        assert_true(places > 20);
    }
}

static void stopped_everywhere_from_nothing(void **state)
{
    (void)state;
    world->events_until = 1;
    stop_with_every_fault(2);
}

static void stopped_everywhere_with_slices_waiting_and_other_shards(void **state)
{
    (void)state;
    assert_int_equal(run_child(1, -1, NO_FAULT), COMPACT_OK);
    assert_int_equal(seal(NULL, 2, NULL), COMPACT_OK); /* slice 2 is sealed and waits, 3 is open */
    world->events_until = 3;
    stop_with_every_fault(3);
}

/* Stops a change of an archive of two slices, with a third slice to merge. */
static void stop_change(const struct change_spec *spec)
{
    world->events_until = 2;
    assert_int_equal(run_child(2, -1, NO_FAULT), COMPACT_OK);
    assert_int_equal(run_child(2, -1, NO_FAULT), COMPACT_OK);
    world->events_until = 3;
    change_spec = spec;
    stop_with_every_fault(2);
    change_spec = NULL;
}

/* The lines go beyond the memory for the sort, so that runs of it are stopped too. */
static void stopped_everywhere_in_an_import(void **state)
{
    (void)state;
    char path[100], *file = path;
    snprintf(path, sizeof path, "%s/import.csv", root);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 3000; i-- > 0;)
        fprintf(f, "u|key%d,c411:%d\nc.u|key%d.c411,US:%d\nv.u|key%d.c41,=%d %d\n", i * 7919 % 3000, i + 1,
            i * 7919 % 3000, i + 1, i % 50, i, i + 70000);
    fclose(f);
    stop_change(&(struct change_spec){.imports = &file, .n_imports = 1, .memory = 64 << 10});
}

static void stopped_everywhere_in_a_drop(void **state)
{
    (void)state;
    int64_t day;
    assert_true(change_parse_date("2012-04-02", &day));
    stop_change(&(struct change_spec){.drop_before = day, .drop_ns = "c.u"});
}

static void stopped_everywhere_when_hours_are_dropped(void **state)
{
    (void)state;
    int64_t day;
    assert_true(change_parse_date("2012-04-02", &day));
    stop_change(&(struct change_spec){.drop_hours_before = day});
}

static void stopped_everywhere_in_a_forget(void **state)
{
    (void)state;
    stop_change(&(struct change_spec){.forget = "u|k"});
}

/* Of an archive of all slices, because the run must merge none. The second of two months has only the sub key. */
static void stop_forget_sub(const char *text)
{
    struct change_spec spec = {.forget_sub = text};
    world->events_until = 3;
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_child(2, -1, NO_FAULT), COMPACT_OK);
    change_spec = &spec;
    stop_with_every_fault(2);
    change_spec = NULL;
}

static void stopped_everywhere_when_a_sub_key_is_forgotten(void **state)
{
    (void)state;
    stop_forget_sub("c.u|US");
    shell("grep -q '^c.u|k.c411,(other):' %s/expected/*.csv && ! grep -q US %s/expected/*.csv", root, root);
}

static void stopped_everywhere_when_a_member_is_forgotten(void **state)
{
    (void)state;
    stop_forget_sub("v.u|0");
    shell("test \"$(cat %s/expected/sets*.csv | grep '^v')\" = \"$(printf "
          "'v.u|k.c4,#12\\nv.u|k.c41,#8\\nv.u|k.c42,#4')\"",
        root);
}

static void nothing_new_makes_no_generation(void **state)
{
    struct run_outcome out;
    (void)state;
    for (int i = 0; i < SLICES; i++) {
        assert_int_equal(compact_once(0, &out), COMPACT_OK);
        assert_true(out.published);
        assert_int_equal(out.through, i + 1);
        assert_int_equal(out.generation, i + 1);
        assert_int_equal(world->cleared, i + 1);
    }
    shell("mv %s/archive/current/shard-0-of-1.csv %s/away", work, work); /* and reads no records */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(compact_once(0, &out), COMPACT_OK);
        assert_false(out.published);
        assert_int_equal(out.generation, SLICES);
    }
    shell("mv %s/away %s/archive/current/shard-0-of-1.csv", work, work);
    assert_int_equal(compact_once(2, &out), COMPACT_OK);
    assert_true(out.published);
    assert_int_equal(out.generation, SLICES + 1);
    assert_int_equal(out.through, SLICES);
    assert_string_equal(world->wrong, "");
    check_now("at the end");
}

static enum compact_result serve_nothing(
    void *arg, uint64_t generation, uint64_t content, bool *served, struct error *text)
{
    (void)arg, (void)generation, (void)content, (void)text;
    *served = false;
    return COMPACT_OK;
}

static void without_a_sortdb_slices_are_kept(void **state)
{
    struct run_outcome out;
    struct run_control none = control;
    char archive[PATH_TEXT], slices[PATH_TEXT];
    (void)state;
    none.reload = serve_nothing;
    snprintf(archive, sizeof archive, "%s/archive", work);
    snprintf(slices, sizeof slices, "%s/slices", work);
    struct run_spec spec = {.archive = archive, .slices = slices, .keep = 1, .control = &none};
    assert_int_equal(run_compact(&spec, &out, &error), COMPACT_OK);
    assert_true(out.published);
    assert_false(out.served);
    assert_int_equal(world->cleared, 0);
    assert_int_equal(access(in_work("slices", 1), F_OK), 0);
}

static void what_does_not_belong_together_is_refused(void **state)
{
    struct run_outcome out;
    (void)state;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    world->open = 1; /* an aggregator with other data */
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
    world->open = 2;
    unlink(in_work("stash", 2));
    make_slice(in_work("stash", 2), 2, "total u key = h\n", (struct slice_row[]){{NULL, 0, NULL}});
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
    assert_non_null(strstr(error.text, "total u key = l"));
    unlink(in_work("slices", 2));
    make_slice(in_work("slices", 2), 7, COUNTERS, (struct slice_row[]){{NULL, 0, NULL}});
    assert_int_equal(compact_once(0, &out), COMPACT_DAMAGED);
    unlink(in_work("slices", 2));
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
    make_slice(
        in_work("slices", 2), 2, "total d key = host(u)\n" COUNTERS, (struct slice_row[]){{NULL, 0, NULL}});
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    unlink(in_work("archive/current", 0));
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
}

static const struct slice_row nothing[] = {{NULL, 0, NULL}};

static void put_slice(uint64_t n, const char *counters)
{
    unlink(in_work("stash", n));
    make_slice(in_work("stash", n), n, counters, nothing);
}

/* Its counts are in the archive, whoever counted since. */
static void a_counter_that_was_gone_keeps_its_meaning(void **state)
{
    struct run_outcome out;
    (void)state;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    put_slice(2, "total v key = v\n");
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    put_slice(3, "total u key = h\ntotal v key = v\n");
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
    assert_non_null(strstr(error.text, "`total u key = l`"));
    unlink(in_work("slices", 3));
    make_slice(in_work("slices", 3), 3, COUNTERS, nothing);
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    struct manifest m;
    assert_int_equal(manifest_read_current(in_work("archive", 0), &m, NULL), MANIFEST_OK);
    assert_string_equal(m.counters, COUNTERS);
    assert_string_equal(m.retired, "total v key = v\n");
    manifest_free(&m);
}

/* A count that is missing or doubled, with every checksum right. */
static void a_slice_whose_counts_do_not_add_up_is_not_published(void **state)
{
    struct run_outcome out;
    struct manifest m;
    (void)state;
    change_slice(in_work("stash", 1), "UPDATE meta SET value = value + 1 WHERE key = 'events'");
    assert_int_equal(compact_once(0, &out), COMPACT_DAMAGED);
    assert_non_null(strstr(error.text, "the counts of u add up to"));
    assert_int_equal(world->cleared, 0);
    assert_int_equal(manifest_read_current(in_work("archive", 0), &m, NULL), MANIFEST_OK);
    assert_int_equal(m.through, 0);
    manifest_free(&m);
}

/* Another pipeline's slices, under the numbers of ours. */
static void slices_that_do_not_continue_the_archive_are_refused(void **state)
{
    static const char *const others[] = {"UPDATE begins SET id = 'decaf'", "UPDATE begins SET offset = 999",
        "DELETE FROM begins", "DELETE FROM meta WHERE key = 'sealed'"};
    struct run_outcome out;
    (void)state;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        put_slice(2, COUNTERS);
        change_slice(in_work("stash", 2), others[i]);
        world->open = 2;
        assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
        assert_non_null(strstr(error.text, i < 3 ? "do not belong together" : "never sealed"));
        assert_int_equal(world->cleared, 1);
        unlink(in_work("slices", 2));
    }
    put_slice(2, COUNTERS);
    put_slice(3, COUNTERS);
    world->open = 2;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    change_slice(in_work("stash", 3), "UPDATE cursors SET offset = 2500");
    assert_int_equal(seal(NULL, 3, NULL), COMPACT_OK); /* 3 and 4 in one run: they do not meet */
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
    assert_non_null(strstr(error.text, "0000000004.db does not start where"));
}

static ssize_t no_room(int fd, const void *p, size_t n, off_t at)
{
    (void)fd, (void)p, (void)n, (void)at;
    errno = ENOSPC;
    return -1;
}

static void a_full_disk_is_left_as_it_was(void **state)
{
    struct run_outcome out;
    struct io_ops ops = io_system;
    (void)state;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    ops.pwrite = no_room;
    io = &ops;
    assert_int_equal(compact_once(0, &out), COMPACT_FAILED);
    io = &io_system;
    assert_non_null(strstr(error.text, "No space"));
    shell("test -z \"$(ls -d %s/archive/*.tmp 2>/dev/null)\"", work);
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    assert_int_equal(out.generation, 2);
}

static const char *no_link; /* the end of the link's path */
static int no_symlink(const char *target, const char *path)
{
    errno = ENOSPC;
    return strstr(path, no_link) ? -1 : symlink(target, path);
}
static int no_rename(const char *from, const char *to)
{
    errno = EIO;
    return strstr(to, no_link) ? -1 : rename(from, to);
}

/* A link that cannot be made leaves `current`. A link that cannot be replaced after `current` hides no return. */
static void a_switch_that_fails_halfway(void **state)
{
    struct run_outcome out;
    struct io_ops ops = io_system;
    uint64_t generation;
    (void)state;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    ops.symlink = no_symlink;
    ops.rename = no_rename;
    io = &ops;
    for (int i = 0; i < 2; i++) {
        no_link = i == 0 ? "/current.tmp" : "/newest.tmp";
        assert_int_equal(compact_once(0, &out), COMPACT_FAILED);
        assert_int_equal(manifest_through(&generation), 1);
        assert_int_equal(generation, 1);
        shell("test -z \"$(ls -d %s/archive/*.tmp 2>/dev/null)\"", work);
    }
    no_link = "/newest";
    ops.symlink = io_system.symlink;
    assert_int_equal(compact_once(0, &out), COMPACT_FAILED);
    io = &io_system;
    manifest_through(&generation);
    assert_int_equal(generation, 2);
    shell("ln -sfT 000000000001 %s/archive/current", work);
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
    assert_true(out.must_ask);
    shell("ln -sfT 000000000002 %s/archive/current", work);
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
}

static enum compact_result seal_nothing(void *arg, uint64_t n, struct error *text)
{
    (void)arg, (void)n;
    return error_set(text, COMPACT_TRY_AGAIN, "too many slices wait");
}

/* Were the run to end there, an aggregator whose slices are too many would never get rid of them. */
static void what_cannot_be_sealed_does_not_hold_up_what_is(void **state)
{
    struct run_outcome out;
    struct run_control stuck = control;
    char archive[PATH_TEXT], slices[PATH_TEXT];
    (void)state;
    assert_int_equal(seal(NULL, 1, NULL), COMPACT_OK);
    assert_int_equal(seal(NULL, 2, NULL), COMPACT_OK);
    stuck.seal = seal_nothing;
    snprintf(archive, sizeof archive, "%s/archive", work);
    snprintf(slices, sizeof slices, "%s/slices", work);
    struct run_spec spec = {.archive = archive, .slices = slices, .keep = 1, .control = &stuck};
    assert_int_equal(run_compact(&spec, &out, &error), COMPACT_TRY_AGAIN);
    assert_string_equal(error.text, "too many slices wait");
    assert_int_equal(out.through, 2);
    assert_int_equal(world->cleared, 2);
    assert_string_equal(world->wrong, "");
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    assert_int_equal(out.through, 3);
}

/* Somebody makes an older generation current, after the slices between were cleared: the newer one is all there is. */
static void going_back_loses_nothing(void **state)
{
    struct run_outcome out;
    (void)state;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    shell("cp -a %s/archive/000000000001 %s/kept", work, root);
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    shell("mv %s/kept %s/archive/000000000001 && ln -sfn 000000000001 %s/archive/current", root, work, work);
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
    assert_non_null(strstr(error.text, "0000000002.db is missing"));
    world->events_until = 1;
    world->open = 2;
    assert_int_equal(compact_once(0, &out), COMPACT_REFUSED);
    assert_non_null(strstr(error.text, "the only copy of the counts of slice"));
    assert_int_equal(access(in_work("archive/000000000002/manifest.json", 0), F_OK), 0);
    shell("ln -sfn 000000000002 %s/archive/current", work);
    world->open = 3;
    world->events_until = SLICES;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    assert_int_equal(out.through, 3);
}

static void a_damaged_archive_is_never_merged_into_a_new_one(void **state)
{
    struct run_outcome out;
    (void)state;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    FILE *f = fopen(in_work("archive/current/shard-0-of-1.csv", 0), "r+");
    assert_non_null(f);
    fseek(f, -2, SEEK_END);
    fputc('9', f);
    fclose(f);
    assert_int_equal(compact_once(0, &out), COMPACT_DAMAGED);
    assert_non_null(strstr(error.text, "checksum"));
    assert_int_equal(world->cleared, 1);
    uint64_t generation;
    assert_int_equal(manifest_through(&generation), 1);
    assert_int_equal(generation, 1);
}

static void damage_in_an_archive_is_reported_with_its_file(void **state)
{
    struct run_outcome out;
    (void)state;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    const char *path = in_work("archive/current/shard-0-of-1.csv", 0);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    for (long at = 0, end = ftell(f); at < end; at++) {
        fseek(f, at, SEEK_SET);
        int byte = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(byte ^ 1 << at % 7, f);
        fflush(f);
        assert_int_equal(compact_once(0, &out), COMPACT_DAMAGED);
        assert_non_null(strstr(error.text, "/shard-0-of-1.csv"));
        fseek(f, at, SEEK_SET);
        fputc(byte, f);
        fflush(f);
    }
    fclose(f);
}

/* Else no later run could read the archive. */
static void a_manifest_that_is_too_long_to_read_is_refused(void **state)
{
    (void)state;
    struct run_outcome out;
    assert_int_equal(compact_once(0, &out), COMPACT_OK);
    struct manifest m = {.generation = 9, .shards = 1, .n_imports = MANIFEST_BYTES_MAX / 256};
    m.files = mem_zalloc(sizeof(*m.files));
    m.texts = mem_zalloc(sizeof(*m.texts));
    m.imports = mem_zalloc(m.n_imports * sizeof(*m.imports));
    for (size_t i = 0; i < m.n_imports; i++)
        memset(m.imports[i].name, 'x', sizeof(m.imports[i].name) - 1);
    assert_int_equal(archive_begin(in_work("archive", 0), 9, &error), COMPACT_OK);
    assert_int_equal(archive_describe(in_work("archive", 0), &m, &error), COMPACT_REFUSED);
    archive_discard(in_work("archive", 0), 9);
    manifest_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_new_makes_no_generation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_sortdb_slices_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_belong_together_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_counter_that_was_gone_keeps_its_meaning, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_slice_whose_counts_do_not_add_up_is_not_published, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            slices_that_do_not_continue_the_archive_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_left_as_it_was, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_switch_that_fails_halfway, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_sealed_does_not_hold_up_what_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(going_back_loses_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_archive_is_never_merged_into_a_new_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_in_an_archive_is_reported_with_its_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_manifest_that_is_too_long_to_read_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_from_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            stopped_everywhere_with_slices_waiting_and_other_shards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_in_an_import, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_in_a_drop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_when_hours_are_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_in_a_forget, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_when_a_sub_key_is_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_when_a_member_is_forgotten, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
