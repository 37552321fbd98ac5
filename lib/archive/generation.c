#include "archive/generation.h"

#include "counts/manifest.h"
#include "counts/records.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GENERATION_MAGIC 0x47656e72u
#define ROUTED_KEY_MAX 128 /* no key of an archive has a longer prefix (bytes) */

struct generation {
    unsigned magic;
    atomic_uint references;
    char separator;
    bool is_archive;
    struct generation_info info;
    struct counted_since since;
    struct coarse coarse;
    char *counters; /* canonical text; NULL: none */
    int64_t made;
    /* the files of records, then the texts of sets, one of each for each shard; NULL: not open, or no sets */
    struct sorted_file **files;
    struct shard_sets {
        struct mapping *mapping;
        struct sets_file *file;
        uint64_t scrubbed; /* index of the next set of the scrub */
        atomic_bool is_damaged;
    } * sets;                   /* one for each shard; zeroed: no sets */
    struct sorted_file **texts; /* one file for each shard; NULL: the generation has no such files */
    uint32_t scrubbed; /* index of the file that the scrub reads, in `files` followed by `sets` and `texts` */
};

static struct generation *generation_new(uint32_t shards, char separator)
{
    struct generation *g = mem_zalloc(sizeof *g);
    g->magic = GENERATION_MAGIC;
    atomic_init(&g->references, 1);
    g->separator = separator;
    g->info.shards = shards;
    g->files = mem_zalloc(2 * (size_t)shards * sizeof(struct sorted_file *));
    g->sets = mem_zalloc(shards * sizeof *g->sets);
    return g;
}

static void generation_free(struct generation *g)
{
    for (uint32_t i = 0; i < g->info.shards; i++) {
        sorted_file_close(&g->files[i]);
        sorted_file_close(&g->files[g->info.shards + i]);
        sets_file_free(&g->sets[i].file);
        mapping_close(&g->sets[i].mapping);
        if (g->texts)
            sorted_file_close(&g->texts[i]);
    }
    counted_since_free(&g->since);
    coarse_free(&g->coarse);
    free(g->counters);
    free(g->files);
    free(g->sets);
    free(g->texts);
    g->magic = 0;
    free(g);
}

static void add_to_info(struct generation *g, const struct sorted_file *f)
{
    struct bytes text = f->text.text;
    int64_t modified = mapping_modified(f->mapping);
    g->info.records += f->records;
    g->info.bytes += text.len;
    g->info.modified = modified > g->info.modified ? modified : g->info.modified;
    g->info.is_cut |= text.len > 0 && text.ptr[text.len - 1] != '\n';
}

static enum sorted_file_result open_db_file(const struct generation_source *source,
    const struct generation_info *served, const atomic_bool *cancel, struct generation **out,
    struct error *error)
{
    struct generation *g = generation_new(1, source->separator);
    struct sorted_file_config config = {.path = source->db_file,
        .separator = source->separator,
        .lock_memory = source->lock_memory,
        .cancel = cancel};
    enum sorted_file_result r = sorted_file_open(&config, &g->files[0], error);
    if (r == SORTED_FILE_OK)
        add_to_info(g, g->files[0]);
    /* Without a manifest, only a comparison with the served file can show that the new file is incomplete. */
    const char *loss = NULL;
    if (r == SORTED_FILE_OK && served && served->records > 0 && g->info.records == 0)
        loss = "is empty, but the served file is not";
    else if (r == SORTED_FILE_OK && served && !served->is_cut && g->info.is_cut)
        loss = "has no LF at its end, unlike the served file: the new file may be truncated";
    g->info.number = served ? served->number + 1 : 1;
    if (loss)
        r = error_set(error, SORTED_FILE_REFUSED, "%s: %s", source->db_file, loss);
    if (r == SORTED_FILE_OK)
        *out = g;
    else
        generation_free(g);
    return r;
}

