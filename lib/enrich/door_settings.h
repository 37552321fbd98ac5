/* door_settings: the section [door] of the configuration, which all doors of a pipeline share.
 *
 *     [door]
 *     add = visitor country browser            members that the doors add (enrich.h)
 *     visitor_key_file = visitor.keys
 *     visitor_key_period = day                 or week
 *     visitor_site = site                      a key (counters.h): the scope of a visitor; "all": one for all sites. The
 *                                              default is the member `site`, and for events without it host(url)
 *     client_address = X-Forwarded-For         or peer, the default
 *     trusted_proxies = 127.0.0.0/8 ::1 unix   the default
 *     geo_file = /usr/share/GeoIP/GeoLite2-City.mmdb
 *     user_agent_rules = /usr/share/uap-core/regexes.yaml   the default
 *     user_agent_cache = 8M                    the default
 *     marks_dir = spamfilter                   data_dir of spamfilter; the default: that of the configuration
 *     marks_field = url                        the field with the link to check; the default
 *
 * 1. Unknown settings and values, and values that cannot be computed without another setting are refused, with file
 *    and line. The files are not read.
 * 2. A path that is not absolute is below the data directory of the pipeline. */
#ifndef MILLRACE_DOOR_SETTINGS_H
#define MILLRACE_DOOR_SETTINGS_H

#include "config/config.h"
#include "counts/key_function.h"
#include "enrich/client_address.h"
#include "enrich/visitor_key.h"

/* The members that a door can add. */
enum door_value {
    DOOR_VISITOR,
    DOOR_IP,
    DOOR_COUNTRY,
    DOOR_REGION,
    DOOR_CITY,
    DOOR_BROWSER,
    DOOR_OS,
    DOOR_DEVICE,
    DOOR_BOT,
    DOOR_MARKED,
    DOOR_VALUES
};

struct door_settings {
    bool adds[DOOR_VALUES];
    char *visitor_key_file, *geo_file; /* NULL: not set */
    char *user_agent_rules;
    size_t user_agent_cache; /* bytes */
    char *marks_dir;
    const char *marks_field;
    enum visitor_period period;
    bool site_or_url;                         /* of an event without the field, the site is host(url) */
    const struct key_function *site_function; /* NULL: the field itself */
    char *site_field;                         /* NULL: one visitor for all sites */
    char *site_argument;
    const char *address_header; /* NULL: the address of the connection */
    struct trusted_proxies proxies;
};

/* Returns the name of a value: the member in events, and the word in `add`. */
const char *door_value_name(enum door_value value);
/* Reads [door] of `config`, which must outlive *out. `data_dir` NULL: the setting [millrace] data_dir, or its default.
 * Returns 0, or -1 with the error. Without the section, *out is NULL. The caller frees *out. */
int door_settings_read(
    const struct config *config, const char *data_dir, struct door_settings **out, struct error *error);
void door_settings_free(struct door_settings **s);

#endif
