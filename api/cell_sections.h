/* cell_sections: the sections [cell NAME] of the configuration, each of which names the daemons of one cell (cells.h).
 *
 *     [cell east]
 *     aggregator_url = http://east:8082
 *     sortdb_url = http://east:8083           the hosts of the archive; or archive = DIR, which this process maps
 *     pubsub_url = http://east:8081           optional, as the next one: to show their state, and for `millrace cell`
 *     nats_to_pubsub_url = http://east:8086
 *     token_file = FILE                       the token of all daemons; without it, none is sent
 *     shell = ssh east sh                     for `millrace forget`, which also reads `config`
 *
 * With a section [cell NAME], the settings archive, sortdb_url, aggregator_url, their token files and sql are refused
 * from any source, because the answers are only those of the cells. */
#ifndef MILLRACE_CELL_SECTIONS_H
#define MILLRACE_CELL_SECTIONS_H

#include "api/source.h"
#include "config/config.h"
#include "config/options.h"

/* The texts are borrowed from the configuration. NULL: the setting is missing. */
struct cell_section {
    const char *name;
    const char *aggregator_url, *aggregator_token_file;
    const char *sortdb_url, *sortdb_token_file;
    const char *archive;
    const char *pubsub_url, *nats_to_pubsub_url; /* with the aggregator's token */
};

/* Returns 0, or -1 with the error. *n is 0 without such a section. */
int cell_sections_read(
    const struct options *o, struct cell_section out[CELLS_MAX], size_t *n, struct error *error);

#endif
