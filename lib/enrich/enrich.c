#include "enrich/enrich.h"

#include "base/clock_watch.h"
#include "counts/event_seconds.h"
#include "counts/key_text.h"
#include "enrich/event_members.h"
#include "enrich/geo.h"
#include "enrich/user_agent.h"
#include "filter/mark_reader.h"

#include <nettle/base64.h>
#include <nettle/hmac.h>
#include <stdio.h>
#include <stdlib.h>

#define VISITOR_BYTES 12 /* 16 characters of base64url without padding */
#define V6_BYTES 8       /* first bytes of an IPv6 address that count */

enum { TIME, SITE, URL, LINK, PATHS };

struct enrich {
    const struct door_settings *settings;
    struct enrich_input input;
    struct visitor_keys *keys;  /* NULL: no visitors */
    struct geo *geo;            /* NULL: no places */
    struct user_agents *agents; /* NULL: no values of agents */
    struct mark_reader *marks;  /* NULL: no checks of links */
    struct clock_watch clock;
    struct error error; /* of enrich_tend */
    const char *remedy; /* of `error` */
    struct json_fields *fields;
    const struct key_function *host_function;
    struct key_text_space space;
    const char **owned; /* names of members that only the door sets */
    size_t n_owned, room_owned;
    struct stats_counter own[ENRICH_MISSED], *missed[ENRICH_MISSED];
    /* Of the present client: */
    int64_t now;
    bool has_address;
    struct client_address address;
    struct buf agent, host, members; /* members: "name":value,... */
};

static const char *const missed_names[ENRICH_MISSED] = {[ENRICH_NO_TIME] = "time",
    [ENRICH_NO_ADDRESS] = "address",
    [ENRICH_EARLY] = "early",
    [ENRICH_LATE] = "late",
    [ENRICH_KEY_FILE] = "key_file"};

const char *enrich_missed_name(enum enrich_missed reason)
{
    return missed_names[reason];
}

uint64_t enrich_missed(const struct enrich *e, enum enrich_missed reason)
{
    return stats_read(e->missed[reason]);
}

/* ---- values of the client ---- */

/* Sets `members` to the values that do not depend on the event. */
static void set_members(struct enrich *e, const struct enrich_client *client)
{
    char ip[CLIENT_ADDRESS_TEXT] = "";
    struct geo_place place = {.country = BYTES_NONE};
    struct user_agent agent = {.bot = false};
    bool has_agent = e->agents && !client->has_no_agent;
    if (e->has_address)
        client_address_print(&e->address, ip);
    if (e->geo && e->has_address)
        geo_find(e->geo, &e->address, &place);
    if (has_agent)
        user_agents_find(e->agents, client->agent, &agent);
    const struct bytes texts[DOOR_VALUES] = {[DOOR_IP] = bytes_str(ip),
        [DOOR_COUNTRY] = place.country,
        [DOOR_REGION] = place.region,
        [DOOR_CITY] = place.city,
        [DOOR_BROWSER] = agent.browser,
        [DOOR_OS] = agent.os,
        [DOOR_DEVICE] = agent.device};
    buf_clear(&e->members);
    for (size_t i = 0; i < DOOR_VALUES; i++) {
        if (!e->settings->adds[i] || i == DOOR_VISITOR || i == DOOR_MARKED)
            continue;
        buf_printf(
            &e->members, "%s\"%s\":", e->members.len > 0 ? "," : "", door_value_name((enum door_value)i));
        if (i == DOOR_BOT && has_agent)
            buf_append_str(&e->members, agent.bot ? "true" : "false");
        else if (texts[i].len > 0)
            buf_append_json(&e->members, texts[i]);
        else
            buf_append_str(&e->members, "null");
    }
}

void enrich_begin(struct enrich *e, const struct enrich_client *client, usec_t wall, usec_t boot)
{
    e->now = clock_watch_look(&e->clock, wall, boot) / USEC_PER_SEC;
    e->has_address = client_address_find(&e->settings->proxies, client->peer, client->forwarded, &e->address);
    buf_clear(&e->agent);
    buf_append_bytes(&e->agent, client->agent);
    buf_clear(&e->host);
    if (client->host.len > 0)
        buf_append_str(&e->host, "http://"); /* so that host() removes a port */
    buf_append_bytes(&e->host, client->host);
    set_members(e, client);
}

/* ---- the visitor ---- */

