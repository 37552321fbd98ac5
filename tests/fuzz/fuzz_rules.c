/* Any bytes as a file of rules: each refused file has a reason with its name, and each accepted text of a label or annotation expands. */
#include "ruler/alert_text.h"
#include "ruler/rule_file.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expand(const struct label_set *texts, const struct label_set *labels)
{
    struct error error;
    struct buf out = {0};
    for (size_t i = 0; i < texts->n; i++)
        if (alert_text_expand(texts->all[i].value, labels, 1234.5, &out, &error) != 0)
            abort();
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rule_groups groups = {0};
    struct label_set labels = {0};
    struct error error = {0};
    label_set_put(&labels, BYTES_LITERAL("a"), BYTES_LITERAL("b"));
    if (rules_parse("f", bytes_of(data, size), 60000, &groups, &error) != 0 &&
        strncmp(error.text, "f:", 2) != 0)
        abort();
    for (size_t i = 0; i < groups.n; i++)
        for (size_t k = 0; k < groups.all[i].n_rules; k++) {
            expand(&groups.all[i].rules[k].labels, &labels);
            expand(&groups.all[i].rules[k].annotations, &labels);
        }
    rules_free(&groups);
    label_set_free(&labels);
    return 0;
}
