/* forget_cells: erases a value in the cells of the api's answers, by `millrace forget` on the host of each cell.
 *
 * 1. Before any cell is erased, forget_cells_await waits until nats_to_pubsub of each cell has copied each message that
 *    JetStream had when the wait began. A message that is copied later would bring the value back.
 * 2. The setting `shell` of a section [cell NAME] starts a shell on the host of the cell (`ssh east sh`). The shell reads
 *    the command from its standard input, so a value needs quotes for one shell only.
 * 3. A cell that cannot be reached does not keep the other cells from their erasure. The command is repeated until no
 *    cell is left. */
#ifndef MILLRACE_FORGET_CELLS_H
#define MILLRACE_FORGET_CELLS_H

#include "tools/tool.h"

/* Prints a line about a place. `name` may be "". */
typedef void forget_say_fn(const char *what, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Both return 0, or EX_TEMPFAIL if the value may remain in a cell. `o` has the settings of `millrace forget`. This
 * pipeline may be a cell, too: the caller erases it between these calls. */
int forget_cells_await(const struct options *o, const struct config *config, forget_say_fn *say);
int forget_cells(const struct options *o, const struct pipeline *pipeline, forget_say_fn *say);

#endif
