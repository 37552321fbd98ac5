/* health: what is said of simplequeue's storage, in the log and by /health, as it changes. */
#ifndef SIMPLEQUEUE_HEALTH_H
#define SIMPLEQUEUE_HEALTH_H

struct app;

/* Call it after whatever the journals have done. */
void health_update(struct app *app);

#endif
