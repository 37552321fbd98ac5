/* Any bytes as a file of targets: each target has a request that fits one line, sorted labels and an interval in its bounds; each refused file
 * has a reason. */
#include "scraper/targets.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct target *t)
{
    if (t->interval < TARGET_INTERVAL_MIN || t->interval > TARGET_INTERVAL_MAX || t->timeout < 1 ||
        t->timeout > t->interval)
        abort();
    if (t->path[0] != '/' || strpbrk(t->path, " \r\n\t") || strpbrk(t->address, " \r\n\t") ||
        target_slot(t, 1000) > 1000)
        abort();
    for (size_t i = 0; i < t->labels.n; i++) {
        const struct exposition_label *l = &t->labels.all[i];
        if (!exposition_is_label_name(l->name) || bytes_starts_with(l->name, BYTES_LITERAL("__")) ||
            l->value.len == 0)
            abort();
        if (i > 0 && bytes_compare(t->labels.all[i - 1].name, l->name) >= 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct target_defaults defaults = {
        .job = "j", .path = "/metrics", .interval = 60000, .timeout = 10000};
    struct target_list list = {0};
    struct error error = {0};
    if (targets_read(bytes_of(data, size), &defaults, &list, &error) != 0 && error.text[0] == '\0')
        abort();
    struct share share = {0};
    share_set_shard(&share, 1, 3);
    targets_select(&list, &share);
    share_free(&share);
    for (size_t i = 0; i < list.n; i++)
        check(list.all[i]);
    targets_free(&list);
    return 0;
}
