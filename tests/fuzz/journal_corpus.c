/* journal_corpus DIR: inputs for fuzz_journal_open, made by the journal itself: a fresh one, one with producers, one of
 * several segments, one that was killed, one with a hole, one in files used again. */
#include "journal/journal.h"
#include "journal/journal_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t boot;

static void pretend_boot(uint8_t out[16])
{
    memset(out, boot, 16);
}

static void committed(const struct journal_commit *c, void *arg)
{
    (void)c, (void)arg;
}

struct recipe {
    const char *name;
    int64_t sync_ms;
    unsigned appends, sessions;
    bool producers, trims, reboots;
};

static const struct recipe recipes[] = {
    {"fresh", 0, 0, 1, false, false, false},
    {"one", 0, 1, 1, false, false, false},
    {"producers", 0, 6, 2, true, false, false},
    {"segments", 0, 60, 1, true, false, false},
    {"never", JOURNAL_SYNC_NEVER, 20, 3, true, false, false},
    {"hole", JOURNAL_SYNC_NEVER, 8, 2, true, false, true},
    {"again", 0, 150, 2, true, true, false},
};

static void append_some(struct journal_set *set, struct journal *j, const struct recipe *r)
{
    char line[101] = "", name[8];
    memset(line, 'c', 100);
    for (unsigned i = 0; i < r->appends; i++) {
        struct bytes piece = bytes_of(line, 1 + i * 7 % 100);
        struct journal_append a = {.pieces = &piece, .n_pieces = 1};
        snprintf(name, sizeof name, "p%u", i % 3);
        if (r->producers && i % 2) {
            a.producer = bytes_str(name);
            a.mark = journal_mark(j, a.producer, NULL);
            a.tag = i % 4 == 1 ? BYTES_LITERAL("0123456789abcdef") : BYTES_NONE;
            a.next = a.mark + 2;
        }
        journal_append(j, &a, 900 + i, committed, NULL, NULL);
        journal_set_flush(set);
        if (r->trims)
            journal_trim(j, journal_committed_end(j));
    }
}

static void add_file(struct buf *out, const char *path)
{
    FILE *file = fopen(path, "r");
    char bytes[65536];
    if (!file)
        return;
    uint32_t n = (uint32_t)fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    buf_append(out, &n, 4);
    buf_append(out, bytes, n);
}

static void save(const char *to, const char *dir, const struct recipe *r, const char *suffix)
{
    struct buf out = {0}, path = {0};
    char statement[SYNCED_END];
    uint64_t newest;
    if (newest_marker_read(dir, &newest) != 0)
        abort();
    newest_marker_statement(dir, newest, statement);
    buf_append_char(&out, (char)(2 | 4 | (r->sync_ms < 0)));
    buf_append(&out, statement, sizeof statement);
    for (uint64_t n = 1; n < 40; n++) {
        char *segment = segment_path(dir, n, "");
        add_file(&out, segment);
        free(segment);
    }
    buf_printf(&path, "%s/%s%s", to, r->name, suffix);
    buf_append_char(&path, 0);
    FILE *file = fopen(path.ptr, "w");
    if (!file || fwrite(out.ptr, 1, out.len, file) != out.len || fclose(file) != 0)
        abort();
    buf_free(&out);
    buf_free(&path);
}

static void cook(const char *to, const struct recipe *r)
{
    char dir[] = "/tmp/corpus-XXXXXX", error[256], command[64];
    if (!mkdtemp(dir))
        abort();
    for (unsigned s = 0; s < r->sessions; s++) {
        struct journal *j;
        struct journal_set_config sc = {.sync_ms = r->sync_ms};
        struct journal_config jc = {.dir = dir, .segment_bytes = 4096};
        struct journal_set *set = journal_set_new(&sc);
        if (journal_open(set, &jc, &j, error, sizeof error) != JOURNAL_OK)
            abort();
        append_some(set, j, r);
        save(to, dir, r, "-killed");
        journal_set_free(&set);
        boot += r->reboots;
    }
    save(to, dir, r, "");
    snprintf(command, sizeof command, "rm -r %s", dir);
    if (system(command) != 0)
        abort();
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 64;
    mkdir(argv[1], 0777);
    journal_boot_id = pretend_boot;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        cook(argv[1], &recipes[i]);
    return 0;
}
