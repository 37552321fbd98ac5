/* gone: which messages of a queue are gone although its journal had no room to say so: a bit for each, in the file `gone` beside
 * the segments.
 *
 * A removal's record takes some 90 bytes, which is more than a short message does. So on a full disk what the journal has reserved
 * may not last, however it is given back; a bit has its place before the message is taken.
 *
 * 1. A message that gone_reserve covered can always be marked: the blocks its bit lies in are allocated. (Not so on a file
 *    system without fallocate, which reserves nothing.) One that it did not cover can be marked as long as there is room: else its
 *    removal is refused, and never one undone that was not.
 * 2. What gone_set has returned 0 for survives what a commit of the journal does: kill -9, and with `synced` a power cut.
 * 3. Ids never repeat, so a bit that is set holds for ever, whatever the journal says before or behind: it may be set, read and
 *    forgotten at any time, and a write that was cut short has marked a part of what was asked, nothing else.
 * 4. A file that names another journal counts for nothing: in a new one message ids begin again.
 */
#ifndef SIMPLEQUEUE_GONE_H
#define SIMPLEQUEUE_GONE_H

#include "simplequeue/queue/queue.h"

#define GONE_BLOCK 4096
#define GONE_BLOCK_IDS ((uint64_t)8 * GONE_BLOCK)

struct gone;
/* Opens the file in that directory; it is made with the first message. `journal` is the id of the journal there. NULL with the reason in error. */
struct gone *gone_open(const char *dir, const char *journal, bool synced, char *error, size_t error_size);
void gone_free(struct gone **g);

/* For the bits of these ids; whatever is below an id that it covered counts as covered. 0, or -1 with errno: ENOSPC and EDQUOT say
 * that the disk has no room, anything else that the file could not be made. */
int gone_reserve(struct gone *g, uint64_t first, uint64_t last);
/* Marks them, of which none is. 0, or -1 with errno: none is, unless that cannot be written either. */
int gone_set(struct gone *g, const struct id_ranges *ids);
/* Every marked id from `from` on, as rising ranges. 0, or -1 with errno. */
int gone_each(struct gone *g, uint64_t from, void (*each)(struct id_range range, void *arg), void *arg);
/* Nothing below `id` is asked for any more: whole blocks below it are given back. */
void gone_forget(struct gone *g, uint64_t id);

#endif
