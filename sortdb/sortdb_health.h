/* sortdb_health: the reason of /health: still opening, a failed reload, or a truncated or modified file. Reads continue. */
#ifndef MILLRACE_SORTDB_HEALTH_H
#define MILLRACE_SORTDB_HEALTH_H

struct app;

/* Call after each opening and about once a second, to notice truncated files. */
void health_update(struct app *app);

#endif
