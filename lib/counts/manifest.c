#include "counts/manifest.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/xxh3.h"
#include "json/json_fields.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HASH_DIGITS 16
#define READ_TRIES 8 /* limit of attempts, because generations may be removed during a read */
#define POINTER_TEXT 192
#define CONTENT_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* odd, so that multiplication loses no bits */

void manifest_directory_name(uint64_t generation, char out[MANIFEST_NAME_TEXT])
{
    snprintf(out, MANIFEST_NAME_TEXT, "%0*" PRIu64, MANIFEST_DIRECTORY_DIGITS, generation);
}

void manifest_file_name(
    enum manifest_kind kind, uint32_t shard, uint32_t shards, char out[MANIFEST_NAME_TEXT])
{
    static const char *const names[MANIFEST_KINDS][2] = {
        {"shard", "csv"}, {"texts", "csv"}, {"sets", "csv"}, {"shard", "sets"}};
    snprintf(out, MANIFEST_NAME_TEXT, "%s-%" PRIu32 "-of-%" PRIu32 ".%s", names[kind][0], shard, shards,
        names[kind][1]);
}

bool manifest_directory_number(const char *name, uint64_t *generation)
{
    return strlen(name) == MANIFEST_DIRECTORY_DIGITS && bytes_to_u64(bytes_str(name), generation);
}

static enum manifest_result system_failed(struct error *error, const char *path)
{
    return error_errno(error, errno == ENOENT ? MANIFEST_ABSENT : MANIFEST_FAILED, path);
}

static bool parse_sums(const struct json_doc *d, uint64_t *records, uint64_t *bytes, uint64_t *xxh3)
{
    char hash[HASH_DIGITS + 1];
    if (!json_doc_u64(d, "/records", records) || !json_doc_u64(d, "/bytes", bytes) ||
        !json_doc_copy(d, hash, sizeof hash, "/xxh3") || strspn(hash, "0123456789abcdef") != HASH_DIGITS)
        return false;
    *xxh3 = strtoull(hash, NULL, 16);
    return true;
}

struct files {
    enum manifest_kind kind;
    uint32_t shards;
    struct manifest_file *list;
};

static bool parse_file(const struct json_doc *d, size_t i, void *arg)
{
    const struct files *files = arg;
    struct manifest_file *f = &files->list[i];
    char name[MANIFEST_NAME_TEXT];
    if (files->kind >= MANIFEST_SET_TEXTS && json_doc_at(d, "/name").type == JSON_MISSING)
        return true; /* a shard without sets */
    manifest_file_name(files->kind, (uint32_t)i, files->shards, name);
    return json_doc_copy(d, f->name, sizeof f->name, "/name") && strcmp(f->name, name) == 0 &&
           parse_sums(d, &f->records, &f->bytes, &f->xxh3);
}

static const char *const members[MANIFEST_KINDS] = {"/files", "/texts", "/set_texts", "/sets"};

static bool parse_files(const struct json_doc *d, enum manifest_kind kind, const struct manifest *m)
{
    struct files files = {kind, m->shards, manifest_files(m, kind)};
    if (kind >= MANIFEST_SET_TEXTS && json_doc_at(d, members[kind]).type == JSON_MISSING)
        return true;
    return json_doc_length(d, members[kind]) == m->shards &&
           json_doc_each(d, members[kind], parse_file, &files);
}

static bool parse_sets(const struct json_doc *d, const struct manifest *m)
{
    bool is_valid = parse_files(d, MANIFEST_SET_TEXTS, m) && parse_files(d, MANIFEST_SETS, m);
    for (uint32_t k = 0; is_valid && k < m->shards; k++)
        is_valid = (m->set_texts[k].name[0] != '\0') == (m->sets[k].name[0] != '\0');
    return is_valid;
}

