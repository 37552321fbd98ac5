/* door_settings: the section [door] of the configuration, which all doors of a pipeline share.
 *
 *     [door]
 *     add = visitor                            members that the doors add (enrich.h)
 *     visitor_key_file = /var/lib/millrace/visitor.keys
 *     visitor_key_period = day                 or week
 *     visitor_site = host(url)                 a key (counters.h): the scope of a visitor; "all": one for all sites
 *     client_address = X-Forwarded-For         or peer, the default
 *     trusted_proxies = 127.0.0.0/8 ::1 unix   the default
 *
 * 1. Unknown settings and values, settings that have no effect, and values that cannot be computed without another setting are
 *    refused, with file and line. */
#ifndef MILLRACE_DOOR_SETTINGS_H
#define MILLRACE_DOOR_SETTINGS_H

#include "config/config.h"
#include "counts/key_function.h"
#include "enrich/client_address.h"
#include "enrich/visitor_key.h"

/* Names of the members that a door can add. enrich.c has the functions in the same order. */
enum door_value { DOOR_VISITOR, DOOR_IP, DOOR_VALUES };

struct door_settings {
    bool adds[DOOR_VALUES];
    const char *visitor_key_file;
    enum visitor_period period;
    const struct key_function *site_function; /* NULL: the field itself */
    char *site_field;                         /* NULL: one visitor for all sites */
    char *site_argument;
    const char *address_header; /* NULL: the address of the connection */
    struct trusted_proxies proxies;
};

/* Returns the name of a value: the member in events, and the word in `add`. */
const char *door_value_name(enum door_value value);
/* Reads [door] of `config`, which must outlive *out. Returns 0, or -1 with the error. Without the section, *out is NULL.
 * The caller frees *out. */
int door_settings_read(const struct config *config, struct door_settings **out, struct error *error);
void door_settings_free(struct door_settings **s);

#endif
