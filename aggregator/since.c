#include "aggregator/since.h"

#include "counts/manifest.h"

void since_read(const struct aggregate *a, const char *archive, const struct counters *counters,
    struct counted_since *since)
{
    struct manifest m = {.generation = 0};
    const struct sealed *sealed = aggregate_sealed(a);
    enum manifest_result r = archive ? manifest_read_current(archive, &m, NULL) : MANIFEST_ABSENT;
    if (r == MANIFEST_OK || r == MANIFEST_ABSENT) {
        const char *before = m.counters ? m.counters : "";
        counted_since_free(since);
        counted_since_copy(&m.since, since);
        for (size_t i = 0; i < sealed->n; i++) {
            const struct slice_state *s = &sealed->slices[i].state;
            if (s->number <= m.through)
                continue;
            counted_since_follow(since, before, s->counters, s->started);
            before = s->counters;
        }
        counted_since_follow(since, before, counters->text, aggregate_open_started(a));
    }
    manifest_free(&m);
}