static bool parse_import(const struct json_doc *d, size_t i, void *arg)
{
    const struct manifest *m = arg;
    struct manifest_import *import = &m->imports[i];
    return json_doc_copy(d, import->name, sizeof import->name, "/name") &&
           parse_sums(d, &import->records, &import->bytes, &import->xxh3);
}

static bool parse_imports(const struct json_doc *d, struct manifest *m)
{
    m->n_imports = json_doc_length(d, "/imports");
    m->imports = mem_zalloc((m->n_imports + 1) * sizeof *m->imports);
    return json_doc_each(d, "/imports", parse_import, m);
}

static bool parse_stream(const struct json_doc *d, size_t i, struct manifest_stream *s)
{
    char pointer[POINTER_TEXT];
    struct bytes name = json_doc_name(d, "/streams", i);
    if (!bytes_is_name(name))
        return false;
    memcpy(s->name, name.ptr, name.len);
    s->name[name.len] = '\0';
    if (!json_doc_copy(d, s->id, sizeof s->id, "/streams/%s/id", s->name))
        return false;
    snprintf(pointer, sizeof pointer, "/streams/%s/end", s->name);
    return json_doc_u64(d, pointer, &s->end);
}

static bool parse_recount(const struct json_doc *d, struct manifest_recount *r)
{
    char pointer[POINTER_TEXT], hash[HASH_DIGITS + 1];
    uint64_t made = 0;
    if (json_doc_at(d, "/recounted").type == JSON_MISSING)
        return true;
    if (!json_doc_u64(d, "/recounted/made", &made) || made == 0 || made > INT64_MAX ||
        !json_doc_copy(d, hash, sizeof hash, "/recounted/content") ||
        strspn(hash, "0123456789abcdef") != HASH_DIGITS)
        return false;
    r->made = (int64_t)made;
    r->content = strtoull(hash, NULL, 16);
    r->n_streams = json_doc_length(d, "/recounted/streams");
    r->streams = mem_zalloc((r->n_streams + 1) * sizeof *r->streams);
    for (size_t i = 0; i < r->n_streams; i++) {
        struct bytes name = json_doc_name(d, "/recounted/streams", i);
        if (!bytes_is_name(name))
            return false;
        memcpy(r->streams[i].name, name.ptr, name.len);
        snprintf(pointer, sizeof pointer, "/recounted/streams/%s", r->streams[i].name);
        if (!json_doc_u64(d, pointer, &r->streams[i].end))
            return false;
    }
    return true;
}

static bool parse_since(const struct json_doc *d, struct counted_since *s)
{
    size_t n = json_doc_length(d, "/since");
    s->list = mem_zalloc((n + 1) * sizeof *s->list);
    for (; s->n < n; s->n++) {
        struct bytes ns = json_doc_name(d, "/since", s->n);
        char pointer[POINTER_TEXT];
        uint64_t since;
        if (!bytes_is_name(ns) || ns.len >= COUNTED_SINCE_NS_TEXT)
            return false;
        snprintf(pointer, sizeof pointer, "/since/%.*s", (int)ns.len, ns.ptr);
        if (!json_doc_u64(d, pointer, &since) || since == 0 || since > INT64_MAX)
            return false;
        memcpy(s->list[s->n].ns, ns.ptr, ns.len);
        s->list[s->n].since = (int64_t)since;
    }
    return true;
}

static bool parse_sums_of_values(const struct json_doc *d, struct value_sums *s)
{
    for (size_t i = 0, n = json_doc_length(d, "/sums"); i < n; i++) {
        struct bytes ns = json_doc_name(d, "/sums", i);
        char pointer[POINTER_TEXT];
        uint64_t sum;
        if (!bytes_is_name(ns) || ns.len >= VALUE_SUM_NS_TEXT)
            return false;
        snprintf(pointer, sizeof pointer, "/sums/%.*s", (int)ns.len, ns.ptr);
        if (!json_doc_u64(d, pointer, &sum) || sum > VALUE_SUM_MAX)
            return false;
        value_sums_at(s, ns)->sum = sum;
    }
    return true;
}

