/* scraper_server: the data that main.c and http.c of the scraper share. */
#ifndef MILLRACE_SCRAPER_SERVER_H
#define MILLRACE_SCRAPER_SERVER_H

#include "daemon/daemon.h"
#include "scraper/scrape_loop.h"

struct scraper {
    struct daemon *daemon;
    struct scrape_loop *loop;
};

extern const struct http_route scraper_routes[];

#endif
