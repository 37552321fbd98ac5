/* put_door: `millrace put` as a door (lib/enrich/enrich.h) for the lines of access logs.
 *
 * 1. The client is the one that the line names: its address, its agent and, if the line has a virtual host, its site. The
 *    time is the line's time. So a line gets the visitor that the API gives the same client.
 * 2. Without `ip` in [door] `add`, the members of the event that contain an address are removed.
 * 3. [door] is that of --config, or else of the pipeline that runs in the data directory. */
#ifndef MILLRACE_PUT_DOOR_H
#define MILLRACE_PUT_DOOR_H

#include "enrich/enrich.h"
#include "tools/put/log_format.h"

struct config;
struct put_door;

/* Sets *out to NULL without [door]. Returns 0, or -1 with the error. */
int put_door_open(const struct config *config, const char *data_dir, const char *log_format,
    struct put_door **out, struct error *error);
/* The following functions do nothing if the door is NULL. */
void put_door_close(struct put_door **d);
/* Replaces *event, which the format has read from its latest line. */
void put_door_pass(struct put_door *d, const struct log_format *line, struct buf *event);
/* Keeps the keys up to date while no lines arrive. Prints a new problem. */
void put_door_tend(struct put_door *d);
uint64_t put_door_missed(const struct put_door *d); /* events without a visitor */
void put_door_report(const struct put_door *d);     /* prints the number and the reasons */

#endif
