/* target_names: the addresses of hosts, resolved in a thread and again every `refresh`, so that no name blocks the loop.
 *
 * 1. A name that cannot be resolved again keeps its addresses.
 * 2. A name that was not asked for two days is forgotten. */
#ifndef MILLRACE_TARGET_NAMES_H
#define MILLRACE_TARGET_NAMES_H

#include "base/clock.h"

struct event_base;
struct target_names;

/* Calls on_change after the addresses of a name have changed. Returns NULL with errno if resources run short. */
struct target_names *target_names_new(
    struct event_base *base, usec_t refresh, void (*on_change)(void *arg), void *arg);
void target_names_free(struct target_names **n);
/* Returns the host's addresses, sorted and separated by spaces; IPv6 addresses have brackets. Returns NULL if none are known
 * yet; then the name will be resolved. The text is valid until the loop's turn ends. */
const char *target_names_find(struct target_names *n, const char *host);

#endif
