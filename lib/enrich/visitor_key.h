/* visitor_key: the random keys with which doors turn clients into visitors, and the file in which all doors share them.
 *
 * A period is a UTC day, or a week from Monday. Each period has a key of its own. Without the key, nothing connects the
 * visitors of a period with a client, or with the visitors of another period.
 *
 * 1. The key of a period is made within the period, at the first visitor_keys_tend. The key is durable before its first use, and never
 *    changes. A crash at any step leaves either the old file or the new file.
 * 2. The key is deleted a day after the end of its period. The file contains the number of the newest deleted period. A
 *    period up to this number never gets a key again, even if the clock is set back.
 * 3. Several processes may share the file. Every access holds the lock of PATH.lock, and syncs the file's name. So no
 *    process uses a key that a power cut can take back, and all processes have the same key for a period.
 * 4. These files are refused and never overwritten: a damaged file, a file of a newer version or of other periods,
 *    and a file that other users own or may open.
 *
 * The file is text (docs/formats/visitor-keys.md). One thread at a time may use a struct visitor_keys. Times are Unix
 * seconds; `now` is the wall clock. */
#ifndef MILLRACE_VISITOR_KEY_H
#define MILLRACE_VISITOR_KEY_H

#include "base/bytes.h"
#include "base/error.h"

#define VISITOR_KEY_BYTES 32
#define VISITOR_KEYS_MAX 8 /* the present and the previous period; more only after errors of the clock */
#define VISITOR_KEEP 86400 /* seconds for which a key outlives its period */
#define VISITOR_RETRY 5    /* seconds between accesses to a file that cannot be used */

enum visitor_period { VISITOR_DAY, VISITOR_WEEK };

/* The content of the file. */
struct visitor_key_set {
    enum visitor_period period;
    int64_t deleted; /* number of the newest deleted period; 0: none */
    size_t n;
    struct visitor_key {
        int64_t number; /* of the period */
        uint8_t secret[VISITOR_KEY_BYTES];
    } keys[VISITOR_KEYS_MAX]; /* in ascending order */
};

#define VISITOR_FILE_MAX 4096 /* bytes */

/* Returns the number of the period: days since 1970-01-01, or weeks since the Monday before that day. */
int64_t visitor_period_number(enum visitor_period period, int64_t time);
int64_t visitor_period_end(enum visitor_period period, int64_t number);

void visitor_key_set_print(const struct visitor_key_set *set, struct buf *out);
/* Returns 0, or -1 with the reason ("is damaged: ..."). */
int visitor_key_set_parse(struct bytes text, struct visitor_key_set *out, struct error *error);

struct visitor_keys;

/* Opens the file as visitor_keys_tend does. Returns NULL with the error. */
struct visitor_keys *visitor_keys_open(
    const char *path, enum visitor_period period, int64_t now, struct error *error);
void visitor_keys_free(struct visitor_keys **k);
/* Reads the file, unless it is missing, and changes nothing. Returns 0, or -1 with the error that visitor_keys_open would have. */
int visitor_keys_check(const char *path, enum visitor_period period, struct error *error);

/* Makes the key of the present period if the period has none, and deletes expired keys. Accesses the file only if the
 * period has changed, a key has expired, or VISITOR_RETRY after a failed access. Returns 0, or -1 with the error of the
 * latest access. After an error, the keys that are in memory stay valid. */
int visitor_keys_tend(struct visitor_keys *k, int64_t now, struct error *error);

enum visitor_key_result {
    VISITOR_KEY_OK,
    VISITOR_KEY_EARLY,  /* the period has not begun */
    VISITOR_KEY_LATE,   /* the key of the period was deleted, or was never made */
    VISITOR_KEY_FAILED, /* the file cannot be used */
};
/* Tends the keys, and finds the key of the period that contains `time`. The key is valid until the next call. */
enum visitor_key_result visitor_keys_find(
    struct visitor_keys *k, int64_t time, int64_t now, const struct visitor_key **key);

#endif
