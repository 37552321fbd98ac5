/* Any bytes as a page of metrics: each sample's texts are inside the page or unescaped, and each error names a place. The first byte
 * chooses the format. What is read becomes lines of JSON, and the comments become a document of JSON that stays when they are read again. */
#include "json/json_fields.h"
#include "metrics/exposition.h"
#include "scraper/metadata.h"
#include "scraper/scrape.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_lines(struct bytes lines)
{
    while (lines.len > 0) {
        const char *lf = memchr(lines.ptr, '\n', lines.len);
        size_t n = lf ? (size_t)(lf - lines.ptr) : 0;
        struct json_doc *d = json_doc_parse(bytes_of(lines.ptr, n));
        if (!d)
            abort();
        struct bytes by = json_doc_text(d, "/by"); /* the label in which the samples of the line differ */
        if (json_doc_text(d, "/labels/__name__").len == 0 && !bytes_equal_str(by, "__name__"))
            abort();
        if (json_doc_at(d, "/v").type == JSON_MISSING ||
            (by.len > 0) != (json_doc_at(d, "/v").type == JSON_OBJECT))
            abort();
        json_doc_free(&d);
        lines = bytes_of(lf + 1, lines.len - n - 1);
    }
}

static void check_metadata(struct bytes page)
{
    struct metadata *m = NULL;
    struct buf out[2] = {{0}};
    for (size_t i = 0; i < 2; i++) {
        metadata_read(&m, page);
        metadata_print(m, BYTES_NONE, UINT64_MAX, &out[i]);
    }
    struct json_doc *d = json_doc_parse(buf_bytes(&out[0]));
    if (!d || json_doc_at(d, "/data").type != JSON_OBJECT ||
        !bytes_equal(buf_bytes(&out[0]), buf_bytes(&out[1])))
        abort();
    json_doc_free(&d);
    metadata_free(&m);
    buf_free(&out[0]);
    buf_free(&out[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct exposition e;
    struct error error;
    struct exposition_label own = {BYTES_LITERAL("instance"), BYTES_LITERAL("a:1")};
    struct target_labels labels = {&own, 1};
    struct scrape s = {.slot = 1000};
    struct scrape_rules rules = {.max_lines = 1 << 20, .honor_timestamps = true};
    struct known_series known = {0};
    enum exposition_result r;
    if (size == 0)
        return 0;
    enum exposition_format format = data[0] & 1 ? EXPOSITION_OPENMETRICS : EXPOSITION_TEXT;
    rules.honor_labels = data[0] & 2;
    struct bytes page = bytes_of(data + 1, size - 1);
    check_metadata(page);
    exposition_init(&e, format, page);
    while ((r = exposition_next(&e)) == EXPOSITION_SAMPLE)
        for (size_t i = 0; i < e.sample.n_labels; i++)
            if (!exposition_is_label_name(e.sample.labels[i].name) ||
                !bytes_is_utf8(e.sample.labels[i].value))
                abort();
    if (r == EXPOSITION_BAD && strncmp(e.error.text, "line ", 5) != 0)
        abort();
    exposition_free(&e);
    if (scrape_read(&s, format, page, &rules, &labels, &error) == 0 && r == EXPOSITION_BAD)
        abort();
    scrape_end(&s, &labels, &known);
    scrape_vanish(&s, &known);
    check_lines(buf_bytes(&s.out));
    scrape_free(&s);
    return 0;
}
