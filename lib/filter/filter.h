/* filter: a set of texts in a mapped file that answers "possibly a member" or "not a member".
 *
 *     #include <millrace/filter.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         struct filter_config config = {.path = "spam.filter", .capacity = 1000000, .rate = 0.01};
 *         struct error error;
 *         struct filter *f;
 *         if (filter_open(&config, &f, &error) != FILTER_OK) {
 *             fprintf(stderr, "%s\n", error.text);
 *             return 1;
 *         }
 *         uint64_t next = filter_sequence(f) + 1; // updates up to filter_sequence are in the file
 *         filter_add(f, bytes_str("bad.example"), 1700000000, next, &error);
 *         filter_sync(f, &error);
 *         printf("%d\n", filter_check(f, bytes_str("bad.example")));
 *         filter_close(&f);
 *     }
 *
 * A Bloom filter (Bloom 1970) with counters instead of bits, so that members can be removed (Fan et al. 1998). When the
 * newest layer is full, the next layer opens with twice the capacity and a smaller error rate (Almeida et al. 2007). Each
 * member has an id that rises with time, as in bitly's dablooms. The id determines the layer, so a removal changes only
 * the layer of its add. A new layer begins with an id above all earlier ids; a full layer has a reserve of 1/64 of its
 * capacity for ids that are equal or late. docs/formats/filter.md describes the file and the arithmetic.
 *
 * 1. filter_check returns true for each member.
 * 2. For any other text, filter_check returns true with a probability of at most `rate`, over all layers together.
 * 3. A counter has 4 bits. A counter that has reached 15 never changes again, so a text that was added 15 times may stay
 *    a member.
 * 4. A removal of a text that is not in the layer of its id changes nothing. A text that was never added passes this
 *    test with the probability `rate`, and its removal can remove other members. Remove only texts that were added with
 *    the same id.
 * 5. The file changes only in filter_sync, and filter_sync is atomic: after a kill or a power cut at any moment, also in
 *    the middle of a page, filter_open finds the state of the last sync or of the interrupted sync. Updates after this
 *    state are lost. The caller repeats each update with a sequence above filter_sequence.
 * 6. An update whose sequence is not above filter_sequence changes nothing. Repeated updates therefore never raise or
 *    lower a counter twice.
 * 7. After a failed sync, all updates and syncs fail until the filter is opened again. FILTER_NO_SPACE is not a failure: a
 *    later sync writes the same updates.
 * 8. Other processes may read the file while one writes. During a sync, and after a power cut until the next filter_open,
 *    a reader sees each text as before or as after the sync. A text that is a member before and after the sync is always
 *    found. The file must not be truncated while it is open; replace it by a rename.
 * 9. Layers that are full take at most 8 bytes a member of disk and memory at a rate of 0.01, through five layers. Between
 *    two syncs, the writer needs memory for a copy of each changed page. A layer takes its whole space when it opens.
 * 10. The hashes of each file have a random seed, so clients cannot choose texts that share counters.
 *
 * A filter belongs to one thread at a time. Several threads may call filter_check, filter_sequence, filter_last_id and the
 * functions for statistics while no thread calls another function except filter_sync. No function keeps a text. */
#ifndef MILLRACE_FILTER_H
#define MILLRACE_FILTER_H

#include "base/bytes.h"
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FILTER_LAYERS 32
#define FILTER_CAPACITY_MAX (UINT64_C(1) << 32)
#define FILTER_RATE_MIN 0.0001
#define FILTER_RATE_MAX 0.1

enum filter_result {
    FILTER_OK,
    FILTER_REPEATED, /* the sequence is not above filter_sequence: the update is in the filter already */
    FILTER_ABSENT,   /* the text is not in the layer of the id: nothing was removed */
    FILTER_FULL,    /* the layer of the id is full, and has no reserve left: use an id above filter_last_id */
    FILTER_INVALID, /* a setting is outside its limits */
    FILTER_BUSY,    /* another process writes the file */
    FILTER_DAMAGED, /* the file is damaged, is not a filter, or has an unknown version */
    FILTER_NO_SPACE, /* the disk is full, and nothing has changed: try again later */
    FILTER_FAILED,   /* another system call failed */
};

