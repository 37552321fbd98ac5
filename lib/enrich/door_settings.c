#include "enrich/door_settings.h"

#include "base/suggest.h"
#include "config/options.h"
#include "enrich/user_agent.h"
#include "filter/mark_reader.h"
#include "json/json_path.h"

#include <stdlib.h>

#define DEFAULT_PROXIES "127.0.0.0/8 ::1 unix"
#define DEFAULT_SITE "site"
#define DEFAULT_DATA_DIR "millrace-data"

static const struct {
    const char *name, *needs; /* the setting without which the value cannot be computed */
} values[DOOR_VALUES] = {
    [DOOR_VISITOR] = {"visitor", "visitor_key_file"},
    [DOOR_IP] = {"ip", NULL},
    [DOOR_COUNTRY] = {"country", "geo_file"},
    [DOOR_REGION] = {"region", "geo_file"},
    [DOOR_CITY] = {"city", "geo_file"},
    [DOOR_BROWSER] = {"browser", NULL},
    [DOOR_OS] = {"os", NULL},
    [DOOR_DEVICE] = {"device", NULL},
    [DOOR_BOT] = {"bot", NULL},
    [DOOR_MARKED] = {MARK_MEMBER, NULL},
};

static const char *const known[] = {"add", "visitor_key_file", "visitor_key_period", "visitor_site",
    "client_address", "trusted_proxies", "geo_file", "user_agent_rules", "user_agent_cache", "marks_dir",
    "marks_field", NULL};

static const struct option_row period_row = {
    .name = "visitor_key_period", .type = OPTION_CHOICE, .fallback = "day", .choices = "day|week"};
static const struct option_row cache_row = {.name = "user_agent_cache",
    .type = OPTION_SIZE,
    .fallback = "8M",
    .max = INT64_C(1) << 30,
    .unit = "bytes"};

struct reading {
    const struct config *config;
    const struct config_section *section;
    const char *data_dir;
    struct door_settings *out;
    struct error *error;
};

const char *door_value_name(enum door_value value)
{
    return values[value].name;
}

/* Sets *text to the value that a row describes, and *number to its number. */
static int read_row(struct reading *r, const struct option_row *row, const char **text, int64_t *number)
{
    struct error why;
    const char *given = config_value(r->section, row->name);
    *text = given ? given : row->fallback;
    if (option_value_read(row, *text, number, &why) == 0)
        return 0;
    return config_fail(r->error, r->config, config_line(r->section, row->name), "%s %s", row->name, why.text);
}

/* Returns the path itself if it is absolute, or a path below the data directory. */
static char *path_of(const struct reading *r, const char *path)
{
    return *path == '/' ? mem_strdup(path)
                        : mem_printf("%s/%s", r->data_dir ? r->data_dir : DEFAULT_DATA_DIR, path);
}

/* Returns the path of a setting, or NULL if the setting is missing. */
static char *read_path(const struct reading *r, const char *name)
{
    const char *path = config_value(r->section, name);
    return path ? path_of(r, path) : NULL;
}

static int add_value(struct reading *r, struct bytes word)
{
    char *name = bytes_dup(word);
    struct suggest near = suggest_for(name);
    int status = 0, line = config_line(r->section, "add");
    size_t i = 0;
    for (; i < DOOR_VALUES && strcmp(values[i].name, name) != 0; i++)
        suggest_try(&near, values[i].name);
    const char *needs = i < DOOR_VALUES ? values[i].needs : NULL,
               *given = needs ? config_value(r->section, needs) : "-";
    if (i == DOOR_VALUES)
        status = config_fail(r->error, r->config, line, "add: a door has no value '%s'%s%s%s", name,
            near.nearest ? " (did you mean " : "", near.nearest ? near.nearest : "",
            near.nearest ? "?)" : "");
    else if (!given || !*given)
        status = config_fail(r->error, r->config, line, "add = %s needs %s = FILE", name, needs);
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

static int read_visitor(struct reading *r)
{
    int64_t number;
    const char *period, *site = config_value(r->section, "visitor_site");
    struct bytes text = bytes_str(site ? site : DEFAULT_SITE), field = text, argument = BYTES_NONE;
    if (read_row(r, &period_row, &period, &number) != 0)
        return -1;
    r->out->period = strcmp(period, "week") == 0 ? VISITOR_WEEK : VISITOR_DAY;
    if (text.len >= 2 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"')
        return 0;
    r->out->site_or_url = !site;
    r->out->site_function = key_function_parse(text, &field, &argument);
    if (!json_path_is_valid(field))
        return config_fail(r->error, r->config, config_line(r->section, "visitor_site"),
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
    if (!address || strcmp(address, "peer") == 0)
        return 0;
    if (!is_header(address))
        return config_fail(r->error, r->config, config_line(r->section, "client_address"),
            "client_address must be peer, or a header with a list of addresses such as X-Forwarded-For, not "
            "'%s'",
            address);
    r->out->address_header = address;
    if (trusted_proxies_parse(proxies ? proxies : DEFAULT_PROXIES, &r->out->proxies, &why) != 0)
        return config_fail(
            r->error, r->config, config_line(r->section, "trusted_proxies"), "trusted_proxies: %s", why.text);
    return 0;
}

static int read_files(struct reading *r)
{
    int64_t bytes = 0;
    const char *text;
    int status = read_row(r, &cache_row, &text, &bytes);
    char *rules = read_path(r, "user_agent_rules");
    r->out->user_agent_cache = (size_t)bytes;
    r->out->user_agent_rules = rules ? rules : mem_strdup(USER_AGENT_RULES);
    r->out->geo_file = read_path(r, "geo_file");
    r->out->visitor_key_file = read_path(r, "visitor_key_file");
    return status;
}

static int read_marks(struct reading *r)
{
    const char *field = config_value(r->section, "marks_field"),
               *own = config_setting(r->config, "spamfilter", "data_dir");
    r->out->marks_field = field ? field : "url";
    r->out->marks_dir = read_path(r, "marks_dir");
    if (!r->out->marks_dir)
        r->out->marks_dir = own ? mem_strdup(own) : path_of(r, "spamfilter");
    if (json_path_is_valid(bytes_str(r->out->marks_field)))
        return 0;
    return config_fail(r->error, r->config, config_line(r->section, "marks_field"),
        "marks_field must be a field, not '%s'", field);
}

int door_settings_read(
    const struct config *config, const char *data_dir, struct door_settings **out, struct error *error)
{
    struct reading r = {.config = config,
        .section = config_section(config, "door", ""),
        .data_dir = data_dir ? data_dir : config_setting(config, "millrace", "data_dir"),
        .error = error};
    *out = NULL;
    if (!r.section)
        return 0;
    r.out = *out = mem_zalloc(sizeof **out);
    if (config_check_keys(config, r.section, known, error) == 0 && read_values(&r) == 0 &&
        read_files(&r) == 0 && read_visitor(&r) == 0 && read_address(&r) == 0 && read_marks(&r) == 0)
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
    free(s->visitor_key_file);
    free(s->geo_file);
    free(s->user_agent_rules);
    free(s->marks_dir);
    free(s->site_field);
    free(s->site_argument);
    free(s);
    *sp = NULL;
}