static enum sorted_file_result open_listed(const struct manifest *m, const struct manifest_file *expected,
    const struct generation_source *source, const atomic_bool *cancel, struct sorted_file **out,
    struct error *error)
{
    char directory[MANIFEST_NAME_TEXT];
    struct buf path = {0};
    manifest_directory_name(m->generation, directory);
    buf_printf(&path, "%s/%s/%s", source->archive, directory, expected->name);
    enum sorted_file_result r = sorted_file_open(&(struct sorted_file_config){.path = path.ptr,
                                                     .separator = RECORD_SEPARATOR,
                                                     .lock_memory = source->lock_memory,
                                                     .unique_keys = true,
                                                     .expected = expected,
                                                     .cancel = cancel},
        out, error);
    buf_free(&path);
    return r;
}

static enum sorted_file_result open_sets(const struct manifest *m, uint32_t shard,
    const struct generation_source *source, const atomic_bool *cancel, struct generation *g,
    struct error *error)
{
    struct shard_sets *s = &g->sets[shard];
    char directory[MANIFEST_NAME_TEXT];
    if (!manifest_has_sets(m, shard))
        return SORTED_FILE_OK;
    enum sorted_file_result r =
        open_listed(m, &m->set_texts[shard], source, cancel, &g->files[m->shards + shard], error);
    if (r != SORTED_FILE_OK)
        return r;
    add_to_info(g, g->files[m->shards + shard]);
    manifest_directory_name(m->generation, directory);
    char *path = mem_printf("%s/%s/%s", source->archive, directory, m->sets[shard].name);
    if (mapping_open(path, source->lock_memory, &s->mapping, error) != 0)
        r = error->code = errno == ENOENT ? SORTED_FILE_ABSENT : SORTED_FILE_FAILED;
    else if (mapping_bytes(s->mapping).len != m->sets[shard].bytes)
        r = error_set(error, SORTED_FILE_REFUSED, "%s: its size does not match the manifest", path);
    else if (sets_file_open(mapping_bytes(s->mapping), path, &s->file, error) != SETS_OK)
        r = error->code = SORTED_FILE_REFUSED;
    else
        g->info.bytes += mapping_bytes(s->mapping).len;
    free(path);
    return r;
}

static enum sorted_file_result open_manifest(const struct manifest *m, const struct generation_source *source,
    const atomic_bool *cancel, struct generation **out, struct error *error)
{
    struct generation *g = generation_new(m->shards, RECORD_SEPARATOR);
    enum sorted_file_result r = SORTED_FILE_OK;
    g->is_archive = true;
    g->info.number = m->generation;
    g->info.through = m->through;
    g->info.until = m->until;
    g->info.quarters_since = m->quarters_since;
    g->info.content = manifest_content(m);
    g->info.pipeline = manifest_pipeline(m);
    counted_since_copy(&m->since, &g->since);
    coarse_join(&g->coarse, &m->coarse);
    g->counters = mem_strdup(m->counters);
    g->made = m->made;
    g->texts = mem_zalloc(m->shards * sizeof(struct sorted_file *));
    for (uint32_t i = 0; i < m->shards && r == SORTED_FILE_OK; i++) {
        r = open_listed(m, &m->files[i], source, cancel, &g->files[i], error);
        if (r == SORTED_FILE_OK)
            add_to_info(g, g->files[i]);
        if (r == SORTED_FILE_OK)
            r = open_listed(m, &m->texts[i], source, cancel, &g->texts[i], error);
        if (r == SORTED_FILE_OK)
            r = open_sets(m, i, source, cancel, g, error);
    }
    if (r == SORTED_FILE_OK)
        *out = g;
    else
        generation_free(g);
    return r;
}

#define RELOAD "then reload: systemctl reload millrace, or SIGHUP to `millrace up`"

#define RELINK                                                                                               \
    "make `current` a link to a generation that exists (millrace help compaction, \"Return to an older "     \
    "generation\")"
#define RESTORE "restore the file that the reason names from a backup"

static bool is_missing(const char *error)
{
    return strstr(error, "/manifest.json: No such file") != NULL;
}

const char *archive_remedy(const char *error)
{
    return is_missing(error) ? RELINK ", " RELOAD : RESTORE ", " RELOAD "; see millrace help recovery";
}

