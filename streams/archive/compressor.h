/* compressor: gzip or zstd, one piece at a time. */
#ifndef MILLRACE_COMPRESSOR_H
#define MILLRACE_COMPRESSOR_H

#include "streams/archive/archive_manifest.h"

struct compressor;
struct compressor *compressor_new(enum archive_compression c);
void compressor_free(struct compressor **p);
/* Appends the compressed bytes that are ready, or all of them with `last`. Returns -1 if the library fails. */
int compressor_add(struct compressor *p, struct bytes piece, bool last, struct buf *out);

#endif
