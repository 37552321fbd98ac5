/* Specs in the first line, and any bytes as an event behind it: an item is JSON of objects with one type each, within DynamoDB's limit, and
 * its key is found in it again. A refused event has a reason. */
#include "dynamo/dynamo_form.h"
#include "json/json_fields.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool check_attribute(struct bytes name, const struct json_doc *value, void *arg)
{
    (void)arg;
    assert(name.len > 0);
    assert(json_doc_length(value, "") == 1);
    return true;
}

static void check(struct dynamo_form *form, struct bytes event)
{
    static struct dynamo_item item;
    struct buf key = {0};
    const char *why = dynamo_form_make(form, event, &item);
    if (why) {
        assert(*why != '\0');
        return;
    }
    assert(item.size <= DYNAMO_ITEM_MAX && item.key.len > 0 && item.newer.len > 0);
    struct json_doc *d = json_doc_parse(buf_bytes(&item.json));
    assert(d && json_doc_each_member(d, "", check_attribute, NULL));
    assert(dynamo_form_key(form, d, "", &key));
    assert(bytes_equal(buf_bytes(&key), buf_bytes(&item.key)));
    buf_free(&key);
    json_doc_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size), line;
    struct error error = {0};
    if (!bytes_take_line(&rest, &line))
        return 0;
    char *fields = bytes_dup(line);
    struct dynamo_form *form = dynamo_form_new(
        &(struct dynamo_form_config){.key = "a", .newer = "b", .fields = *fields ? fields : NULL}, &error);
    assert(form || error.text[0] != '\0');
    if (form)
        check(form, rest);
    dynamo_form_free(&form);
    free(fields);
    return 0;
}