const char *archive_repair(const char *error)
{
    return is_missing(error) ? RELINK : RESTORE " (millrace help recovery)";
}

enum sorted_file_result generation_open(const struct generation_source *source,
    const struct generation_info *served, const atomic_bool *cancel, struct generation **out,
    struct error *error)
{
    if (!source->archive)
        return open_db_file(source, served, cancel, out, error);
    for (;;) {
        struct manifest m;
        uint64_t now;
        enum manifest_result read = manifest_read_current(source->archive, &m, error);
        if (read != MANIFEST_OK)
            return error->code = read == MANIFEST_FAILED ? SORTED_FILE_FAILED : SORTED_FILE_REFUSED;
        uint64_t tried = m.generation;
        enum sorted_file_result r = open_manifest(&m, source, cancel, out, error);
        manifest_free(&m);
        /* If a file is missing, the compactor may have replaced this generation. In this case, open the newer
         * generation. */
        if (r != SORTED_FILE_ABSENT || manifest_current(source->archive, &now, NULL) != MANIFEST_OK ||
            now == tried)
            return r;
    }
}

struct generation *generation_ref(struct generation *g)
{
    assert(g->magic == GENERATION_MAGIC);
    unsigned before = atomic_fetch_add_explicit(&g->references, 1, memory_order_relaxed);
    assert(before > 0);
    (void)before;
    return g;
}

void generation_unref(struct generation **gp)
{
    struct generation *g = *gp;
    *gp = NULL;
    if (!g)
        return;
    assert(g->magic == GENERATION_MAGIC);
    unsigned before = atomic_fetch_sub_explicit(&g->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1)
        generation_free(g);
}

bool generation_is_unshared(const struct generation *g)
{
    return atomic_load_explicit(&g->references, memory_order_acquire) == 1;
}

bool generation_is_current(const struct generation *g, const struct generation_source *source)
{
    struct manifest m;
    if (!source->archive || manifest_read_current(source->archive, &m, NULL) != MANIFEST_OK)
        return false;
    bool is_same = m.generation == g->info.number && manifest_content(&m) == g->info.content;
    manifest_free(&m);
    return is_same && generation_is_whole(g, GENERATION_NO_SHARD, NULL) && generation_is_untouched(g, NULL);
}

struct generation_info generation_info(const struct generation *g)
{
    return g->info;
}

struct generation_counter generation_counter(const struct generation *g, struct bytes ns)
{
    bool is_not_counted = ns.len > 0 && g->counters && g->counters[0] && !counted_since_has(g->counters, ns);
    return (struct generation_counter){
        counted_since_of(&g->since, ns), is_not_counted ? g->made : 0, coarse_of(&g->coarse, ns)};
}

char generation_separator(const struct generation *g)
{
    return g->separator;
}

bool generation_is_archive(const struct generation *g)
{
    return g->is_archive;
}

static bool is_file_sound(const struct sorted_file *f, struct error *error)
{
    if (!atomic_load_explicit(&f->is_damaged, memory_order_relaxed))
        return true;
    error_set(
        error, SORTED_FILE_REFUSED, "%s is damaged: its bytes have changed since it was opened", f->path);
    return false;
}

static bool is_file_untouched(const struct sorted_file *f, struct error *error)
{
    if (mapping_is_untouched(f->mapping))
        return is_file_sound(f, error);
    error_set(error, SORTED_FILE_REFUSED, "%s was written to while it was served", f->path);
    return false;
}

/* A file without a manifest has no checksum, so its answers may contain bytes that were written in place. */
static bool is_file_whole(const struct sorted_file *f, struct error *error)
{
    if (mapping_is_whole(f->mapping))
        return f->is_listed ? is_file_untouched(f, error) : is_file_sound(f, error);
    error_set(error, SORTED_FILE_REFUSED, "%s was truncated while it was served", f->path);
    return false;
}

