#include "enrich/enrich.h"

#include "base/clock_watch.h"
#include "counts/event_seconds.h"
#include "counts/key_text.h"
#include "enrich/event_members.h"

#include <nettle/base64.h>
#include <nettle/hmac.h>
#include <stdio.h>
#include <stdlib.h>

#define VISITOR_BYTES 12 /* 16 characters of base64url without padding */
#define V6_BYTES 8       /* first bytes of an IPv6 address that count */

enum { TIME, SITE, PATHS };

struct enrich {
    const struct door_settings *settings;
    struct enrich_input input;
    struct visitor_keys *keys; /* NULL: no visitors */
    struct clock_watch clock;
    struct error error; /* of enrich_tend */
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

static void append_ip(struct enrich *e, struct buf *out)
{
    char text[CLIENT_ADDRESS_TEXT];
    if (e->has_address)
        buf_printf(out, "\"%s\"", client_address_print(&e->address, text));
}

/* Append a value as JSON, or nothing. NULL: the value depends on the event. */
static void (*const values[DOOR_VALUES])(struct enrich *e, struct buf *out) = {
    [DOOR_VISITOR] = NULL,
    [DOOR_IP] = append_ip,
};

static void append_values(struct enrich *e)
{
    buf_clear(&e->members);
    for (size_t i = 0; i < DOOR_VALUES; i++) {
        size_t begin = e->members.len;
        if (!e->settings->adds[i] || !values[i])
            continue;
        buf_printf(&e->members, "%s\"%s\":", begin > 0 ? "," : "", door_value_name((enum door_value)i));
        size_t value = e->members.len;
        values[i](e, &e->members);
        if (e->members.len == value)
            e->members.len = begin;
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
    append_values(e);
}

/* ---- the visitor ---- */

static struct bytes site_of(struct enrich *e, const struct json_value *value)
{
    struct bytes text = BYTES_NONE;
    char digits[KEY_TEXT_DIGITS];
    const struct key_function *function = e->settings->site_function;
    if (!e->settings->site_field)
        return BYTES_NONE;
    if (e->host.len > 0)
        return key_function_apply(e->host_function, buf_bytes(&e->host), NULL, &e->space.function);
    if (key_text_of(value, digits, &text) != NULL || text.len == 0)
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

static bool miss(struct enrich *e, enum enrich_missed reason)
{
    stats_add(e->missed[reason], 1);
    return false;
}

static bool append_visitor(struct enrich *e, struct bytes event, struct buf *out)
{
    static const enum enrich_missed reasons[] = {[VISITOR_KEY_EARLY] = ENRICH_EARLY,
        [VISITOR_KEY_LATE] = ENRICH_LATE,
        [VISITOR_KEY_FAILED] = ENRICH_KEY_FILE};
    struct json_value found[PATHS];
    const struct visitor_key *key;
    const char *reason;
    int64_t time, units = e->input.units_a_second;
    if (json_fields_extract(e->fields, event, found, &reason) != 0 ||
        !(e->input.time_is_lenient ? event_seconds_read_lenient : event_seconds_read)(
            &found[TIME], units, &time))
        return miss(e, ENRICH_NO_TIME);
    if (!e->has_address)
        return miss(e, ENRICH_NO_ADDRESS);
    enum visitor_key_result r = visitor_keys_find(e->keys, time, e->now, &key);
    if (r != VISITOR_KEY_OK)
        return miss(e, reasons[r]);
    buf_append_str(out, "\"visitor\":\"");
    append_hmac(e, key, site_of(e, &found[SITE]), out);
    buf_append_char(out, '"');
    return true;
}

void enrich_event(struct enrich *e, struct bytes event, struct buf *out)
{
    size_t begin = out->len;
    bool has_member = event_members_copy(event, e->owned, e->n_owned, out);
    size_t comma = out->len;
    if (has_member)
        buf_append_char(out, ',');
    size_t end = out->len;
    /* The time and the site are not members that the door sets. */
    if (e->keys && append_visitor(e, event, out) && e->members.len > 0)
        buf_append_char(out, ',');
    buf_append_bytes(out, buf_bytes(&e->members));
    if (out->len == end)
        out->len = has_member ? comma : begin + 1;
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
        e->missed[i] =
            stats ? stats_counter(stats, "events_without_visitor_total", labels,
                        "events that got no visitor, because of their time, the client's address, or a "
                        "key that does not exist yet, no longer, or cannot be read")
                  : &e->own[i];
    }
}

struct enrich *enrich_new(const struct door_settings *settings, const struct enrich_input *input,
    struct stats *stats, usec_t wall, usec_t boot, struct error *error)
{
    struct bytes field, argument;
    struct enrich *e = mem_zalloc(sizeof *e);
    e->host_function = key_function_parse(BYTES_LITERAL("host(url)"), &field, &argument);
    e->settings = settings;
    e->input = *input;
    own(e, door_value_name(DOOR_IP));
    for (size_t i = 0; i < DOOR_VALUES; i++)
        if (settings->adds[i] && i != DOOR_IP)
            own(e, door_value_name((enum door_value)i));
    open_counters(e, settings->adds[DOOR_VISITOR] ? stats : NULL);
    if (!settings->adds[DOOR_VISITOR])
        return e;
    const char *const paths[PATHS] = {
        [TIME] = input->time_field, [SITE] = settings->site_field ? settings->site_field : input->time_field};
    e->fields = json_fields_new(paths, PATHS);
    int64_t now = clock_watch_look(&e->clock, wall, boot) / USEC_PER_SEC;
    e->keys = visitor_keys_open(settings->visitor_key_file, settings->period, now, error);
    if (!e->keys)
        enrich_free(&e);
    return e;
}

const char *enrich_tend(struct enrich *e, usec_t wall, usec_t boot)
{
    int64_t now = clock_watch_look(&e->clock, wall, boot) / USEC_PER_SEC;
    return e->keys && visitor_keys_tend(e->keys, now, &e->error) != 0 ? e->error.text : NULL;
}

void enrich_free(struct enrich **ep)
{
    struct enrich *e = *ep;
    if (!e)
        return;
    visitor_keys_free(&e->keys);
    json_fields_free(&e->fields);
    key_text_space_free(&e->space);
    buf_free(&e->agent);
    buf_free(&e->host);
    buf_free(&e->members);
    free(e->owned);
    free(e);
    *ep = NULL;
}
