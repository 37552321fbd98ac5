/* millrace journal check|dump|repair DIR: looks into a journal's directory by hand.
 *
 * The directory must be in use by nobody: its own lock file, or that of a directory above it, as daemons take them, is
 * locked first. repair removes nothing: what it takes out of the journal is moved into a directory beside it. */
#include "journal_inspect.h"
#include "io.h"
#include "tools.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define HOLES_MOST 1024
#define LOCKS_ABOVE 3 /* a journal lies at most this deep in a daemon's data directory */

static const char help[] =
    "looks into a journal's directory that no daemon uses, and repairs it\n\n"
    "usage: millrace journal check|dump|repair DIR\n"
    "\n"
    "  check   verify every frame of every segment; 0: intact, 65: damaged, 78: not readable,\n"
    "          in use, or written by a newer version\n"
    "  dump    one line for each segment and frame: place, offset, time, producer and mark, size; --payload "
    "adds the bytes\n"
    "  repair  move what is damaged into DIR~damaged-TIME, keep the intact run around it, say what is lost\n"
    "\n"
    "DIR is the directory that holds the .seg files. Stop the daemon first.\n";

static bool lock_one(const char *dir, bool *in_use)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/lock", dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && (errno == EACCES || errno == EROFS)) /* who may only read can lock all the same */
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR;
    *in_use = flock(fd, LOCK_EX | LOCK_NB) != 0; /* held until the program ends */
    return true;
}

static bool lock_all(const char *dir)
{
    char path[PATH_MAX];
    bool in_use = false;
    if (!realpath(dir, path)) {
        fprintf(stderr, "millrace journal: %s: %s\n", dir, strerror(errno));
        return false;
    }
    for (int up = 0; up <= LOCKS_ABOVE && path[0] && !in_use; up++) {
        if (!lock_one(path, &in_use)) {
            fprintf(stderr, "millrace journal: %s/lock: %s\n", path, strerror(errno));
            return false;
        }
        if (!in_use)
            *strrchr(path, '/') = 0;
    }
    if (in_use)
        fprintf(stderr, "millrace journal: %s is in use (%s/lock): stop the daemon first\n", dir, path);
    return !in_use;
}

/* ---- check ---- */

struct found {
    uint64_t segments, frames, bytes, problems;
    uint64_t first, end;                 /* offsets: the lowest, and the highest that anything names */
    uint64_t whole;                      /* where the frames before the first damage end */
    uint64_t headless;                   /* segments of which not even the first offset is known */
    uint64_t bad_sequence, bad_position; /* the first damage */
    uint64_t *sequences;
    size_t n_sequences;
    bool newer;
};

static void describe(const struct inspect_event *e)
{
    if (e->kind == INSPECT_DAMAGE)
        printf("%s: damaged at byte %" PRIu64 " (offset %" PRIu64 "): %s\n", e->path, e->position, e->offset,
            e->what);
    else if (e->kind == INSPECT_MISSING)
        printf("%s: the segment before it is missing (up to offset %" PRIu64 ")\n", e->path, e->offset);
    else if (e->kind == INSPECT_NEWER)
        printf("%s: written by a newer version of millrace\n", e->path);
    else if (e->kind == INSPECT_TAIL)
        printf("%s: torn at byte %" PRIu64 " (offset %" PRIu64 "): the next opening cuts what follows\n",
            e->path, e->position, e->offset);
}

static void problem(struct found *f, const struct inspect_event *e)
{
    if (f->problems++ == 0) {
        f->bad_sequence = e->sequence;
        f->bad_position = e->position;
    }
    f->headless += e->kind == INSPECT_DAMAGE && e->position == 0;
    f->newer = f->newer || e->kind == INSPECT_NEWER;
}

static void saw_offset(struct found *f, uint64_t offset)
{
    if (f->end < offset)
        f->end = offset;
}

