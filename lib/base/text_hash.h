/* text_hash: a hash for tables in memory whose keys are chosen by clients. The seed is random in each process, so a
 * client cannot choose keys that collide. Never store a hash in a file.
 *
 * If a source file includes this header before uthash.h, its tables use text_hash. */
#ifndef MILLRACE_TEXT_HASH_H
#define MILLRACE_TEXT_HASH_H

#include "base/bytes.h"

uint64_t text_hash_seed(void);
uint64_t text_hash(struct bytes text);

#define HASH_FUNCTION(key, len, out) ((out) = (unsigned)text_hash(bytes_of((key), (len))))

#endif