static bool is_shard_whole(const struct generation *g, uint32_t shard, struct error *error)
{
    const struct sorted_file *sets = g->files[g->info.shards + shard];
    if (!is_file_whole(g->files[shard], error) || (sets && !is_file_whole(sets, error)))
        return false;
    if (!sets || mapping_is_whole(g->sets[shard].mapping))
        return true;
    error_set(error, SORTED_FILE_REFUSED,
        "%s: the sets beside this file were truncated while they were served", sets->path);
    return false;
}

bool generation_is_whole(const struct generation *g, uint32_t shard, struct error *error)
{
    if (shard != GENERATION_NO_SHARD)
        return is_shard_whole(g, shard, error);
    for (uint32_t i = 0; i < g->info.shards; i++)
        if (!is_shard_whole(g, i, error) || (g->texts && !is_file_whole(g->texts[i], error)))
            return false;
    return true;
}

bool generation_is_untouched(const struct generation *g, struct error *error)
{
    for (uint32_t i = 0; i < g->info.shards; i++) {
        const struct sorted_file *sets = g->files[g->info.shards + i];
        if (!is_file_untouched(g->files[i], error) || (g->texts && !is_file_untouched(g->texts[i], error)) ||
            (sets && !is_file_untouched(sets, error)))
            return false;
        if (sets && !mapping_is_untouched(g->sets[i].mapping)) {
            error_set(error, SORTED_FILE_REFUSED,
                "%s: the sets beside this file were written to while they were served", sets->path);
            return false;
        }
    }
    return true;
}

bool generation_has_sound_sets(const struct generation *g, struct error *error)
{
    for (uint32_t i = 0; i < g->info.shards; i++) {
        if (!atomic_load_explicit(&g->sets[i].is_damaged, memory_order_relaxed))
            continue;
        error_set(error, SORTED_FILE_REFUSED, "%s: a set in the file beside this file is damaged",
            g->files[g->info.shards + i]->path);
        return false;
    }
    return true;
}

void generation_expect_searches(struct generation *g)
{
    for (uint32_t i = 0; i < g->info.shards; i++) {
        mapping_expect_searches(g->files[i]->mapping);
        if (g->files[g->info.shards + i])
            mapping_expect_searches(g->files[g->info.shards + i]->mapping);
        if (g->texts)
            mapping_expect_searches(g->texts[i]->mapping);
    }
}

void generation_scrub(struct generation *g, size_t bytes)
{
    uint32_t shards = g->info.shards, i = g->scrubbed;
    struct shard_sets *s = i / shards == 2 ? &g->sets[i % shards] : NULL;
    struct sorted_file *f = i < 2 * shards ? g->files[i] : s ? NULL : g->texts[i % shards];
    struct error error;
    bool is_done = !f || sorted_file_scrub(f, bytes);
    if (s && s->file) {
        if (sets_file_scrub(s->file, &s->scrubbed, bytes, &error) != SETS_OK && mapping_is_whole(s->mapping))
            atomic_store(&s->is_damaged, true);
        is_done = s->scrubbed == 0;
    }
    if (is_done)
        g->scrubbed = (i + 1) % (g->texts ? 4 * shards : 3 * shards);
}

const struct sorted_text *generation_text(const struct generation *g, uint32_t shard)
{
    return &g->files[shard]->text;
}

const struct sorted_text *generation_set_text(const struct generation *g, uint32_t shard)
{
    const struct sorted_file *f = g->files[g->info.shards + shard];
    return f ? &f->text : NULL;
}

int generation_set(
    const struct generation *g, uint32_t shard, struct bytes key, struct set_opened *out, struct error *error)
{
    const struct sorted_file *f = g->files[g->info.shards + shard];
    enum sets_file_result r = sets_file_find(g->sets[shard].file, key, out, error);
    if (r == SETS_OK)
        return 0;
    if (r == SETS_ABSENT)
        error_set(error, SORTED_FILE_REFUSED, "%s: the file beside it does not have the set \"%.*s\"",
            f->path, (int)key.len, key.ptr);
    atomic_store(&g->sets[shard].is_damaged, true);
    return -1;
}

