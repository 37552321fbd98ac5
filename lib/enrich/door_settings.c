#include "enrich/door_settings.h"

#include "base/suggest.h"
#include "json/json_path.h"

#include <stdlib.h>

#define DEFAULT_PROXIES "127.0.0.0/8 ::1 unix"
#define DEFAULT_SITE "host(url)"

static const struct {
    const char *name, *needs; /* the setting without which the value cannot be computed */
} values[DOOR_VALUES] = {
    [DOOR_VISITOR] = {"visitor", "visitor_key_file"},
    [DOOR_IP] = {"ip", NULL},
};

#define OF(VALUE) (1U << (VALUE))

/* A setting has an effect only together with one of the values that it belongs to. */
static const struct {
    const char *name;
    unsigned of; /* set of values; 0: all */
} settings[] = {
    {"add", 0},
    {"visitor_key_file", OF(DOOR_VISITOR)},
    {"visitor_key_period", OF(DOOR_VISITOR)},
    {"visitor_site", OF(DOOR_VISITOR)},
    {"client_address", 0},
    {"trusted_proxies", 0},
};
#define N_SETTINGS (sizeof settings / sizeof *settings)

struct reading {
    const struct config *config;
    const struct config_section *section;
    struct door_settings *out;
    struct error *error;
};

const char *door_value_name(enum door_value value)
{
    return values[value].name;
}

static int line_of(const struct reading *r, const char *name)
{
    const struct config_entry *e = config_entry(r->section, name);
    return e ? e->line : r->section->line;
}

static int add_value(struct reading *r, struct bytes word)
{
    char *name = bytes_dup(word);
    struct suggest near = suggest_for(name);
    int status = 0;
    size_t i = 0;
    for (; i < DOOR_VALUES && strcmp(values[i].name, name) != 0; i++)
        suggest_try(&near, values[i].name);
    const char *needs = i < DOOR_VALUES ? values[i].needs : NULL,
               *given = needs ? config_value(r->section, needs) : "";
    if (i == DOOR_VALUES)
        status = config_fail(r->error, r->config, line_of(r, "add"), "add: a door has no value '%s'%s%s%s",
            name, near.nearest ? " (did you mean " : "", near.nearest ? near.nearest : "",
            near.nearest ? "?)" : "");
    else if (!given || (needs && !*given))
        status = config_fail(r->error, r->config, line_of(r, "add"), "add = %s needs %s = FILE", name, needs);
    else
        r->out->adds[i] = true;
    free(name);
    return status;
}

static int read_values(struct reading *r)
{
    const char *list = config_value(r->section, "add");
    int status = 0, n = 0;
    for (struct bytes word; status == 0 && bytes_next_word(&list, " \t,", &word); n++)
        status = add_value(r, word);
    if (status == 0 && n == 0)
        return config_fail(
            r->error, r->config, r->section->line, "[door] needs add = VALUE..., such as add = visitor");
    return status;
}

static int refuse_unknown(struct reading *r)
{
    unsigned added = 0;
    for (size_t i = 0; i < DOOR_VALUES; i++)
        added |= r->out->adds[i] ? OF(i) : 0;
    for (const struct config_entry *e = r->section->entries; e < r->section->entries + r->section->n_entries;
         e++) {
        struct suggest near = suggest_for(e->key);
        size_t i = 0;
        for (; i < N_SETTINGS && config_entry(r->section, settings[i].name) != e; i++)
            suggest_try(&near, settings[i].name);
        if (i == N_SETTINGS)
            return config_fail(r->error, r->config, e->line, "[door] has no setting '%s'%s%s%s", e->key,
                near.nearest ? " (did you mean " : "", near.nearest ? near.nearest : "",
                near.nearest ? "?)" : "");
        if (settings[i].of != 0 && (settings[i].of & added) == 0)
            return config_fail(r->error, r->config, e->line, "%s has no effect without add = %s", e->key,
                values[__builtin_ctz(settings[i].of)].name);
    }
    return 0;
}

static int read_visitor(struct reading *r)
{
    const char *period = config_value(r->section, "visitor_key_period"),
               *site = config_value(r->section, "visitor_site");
    struct bytes text = bytes_str(site ? site : DEFAULT_SITE), field = text, argument = BYTES_NONE;
    bool is_constant = text.len >= 2 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"';
    r->out->visitor_key_file = config_value(r->section, "visitor_key_file");
    r->out->period = period && strcmp(period, "week") == 0 ? VISITOR_WEEK : VISITOR_DAY;
    if (period && r->out->period == VISITOR_DAY && strcmp(period, "day") != 0)
        return config_fail(r->error, r->config, line_of(r, "visitor_key_period"),
            "visitor_key_period must be day or week, not '%s'", period);
    if (*r->out->visitor_key_file != '/')
        return config_fail(r->error, r->config, line_of(r, "visitor_key_file"),
            "visitor_key_file must be an absolute path, because all doors share the file");
    if (is_constant)
        return 0;
    r->out->site_function = key_function_parse(text, &field, &argument);
    if (!json_path_is_valid(field))
        return config_fail(r->error, r->config, line_of(r, "visitor_site"),
            "visitor_site must be a field, a function (" KEY_FUNCTIONS ") or \"all\", not '%s'", site);
    r->out->site_field = bytes_dup(field);
    r->out->site_argument = argument.len > 0 ? bytes_dup(argument) : NULL;
    return 0;
}

/* `Forwarded` (RFC 7239) has another form. */
static bool is_header(const char *name)
{
    return *name && !bytes_equal_nocase(bytes_str(name), BYTES_LITERAL("Forwarded")) &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")] == '\0';
}

static int read_address(struct reading *r)
{
    struct error why;
    const char *address = config_value(r->section, "client_address"),
               *proxies = config_value(r->section, "trusted_proxies");
    bool is_peer = !address || strcmp(address, "peer") == 0;
    if (!is_peer && !is_header(address))
        return config_fail(r->error, r->config, line_of(r, "client_address"),
            "client_address must be peer, or a header with a list of addresses such as X-Forwarded-For, not "
            "'%s'",
            address);
    if (is_peer && proxies)
        return config_fail(r->error, r->config, line_of(r, "trusted_proxies"),
            "trusted_proxies has no effect without client_address = HEADER");
    if (is_peer)
        return 0;
    r->out->address_header = address;
    if (trusted_proxies_parse(proxies ? proxies : DEFAULT_PROXIES, &r->out->proxies, &why) != 0)
        return config_fail(
            r->error, r->config, line_of(r, "trusted_proxies"), "trusted_proxies: %s", why.text);
    return 0;
}

int door_settings_read(const struct config *config, struct door_settings **out, struct error *error)
{
    struct reading r = {.config = config, .section = config_section(config, "door", ""), .error = error};
    *out = NULL;
    if (!r.section)
        return 0;
    r.out = *out = mem_zalloc(sizeof **out);
    if (read_values(&r) == 0 && refuse_unknown(&r) == 0 &&
        (!r.out->adds[DOOR_VISITOR] || read_visitor(&r) == 0) && read_address(&r) == 0)
        return 0;
    door_settings_free(out);
    return -1;
}

void door_settings_free(struct door_settings **sp)
{
    struct door_settings *s = *sp;
    if (!s)
        return;
    trusted_proxies_free(&s->proxies);
    free(s->site_field);
    free(s->site_argument);
    free(s);
    *sp = NULL;
}
