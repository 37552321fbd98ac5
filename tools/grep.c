/* millrace grep: prints the archive's records of the keys that contain a text, with the texts in place of the
 * hashes. */
#include "archive/generation.h"
#include "counts/key_function.h"
#include "counts/records.h"
#include "counts/set_text.h"
#include "tools/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define RUN_BYTES ((size_t)1 << 20)
#define NOT_FOUND 1 /* exit status, as of grep */

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_STRING("archive", "directory of the archive (default: that of the pipeline)"),
    SETTING_STRING("ns", "only records of this total, subtotal or unique counter, such as u or c.u"),
    SETTING_BOOL("begins", "only keys that begin with the text", .letter = 'b'),
    SETTING_BOOL("whole", "only the key that equals the text", .letter = 'x'),
    SETTING_BOOL("ignore_case", "ignore the case of ASCII letters", .letter = 'i'),
    SETTING_BOOL("count", "print only the number of records"),
    SETTING_BOOL("quiet", "print nothing; the exit status says whether a record was found", .letter = 'q'),
    {.name = NULL},
};

typedef char hash_text[COMPONENT_HASH];

struct grep {
    struct generation *g;
    const char *ns; /* namespace of the records; NULL: any */
    struct buf sought;
    bool begins, whole, ignores_case, is_quiet, is_count;
    hash_text *hashes; /* hashes of the matching texts, sorted after all texts were read */
    size_t n_hashes, room_hashes;
    uint64_t found;
    struct buf text, lowered, line;
};

static bool matches(struct grep *g, struct bytes text)
{
    struct bytes sought = buf_bytes(&g->sought);
    if (g->ignores_case) {
        key_function_lower(text, &g->lowered);
        text = buf_bytes(&g->lowered);
    }
    if (g->whole)
        return bytes_equal(text, sought);
    if (g->begins)
        return bytes_starts_with(text, sought);
    return sought.len == 0 || (text.len > 0 && memmem(text.ptr, text.len, sought.ptr, sought.len));
}

static int compare_hashes(const void *a, const void *b)
{
    return memcmp(a, b, COMPONENT_HASH);
}

static bool is_match(struct grep *g, struct bytes stored)
{
    if (component_is_hash(stored))
        return g->n_hashes > 0 &&
               bsearch(stored.ptr, g->hashes, g->n_hashes, sizeof *g->hashes, compare_hashes);
    return matches(g, stored);
}

/* Handles a record of the archive's texts, which contains a text and the hash of this text. */
static void take_text(struct grep *g, const struct record *r)
{
    buf_clear(&g->text);
    text_key_decode(r->key, &g->text);
    if (r->value.len == COMPONENT_HASH && matches(g, buf_bytes(&g->text)))
        memcpy(*ARRAY_ADD(g->hashes, g->n_hashes, g->room_hashes), r->value.ptr, COMPONENT_HASH);
}

/* Appends a component. Instead of a hash, appends the escaped text of the lookup record. */
static void append_text(struct grep *g, struct bytes stored)
{
    struct bytes found;
    struct record r;
    uint32_t shard;
    struct buf key = {0};
    buf_append_str(&key, "lookup|");
    buf_append_bytes(&key, stored);
    bool has_text = component_is_hash(stored) && generation_find(g->g, buf_bytes(&key), &found, &shard) &&
                    record_split(bytes_of(found.ptr, found.len - (found.ptr[found.len - 1] == '\n')),
                        RECORD_SEPARATOR, &r);
    buf_append_bytes(&g->line, has_text ? r.value : stored);
    buf_free(&key);
}

static void print_record(struct grep *g, const struct record *r, const struct record_key *key)
{
    struct bytes value = r->value, name;
    int64_t n;
    bool bad = false;
    buf_clear(&g->line);
    buf_append_bytes(&g->line, key->ns);
    buf_append_char(&g->line, '|');
    append_text(g, key->key);
    if (key->is_subtotal) {
        buf_append_char(&g->line, '.');
        buf_append_bytes(&g->line, key->period);
    }
    bool is_set = key->is_subtotal && set_text_is(value);
    if (is_set) {
        buf_append_char(&g->line, RECORD_SEPARATOR);
        buf_append_bytes(&g->line, value);
    }
    for (char before = RECORD_SEPARATOR; !is_set && record_next_count(&value, &name, &n, &bad);
         before = ' ') {
        buf_append_char(&g->line, before);
        if (key->is_subtotal)
            append_text(g, name);
        else
            buf_append_bytes(&g->line, name);
        buf_printf(&g->line, ":%" PRId64, n);
    }
    buf_append_char(&g->line, '\n');
    fwrite(g->line.ptr, 1, g->line.len, stdout);
}

