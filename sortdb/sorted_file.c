#include "sortdb/sorted_file.h"

#include "sortdb/mapping.h"
#include "base/xxh3.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP ((size_t)1 << 20) /* checked and hashed while the cache holds it */

struct sorted_file {
    struct mapping *mapping;
    struct sorted_text text;
    char *path;
    uint64_t records;
};

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

/* One pass over the file. */
static enum sorted_file_result check_lines(
    struct sorted_file *f, const struct sorted_file_config *config, uint64_t *xxh3, char *error)
{
    struct sorted_check check = {.unique_keys = config->unique_keys};
    XXH3_state_t *hash = XXH3_createState();
    struct bytes text = f->text.text;
    enum sorted_fault fault = SORTED_OK;
    XXH3_64bits_reset(hash);
    for (size_t at = 0, n; at < text.len && fault == SORTED_OK && !is_cancelled(config); at += n) {
        n = text.len - at < STEP ? text.len - at : STEP;
        if (config->expected)
            XXH3_64bits_update(hash, text.ptr + at, n);
        fault = sorted_check_step(&f->text, &check, at + n);
    }
    *xxh3 = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    f->records = check.records;
    if (is_cancelled(config))
        return SORTED_FILE_CANCELLED;
    if (!mapping_is_whole(f->mapping))
        return refuse(f, error, "was truncated while it was read");
    if (fault != SORTED_OK)
        return refuse(f, error, "line %" PRIu64 " %s", check.records + 1, sorted_fault_text(fault));
    return SORTED_FILE_OK;
}

static enum sorted_file_result check(
    struct sorted_file *f, const struct sorted_file_config *config, char *error)
{
    const struct sorted_file_expected *expected = config->expected;
    uint64_t xxh3;
    if (expected && f->text.text.len != expected->bytes)
        return refuse(
            f, error, "has %zu bytes; the manifest says %" PRIu64, f->text.text.len, expected->bytes);
    mapping_expect_scan(f->mapping, true);
    enum sorted_file_result r = check_lines(f, config, &xxh3, error);
    mapping_expect_scan(f->mapping, false);
    if (r != SORTED_FILE_OK || !expected)
        return r;
    if (f->records != expected->records)
        return refuse(
            f, error, "has %" PRIu64 " records, the manifest says %" PRIu64, f->records, expected->records);
    if (xxh3 != expected->xxh3)
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

const struct sorted_text *sorted_file_text(const struct sorted_file *f)
{
    return &f->text;
}

const char *sorted_file_path(const struct sorted_file *f)
{
    return f->path;
}

uint64_t sorted_file_records(const struct sorted_file *f)
{
    return f->records;
}

bool sorted_file_is_whole(const struct sorted_file *f)
{
    return mapping_is_whole(f->mapping);
}

bool sorted_file_is_untouched(const struct sorted_file *f)
{
    return mapping_is_untouched(f->mapping);
}