static struct bytes site_of(struct enrich *e, const struct json_value found[PATHS])
{
    struct bytes text = BYTES_NONE;
    char digits[KEY_TEXT_DIGITS];
    const struct key_function *function = e->settings->site_function;
    if (!e->settings->site_field)
        return BYTES_NONE;
    if (e->host.len > 0)
        return key_function_apply(e->host_function, buf_bytes(&e->host), NULL, &e->space.function);
    bool has_text = key_text_of(&found[SITE], digits, &text) == NULL && text.len > 0;
    if (!has_text && e->settings->site_or_url) {
        function = e->host_function;
        has_text = key_text_of(&found[URL], digits, &text) == NULL && text.len > 0;
    }
    if (!has_text)
        return BYTES_NONE;
    if (function)
        return key_function_apply(function, text, e->settings->site_argument, &e->space.function);
    buf_clear(&e->space.function);
    buf_append_bytes(&e->space.function, text);
    return buf_bytes(&e->space.function);
}

/* The address begins with its length, and the site ends with a NUL, so different clients have different inputs. */
static void append_hmac(struct enrich *e, const struct visitor_key *key, struct bytes site, struct buf *out)
{
    struct hmac_sha256_ctx hmac;
    struct base64_encode_ctx base64;
    uint8_t digest[VISITOR_BYTES];
    char text[BASE64_ENCODE_RAW_LENGTH(VISITOR_BYTES)];
    size_t len = client_address_is_v4(&e->address) ? sizeof e->address.bytes : V6_BYTES;
    uint8_t address[1 + sizeof e->address.bytes] = {(uint8_t)len};
    memcpy(address + 1, e->address.bytes, len);
    hmac_sha256_set_key(&hmac, sizeof key->secret, key->secret);
    hmac_sha256_update(&hmac, 1 + len, address);
    hmac_sha256_update(&hmac, site.len, (const uint8_t *)site.ptr);
    hmac_sha256_update(&hmac, 1, (const uint8_t *)"");
    hmac_sha256_update(&hmac, e->agent.len, (const uint8_t *)e->agent.ptr);
    hmac_sha256_digest(&hmac, sizeof digest, digest);
    base64url_encode_init(&base64);
    size_t n = base64_encode_update(&base64, text, sizeof digest, digest);
    buf_append(out, text, n);
    explicit_bzero(&hmac, sizeof hmac);
}

static void append_visitor(struct enrich *e, const struct json_value found[PATHS], struct buf *out)
{
    static const enum enrich_missed reasons[] = {[VISITOR_KEY_EARLY] = ENRICH_EARLY,
        [VISITOR_KEY_LATE] = ENRICH_LATE,
        [VISITOR_KEY_FAILED] = ENRICH_KEY_FILE};
    const struct visitor_key *key;
    int64_t time, units = e->input.units_a_second;
    bool has_time = (e->input.time_is_lenient ? event_seconds_read_lenient : event_seconds_read)(
        &found[TIME], units, &time);
    enum visitor_key_result r =
        has_time && e->has_address ? visitor_keys_find(e->keys, time, e->now, &key) : VISITOR_KEY_FAILED;
    if (r != VISITOR_KEY_OK) {
        stats_add(e->missed[!has_time         ? ENRICH_NO_TIME
                            : !e->has_address ? ENRICH_NO_ADDRESS
                                              : reasons[r]],
            1);
        buf_append_str(out, "null");
        return;
    }
    buf_append_char(out, '"');
    append_hmac(e, key, site_of(e, found), out);
    buf_append_char(out, '"');
}

/* The time, the site and the link are taken from the event as it arrives, before the door sets members. */
void enrich_event(struct enrich *e, struct bytes event, struct buf *out)
{
    struct json_value found[PATHS] = {{.type = JSON_MISSING}};
    const char *comma = event_members_copy(event, e->owned, e->n_owned, out) ? "," : "", *reason;
    if (e->keys || e->marks)
        (void)json_fields_extract(e->fields, event, found, &reason); /* refused events have no values */
    if (e->keys) {
        buf_printf(out, "%s\"visitor\":", comma);
        append_visitor(e, found, out);
        comma = ",";
    }
    if (e->marks) {
        struct bytes link = found[LINK].type == JSON_STRING ? found[LINK].v.string : BYTES_NONE;
        buf_append_str(out, comma);
        mark_member_append(mark_reader_match(e->marks, link), out);
        comma = ",";
    }
    if (e->members.len > 0)
        buf_append_str(out, comma);
    buf_append_bytes(out, buf_bytes(&e->members));
    buf_append_char(out, '}');
}

/* ---- life ---- */

static void own(struct enrich *e, const char *member)
{
    *ARRAY_ADD(e->owned, e->n_owned, e->room_owned) = member;
}

void enrich_drop(struct enrich *e, const char *member)
{
    if (!e->settings->adds[DOOR_IP])
        own(e, member);
}

