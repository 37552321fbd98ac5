/* put_door: `millrace put` as a door (lib/enrich/enrich.h) for the lines of access logs.
 *
 * 1. The client is that of the line: its address, its agent and, if the line has a virtual host, its site. The time is
 *    the line's time. So a line gets the visitor that the API gives the same client.
 * 2. Without `ip` in [door] `add`, the members of the event that contain an address are removed.
 * 3. [door] is that of --config, or else of the pipeline that runs in the data directory. No line passes while it
 *    cannot be read. */
#ifndef MILLRACE_PUT_DOOR_H
#define MILLRACE_PUT_DOOR_H

#include "enrich/enrich.h"
#include "tools/put/log_format.h"

struct config;
struct put_door;

struct put_door_place {
    const struct config *config;
    const char *data_dir;
    bool
        is_remote; /* the queue is given by its URL, so another user's pipeline in data_dir does not matter */
};
enum put_door_result {
    PUT_DOOR_OPEN,    /* *out is NULL if there is no [door] */
    PUT_DOOR_UNKNOWN, /* --config has no [input] and no [door], and no pipeline has been started yet */
    PUT_DOOR_WRONG    /* with the error */
};
enum put_door_result put_door_open(
    const struct put_door_place *place, const char *log_format, struct put_door **out, struct error *error);
/* The following functions do nothing if the door is NULL. */
void put_door_close(struct put_door **d);
/* Replaces *event, which the format has read from its latest line. */
void put_door_pass(struct put_door *d, const struct log_format *line, struct buf *event);
/* Returns the reason why a line is refused, without a text of the line that may be the client's address. Valid until
 * the next call. */
const char *put_door_hide(struct put_door *d, const char *why);
/* Keeps the keys up to date while no lines arrive. Prints a new problem. */
void put_door_tend(struct put_door *d);
uint64_t put_door_missed(const struct put_door *d); /* events without a visitor */
void put_door_report(struct put_door *d);           /* prints the number and the reasons, and a new problem */

#endif
