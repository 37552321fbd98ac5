#include "metrics/metric_source.h"

int metric_labels_compare(const struct metric_label *a, size_t n_a, const struct metric_label *b, size_t n_b)
{
    for (size_t i = 0; i < n_a && i < n_b; i++) {
        int order = bytes_compare(a[i].name, b[i].name);
        order = order != 0 ? order : bytes_compare(a[i].value, b[i].value);
        if (order != 0)
            return order;
    }
    return (n_a > n_b) - (n_a < n_b);
}