static void saw_segment(struct found *f, const struct inspect_event *e)
{
    if (f->n_sequences && f->sequences[f->n_sequences - 1] == e->sequence)
        return;
    f->sequences = mem_realloc(f->sequences, (f->n_sequences + 1) * sizeof *f->sequences);
    f->sequences[f->n_sequences++] = e->sequence;
}

static void check_event(const struct inspect_event *e, void *arg)
{
    struct found *f = arg;
    saw_segment(f, e);
    if (e->kind == INSPECT_HEADER) {
        if (f->segments++ == 0)
            f->first = e->header->base;
        saw_offset(f, e->header->base);
    } else if (e->kind == INSPECT_FRAME) {
        f->frames++;
        f->bytes += frame_advance(e->frame);
        saw_offset(f, e->offset + frame_advance(e->frame));
        if (f->problems == 0)
            f->whole = e->offset + frame_advance(e->frame);
    } else if (e->kind != INSPECT_END) {
        describe(e);
        if (e->kind != INSPECT_TAIL)
            problem(f, e);
    }
}

static int exit_status(enum journal_result r, const char *error)
{
    if (r == JOURNAL_IO)
        fprintf(stderr, "millrace journal: %s\n", error);
    return r == JOURNAL_OK ? EX_OK : r == JOURNAL_DAMAGED ? EX_DATAERR : EX_CONFIG;
}

static const char *verdict(const struct found *f)
{
    return f->newer ? "not all of it can be read by this version" : f->problems ? "DAMAGED" : "intact";
}

static int check(const char *dir, bool payload)
{
    (void)payload;
    struct found f = {0};
    char error[PATH_MAX + 128];
    enum journal_result r = journal_inspect(dir, check_event, &f, error, sizeof error);
    if (r != JOURNAL_IO)
        printf("%" PRIu64 " segments, %" PRIu64 " frames, %" PRIu64 " bytes, offsets %" PRIu64 " to %" PRIu64
               ": %s\n",
            f.segments, f.frames, f.bytes, f.first, f.end, verdict(&f));
    free(f.sequences);
    return exit_status(r, error);
}

/* ---- dump ---- */

static void print_bytes(struct bytes b)
{
    putchar('"');
    for (size_t i = 0; i < b.len; i++) {
        unsigned char c = (unsigned char)b.ptr[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < ' ' || c > '~')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void dump_frame(const struct inspect_event *e, bool payload)
{
    static const char *const kinds[] = {
        [FRAME_DATA] = "data", [FRAME_TABLE] = "table", [FRAME_OPEN] = "open", [FRAME_CLOSE] = "close"};
    const struct frame *f = e->frame;
    printf("  %" PRIu64 " %s offset=%" PRIu64 " size=%zu time=%" PRId64 " durable=%" PRIu64, e->position,
        kinds[f->kind], f->offset, f->payload.len, f->time, f->durable);
    if (f->name.len)
        printf(" producer=%.*s mark=%" PRIu64, (int)f->name.len, f->name.ptr, f->mark);
    struct bytes table = f->payload, name;
    uint64_t mark;
    bool bad;
    while (f->kind == FRAME_TABLE && table_next(&table, &name, &mark, &bad))
        printf(" %.*s=%" PRIu64, (int)name.len, name.ptr, mark);
    if (payload && f->kind == FRAME_DATA) {
        putchar(' ');
        print_bytes(f->payload);
    }
    putchar('\n');
}

static void dump_event(const struct inspect_event *e, void *arg)
{
    if (e->kind == INSPECT_FRAME) {
        dump_frame(e, *(bool *)arg);
    } else if (e->kind == INSPECT_HEADER) {
        const struct segment_header *h = e->header;
        printf("%s id=", e->path);
        for (size_t i = 0; i < sizeof h->id; i++)
            printf("%02x", h->id[i]);
        printf(" base=%" PRIu64 " previous_end=%" PRIu64 " durable=%" PRIu64 " created=%" PRId64 "%s%s\n",
            h->base, h->previous_end, h->durable, h->created, h->never ? " never" : "",
            h->recycled ? " recycled" : "");
    } else if (e->kind != INSPECT_END) {
        describe(e);
    }
}

static int dump(const char *dir, bool payload)
{
    char error[PATH_MAX + 128];
    return exit_status(journal_inspect(dir, dump_event, &payload, error, sizeof error), error);
}

/* ---- repair ---- */

/* A journal is an unbroken run of segments. What can be kept of a damaged one is the run before the damage. It goes on
 * after a hole above every offset that the rest may hold: no offset is given out twice. */
struct repair {
    const char *dir;
    const struct found *found;
    char aside[PATH_MAX];
    uint64_t cut_at; /* bytes of the damaged segment to keep; 0: nothing of it */
    uint64_t moved;  /* bytes of the files that were moved */
    uint64_t hint;   /* the highest offset at which one of them seems to begin */
};

static int copy_start(const char *from, const char *to, uint64_t n)
{
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY | O_CLOEXEC),
        out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, IO_PRIVATE_MODE);
    int failed = in < 0 || out < 0 ? -1 : 0;
    for (uint64_t at = 0; at < n && !failed;) {
        size_t want = n - at < sizeof bytes ? (size_t)(n - at) : sizeof bytes;
        ssize_t got = io->pread(in, bytes, want, (off_t)at);
        failed = got <= 0 ? -1 : io_write_all(out, bytes, (size_t)got, (off_t)at);
        at += got > 0 ? (uint64_t)got : 0;
    }
    if (!failed)
        failed = io->fsync(out);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return failed;
}

