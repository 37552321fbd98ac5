/* Any bytes, cut at the first NUL: a configuration, then lines counted under it. */
#include "counts/counters.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char sample[] =
    "[input]\ntime = t\nskip_if = s\n[total u]\nkey = l\n[total d]\nkey = host(u)\n"
    "[subtotal c.u]\nkey = c\n[subtotal k.d]\nkey = \"k\"\n[total p]\nkey = l.c[0]\n";

static void extract(const struct counters *c, struct bytes line)
{
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    volatile size_t bytes = 0;
    switch (counters_extract(r, line, &e)) {
    case COUNTERS_EVENT:
        for (size_t i = 0; i < c->n_totals + c->n_subtotals; i++)
            bytes += e.texts[e.text_of[i]].len;
        assert(bytes > 0 && e.hour % 3600 == 0);
        break;
    case COUNTERS_REJECTED:
        assert(e.reason && *e.reason && !strchr(e.reason, '\n'));
        break;
    case COUNTERS_SKIPPED:
        assert(c->skip_if);
        break;
    }
    counters_reader_free(&r);
}

static void count(struct bytes config_text, struct bytes line)
{
    struct config *config = NULL;
    struct counters *c = NULL;
    struct config_error error;
    if (config_parse("fuzz.conf", config_text, &config, &error) != 0)
        return;
    if (counters_read(config, &c, &error) == 0)
        extract(c, line);
    counters_free(&c);
    config_free(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t first = nul ? (size_t)(nul - data) : size;
    struct buf space = {0};
    count(bytes_str(sample), bytes_of(data, first));
    if (nul)
        count(bytes_of(data, first), bytes_of(nul + 1, size - first - 1));
    assert(counters_host(bytes_of(data, size), &space).len > 0);
    buf_free(&space);
    return 0;
}
