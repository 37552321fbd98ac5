/* health: what /health says of sortdb: that it opens, that a reload failed, or what is wrong with its files. Reads go on
 * whatever it says. */
#ifndef MILLRACE_SORTDB_HEALTH_H
#define MILLRACE_SORTDB_HEALTH_H

struct app;

/* Call it after each opening, and about once a second: files may be cut while they are served. */
void health_update(struct app *app);

#endif
