/* compressor: gzip and zstd behind one face: bytes in, packed bytes out. */
#ifndef MILLRACE_COMPRESSOR_H
#define MILLRACE_COMPRESSOR_H

#include "streams/archive/archive_manifest.h"

struct compressor;
struct compressor *compressor_new(enum archive_compression c);
void compressor_free(struct compressor **p);
/* Appends what is ready to *out; with `last` everything, and the end. 0, or -1: the library failed. */
int compressor_add(struct compressor *p, struct bytes piece, bool last, struct buf *out);

#endif