static bool parse_coarse(const struct json_doc *d, struct coarse *c)
{
    for (size_t i = 0, n = json_doc_length(d, "/coarse"); i < n; i++) {
        struct bytes ns = json_doc_name(d, "/coarse", i);
        struct coarse_counter counter;
        if (!bytes_is_name(ns) || ns.len >= COUNTED_SINCE_NS_TEXT ||
            !coarse_read(json_doc_text(d, "/coarse/%.*s", (int)ns.len, ns.ptr), &counter))
            return false;
        for (int u = 0; u < COARSE_UNITS; u++)
            coarse_add(c, ns, (enum coarse_unit)u, &counter.of[u]);
    }
    return true;
}

/* Parses the members of a manifest. Returns NULL, or the error. */
static const char *parse_members(const struct json_doc *d, struct manifest *m)
{
    uint64_t until, made, shards, hours_from = 0, quarters_since = 0, newest_hour = 0;
    struct json_value counters = json_doc_at(d, "/counters"), retired = json_doc_at(d, "/retired");
    if (!json_doc_u64(d, "/generation", &m->generation) || !json_doc_u64(d, "/through", &m->through))
        return "generation or through is missing";
    if (!json_doc_u64(d, "/until", &until) || until > INT64_MAX / USEC_PER_SEC)
        return "until is missing";
    if (!json_doc_u64(d, "/made", &made) || made > INT64_MAX)
        return "made is missing";
    if (!json_doc_u64(d, "/shards", &shards) || shards < 1 || shards > MANIFEST_SHARDS_MAX)
        return "shards is missing or out of bounds";
    if (counters.type != JSON_STRING)
        return "counters is missing";
    if (retired.type != JSON_STRING)
        return "retired is missing";
    if (json_doc_at(d, "/hours_from").type != JSON_MISSING &&
        (!json_doc_u64(d, "/hours_from", &hours_from) || hours_from > INT64_MAX))
        return "hours_from is not a time";
    if (json_doc_at(d, "/quarters_since").type != JSON_MISSING &&
        (!json_doc_u64(d, "/quarters_since", &quarters_since) || quarters_since > HOUR_END))
        return "quarters_since is not a time";
    if (json_doc_at(d, "/newest_hour").type != JSON_MISSING &&
        (!json_doc_u64(d, "/newest_hour", &newest_hour) || newest_hour > HOUR_END))
        return "newest_hour is not a time";
    if (json_doc_at(d, "/change").type != JSON_MISSING &&
        !json_doc_copy(d, m->change, sizeof m->change, "/change"))
        return "change is not a short string";
    m->until = (int64_t)until;
    m->made = (int64_t)made;
    m->hours_from = (int64_t)hours_from;
    m->quarters_since = (int64_t)quarters_since;
    m->newest_hour = (int64_t)newest_hour;
    manifest_set_shards(m, (uint32_t)shards);
    m->counters = bytes_dup(counters.v.string);
    m->retired = bytes_dup(retired.v.string);
    m->n_streams = json_doc_length(d, "/streams");
    m->streams = mem_zalloc((m->n_streams + 1) * sizeof *m->streams);
    for (size_t i = 0; i < m->n_streams; i++)
        if (!parse_stream(d, i, &m->streams[i]))
            return "a stream has no name, id or end";
    if (!parse_files(d, MANIFEST_RECORDS, m))
        return "a shard has no file, or a file has no valid name, sizes or checksum";
    if (!parse_files(d, MANIFEST_TEXTS, m))
        return "a shard has no texts, or a file of texts has no valid name, sizes or checksum";
    if (!parse_sets(d, m))
        return "a file of sets has no valid name, sizes or checksum";
    if (!parse_imports(d, m))
        return "an import has no valid name, sizes or checksum";
    if (!parse_recount(d, &m->recounted))
        return "a recount has no valid content, time or end of a stream";
    if (!parse_since(d, &m->since))
        return "since does not have a valid time for each counter";
    if (!parse_sums_of_values(d, &m->sums))
        return "sums does not have a valid sum for each counter";
    if (!parse_coarse(d, &m->coarse))
        return "coarse does not have a valid unit and span for each counter";
    return NULL;
}

