/* enrich: adds to an event the members that only a server knows.
 *
 * A door is a program that takes events from outside: the API, and `millrace put` with access logs. A door adds members
 * that follow from the client's connection, and the members are stored with the event. So a recount sees the same members.
 *
 *     visitor   16 characters that stand for the client on one site in one period of the visitor key
 *     ip        the client's address
 *     country, region, city         the place of the address (geo.h)
 *     browser, os, device, bot      by the agent (user_agent.h); bot is true or false
 *     marked                        the mark that applies to the event's link (mark_reader.h)
 *
 * `visitor` is an HMAC-SHA-256 of the site, the address and the agent, cut to 96 bits. The key is that of the period that
 * contains the event's time (visitor_key.h). Of an IPv6 address only the first 64 bits count, because the client chooses the
 * others.
 *
 * 1. Only the door sets the members that it adds, and `ip`: members of these names that a client has sent are removed,
 *    however their names are escaped. An event has each member of `add` once.
 * 2. Without `ip` among the values, no member that the door writes contains the address.
 * 3. The visitor depends only on the event, the client and the key of the event's period, so every door of a pipeline adds
 *    the same visitor. The other values depend on the client and the files.
 * 4. A value that the door does not know is null, so counters count `None`, and the aggregator does not take the field
 *    for a misspelt one. An event without a key, a time or an address has no visitor, and is counted by its reason.
 * 5. Marks that cannot be read are a problem (enrich_tend), and never stop events.
 * 6. If a client sends no agent, the agent is empty, and `bot` is true. If the source of the events has no agents, as
 *    in some logs, the values of the agent are null.
 *
 * To add a value, add a row in door_settings.c and a row in set_members. One thread at a time may use a struct
 * enrich. */
#ifndef MILLRACE_ENRICH_H
#define MILLRACE_ENRICH_H

#include "base/clock.h"
#include "base/stats.h"
#include "enrich/door_settings.h"

struct enrich;

struct enrich_input {
    const char *time_field; /* path of the events' time field */
    int64_t units_a_second;
    bool time_is_lenient;
};

/* Texts are borrowed during enrich_begin. */
struct enrich_client {
    struct bytes peer;      /* address of the connection (client_address.h) */
    struct bytes forwarded; /* content of the header settings.address_header */
    struct bytes agent;     /* user agent */
    bool has_no_agent;      /* the source of the events does not contain agents */
    struct bytes host;      /* site of all events; empty: each event contains its site (visitor_site) */
};

enum enrich_missed {
    ENRICH_NO_TIME,
    ENRICH_NO_ADDRESS,
    ENRICH_EARLY,
    ENRICH_LATE,
    ENRICH_KEY_FILE,
    ENRICH_MISSED
};

/* Opens the files. `settings` and the field's name must outlive the result. `stats`: registry of the counters, or NULL. Returns
 * NULL with the error. */
struct enrich *enrich_new(const struct door_settings *settings, const struct enrich_input *input,
    struct stats *stats, usec_t wall, usec_t boot, struct error *error);
void enrich_free(struct enrich **e);
/* Reads the files as enrich_new does, and changes no file. Returns 0, or -1 with the error. */
int enrich_check(const struct door_settings *settings, struct error *error);
/* Removes a further member, which contains the address, unless `ip` is among the values. */
void enrich_drop(struct enrich *e, const char *member);

/* Begins the events of one client. `wall`, `boot`: the clocks. */
void enrich_begin(struct enrich *e, const struct enrich_client *client, usec_t wall, usec_t boot);
/* Appends the event, which must be a valid JSON object, with the members of the client. */
void enrich_event(struct enrich *e, struct bytes event, struct buf *out);

/* Deletes expired keys and makes the present key, also if no events arrive. Returns a warning about a file that cannot
 * be used, valid until the next call, or NULL. */
const char *enrich_tend(struct enrich *e, usec_t wall, usec_t boot);
const char *enrich_remedy(const struct enrich *e); /* the remedy of this warning */
/* Number of events without a visitor. */
uint64_t enrich_missed(const struct enrich *e, enum enrich_missed reason);
const char *enrich_missed_name(enum enrich_missed reason);

#endif