uint32_t generation_shard(const struct generation *g, struct bytes key)
{
    struct record_key parsed;
    if (g->info.shards == 1)
        return 0;
    return record_key_parse(key, &parsed) ? record_shard(&parsed, g->info.shards) : GENERATION_NO_SHARD;
}

/* A prefix such as `c.u|jehiah.` matches only subtotals of one key, which are all in one shard. To find the shard,
 * shard_of_prefix cuts the prefix after the dot and appends an hour, because keys of all hours have the same shard. A
 * prefix without a dot matches keys of many shards. */
static uint32_t shard_of_prefix(const struct generation *g, struct bytes prefix)
{
    static const char any_hour[] = "0110";
    char key[ROUTED_KEY_MAX + sizeof any_hour];
    const char *bar = prefix.len ? memchr(prefix.ptr, '|', prefix.len) : NULL;
    if (g->info.shards == 1)
        return 0;
    const char *dot = bar ? memchr(bar, '.', prefix.len - (size_t)(bar - prefix.ptr)) : NULL;
    size_t n = dot ? (size_t)(dot - prefix.ptr) + 1 : 0;
    if (n == 0 || n > ROUTED_KEY_MAX)
        return GENERATION_NO_SHARD;
    memcpy(key, prefix.ptr, n);
    memcpy(key + n, any_hour, sizeof any_hour - 1);
    return generation_shard(g, bytes_of(key, n + sizeof any_hour - 1));
}

static bool find_in(const struct generation *g, uint32_t shard, struct bytes key, struct bytes *line)
{
    const struct sorted_text *t = &g->files[shard]->text, *sets = generation_set_text(g, shard);
    struct sorted_span span;
    if (!sorted_find(t, key, &span)) {
        t = sets;
        if (!sets || !sorted_find(sets, key, &span))
            return false;
    }
    *line = bytes_of(t->text.ptr + span.begin, span.end - span.begin);
    return true;
}

bool generation_find(const struct generation *g, struct bytes key, struct bytes *line, uint32_t *shard)
{
    *shard = generation_shard(g, key);
    if (*shard != GENERATION_NO_SHARD)
        return find_in(g, *shard, key, line);
    for (uint32_t i = 0; i < g->info.shards; i++) {
        if (find_in(g, i, key, line)) {
            *shard = i;
            return true;
        }
    }
    return false;
}

void generation_cursor_free(struct generation_cursor *c)
{
    free(c->parts);
    *c = (struct generation_cursor){0};
}

static const struct sorted_text *text_of(const struct generation_cursor *c, const struct generation_part *p)
{
    return &c->files[p->file]->text;
}

static bool is_empty(const struct generation_part *p)
{
    return p->left.begin >= p->left.end;
}

static struct bytes head_line(const struct generation_cursor *c, const struct generation_part *p)
{
    return bytes_of(text_of(c, p)->text.ptr + p->left.begin, p->head_end - p->left.begin);
}

static struct bytes head_key(const struct generation_cursor *c, const struct generation_part *p)
{
    return sorted_line_key(text_of(c, p), (struct sorted_span){p->left.begin, p->head_end});
}

/* The LF is not part of a line, so a line sorts after each of its prefixes. */
static bool line_is_before(struct bytes a, struct bytes b)
{
    a.len -= a.len > 0 && a.ptr[a.len - 1] == '\n';
    b.len -= b.len > 0 && b.ptr[b.len - 1] == '\n';
    return bytes_compare(a, b) < 0;
}

static void swap_parts(struct generation_cursor *c, size_t i, size_t k)
{
    struct generation_part moved = c->parts[i];
    c->parts[i] = c->parts[k];
    c->parts[k] = moved;
}

/* Returns the child of heap node `i` with the smaller line, or `live` if the node has no child. */
static size_t first_child(const struct generation_cursor *c, size_t i)
{
    size_t left = 2 * i + 1, right = left + 1;
    if (left >= c->live)
        return c->live;
    bool is_right =
        right < c->live && line_is_before(head_line(c, &c->parts[right]), head_line(c, &c->parts[left]));
    return is_right ? right : left;
}