enum manifest_result manifest_parse(struct bytes text, struct manifest *out, struct error *error)
{
    memset(out, 0, sizeof *out);
    struct json_doc *d = json_doc_parse(text);
    if (!d)
        return error_set(error, MANIFEST_BAD, "not JSON");
    uint64_t format;
    enum manifest_result r = MANIFEST_OK;
    if (!json_doc_u64(d, "/format", &format)) {
        r = error_set(error, MANIFEST_BAD, "its format is missing");
    } else if (format != MANIFEST_FORMAT) {
        r = error_set(error, MANIFEST_VERSION, "unknown format version %" PRIu64, format);
    } else {
        const char *wrong = parse_members(d, out);
        if (wrong) {
            manifest_free(out);
            r = error_set(error, MANIFEST_BAD, "%s", wrong);
        }
    }
    json_doc_free(&d);
    return r;
}

/* Returns true if the path ends in the name of the generation's directory, with or without ".tmp". */
static bool is_directory_of(const char *directory, uint64_t generation)
{
    char name[MANIFEST_NAME_TEXT];
    size_t len = strlen(directory);
    while (len > 1 && directory[len - 1] == '/')
        len--;
    if (len > 4 && memcmp(directory + len - 4, ".tmp", 4) == 0)
        len -= 4;
    manifest_directory_name(generation, name);
    return len >= strlen(name) && memcmp(directory + len - strlen(name), name, strlen(name)) == 0;
}

enum manifest_result manifest_read(const char *directory, struct manifest *out, struct error *error)
{
    struct buf text = {0};
    struct error why;
    memset(out, 0, sizeof *out);
    char *path = mem_printf("%s/manifest.json", directory);
    bool is_read = io_read_file(path, MANIFEST_BYTES_MAX, &text) == 0;
    enum manifest_result r =
        is_read ? manifest_parse(buf_bytes(&text), out, &why) : system_failed(error, path);
    if (r == MANIFEST_OK && !is_directory_of(directory, out->generation)) {
        manifest_free(out);
        r = error_set(&why, MANIFEST_BAD, "its generation does not match the directory's name");
    }
    if (is_read && r != MANIFEST_OK)
        error_set(error, r, "%.300s: %s", path, why.text);
    free(path);
    buf_free(&text);
    return r;
}

void manifest_free(struct manifest *m)
{
    free(m->counters);
    free(m->retired);
    free(m->files);
    free(m->texts);
    free(m->set_texts);
    free(m->sets);
    free(m->imports);
    free(m->streams);
    free(m->recounted.streams);
    counted_since_free(&m->since);
    value_sums_free(&m->sums);
    coarse_free(&m->coarse);
    memset(m, 0, sizeof *m);
}

void manifest_set_shards(struct manifest *m, uint32_t shards)
{
    m->shards = shards;
    m->files = mem_zalloc(shards * sizeof *m->files);
    m->texts = mem_zalloc(shards * sizeof *m->texts);
    m->set_texts = mem_zalloc(shards * sizeof *m->set_texts);
    m->sets = mem_zalloc(shards * sizeof *m->sets);
}

struct manifest_file *manifest_files(const struct manifest *m, enum manifest_kind kind)
{
    struct manifest_file *const files[MANIFEST_KINDS] = {m->files, m->texts, m->set_texts, m->sets};
    return files[kind];
}