struct filter_config {
    const char *path;  /* the directory exists; PATH.log belongs to the filter, too */
    uint64_t capacity; /* of the first layer, in members: 1 to FILTER_CAPACITY_MAX */
    double rate;       /* of false positives: FILTER_RATE_MIN to FILTER_RATE_MAX */
};

struct filter;

/* Opens a filter for reads and updates, or creates an empty one. An existing file keeps its own capacity and rate. Sets
 * *out, which the caller closes, or NULL after an error. Reads no counters: the time does not depend on the members. If
 * a sync was interrupted, filter_open first completes it from PATH.log. */
enum filter_result filter_open(const struct filter_config *config, struct filter **out, struct error *error);
/* Opens an existing filter for reads, also while another process writes. The reader sees layers that open later after
 * filter_refresh. */
enum filter_result filter_open_reader(const char *path, struct filter **out, struct error *error);
/* Discards updates since the last sync. *f may be NULL. */
void filter_close(struct filter **f);

/* Adds a text, also if the text is a member already. `sequence` numbers the caller's updates, for example by their
 * offsets in a stream; each update has a higher one. FILTER_FULL, FILTER_NO_SPACE and FILTER_FAILED change nothing and
 * do not count as an update. FILTER_NO_SPACE: the next layer needs space on the disk. */
enum filter_result filter_add(
    struct filter *f, struct bytes text, uint64_t id, uint64_t sequence, struct error *error);
/* Removes a text that was added with this id, once. FILTER_ABSENT changes nothing and does not count as an update. */
enum filter_result filter_remove(
    struct filter *f, struct bytes text, uint64_t id, uint64_t sequence, struct error *error);
/* Replaces filter_sequence, for a filter whose members are from a list. `sequence` differs from that of the last sync. */
void filter_number(struct filter *f, uint64_t sequence);
/* Reserves disk space for the layers that the next adds open, so that none of them gets FILTER_NO_SPACE. `adds` is
 * the number of these adds. The space stays reserved when the filter is closed. Another thread may be in filter_sync.
 */
enum filter_result filter_reserve(struct filter *f, uint64_t adds, struct error *error);
/* The maximum disk space of a sync after this number of updates, in addition to the layers. */
uint64_t filter_sync_bytes(const struct filter *f, uint64_t updates);
bool filter_check(const struct filter *f, struct bytes text);
/* Makes all updates durable. Blocks until the disk has them. */
enum filter_result filter_sync(struct filter *f, struct error *error);
/* Lets a reader see new layers and the sequence of the last sync. If another file has the path, the reader opens this file
 * instead. After an error the reader stays as it was, also if the path has no file any more. */
enum filter_result filter_refresh(struct filter *f, struct error *error);

/* The sequence of the last update, 0 in an empty filter. After filter_open: all updates up to here are durable. */
uint64_t filter_sequence(const struct filter *f);
/* The highest id of all adds. */
uint64_t filter_last_id(const struct filter *f);

struct filter_stats {
    uint64_t members; /* adds minus removes */
    uint64_t bytes;   /* of the file */
    double rate;      /* expected rate of false positives with the present members */
    size_t layers;
    bool was_recovered; /* filter_open completed an interrupted sync */
};
struct filter_stats filter_stats(const struct filter *f);

struct filter_layer_stats {
    uint64_t first_id, members, capacity, bytes;
    double rate; /* expected rate of false positives of this layer alone */
};
/* Layer i, below `layers` of filter_stats; layer 0 is the oldest. Layer i has the ids from its first_id to the next
 * layer's. */
struct filter_layer_stats filter_layer_stats(const struct filter *f, size_t i);

#ifdef __cplusplus
}
#endif

#endif
