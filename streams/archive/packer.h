/* packer: gzip and zstd behind one face: bytes in, packed bytes out. */
#ifndef MILLRACE_PACKER_H
#define MILLRACE_PACKER_H

#include "streams/archive/archive_finish.h"

struct packer;
struct packer *packer_new(enum archive_compression c);
void packer_free(struct packer **p);
/* Appends what is ready to *out; with `last` everything, and the end. 0, or -1: the library failed. */
int packer_add(struct packer *p, struct bytes piece, bool last, struct buf *out);

#endif
