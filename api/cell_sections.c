#include "api/cell_sections.h"

#include "base/url.h"

#define SEPARATORS " ,\t"

static int check_address(
    const struct config *c, const struct config_section *s, const char *key, struct error *error)
{
    struct url_address address;
    struct error wrong;
    const char *url = config_value(s, key);
    bool is_list = strcmp(key, "sortdb_url") == 0;
    if (!url || (!is_list && url_address_parse(url, 80, &address) == 0))
        return 0;
    if (!is_list)
        error_set(&wrong, -1, "\"%s\" is not an address (http://HOST:PORT or unix:PATH)", url);
    else if (replicas_read(url, NULL, &wrong) == 0)
        return 0;
    return config_fail(error, c, config_line(s, key), "%s %s", key, wrong.text);
}

/* True if two lists of addresses have a common one. A directory is compared as a whole. */
static bool is_shared(const char *key, const char *one, const char *other)
{
    struct bytes a, b;
    if (strcmp(key, "sortdb_url") != 0)
        return strcmp(one, other) == 0;
    while (bytes_next_word(&one, SEPARATORS, &a))
        for (const char *rest = other; bytes_next_word(&rest, SEPARATORS, &b);)
            if (bytes_equal(a, b))
                return true;
    return false;
}

/* Refuses a value of an earlier cell, because its counts would be added twice. */
static int check_unique(
    const struct config *c, const struct config_section *s, const char *key, struct error *error)
{
    const char *value = config_value(s, key);
    for (const struct config_section *other = c->sections; value && other < s; other++) {
        const char *same = strcmp(other->kind, "cell") == 0 ? config_value(other, key) : NULL;
        if (same && is_shared(key, value, same))
            return config_fail(error, c, config_line(s, key),
                "%s is also set in [cell %s]; each cell needs its own", key, other->name);
    }
    return 0;
}

static int read_section(
    const struct config *c, const struct config_section *s, struct cell_section *out, struct error *error)
{
    static const char *const known[] = {"aggregator_url", "sortdb_url", "pubsub_url", "nats_to_pubsub_url",
        "archive", "token_file", "shell", "config", NULL};
    *out = (struct cell_section){.name = s->name,
        .aggregator_url = config_value(s, "aggregator_url"),
        .sortdb_url = config_value(s, "sortdb_url"),
        .archive = config_value(s, "archive"),
        .pubsub_url = config_value(s, "pubsub_url"),
        .nats_to_pubsub_url = config_value(s, "nats_to_pubsub_url"),
        .aggregator_token_file = config_value(s, "token_file"),
        .sortdb_token_file = config_value(s, "token_file")};
    if (!bytes_is_name(bytes_str(s->name)))
        return config_fail(
            error, c, s->line, "[cell NAME] needs a name of letters, digits, '.', '_' and '-'");
    if (config_check_keys(c, s, known, error) != 0)
        return -1;
    if (!out->aggregator_url)
        return config_fail(error, c, s->line, "[cell %s] needs aggregator_url", s->name);
    if (!out->sortdb_url == !out->archive)
        return config_fail(error, c, s->line, "[cell %s] needs either sortdb_url or archive", s->name);
    int status = 0;
    for (size_t i = 0; i < 5 && status == 0; i++)
        status = check_unique(c, s, known[i], error);
    for (size_t i = 0; i < 4 && status == 0; i++)
        status = check_address(c, s, known[i], error);
    return status;
}

/* Refuses a setting that the cells replace, unless the value is inherited from the section of another daemon. */
static int refuse(const struct options *o, const char *key, struct error *error)
{
    const char *source = options_source(o, key);
    if (!config_entry(config_section(options_config(o), "api", ""), key) && strncmp(source, "--", 2) != 0 &&
        *source != '$')
        return 0;
    return options_refuse(o, key, error, "it has no effect with [cell NAME]; remove it");
}

int cell_sections_read(
    const struct options *o, struct cell_section out[CELLS_MAX], size_t *n, struct error *error)
{
    static const char *const replaced[] = {
        "archive", "sortdb_url", "sortdb_token_file", "aggregator_url", "aggregator_token_file", "sql"};
    const struct config *c = options_config(o);
    int status = 0;
    *n = 0;
    for (size_t i = 0; c && i < c->n_sections && status == 0; i++) {
        const struct config_section *s = &c->sections[i];
        if (strcmp(s->kind, "cell") != 0)
            continue;
        status = *n < CELLS_MAX ? read_section(c, s, &out[(*n)++], error)
                                : config_fail(error, c, s->line, "more than %d cells", CELLS_MAX);
    }
    for (size_t i = 0; i<sizeof replaced / sizeof *replaced && * n> 0 && status == 0; i++)
        status = refuse(o, replaced[i], error);
    return status;
}
