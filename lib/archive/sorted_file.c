#include "archive/sorted_file.h"

#include "base/xxh3.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP ((size_t)1 << 20) /* checked and hashed while the cache holds it */

static enum sorted_file_result refuse(const struct sorted_file *f, char *error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum sorted_file_result refuse(const struct sorted_file *f, char *error, const char *fmt, ...)
{
    char what[SORTED_FILE_ERROR_TEXT / 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    snprintf(error, SORTED_FILE_ERROR_TEXT, "%.240s: %s", f->path, what);
    return SORTED_FILE_REFUSED;
}

static bool is_cancelled(const struct sorted_file_config *c)
{
    return c->cancel && atomic_load(c->cancel);
}

static enum sorted_file_result check(
    struct sorted_file *f, const struct sorted_file_config *config, char *error)
{
    const struct manifest_file *expected = config->expected;
    struct sorted_check check = {.unique_keys = config->unique_keys};
    struct bytes text = f->text.text;
    const char *fault = NULL;
    if (expected && text.len != expected->bytes)
        return refuse(f, error, "has %zu bytes; the manifest says %" PRIu64, text.len, expected->bytes);
    XXH3_state_t *hash = XXH3_createState();
    XXH3_64bits_reset(hash);
    mapping_expect_scan(f->mapping, true);
    for (size_t at = 0, n; at < text.len && !fault && !is_cancelled(config); at += n) {
        n = text.len - at < STEP ? text.len - at : STEP;
        if (expected)
            XXH3_64bits_update(hash, text.ptr + at, n);
        fault = sorted_check_step(&f->text, &check, at + n);
    }
    mapping_expect_scan(f->mapping, false);
    uint64_t xxh3 = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    f->records = check.records;
    if (is_cancelled(config))
        return SORTED_FILE_CANCELLED;
    if (!mapping_is_whole(f->mapping))
        return refuse(f, error, "was truncated while it was read");
    if (fault)
        return refuse(f, error, "line %" PRIu64 " %s", check.records + 1, fault);
    if (expected && f->records != expected->records)
        return refuse(
            f, error, "has %" PRIu64 " records, the manifest says %" PRIu64, f->records, expected->records);
    if (expected && xxh3 != expected->xxh3)
        return refuse(
            f, error, "has checksum %016" PRIx64 "; the manifest says %016" PRIx64, xxh3, expected->xxh3);
    return SORTED_FILE_OK;
}

enum sorted_file_result sorted_file_open(
    const struct sorted_file_config *config, struct sorted_file **out, char error[SORTED_FILE_ERROR_TEXT])
{
    char what[MAPPING_ERROR_TEXT];
    struct sorted_file *f = mem_zalloc(sizeof(*f));
    f->path = mem_strdup(config->path);
    enum sorted_file_result r = SORTED_FILE_FAILED;
    if (mapping_open(config->path, config->lock_memory, &f->mapping, what) == 0) {
        f->text = (struct sorted_text){mapping_bytes(f->mapping), config->separator};
        r = check(f, config, error);
    } else {
        if (errno == ENOENT || errno == ENOTDIR)
            r = SORTED_FILE_ABSENT;
        snprintf(error, SORTED_FILE_ERROR_TEXT, "%.240s: %s", config->path, what);
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
    mapping_close(&f->mapping);
    free(f->path);
    free(f);
}
