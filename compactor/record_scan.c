#include "compactor/record_scan.h"

#include "compactor/archive.h"
#include "compactor/record_source.h"
#include "compactor/set_reader.h"
#include "sets/set_chunk.h"

static enum compact_result scan_shard(
    struct count_source *s, record_visit *visit, void *arg, struct error *error)
{
    enum compact_result r = COMPACT_OK;
    enum count_next next = COUNT_FOUND;
    while (r == COMPACT_OK && (next = s->kind->next_record(s)) == COUNT_FOUND) {
        struct record_key key;
        if (!record_key_parse(bytes_of(s->key.ptr, s->key.len - 1), &key))
            return error_set(error, COMPACT_DAMAGED, "%.300s: invalid key of a record", s->container);
        key.is_set = s->is_set;
        r = visit(arg, s, &key, error);
    }
    return next == COUNT_FAILED ? record_source_failed(&s->error, error) : r;
}

enum compact_result record_scan(
    const char *archive, const struct manifest *m, record_visit *visit, void *arg, struct error *error)
{
    struct count_sources shards = {0};
    char directory[PATH_MAX];
    archive_path(archive, m->generation, false, directory);
    enum compact_result r = record_source_add_shards(directory, m, NULL, &shards, error);
    if (r == COMPACT_OK)
        r = set_reader_add_sources(directory, m, NULL, &shards, error);
    for (size_t k = 0; k < shards.n && r == COMPACT_OK; k++)
        r = scan_shard(shards.list[k], visit, arg, error);
    count_sources_free(&shards);
    return r;
}

enum compact_result record_scan_find_member(
    struct count_source *s, uint64_t member, uint64_t *sets, struct error *error)
{
    enum count_next r;
    char id[SET_CHUNK_ID];
    set_chunk_id(member, id);
    while ((r = s->kind->next_value(s)) == COUNT_FOUND && set_chunk_is_before(s->name, s->text, member))
        ;
    *sets += r == COUNT_FOUND && bytes_equal(s->name, bytes_of(id, sizeof id)) &&
             set_chunk_has(s->name, s->text, member);
    return r == COUNT_FAILED ? record_source_failed(&s->error, error) : COMPACT_OK;
}
