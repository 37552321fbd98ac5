#include "compactor/merge.h"

#include "counts/records.h"
#include <stdio.h>

#define PROGRESS_EVERY 16384 /* records */
#define KEY_SHOWN 80

enum compact_result merge_run(
    const struct merge_spec *spec, struct merge_report *report, char error[COMPACT_ERROR_TEXT])
{
    struct count_merge *m = count_merge_new(spec->sources, spec->n_sources);
    struct buf printed = {0};
    enum compact_result r = COMPACT_OK;
    enum count_next next = COUNT_FOUND;
    const char *collision;
    *report = (struct merge_report){0};
    while (r == COMPACT_OK && (next = count_merge_next_record(m)) == COUNT_FOUND) {
        struct bytes line = count_merge_line(m);
        if (!line.ptr) {
            buf_clear(&printed);
            next = count_merge_print(m, &printed);
            if (next == COUNT_FAILED)
                break;
            line = bytes_of(printed.ptr, printed.len - 1);
        }
        struct bytes key = count_merge_key(m);
        struct record_key parts;
        key.len--; /* the separator */
        if (!record_key_parse(key, &parts)) {
            r = compact_fail(error, COMPACT_DAMAGED, "no key of a record: \"%.*s\"",
                (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr);
            break;
        }
        report->records++;
        report->bytes += line.len + 1;
        if (spec->on_progress && report->records % PROGRESS_EVERY == 0)
            spec->on_progress(report, spec->arg);
        r = shard_writer_add(spec->writers[record_shard(&parts, spec->shards)], line, error);
    }
    if (r == COMPACT_OK && next == COUNT_FAILED)
        r = record_source_failed(m, error);
    report->collisions = count_merge_collisions(m, &collision);
    snprintf(report->collision, sizeof(report->collision), "%s", collision);
    if (spec->on_progress)
        spec->on_progress(report, spec->arg);
    buf_free(&printed);
    count_merge_free(&m);
    return r;
}
