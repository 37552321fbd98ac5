/* millrace journal check|dump|repair DIR: inspects or repairs a journal. The daemon may run during check and dump,
 * but must be stopped for repair. */
#include "base/amount.h"
#include "journal/journal_repair.h"
#include "tools/tool.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

static const char help[] =
    "inspects a journal, or repairs one that no daemon uses\n\n"
    "usage: millrace journal check|dump|repair DIR\n"
    "\n"
    "  check   verify every frame; exit status 0: intact, 65: damaged, 66: no journal, 78: unreadable or\n"
    "          unknown format version\n"
    "  dump    print a line for each segment and frame: position, offset, time, producer, mark, size;\n"
    "          --payload adds the bytes\n"
    "  repair  keep the intact part before the first damage, move the rest to DIR~damaged-TIME, and print\n"
    "          what is lost; stop the daemon first; run an interrupted repair again\n"
    "\n"
    "DIR is the directory with the .seg files.\n";

static void describe(const struct inspect_event *e)
{
    if (e->kind == INSPECT_DAMAGE)
        printf("%s: damaged at byte %" PRIu64 " (offset %" PRIu64 "): %s\n", e->path, e->position, e->offset,
            e->what);
    else if (e->kind == INSPECT_MISSING)
        printf("%s: the previous segment is missing (up to offset %" PRIu64 ")\n", e->path, e->offset);
    else if (e->kind == INSPECT_LOST)
        printf("%s: missing, as are all segments up to number %" PRIu64 "\n", e->path, e->last);
    else if (e->kind == INSPECT_VERSION)
        printf("%s: unknown format version\n", e->path);
    else if (e->kind == INSPECT_TAIL)
        printf("%s: torn at byte %" PRIu64 " (offset %" PRIu64 "): a write in progress, or a tail that the "
               "next opening cuts\n",
            e->path, e->position, e->offset);
}

static bool is_finding(const struct inspect_event *e)
{
    return e->kind != INSPECT_HEADER && e->kind != INSPECT_FRAME && e->kind != INSPECT_END;
}

static void check_event(const struct inspect_event *e, void *arg)
{
    inspect_summarize(arg, e);
    if (is_finding(e))
        describe(e);
}

/* True if the directory has no segment (or segment that an interrupted repair has renamed), or one that this user cannot read. */
static bool is_unreadable(const char *dir)
{
    char *pattern = mem_printf("%s/*.seg*", dir);
    glob_t found = {0};
    bool is_readable = glob(pattern, GLOB_ERR, NULL, &found) == 0;
    for (size_t i = 0; i < found.gl_pathc && is_readable; i++)
        is_readable = access(found.gl_pathv[i], R_OK) == 0;
    globfree(&found);
    free(pattern);
    return !is_readable;
}

static int exit_status(const char *dir, enum journal_result r, const char *error)
{
    if (error[0])
        tool_fail(0, "%s", error);
    if (r == JOURNAL_IO && is_unreadable(dir))
        return EX_NOINPUT;
    return r == JOURNAL_OK         ? EX_OK
           : r == JOURNAL_DAMAGED  ? EX_DATAERR
           : r == JOURNAL_NO_SPACE ? EX_TEMPFAIL
                                   : EX_CONFIG;
}

static int check(const char *dir, bool payload)
{
    (void)payload;
    struct inspect_summary sum = {0};
    char error[PATH_MAX + 128];
    enum journal_result r = journal_inspect(dir, check_event, &sum, error, sizeof error);
    const char *verdict = r == JOURNAL_VERSION ? "a segment has an unknown format version"
                          : sum.problems       ? "DAMAGED"
                          : r == JOURNAL_OK    ? "intact"
                                               : "a repair is unfinished";
    if (r != JOURNAL_IO)
        printf("%" PRIu64 " %s, %" PRIu64 " %s, %" PRIu64 " bytes, offsets %" PRIu64 " to %" PRIu64 ": %s\n",
            sum.segments, plural(sum.segments, "segment", "segments"), sum.frames,
            plural(sum.frames, "frame", "frames"), sum.bytes, sum.first, sum.end, verdict);
    return exit_status(dir, r, error);
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
    size_t name_length = strnlen(
        f->name.ptr, f->name.len); /* length of the name in a label, which consists of name, NUL and tag */
    if (name_length < f->name.len)
        printf(" opening=%.*s", (int)(f->name.len - name_length - 1), f->name.ptr + name_length + 1);
    struct bytes table = f->payload, name;
    uint64_t mark;
    bool bad;
    while (f->kind == FRAME_TABLE && table_next(&table, &name, &mark, &bad))
        printf(" %.*s=%" PRIu64, (int)name.len, name.ptr, mark);
    bool shown = payload && f->kind == FRAME_DATA;
    if (shown)
        fputs(" \"", stdout);
    for (size_t i = 0; shown && i < f->payload.len; i++) {
        unsigned char c = (unsigned char)f->payload.ptr[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < ' ' || c > '~')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    puts(shown ? "\"" : "");
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
        printf(" opening=%s base=%" PRIu64 " previous_end=%" PRIu64 " durable=%" PRIu64 " created=%" PRId64
               "%s%s\n",
            h->opening, h->base, h->previous_end, h->durable, h->created, h->never ? " never" : "",
            h->recycled ? " recycled" : "");
    } else if (e->kind != INSPECT_END) {
        describe(e);
    }
}

static int dump(const char *dir, bool payload)
{
    char error[PATH_MAX + 128];
    return exit_status(dir, journal_inspect(dir, dump_event, &payload, error, sizeof error), error);
}

static void found_event(const struct inspect_event *e, void *arg)
{
    (void)arg;
    if (is_finding(e))
        describe(e);
}

static void moved(const char *from, const char *to, bool beginning_stays, void *arg)
{
    (void)arg;
    printf("moved %s to %s%s\n", from, to, beginning_stays ? "; its intact beginning is kept" : "");
}

static int repair(const char *dir, bool payload)
{
    (void)payload;
    struct journal_repair how = {.dir = dir, .found = found_event, .moved = moved};
    struct journal_repaired done;
    char error[PATH_MAX + 128];
    enum journal_result r = journal_repair(&how, &done, error, sizeof error);
    if (r != JOURNAL_OK)
        return exit_status(dir, r, error);
    if (!done.repaired)
        printf("nothing to repair\n");
    else if (!done.kept)
        printf("lost: everything; the daemon will create a new journal with another id\n");
    else
        printf("kept: offsets %" PRIu64 " to %" PRIu64 "\n"
               "lost: the offsets above, up to %" PRIu64 " or more, and the marks set there\n"
               "the journal continues at offset %" PRIu64 "\n",
            done.first, done.end, done.lost, done.goes_on);
    return EX_OK;
}

static const struct {
    const char *name;
    int (*run)(const char *dir, bool payload);
    bool takes_payload;
} acts[] = {{"check", check, false}, {"dump", dump, true}, {"repair", repair, false}};

int tool_journal(int argc, char **argv)
{
    const char *words[2] = {"", ""};
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
    char dir[PATH_MAX];
    for (size_t i = 0; n == 2 && !wrong && i < sizeof acts / sizeof *acts; i++) {
        if (strcmp(acts[i].name, words[0]) != 0 || (payload && !acts[i].takes_payload))
            continue;
        if (realpath(words[1], dir))
            return acts[i].run(dir, payload);
        return tool_fail(errno == ENOENT ? EX_NOINPUT : EX_CONFIG, "%s: %s", words[1], strerror(errno));
    }
    fputs(help, stderr);
    return EX_USAGE;
}