static void take_record(struct grep *g, const struct record *r)
{
    struct record_key key;
    if (!record_key_parse(r->key, &key) || key.is_lookup || (g->ns && !bytes_equal_str(key.ns, g->ns)) ||
        !is_match(g, key.key))
        return;
    g->found++;
    if (!g->is_quiet && !g->is_count)
        print_record(g, r, &key);
}

static void walk(
    struct grep *g, struct generation_cursor *c, void (*take)(struct grep *, const struct record *))
{
    struct bytes run, line;
    struct record r;
    while (generation_cursor_next(c, RUN_BYTES, &run))
        while (bytes_take_line(&run, &line))
            if (record_split(line, RECORD_SEPARATOR, &r))
                take(g, &r);
    generation_cursor_free(c);
}

static void search(struct grep *g)
{
    struct generation_cursor c;
    if (generation_texts(g->g, BYTES_NONE, BYTES_NONE, &c))
        walk(g, &c, take_text);
    if (g->n_hashes > 0)
        qsort(g->hashes, g->n_hashes, sizeof *g->hashes, compare_hashes);
    struct buf prefix = {0};
    if (g->ns)
        buf_printf(&prefix, "%s|", g->ns);
    generation_prefix(g->g, buf_bytes(&prefix), BYTES_NONE, &c);
    walk(g, &c, take_record);
    buf_free(&prefix);
}

/* Searches one generation. The result is valid only if no file was truncated during the search. */
static int search_archive(struct grep *g, const char *archive)
{
    struct error error = {0};
    char *current = mem_printf("%s/current", archive);
    int why = access(current, F_OK) == 0 ? 0 : errno;
    free(current);
    if (why == ENOENT && access(archive, F_OK) == 0)
        return tool_fail(EX_NOINPUT, "no archive in %s; `millrace compact` creates the archive", archive);
    if (why != 0) {
        error_set(&error, EX_NOINPUT, "%s: %s", archive, strerror(why));
        return tool_fail_at(EX_NOINPUT, archive, error.text);
    }
    const struct generation_source source = {.archive = archive, .separator = RECORD_SEPARATOR};
    enum sorted_file_result opened = generation_open(&source, NULL, NULL, &g->g, &error);
    if (opened != SORTED_FILE_OK)
        return tool_fail(opened == SORTED_FILE_REFUSED ? EX_DATAERR : EX_TEMPFAIL, "%s", error.text);
    search(g);
    bool is_whole = generation_is_whole(g->g, GENERATION_NO_SHARD, &error);
    generation_unref(&g->g);
    if (!is_whole)
        return tool_fail(EX_TEMPFAIL, "%s", error.text);
    if (g->is_count && !g->is_quiet)
        printf("%" PRIu64 "\n", g->found);
    return g->found > 0 ? EX_OK : NOT_FOUND;
}

static int grep_with(const struct options *o)
{
    char **operands;
    if (options_operands(o, &operands) != 1)
        return tool_fail(EX_USAGE, "expected one TEXT; see millrace grep --help");
    const struct config *config = options_config(o);
    const char *given = options_text(o, "archive");
    char *archive = given ? mem_strdup(given)
                          : pipeline_archive_dir(config, pipeline_dir(config, options_text(o, "data_dir")));
    struct grep g = {.ns = options_text(o, "ns"),
        .begins = options_bool(o, "begins"),
        .whole = options_bool(o, "whole"),
        .ignores_case = options_bool(o, "ignore_case"),
        .is_count = options_bool(o, "count"),
        .is_quiet = options_bool(o, "quiet")};
    if (g.ignores_case)
        key_function_lower(bytes_str(operands[0]), &g.sought);
    else
        buf_append_str(&g.sought, operands[0]);
    int status = search_archive(&g, archive);
    free(archive);
    free(g.hashes);
    buf_free(&g.sought);
    buf_free(&g.text);
    buf_free(&g.lowered);
    buf_free(&g.line);
    return status;
}

int tool_grep(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "grep",
        .summary =
            "prints the archive's records of the keys that contain a text, with texts in place of hashes",
        .operands = "TEXT",
        .more = "Reads the archive's files, without any daemon. Newer counts are not in the archive until "
                "the next compaction. A sub key is\n"
                "shown but not searched. Exit status: 0 if there is a record, 1 if there is none, others as "
                "for all subcommands.\n",
        .rows = {rows, NULL}};
    return tool_run_on_files(&spec, argc, argv, grep_with);
}
