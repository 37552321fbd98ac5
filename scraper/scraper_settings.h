/* scraper_settings: the settings of the scraper. */
#ifndef MILLRACE_SCRAPER_SETTINGS_H
#define MILLRACE_SCRAPER_SETTINGS_H

#include "config/options.h"
#include "scraper/scrape_loop.h"

extern const struct option_row scraper_settings[];

/* Checks the settings, and with --check-config the files of targets. Returns 0, or -1 with the error. */
int scraper_check_settings(struct options *o, struct error *error);
/* The following functions are for checked settings. Texts are valid until options_free. */
struct target_defaults scraper_defaults(const struct options *o);
/* Sets the members of *config that settings determine, without the token. */
void scraper_configure(const struct options *o, struct scrape_loop_config *config);
/* Reads a word of `dns`, NAME:PORT. */
bool scraper_read_name(struct bytes word, char host[256], int *port);
void scraper_read_shard(const struct options *o, unsigned *shard, unsigned *n_shards);

#endif
