/* Any bytes, cut at the first NUL: a configuration, then lines counted under it. */
#include "counts/counters.h"
#include "counts/key_function.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char sample[] =
    "[input]\ntime = t\nskip_if = s\n[total u]\nkey = l\n[total d]\nkey = host(u)\n"
    "[total q]\nkey = query(u,q)\n[total pa]\nkey = path(u)\n[total lo]\nkey = lower(l)\n[total sc]\nkey = "
    "status_class(c)\n"
    "[subtotal c.u]\nkey = c\n[subtotal k.d]\nkey = \"k\"\n[total p]\nkey = l.c[0]\n"
    "[unique v.u]\nmember = c\n[unique w.u]\nmember = host(u)\nby = hour\n";

static void extract(const struct counters *c, struct bytes line)
{
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    volatile size_t bytes = 0;
    switch (counters_extract(r, line, &e)) {
    case COUNTERS_EVENT:
        for (size_t i = 0; i < c->n_totals + c->n_subtotals; i++)
            bytes += e.texts[e.text_of[i]].len;
        for (size_t i = 0; i < c->n_uniques; i++)
            bytes += e.members[e.member_of[i]].len;
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
    struct error error;
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
    static const char *const calls[] = {
        "host(u)", "path(u)", "query(u,q)", "query(u,a b)", "lower(u)", "status_class(u)", "bucket(u)"};
    struct bytes field, argument;
    struct buf space = {0};
    count(bytes_str(sample), bytes_of(data, first));
    if (nul)
        count(bytes_of(data, first), bytes_of(nul + 1, size - first - 1));
    for (size_t i = 0; size > 0 && i < sizeof calls / sizeof *calls; i++) {
        const struct key_function *f = key_function_parse(bytes_str(calls[i]), &field, &argument);
        const char *name = i == 2 ? "q" : "a b";
        assert(key_function_apply(f, bytes_of(data, size), name, &space).len <= size + 1);
    }
    (void)key_function_parse(bytes_of(data, size), &field, &argument);
    buf_free(&space);
    return 0;
}