static void open_counters(struct enrich *e, struct stats *stats)
{
    char labels[64];
    for (size_t i = 0; i < ENRICH_MISSED; i++) {
        snprintf(labels, sizeof labels, "reason=\"%s\"", missed_names[i]);
        e->missed[i] = stats ? stats_counter(stats, "events_without_visitor_total", labels,
                                   "events without a visitor, because the time or the client's address is "
                                   "unknown, or because the key is not made yet, is deleted or is unreadable")
                             : &e->own[i];
    }
}

/* Opens the files that no door changes. */
static int open_files(struct enrich *e, struct error *error)
{
    const struct door_settings *s = e->settings;
    if ((s->adds[DOOR_COUNTRY] || s->adds[DOOR_REGION] || s->adds[DOOR_CITY]) &&
        !(e->geo = geo_open(s->geo_file, error)))
        return error_set(error, -1,
            "[door] geo_file: %s; download the file again, or remove country, region and city from add",
            error->text);
    if ((s->adds[DOOR_BROWSER] || s->adds[DOOR_OS] || s->adds[DOOR_DEVICE] || s->adds[DOOR_BOT]) &&
        !(e->agents = user_agents_open(s->user_agent_rules, s->user_agent_cache, error)))
        return error_set(error, -1,
            "[door] user_agent_rules: %s; install the Debian package uap-core, or remove browser, os, device "
            "and bot from add",
            error->text);
    return 0;
}

struct enrich *enrich_new(const struct door_settings *settings, const struct enrich_input *input,
    struct stats *stats, usec_t wall, usec_t boot, struct error *error)
{
    struct bytes field, argument;
    struct enrich *e = mem_zalloc(sizeof *e);
    e->host_function = key_function_parse(BYTES_LITERAL("host(url)"), &field, &argument);
    e->settings = settings;
    e->input = *input;
    e->now = clock_watch_look(&e->clock, wall, boot) / USEC_PER_SEC;
    own(e, door_value_name(DOOR_IP));
    for (size_t i = 0; i < DOOR_VALUES; i++)
        if (settings->adds[i] && i != DOOR_IP)
            own(e, door_value_name((enum door_value)i));
    open_counters(e, settings->adds[DOOR_VISITOR] ? stats : NULL);
    const char *const paths[PATHS] = {[TIME] = input->time_field,
        [SITE] = settings->site_field ? settings->site_field : input->time_field,
        [URL] = "url",
        [LINK] = settings->marks_field};
    e->fields = json_fields_new(paths, PATHS);
    e->marks = settings->adds[DOOR_MARKED] ? mark_reader_new(settings->marks_dir, stats) : NULL;
    if ((settings->adds[DOOR_VISITOR] &&
            !(e->keys = visitor_keys_open(settings->visitor_key_file, settings->period, e->now, error))) ||
        open_files(e, error) != 0)
        enrich_free(&e);
    return e;
}

int enrich_check(const struct door_settings *settings, struct error *error)
{
    struct enrich *e = mem_zalloc(sizeof *e);
    e->settings = settings;
    int r = settings->adds[DOOR_VISITOR]
                ? visitor_keys_check(settings->visitor_key_file, settings->period, error)
                : 0;
    if (r == 0)
        r = open_files(e, error);
    enrich_free(&e);
    return r;
}

const char *enrich_tend(struct enrich *e, usec_t wall, usec_t boot)
{
    int64_t now = clock_watch_look(&e->clock, wall, boot) / USEC_PER_SEC;
    const char *geo = e->geo ? geo_problem(e->geo) : NULL,
               *marks = e->marks ? mark_reader_problem(e->marks) : NULL;
    e->remedy = "download the file of [door] geo_file again; see millrace help privacy";
    if (e->keys && visitor_keys_tend(e->keys, now, &e->error) != 0) {
        error_set(&e->error, -1, "events get no visitor: %s", e->error.text);
        e->remedy = "correct the file, or [door] visitor_key_file; see millrace help privacy";
    } else if (geo) {
        error_set(&e->error, -1, "events still get places from the former geo_file: %s", geo);
    } else if (marks) {
        error_set(&e->error, -1, "%s", marks);
        e->remedy = MARK_READER_REMEDY;
    } else {
        return NULL;
    }
    return e->error.text;
}

const char *enrich_remedy(const struct enrich *e)
{
    return e->remedy;
}

void enrich_free(struct enrich **ep)
{
    struct enrich *e = *ep;
    if (!e)
        return;
    visitor_keys_free(&e->keys);
    geo_free(&e->geo);
    user_agents_free(&e->agents);
    mark_reader_free(&e->marks);
    json_fields_free(&e->fields);
    key_text_space_free(&e->space);
    buf_free(&e->agent);
    buf_free(&e->host);
    buf_free(&e->members);
    free(e->owned);
    free(e);
    *ep = NULL;
}