/* Where a segment says that it begins, in its header and in its table, though neither may be whole. What cannot be true is
 * passed over: no journal has so many holes. */
static void take_hint(struct repair *r, const char *path)
{
    static const off_t places[] = {SEGMENT_BASE_AT, SEGMENT_HEADER + FRAME_OFFSET_AT};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i < sizeof places / sizeof *places; i++) {
        uint64_t offset;
        if (io->pread(fd, &offset, sizeof offset, places[i]) != sizeof offset)
            continue;
        offset = le64toh(offset);
        if (offset > r->hint && offset < r->found->end + HOLES_MOST * JOURNAL_HOLE)
            r->hint = offset;
    }
    if (fd >= 0)
        close(fd);
}

/* One segment's file, whole, beside the journal; of the damaged one an intact beginning takes its place. */
static bool move_aside(struct repair *r, uint64_t sequence)
{
    struct stat st;
    char from[PATH_MAX + 32], to[PATH_MAX + 32], kept[PATH_MAX + 64];
    bool cut = sequence == r->found->bad_sequence && r->cut_at > 0;
    snprintf(from, sizeof from, "%s/%016" PRIx64 ".seg", r->dir, sequence);
    snprintf(to, sizeof to, "%s/%016" PRIx64 ".seg", r->aside, sequence);
    snprintf(kept, sizeof kept, "%s.kept", to);
    if (stat(from, &st) == 0)
        r->moved += (uint64_t)st.st_size;
    take_hint(r, from);
    if ((cut && copy_start(from, kept, r->cut_at) != 0) || rename(from, to) != 0 ||
        (cut && rename(kept, from) != 0)) {
        fprintf(stderr, "millrace journal: cannot move %s to %s: %s\n", from, to, strerror(errno));
        return false;
    }
    printf("moved %s to %s%s\n", from, to, cut ? "; its intact beginning stays" : "");
    return true;
}

static bool make_aside(struct repair *r)
{
    time_t now = time(NULL);
    struct tm tm;
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
    int n = snprintf(r->aside, sizeof r->aside, "%s~damaged-%s", r->dir, stamp), made = -1;
    for (int again = 2; (made = mkdir(r->aside, 0777)) != 0 && errno == EEXIST && again < 100; again++)
        snprintf(r->aside + n, sizeof r->aside - (size_t)n, "-%d", again);
    if (made == 0)
        return true;
    fprintf(stderr, "millrace journal: %s: %s\n", r->aside, strerror(errno));
    return false;
}

