#include "archive/sorted_file.h"

#include "base/amount.h"
#include "base/xxh3.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define STEP ((size_t)1 << 20) /* bytes that are checked and hashed together, while the cache holds them */

static bool is_cancelled(const struct sorted_file_config *c)
{
    return c->cancel && atomic_load(c->cancel);
}

/* The state of the pass over the file, which checks the order of lines and computes the checksum and the index. */
struct pass {
    struct sorted_check check;
    XXH3_state_t *hash;
    const char *fault; /* the fault of the line after the valid lines (check.records) */
};

static void read_file(struct pass *p, const struct sorted_file *f, const struct sorted_file_config *config)
{
    struct bytes text = f->text.text;
    mapping_expect_scan(f->mapping, true);
    for (size_t at = 0, n; at < text.len && !p->fault && !is_cancelled(config); at += n) {
        n = text.len - at < STEP ? text.len - at : STEP;
        if (config->expected)
            XXH3_64bits_update(p->hash, text.ptr + at, n);
        sorted_index_extend(f->index, at + n);
        p->fault = sorted_check_step(&f->text, &p->check, at + n);
    }
    mapping_expect_scan(f->mapping, false);
}

static enum sorted_file_result judge(const struct sorted_file *f, const struct sorted_file_config *config,
    const struct pass *p, struct error *error)
{
    const struct manifest_file *expected = config->expected;
    uint64_t xxh3 = XXH3_64bits_digest(p->hash), records = p->check.records;
    if (is_cancelled(config))
        return SORTED_FILE_CANCELLED;
    if (!mapping_is_whole(f->mapping))
        return error_set(error, SORTED_FILE_REFUSED, "%s: was truncated while it was read", f->path);
    if (p->fault)
        return error_set(error, SORTED_FILE_REFUSED, "%s: line %" PRIu64 " %s%s", f->path, records + 1,
            p->fault,
            !expected && strcmp(p->fault, SORTED_NO_SEPARATOR) == 0 ? " (--field-separator names the byte)"
                                                                    : "");
    if (expected && records != expected->records)
        return error_set(error, SORTED_FILE_REFUSED, "%s: has %" PRIu64 " %s, the manifest says %" PRIu64,
            f->path, records, plural(records, "record", "records"), expected->records);
    if (expected && xxh3 != expected->xxh3)
        return error_set(error, SORTED_FILE_REFUSED,
            "%s: has checksum %016" PRIx64 "; the manifest says %016" PRIx64, f->path, xxh3, expected->xxh3);
    return SORTED_FILE_OK;
}

static enum sorted_file_result check(
    struct sorted_file *f, const struct sorted_file_config *config, struct error *error)
{
    const struct manifest_file *expected = config->expected;
    struct pass pass = {.check = {.unique_keys = config->unique_keys}};
    if (expected && f->text.text.len != expected->bytes)
        return error_set(error, SORTED_FILE_REFUSED, "%s: has %zu bytes; the manifest says %" PRIu64, f->path,
            f->text.text.len, expected->bytes);
    f->index = sorted_index_new(f->text.text);
    pass.hash = XXH3_createState();
    XXH3_64bits_reset(pass.hash);
    read_file(&pass, f, config);
    enum sorted_file_result r = judge(f, config, &pass, error);
    f->records = pass.check.records;
    f->xxh3 = XXH3_64bits_digest(pass.hash);
    f->is_listed = expected != NULL;
    XXH3_freeState(pass.hash);
    return r;
}

enum sorted_file_result sorted_file_open(
    const struct sorted_file_config *config, struct sorted_file **out, struct error *error)
{
    struct sorted_file *f = mem_zalloc(sizeof *f);
    f->path = mem_strdup(config->path);
    enum sorted_file_result r;
    if (mapping_open(config->path, config->lock_memory, &f->mapping, error) == 0) {
        f->text = (struct sorted_text){mapping_bytes(f->mapping), config->separator, NULL};
        r = check(f, config, error);
        f->text.index = f->index;
        if (r == SORTED_FILE_OK && config->lock_memory && sorted_index_lock(f->index) != 0)
            r = error_set(error, SORTED_FILE_FAILED, "%s: mlock of its index: %s", f->path, strerror(errno));
    } else {
        r = errno == ENOENT || errno == ENOTDIR ? SORTED_FILE_ABSENT : SORTED_FILE_FAILED;
        error_set(error, r, "%s: %s", config->path, error->text);
    }
    if (r == SORTED_FILE_OK)
        *out = f;
    else
        sorted_file_close(&f);
    return r;
}

void sorted_file_close(struct sorted_file **fp)
{
    struct sorted_file *f = *fp;
    *fp = NULL;
    if (!f)
        return;
    sorted_index_free(&f->index);
    XXH3_freeState(f->scrub);
    mapping_close(&f->mapping);
    free(f->path);
    free(f);
}

bool sorted_file_scrub(struct sorted_file *f, size_t bytes)
{
    struct bytes text = f->text.text;
    size_t left = text.len - f->scrubbed, n = left < bytes ? left : bytes;
    if (!f->is_listed)
        return true;
    if (!f->scrub)
        f->scrub = XXH3_createState();
    if (f->scrubbed == 0)
        XXH3_64bits_reset(f->scrub);
    XXH3_64bits_update(f->scrub, text.ptr + f->scrubbed, n);
    f->scrubbed += n;
    if (f->scrubbed < text.len)
        return false;
    if (mapping_is_whole(f->mapping) && XXH3_64bits_digest(f->scrub) != f->xxh3)
        atomic_store(&f->is_damaged, true);
    f->scrubbed = 0;
    return true;
}
