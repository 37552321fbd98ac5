#include "config/config.h"

#include "base/io.h"
#include "base/suggest.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const known_kinds[] = {"millrace", "simplequeue", "queue_to_pubsub", "queue_to_nats",
    "nats_to_pubsub", "queue_to_http", "queue_to_dynamodb", "queue_exec", "pubsub", "aggregator", "compactor",
    "sortdb", "spamfilter", "lists", "metricdb", "scraper", "ruler", "api", "ps_to_file", "ps_to_http",
    "ps_to_dynamodb", "pubsub_filtered", "file_to_queue", "door", "dynamodb", "cell", "stream", "input",
    "counters", "total", "subtotal", "unique"};

/* The entries of all sections are in one growing array. While the file is being read, a section's n_entries contains
 * the index of the section's first entry. */
struct reading {
    struct config *config;
    struct config_section *sections;
    struct config_entry *entries;
    size_t n_sections, n_entries, cap_sections, cap_entries;
    int line;
    bool failed;
    struct error *error;
};

/* Inserts "FILE:LINE: " before the error's text, or "FILE: " if `line` is 0. */
static int locate(struct error *error, const struct config *c, int line)
{
    return line > 0 ? error_set(error, -1, "%s:%d: %s", c->path, line, error->text)
                    : error_set(error, -1, "%s: %s", c->path, error->text);
}

/* Stores the error, unless an earlier error of the file is already stored. */
__attribute__((format(printf, 2, 3))) static void fail(struct reading *r, const char *fmt, ...)
{
    va_list ap;
    if (r->failed)
        return;
    r->failed = true;
    va_start(ap, fmt);
    error_vset(r->error, -1, fmt, ap);
    va_end(ap);
    locate(r->error, r->config, r->line);
}

int config_fail(struct error *error, const struct config *c, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(error, -1, fmt, ap);
    va_end(ap);
    return locate(error, c, line);
}

/* Returns the text without its comment, which begins with a ; after a space. */
static struct bytes before_comment(struct bytes text)
{
    for (size_t i = 1; i < text.len; i++)
        if (text.ptr[i] == ';' && isspace((unsigned char)text.ptr[i - 1]))
            return bytes_of(text.ptr, i);
    return text;
}

/* Reads a line that begins with an opening bracket. */
static void take_section(struct reading *r, struct bytes text)
{
    const char *end = memchr(text.ptr, ']', text.len);
    if (!end) {
        fail(r, "the section has no closing ]");
        return;
    }
    struct bytes after = bytes_trim(bytes_of(end + 1, (size_t)(text.ptr + text.len - end - 1)));
    if (after.len > 0 && after.ptr[0] != ';' && after.ptr[0] != '#')
        fail(r, "there is text after the ] of the section");
    /* The text between the brackets: `kind` or `kind NAME`. */
    struct bytes all = bytes_trim(bytes_of(text.ptr + 1, (size_t)(end - text.ptr - 1)));
    size_t n = 0;
    while (n < all.len && !isspace((unsigned char)all.ptr[n]))
        n++;
    char *kind = bytes_dup(bytes_of(all.ptr, n));
    char *name = bytes_dup(bytes_trim(bytes_of(all.ptr + n, all.len - n)));
    for (size_t i = 0; i < r->n_sections; i++)
        if (strcmp(r->sections[i].kind, kind) == 0 && strcmp(r->sections[i].name, name) == 0)
            fail(r, "section [%.*s] is repeated, first in line %d", (int)all.len, all.ptr,
                r->sections[i].line);
    struct suggest near = suggest_for(kind);
    for (size_t i = 0; i < sizeof known_kinds / sizeof *known_kinds; i++)
        suggest_try(&near, known_kinds[i]);
    if (!near.nearest || strcmp(near.nearest, kind) != 0)
        fail(r, "unknown section [%.*s]%s%s%s", (int)all.len, all.ptr, near.nearest ? " (did you mean [" : "",
            near.nearest ? near.nearest : "", near.nearest ? "]?)" : "");
    if (strpbrk(name, " \t"))
        fail(r, "section [%.*s] has more words than a kind and a name", (int)all.len, all.ptr);
    *ARRAY_ADD(r->sections, r->n_sections, r->cap_sections) =
        (struct config_section){.kind = kind, .name = name, .line = r->line, .n_entries = r->n_entries};
}