/* Newest first, so that an interrupted repair leaves an unbroken run. */
static bool move_from_damage_on(struct repair *r)
{
    const struct found *f = r->found;
    for (size_t i = f->n_sequences; i-- > 0 && f->sequences[i] >= f->bad_sequence;)
        if (!move_aside(r, f->sequences[i]))
            return false;
    return io_sync_dir(r->dir) == 0 && io_sync_dir(r->aside) == 0;
}

/* What was lost and is named by nothing is no longer than its files; and where a segment's header is lost, it may have
 * begun after a hole. */
static uint64_t lost_below(const struct repair *r)
{
    const struct found *f = r->found;
    uint64_t known = f->end > r->hint ? f->end : r->hint;
    return known + r->moved + f->headless * JOURNAL_HOLE + 1;
}

static bool go_on_after_hole(const struct repair *r)
{
    char error[PATH_MAX + 128];
    struct journal *j;
    struct journal_set_config sc = {0};
    struct journal_config jc = {.dir = r->dir, .lost_below = lost_below(r)};
    struct journal_set *set = journal_set_new(&sc);
    enum journal_result result = journal_open(set, &jc, &j, error, sizeof error);
    if (result == JOURNAL_OK)
        printf("it goes on at offset %" PRIu64 "\n", journal_committed_end(j));
    else
        fprintf(stderr, "millrace journal: %s\n", error);
    journal_set_free(&set);
    return result == JOURNAL_OK;
}

static int mend(const char *dir, const struct found *f)
{
    struct repair r = {.dir = dir, .found = f};
    r.cut_at = f->bad_position > SEGMENT_HEADER ? f->bad_position : 0;
    if (!make_aside(&r) || !move_from_damage_on(&r))
        return EX_TEMPFAIL;
    if (f->bad_sequence == f->sequences[0] && !r.cut_at) {
        printf("lost: everything; a daemon makes a new journal, with another id, here\n");
        return EX_OK;
    }
    printf("kept: offsets %" PRIu64 " to %" PRIu64 "\n"
           "lost: what stands above, up to offset %" PRIu64 "%s, with the marks that were set there\n",
        f->first, f->whole, f->end, f->end > f->whole ? "" : " and perhaps more");
    return go_on_after_hole(&r) ? EX_OK : EX_TEMPFAIL;
}

static int repair(const char *dir, bool payload)
{
    (void)payload;
    struct found f = {0};
    char error[PATH_MAX + 128];
    enum journal_result r = journal_inspect(dir, check_event, &f, error, sizeof error);
    int status = exit_status(f.newer ? JOURNAL_NEWER : r, error);
    if (r == JOURNAL_OK)
        printf("nothing to repair\n");
    else if (status == EX_DATAERR)
        status = mend(dir, &f);
    free(f.sequences);
    return status;
}

static const struct {
    const char *name;
    int (*run)(const char *dir, bool payload);
    bool takes_payload;
} acts[] = {{"check", check, false}, {"dump", dump, true}, {"repair", repair, false}};

/* What was asked for must also have arrived. */
static int flushed(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "millrace journal: cannot write: %s\n", strerror(errno));
    return EX_IOERR;
}

static int act_on(const char *act, char *dir, bool payload)
{
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        if (strcmp(acts[i].name, act) != 0 || (payload && !acts[i].takes_payload))
            continue;
        for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/';)
            dir[--n] = 0;
        return lock_all(dir) ? flushed(acts[i].run(dir, payload)) : EX_CONFIG;
    }
    fputs(help, stderr);
    return EX_USAGE;
}

/* The options may stand anywhere. */
int tool_journal(int argc, char **argv)
{
    char none[] = "", *words[2] = {none, none};
    bool payload = false;
    int n = 0, wrong = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            return EX_OK;
        }
        if (strcmp(argv[i], "--payload") == 0)
            payload = true;
        else if (argv[i][0] != '-' && n < 2)
            words[n++] = argv[i];
        else
            wrong++;
    }
    return act_on(n == 2 && !wrong ? words[0] : none, words[1], payload);
}