static void sift_down(struct generation_cursor *c, size_t i)
{
    for (size_t child; (child = first_child(c, i)) < c->live; i = child) {
        if (!line_is_before(head_line(c, &c->parts[child]), head_line(c, &c->parts[i])))
            return;
        swap_parts(c, i, child);
    }
}

static void order_parts(struct generation_cursor *c)
{
    c->live = 0;
    for (size_t i = 0; i < c->n; i++) {
        struct generation_part *p = &c->parts[i];
        if (is_empty(p))
            continue;
        p->head_end = sorted_line_end(text_of(c, p), p->left.begin);
        swap_parts(c, i, c->live++);
    }
    for (size_t i = c->live / 2; i-- > 0;)
        sift_down(c, i);
}

static void advance_first(struct generation_cursor *c, size_t begin)
{
    struct generation_part *p = &c->parts[0];
    p->left.begin = begin;
    if (is_empty(p))
        swap_parts(c, 0, --c->live);
    else
        p->head_end = sorted_line_end(text_of(c, p), begin);
    sift_down(c, 0);
}

/* Initializes a cursor over the shards to search, with empty spans. */
static void begin_cursor(
    const struct generation *g, struct sorted_file *const *files, uint32_t shard, struct generation_cursor *c)
{
    bool is_one = shard != GENERATION_NO_SHARD;
    uint32_t first = is_one ? shard : 0, last = is_one ? shard : g->info.shards - 1;
    *c = (struct generation_cursor){.g = g, .files = files};
    c->parts = mem_zalloc(2 * (size_t)(last - first + 1) * sizeof *c->parts);
    for (uint32_t i = first; i <= last; i++) {
        c->parts[c->n++].file = i;
        if (files == g->files && files[g->info.shards + i])
            c->parts[c->n++].file = g->info.shards + i;
    }
}

static void find_prefix(struct generation_cursor *out, struct bytes prefix, struct bytes start)
{
    for (size_t i = 0; i < out->n; i++) {
        const struct sorted_text *t = text_of(out, &out->parts[i]);
        struct sorted_span span = sorted_prefix(t, prefix);
        size_t from = start.len > 0 ? sorted_seek(t, start) : 0;
        if (span.begin < from)
            span.begin = from < span.end ? from : span.end;
        out->parts[i].left = span;
    }
    order_parts(out);
}

void generation_prefix(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out)
{
    begin_cursor(g, g->files, shard_of_prefix(g, prefix), out);
    find_prefix(out, prefix, start);
}

bool generation_texts(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out)
{
    if (!g->texts)
        return false;
    begin_cursor(g, g->texts, g->info.shards == 1 ? 0 : GENERATION_NO_SHARD, out);
    find_prefix(out, prefix, start);
    return true;
}

void generation_range(
    const struct generation *g, struct bytes start, struct bytes end, struct generation_cursor *out)
{
    size_t common = 0;
    while (common < start.len && common < end.len && start.ptr[common] == end.ptr[common])
        common++;
    begin_cursor(g, g->files, shard_of_prefix(g, bytes_of(start.ptr, common)), out);
    for (size_t i = 0; i < out->n; i++)
        out->parts[i].left = sorted_range(text_of(out, &out->parts[i]), start, end);
    order_parts(out);
}

uint64_t generation_cursor_bytes(const struct generation_cursor *c)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->live; i++)
        bytes += c->parts[i].left.end - c->parts[i].left.begin;
    return bytes;
}

uint32_t generation_cursor_shard(const struct generation_cursor *c)
{
    uint32_t shards = c->g->info.shards, first = c->parts[0].file % shards;
    for (size_t i = 1; i < c->n; i++)
        if (c->parts[i].file % shards != first)
            return GENERATION_NO_SHARD;
    return first;
}