static bool is_same_key(const char *a, const char *b)
{
    while (*a && (*a == *b || (*a == '-' && *b == '_') || (*a == '_' && *b == '-')))
        a++, b++;
    return *a == *b;
}

static void take_entry(struct reading *r, struct bytes text)
{
    size_t n = 0;
    while (n < text.len && text.ptr[n] != '=' && text.ptr[n] != ':')
        n++;
    if (n == text.len) {
        fail(r, "expected a [section], a `key = value` or a comment");
        return;
    }
    char *key = bytes_dup(bytes_trim(bytes_of(text.ptr, n)));
    char *value = bytes_dup(bytes_trim(bytes_of(text.ptr + n + 1, text.len - n - 1)));
    if (r->n_sections == 0)
        fail(r, "%s comes before any [section]", key);
    if (*key == '\0')
        fail(r, "the key before = is missing");
    for (size_t i = r->n_sections ? r->sections[r->n_sections - 1].n_entries : 0; i < r->n_entries; i++)
        if (is_same_key(r->entries[i].key, key))
            fail(r, "%s is repeated, first in line %d", key, r->entries[i].line);
    *ARRAY_ADD(r->entries, r->n_entries, r->cap_entries) =
        (struct config_entry){.key = key, .value = value, .line = r->line};
}

static void take_line(struct reading *r, struct bytes line)
{
    struct bytes text = before_comment(bytes_trim(line));
    if (line.len > CONFIG_LINE_MAX)
        fail(r, "the line is longer than %d bytes", CONFIG_LINE_MAX);
    else if (memchr(line.ptr, '\0', line.len))
        fail(r, "the line contains a NUL byte");
    else if (text.len == 0 || text.ptr[0] == ';' || text.ptr[0] == '#')
        return;
    else if (text.ptr != line.ptr)
        fail(r, "a setting must begin at the start of its line");
    else if (text.ptr[0] == '[')
        take_section(r, text);
    else
        take_entry(r, text);
}

int config_parse(const char *path, struct bytes text, struct config **out, struct error *error)
{
    struct config *c = mem_zalloc(sizeof *c);
    struct reading r = {.config = c, .error = error};
    c->path = mem_strdup(path);
    if (bytes_starts_with(text, BYTES_LITERAL("\xEF\xBB\xBF")))
        text = bytes_of(text.ptr + 3, text.len - 3);
    for (struct bytes line; !r.failed && bytes_take_line(&text, &line);) {
        r.line++;
        take_line(&r, line);
    }
    for (size_t i = 0; i < r.n_sections; i++) {
        size_t first = r.sections[i].n_entries;
        size_t end = i + 1 < r.n_sections ? r.sections[i + 1].n_entries : r.n_entries;
        r.sections[i].n_entries = end - first;
        r.sections[i].entries = r.entries ? r.entries + first : NULL;
    }
    c->n_sections = r.n_sections;
    c->sections = r.sections;
    c->entries = r.entries;
    c->n_entries = r.n_entries;
    if (r.failed)
        config_free(&c);
    else
        *out = c;
    return r.failed ? -1 : 0;
}

int config_read(const char *path, struct config **out, struct error *error)
{
    struct buf text = {0};
    int rc = io_read_file(path, SIZE_MAX, &text) == 0
                 ? config_parse(path, buf_bytes(&text), out, error)
                 : error_set(error, -1, "cannot read %s: %s", path, strerror(errno));
    buf_free(&text);
    return rc;
}

static void free_text(const char *s)
{
    free((void *)(uintptr_t)s);
}