const struct manifest_file *manifest_next_file(const struct manifest *m, size_t *at)
{
    while (*at < (size_t)MANIFEST_KINDS * m->shards) {
        const struct manifest_file *files = manifest_files(m, (enum manifest_kind)(*at / m->shards));
        size_t shard = (*at)++ % m->shards;
        if (files && files[shard].name[0] != '\0')
            return &files[shard];
    }
    return NULL;
}

bool manifest_is_counted(const struct manifest *m, enum period_unit unit, int64_t start)
{
    if (unit == PERIOD_HOUR)
        return m->quarters_since == 0 || start < m->quarters_since;
    return unit == PERIOD_QUARTER || (unit == PERIOD_DAY && start < m->hours_from);
}

uint64_t manifest_content(const struct manifest *m)
{
    uint64_t content = m->shards;
    for (uint32_t k = 0; k < m->shards; k++)
        content = content * CONTENT_FACTOR + m->files[k].xxh3;
    for (uint32_t k = 0; k < m->shards; k++)
        if (manifest_has_sets(m, k))
            content = (content * CONTENT_FACTOR + m->set_texts[k].xxh3) * CONTENT_FACTOR + m->sets[k].xxh3;
    return content;
}

uint64_t manifest_pipeline(const struct manifest *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->n_streams; i++)
        sum += XXH3_64bits_withSeed(m->streams[i].id, strlen(m->streams[i].id),
            XXH3_64bits(m->streams[i].name, strlen(m->streams[i].name)));
    return sum;
}

static void print_sums(struct buf *out, uint64_t records, uint64_t bytes, uint64_t xxh3)
{
    buf_printf(out, ",\"records\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"xxh3\":\"%0*" PRIx64 "\"}", records,
        bytes, HASH_DIGITS, xxh3);
}

static bool has_files(const struct manifest *m, enum manifest_kind kind)
{
    bool has = kind < MANIFEST_SET_TEXTS;
    for (uint32_t k = 0; k < m->shards && !has; k++)
        has = manifest_has_sets(m, k);
    return has;
}

static void print_files(const struct manifest *m, enum manifest_kind kind, struct buf *out)
{
    const struct manifest_file *files = manifest_files(m, kind);
    if (!has_files(m, kind))
        return;
    buf_printf(out, "\"%s\":[", members[kind] + 1);
    for (uint32_t k = 0; k < m->shards; k++) {
        buf_append_str(out, k ? ",\n  " : "");
        if (!files[k].name[0]) {
            buf_append_str(out, "{}");
            continue;
        }
        buf_printf(out, "{\"name\":\"%s\"", files[k].name);
        print_sums(out, files[k].records, files[k].bytes, files[k].xxh3);
    }
    buf_append_str(out, "],\n");
}

static void print_recount(const struct manifest_recount *r, struct buf *out)
{
    if (r->made == 0)
        return;
    buf_printf(out, "\"recounted\":{\"content\":\"%0*" PRIx64 "\",\"made\":%" PRId64 ",\"streams\":{",
        HASH_DIGITS, r->content, r->made);
    for (size_t i = 0; i < r->n_streams; i++)
        buf_printf(out, "%s\"%s\":\"%" PRIu64 "\"", i ? "," : "", r->streams[i].name, r->streams[i].end);
    buf_append_str(out, "}},\n");
}

