/* block_layout: the parts of a block file, for its writer and its reader (docs/formats/metric-blocks.md). */
#ifndef MILLRACE_METRICDB_BLOCK_LAYOUT_H
#define MILLRACE_METRICDB_BLOCK_LAYOUT_H

#define BLOCK_MAGIC "MRMETB1\n"

/* Positions in the header. */
enum {
    HEAD_MAGIC = 0,
    HEAD_LEVEL = 8,
    HEAD_WIDTH = 16,
    HEAD_FROM = 24,
    HEAD_TO = 32,
    HEAD_MIN_AT = 40,
    HEAD_MAX_AT = 48,
    HEAD_BUCKETS = 56,
    HEAD_CUT_AT = 64,
    HEAD_HORIZON = 72,
    HEAD_LENGTHS = 80, /* of each part (8 bytes each) */
    HEAD_OFFSET = 144, /* the cursor */
    HEAD_ID = 152,
    HEAD_OPENING = 184,
    HEAD_INDEX_SUM = 208,
    HEAD_SUM = 216,
    HEAD_SIZE = 224,
};

/* The parts after the header, each at a multiple of 8 bytes. All but the pieces are the index. */
enum block_part {
    PART_PIECES,
    PART_TEXTS,    /* the names and values, in byte order, each once */
    PART_ENDS,     /* of each text in PART_TEXTS: 4 bytes */
    PART_LABELS,   /* name and value of each label, as numbers of texts: 4 bytes each */
    PART_SERIES,   /* SERIES_SIZE bytes each */
    PART_LISTS,    /* for each name and value the numbers of its series: LEB128 of the differences */
    PART_POSTINGS, /* for each name and value, in order: the two texts (4 bytes each), end of its list (8
                      bytes) */
    PART_STATES,   /* STATE_SIZE bytes for each series, or no bytes */
    BLOCK_PARTS,
};

enum {
    SERIES_PIECES = 0,
    SERIES_MIN_AT = 8,
    SERIES_MAX_AT = 16,
    SERIES_PIECES_LEN = 24,
    SERIES_LABELS = 28,
    SERIES_N_LABELS = 32,
    SERIES_N_BUCKETS = 36,
    SERIES_SIZE = 40
};
enum { POSTING_NAME = 0, POSTING_VALUE = 4, POSTING_END = 8, POSTING_SIZE = 16 };
enum { STATE_LAST_AT = 0, STATE_NUMBER = 8, STATE_HAS_NUMBER = 16, STATE_IDLE = 20, STATE_SIZE = 24 };

#endif