bool generation_cut_line(const struct generation *g, struct bytes line, size_t from, uint64_t max_bytes,
    struct generation_cut *cut)
{
    struct record r;
    uint64_t most = max_bytes > RECORD_WHOLE_MAX ? max_bytes : RECORD_WHOLE_MAX;
    if (!g->is_archive || line.len - from <= most || !record_split(line, g->separator, &r) ||
        bytes_starts_with(r.key, BYTES_LITERAL("lookup|")))
        return false;
    size_t place = sorted_line_cut(line, g->separator, from + most);
    struct bytes name = sorted_line_name(line, place);
    if (name.len == 0 || place <= from)
        return false;
    cut->next = r.key;
    cut->part = bytes_of(line.ptr + from, place - 1 - from);
    cut->name = name;
    return true;
}

/* Moves the cursor to the end of the answer. Returns true if more records or counts follow. */
static bool walk_to_cut(
    struct generation_cursor *walk, uint64_t max_records, uint64_t max_bytes, struct generation_cut *cut)
{
    uint64_t records = cut->records, bytes = cut->bytes;
    struct bytes key = BYTES_NONE;
    for (; walk->live > 0; records++) {
        const struct generation_part *p = &walk->parts[0];
        bool is_full = records > 0 && ((max_records && records >= max_records) || bytes >= max_bytes);
        if (is_full && !bytes_equal(head_key(walk, p), key)) {
            cut->next = head_key(walk, p);
            return true;
        }
        if (generation_cut_line(
                walk->g, head_line(walk, p), 0, max_bytes > bytes ? max_bytes - bytes : 0, cut))
            return true;
        key = head_key(walk, p);
        bytes += p->head_end - p->left.begin;
        advance_first(walk, p->head_end);
    }
    return false;
}

bool generation_cursor_cut(
    struct generation_cursor *c, uint64_t max_records, uint64_t max_bytes, struct generation_cut *cut)
{
    if (max_records == 0 && cut->bytes + generation_cursor_bytes(c) <= max_bytes)
        return false;
    struct generation_cursor walk = *c;
    walk.parts = mem_alloc(c->n * sizeof *c->parts);
    memcpy(walk.parts, c->parts, c->n * sizeof *c->parts);
    bool more = walk_to_cut(&walk, max_records, max_bytes, cut);
    if (more) {
        /* In each shard, the cut cursor ends where the walk has stopped. */
        size_t *ends = mem_alloc(2 * (size_t)c->g->info.shards * sizeof *ends);
        for (size_t i = 0; i < walk.n; i++)
            ends[walk.parts[i].file] = walk.parts[i].left.begin;
        for (size_t i = 0; i < c->n; i++)
            c->parts[i].left.end = ends[c->parts[i].file];
        free(ends);
        order_parts(c);
    }
    generation_cursor_free(&walk);
    return more;
}

bool generation_cursor_next(struct generation_cursor *c, size_t enough, struct bytes *run)
{
    if (c->live == 0)
        return false;
    const struct generation_part *p = &c->parts[0];
    const struct sorted_text *t = text_of(c, p);
    size_t begin = p->left.begin, end = p->left.end, other = first_child(c, 0);
    if (other < c->live) { /* take only lines that sort before the first lines of all other parts */
        struct generation_part rest = *p;
        do {
            rest.left.begin = rest.head_end;
            if (is_empty(&rest) || rest.left.begin - begin >= enough)
                break;
            rest.head_end = sorted_line_end(t, rest.left.begin);
        } while (line_is_before(head_line(c, &rest), head_line(c, &c->parts[other])));
        end = rest.left.begin;
    } else if (end - begin > enough) {
        end = sorted_line_end(t, begin + enough - 1);
    }
    *run = bytes_of(t->text.ptr + begin, end - begin);
    advance_first(c, end);
    return true;
}

void generation_cursor_refuse(const struct generation_cursor *c, struct bytes line)
{
    for (size_t i = 0; i < c->n; i++) {
        struct sorted_file *f = c->files[c->parts[i].file];
        struct bytes text = f->text.text;
        if (line.ptr >= text.ptr && line.ptr < text.ptr + text.len)
            atomic_store(&f->is_damaged, true);
    }
}