void manifest_print(const struct manifest *m, struct buf *out)
{
    buf_printf(out,
        "{\"format\":%d,\"generation\":%" PRIu64 ",\"through\":%" PRIu64 ",\"until\":%" PRId64
        ",\"made\":%" PRId64 ",\"shards\":%" PRIu32 ",\n",
        MANIFEST_FORMAT, m->generation, m->through, m->until, m->made, m->shards);
    buf_append_str(out, "\"streams\":{");
    for (size_t i = 0; i < m->n_streams; i++) {
        const struct manifest_stream *s = &m->streams[i];
        buf_printf(out, "%s\"%s\":{\"id\":", i ? "," : "", s->name);
        buf_append_json(out, bytes_str(s->id));
        buf_printf(out, ",\"end\":\"%" PRIu64 "\"}", s->end);
    }
    buf_append_str(out, "},\n");
    buf_append_str(out, "\"counters\":");
    buf_append_json(out, bytes_str(m->counters ? m->counters : ""));
    buf_append_str(out, ",\n\"retired\":");
    buf_append_json(out, bytes_str(m->retired ? m->retired : ""));
    buf_append_str(out, ",\n");
    if (m->hours_from)
        buf_printf(out, "\"hours_from\":%" PRId64 ",\n", m->hours_from);
    if (m->quarters_since)
        buf_printf(out, "\"quarters_since\":%" PRId64 ",\n", m->quarters_since);
    if (m->newest_hour)
        buf_printf(out, "\"newest_hour\":%" PRId64 ",\n", m->newest_hour);
    if (m->change[0]) {
        buf_append_str(out, "\"change\":");
        buf_append_json(out, bytes_str(m->change));
        buf_append_str(out, ",\n");
    }
    print_recount(&m->recounted, out);
    for (size_t i = 0; i < m->since.n; i++)
        buf_printf(out, "%s\"%s\":%" PRId64 "%s", i ? "," : "\"since\":{", m->since.list[i].ns,
            m->since.list[i].since, i + 1 < m->since.n ? "" : "},\n");
    for (size_t i = 0; i < m->sums.n; i++)
        buf_printf(out, "%s\"%s\":\"%" PRIu64 "\"%s", i ? "," : "\"sums\":{", m->sums.list[i].ns,
            m->sums.list[i].sum, i + 1 < m->sums.n ? "" : "},\n");
    for (size_t i = 0; i < m->coarse.n; i++) {
        buf_printf(out, "%s\"%s\":\"", i ? "," : "\"coarse\":{", m->coarse.list[i].ns);
        coarse_print(&m->coarse.list[i].counter, out);
        buf_append_str(out, i + 1 < m->coarse.n ? "\"" : "\"},\n");
    }
    for (enum manifest_kind kind = MANIFEST_RECORDS; kind < MANIFEST_KINDS; kind++)
        print_files(m, kind, out);
    buf_append_str(out, "\"imports\":[");
    for (size_t i = 0; i < m->n_imports; i++) {
        buf_append_str(out, i ? ",\n  {\"name\":" : "{\"name\":");
        buf_append_json(out, bytes_str(m->imports[i].name));
        print_sums(out, m->imports[i].records, m->imports[i].bytes, m->imports[i].xxh3);
    }
    buf_append_str(out, "]}\n");
}

enum manifest_result manifest_current(const char *archive, uint64_t *generation, struct error *error)
{
    char path[PATH_MAX], target[PATH_MAX];
    snprintf(path, sizeof path, "%s/current", archive);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return system_failed(error, path);
    target[n] = '\0';
    if (manifest_directory_number(target, generation))
        return MANIFEST_OK;
    return error_set(
        error, MANIFEST_BAD, "%.300s names \"%.100s\", which is not the name of a generation", path, target);
}

enum manifest_result manifest_read_current(const char *archive, struct manifest *out, struct error *error)
{
    uint64_t generation = 0, before = UINT64_MAX;
    for (int i = 0; i < READ_TRIES; i++) {
        enum manifest_result r = manifest_current(archive, &generation, error);
        memset(out, 0, sizeof *out);
        if (r != MANIFEST_OK || generation == before)
            return r == MANIFEST_OK ? MANIFEST_BAD : r;
        char *directory = mem_printf("%s/%0*" PRIu64, archive, MANIFEST_DIRECTORY_DIGITS, generation);
        r = manifest_read(directory, out, error);
        free(directory);
        if (r != MANIFEST_ABSENT)
            return r;
        before = generation;
    }
    return MANIFEST_BAD;
}