void config_free(struct config **cp)
{
    struct config *c = *cp;
    if (!c)
        return;
    for (size_t i = 0; i < c->n_sections; i++) {
        free_text(c->sections[i].kind);
        free_text(c->sections[i].name);
    }
    for (size_t i = 0; i < c->n_entries; i++) {
        free_text(c->entries[i].key);
        free_text(c->entries[i].value);
    }
    free((void *)(uintptr_t)c->sections);
    free((void *)(uintptr_t)c->entries);
    free_text(c->path);
    free(c);
    *cp = NULL;
}

const struct config_section *config_section(const struct config *c, const char *kind, const char *name)
{
    for (size_t i = 0; c && i < c->n_sections; i++)
        if (strcmp(c->sections[i].kind, kind) == 0 && strcmp(c->sections[i].name, name) == 0)
            return &c->sections[i];
    return NULL;
}

const struct config_entry *config_entry(const struct config_section *s, const char *key)
{
    for (size_t i = 0; s && i < s->n_entries; i++)
        if (is_same_key(s->entries[i].key, key))
            return &s->entries[i];
    return NULL;
}

const char *config_value(const struct config_section *s, const char *key)
{
    const struct config_entry *e = config_entry(s, key);
    return e ? e->value : NULL;
}

int config_line(const struct config_section *s, const char *key)
{
    const struct config_entry *e = config_entry(s, key);
    return e ? e->line : s->line;
}

const char *config_place(const char *key)
{
    static const struct {
        const char *keys, *place;
    } places[] = {
        {"time time_unit time_format time_default skip_if keep_if max_ahead optional resolution", "[input]"},
        {"key label having max_keys", "a section [total NAME] or [subtotal NAME]"},
        {"value scale round max_value", "a section [total NAME]"},
        {"retain_age retain_bytes auto_create", "[pubsub]"},
        {"max_depth max_bytes max_message lines", "[simplequeue]"},
        {"public_path public_port tokens_file allowed_origins embed_origins", "[api]"},
        {"every at shards", "[compactor]"},
        {"data_dir streams metrics", "[millrace]"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *list = places[i].keys;
        struct bytes word;
        while (bytes_next_word(&list, " ", &word))
            if (bytes_equal_str(word, key))
                return places[i].place;
    }
    return NULL;
}

int config_check_keys(
    const struct config *c, const struct config_section *s, const char *const *known, struct error *error)
{
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct config_entry *e = &s->entries[i];
        const char *const *k = known;
        struct suggest near = suggest_for(e->key);
        for (; *k && !is_same_key(*k, e->key); k++)
            suggest_try(&near, *k);
        const char *place = config_place(e->key);
        if (!*k && place)
            return config_fail(
                error, c, e->line, "[%s] has no setting '%s': it belongs in %s", s->kind, e->key, place);
        if (!*k)
            return config_fail(error, c, e->line, "[%s] has no setting '%s'%s%s%s", s->kind, e->key,
                near.nearest ? " (did you mean " : "", near.nearest ? near.nearest : "",
                near.nearest ? "?)" : "");
    }
    return 0;
}

static bool installed_path(char *path, size_t size)
{
    static const char *const places[] = {"/bin", "/libexec/millrace"};
    char dir[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    char *slash = n > 0 ? strrchr(dir, '/') : NULL;
    size_t length = slash ? (size_t)(slash - dir) : 0;
    for (size_t i = 0; i < 2; i++) {
        size_t place = strlen(places[i]);
        if (length < place || memcmp(dir + length - place, places[i], place) != 0)
            continue;
        dir[length - place] = '\0';
        bool is_system = strcmp(dir, "/usr") == 0 || strcmp(dir, "/usr/local") == 0;
        int needed = snprintf(path, size, "%s/etc/millrace/millrace.conf", is_system ? "" : dir);
        return needed > 0 && (size_t)needed < size && access(path, F_OK) == 0;
    }
    return false;
}

bool config_default(char *path, size_t size)
{
    const char *named = getenv("MILLRACE_CONFIG");
    if (!named)
        return installed_path(path, size);
    int needed = snprintf(path, size, "%s", named);
    return needed > 0 && (size_t)needed < size;
}
