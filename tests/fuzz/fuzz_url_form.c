/* Any bytes as a URL: the form of the form is the same form, and each parent is its own first parent. */
#include "url/url_form.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct url_form form = {0}, again = {0};
    struct bytes parents[URL_PARENTS_MAX], first[URL_PARENTS_MAX];
    if (url_normalize(bytes_of(data, size), &form) == URL_OK) {
        if (url_normalize(buf_bytes(&form.text), &again) ||
            !bytes_equal(buf_bytes(&form.text), buf_bytes(&again.text)))
            abort();
        size_t n = url_parents(&form, parents);
        for (size_t i = 0; i < n; i++)
            if (url_normalize(parents[i], &again) || url_parents(&again, first) == 0 ||
                !bytes_equal(first[0], parents[i]))
                abort();
    }
    url_form_free(&form);
    url_form_free(&again);
    return 0;
}
