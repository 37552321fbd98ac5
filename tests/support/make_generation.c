#include "support/make_generation.h"

#include "counts/manifest.h"
#include "support/cm.h"
#include "support/test_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

void write_made(const struct made_generation *m, const char *name, struct bytes content, off_t at)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/000000000001/%s", m->archive, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, content.ptr, content.len, at), (ssize_t)content.len);
    close(fd);
}

static struct manifest_file write_file(
    const struct made_generation *m, enum manifest_kind kind, unsigned shard, struct bytes content)
{
    struct manifest_file f = {.records = bytes_count_lines(content),
        .bytes = content.len,
        .xxh3 = XXH3_64bits(content.ptr, content.len)};
    manifest_file_name(kind, shard, m->shards, f.name);
    write_made(m, f.name, content, 0);
    return f;
}

void make_generation(
    struct made_generation *m, unsigned shards, const struct buf *records, const struct buf *texts)
{
    static char none[] = "";
    char path[128];
    struct buf text = {0};
    struct manifest_file files[MAKE_SHARDS_MAX], texts_files[MAKE_SHARDS_MAX];
    *m = (struct made_generation){.shards = shards};
    make_test_dir(m->archive, sizeof m->archive);
    snprintf(path, sizeof(path), "%s/000000000001", m->archive);
    mkdir(path, 0700);
    for (unsigned i = 0; i < shards; i++) {
        files[i] = write_file(m, MANIFEST_RECORDS, i, buf_bytes(&records[i]));
        texts_files[i] = write_file(m, MANIFEST_TEXTS, i, buf_bytes(&texts[i]));
    }
    const struct manifest manifest = {.generation = 1,
        .through = 7,
        .made = 1,
        .counters = none,
        .retired = none,
        .shards = shards,
        .files = files,
        .texts = texts_files};
    manifest_print(&manifest, &text);
    write_made(m, "manifest.json", buf_bytes(&text), 0);
    snprintf(path, sizeof(path), "%s/current", m->archive);
    assert_int_equal(symlink("000000000001", path), 0);
    buf_free(&text);
}

struct generation *open_made(const struct made_generation *m)
{
    struct generation *g = NULL;
    struct error error;
    const struct generation_source source = {.archive = m->archive};
    if (generation_open(&source, NULL, NULL, &g, &error) != SORTED_FILE_OK)
        fail_msg("%s", error.text);
    return g;
}

void remove_made(const struct made_generation *m)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", m->archive);
    assert_int_equal(system(command), 0);
}
