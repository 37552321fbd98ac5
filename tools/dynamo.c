/* millrace dynamo: prints items of a DynamoDB table, as JSON lines.
 *
 * The types of the key's values come from the table's description (DescribeTable), so that a value on the command line needs
 * no type. Without --typed, an item is printed as plain JSON: sets and binary values as arrays and texts. */
#include "daemon/daemon.h"
#include "dynamo/dynamo_client.h"
#include "json/json_fields.h"
#include "tools/tool.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

static const struct option_row rows[] = {
    DYNAMO_CLIENT_OPTIONS,
    SETTING_INT("limit", "100", 1, 1000000, "query: maximum number of items", .flags = OPTION_COMMAND_LINE),
    SETTING_BOOL("typed", "print the attributes with DynamoDB's types", .flags = OPTION_COMMAND_LINE),
    {.name = NULL},
};

struct session {
    struct event_base *base;
    struct dynamo_client *client;
    const char *table;
    struct json_doc *description;
    bool typed;
    struct buf line;
};

static void append_plain(struct buf *out, const struct json_doc *value);

struct list {
    struct buf *out;
    const char *separator;
    char type; /* of the elements of a set; '\0': each element has its own type */
};

static void append_scalar(struct buf *out, char type, const struct json_doc *value, const char *pointer)
{
    struct json_value v = json_doc_at(value, pointer);
    if (type == 'N' && v.type == JSON_STRING)
        buf_append_bytes(out, v.v.string);
    else
        json_doc_print(value, pointer, out);
}

static bool append_item(const struct json_doc *value, size_t i, void *arg)
{
    struct list *l = arg;
    buf_append_str(l->out, i > 0 ? "," : "");
    if (l->type)
        append_scalar(l->out, l->type, value, "");
    else
        append_plain(l->out, value);
    return true;
}

static bool append_attribute(struct bytes name, const struct json_doc *value, void *arg)
{
    struct list *l = arg;
    buf_append_str(l->out, l->separator);
    l->separator = ",";
    buf_append_json(l->out, name);
    buf_append_char(l->out, ':');
    append_plain(l->out, value);
    return true;
}

static void append_map(struct buf *out, const struct json_doc *d, const char *pointer)
{
    struct list l = {.out = out, .separator = ""};
    buf_append_char(out, '{');
    json_doc_each_member(d, pointer, append_attribute, &l);
    buf_append_char(out, '}');
}

/* Appends a value {"TYPE":...} without its type. */
static void append_plain(struct buf *out, const struct json_doc *value)
{
    struct bytes type = json_doc_name(value, "", 0);
    char pointer[8];
    snprintf(pointer, sizeof pointer, "/%.*s", (int)(type.len < 6 ? type.len : 0), type.ptr ? type.ptr : "");
    if (bytes_equal_str(type, "M")) {
        append_map(out, value, pointer);
    } else if (bytes_equal_str(type, "L") || (type.len == 2 && type.ptr[1] == 'S')) {
        struct list l = {.out = out, .type = type.len == 2 ? type.ptr[0] : '\0'};
        buf_append_char(out, '[');
        json_doc_each(value, pointer, append_item, &l);
        buf_append_char(out, ']');
    } else if (bytes_equal_str(type, "NULL")) {
        buf_append_str(out, "null");
    } else {
        append_scalar(out, type.len == 1 ? type.ptr[0] : '\0', value, pointer);
    }
}

static bool print_item(const struct json_doc *item, size_t i, void *arg)
{
    struct session *s = arg;
    (void)i;
    buf_clear(&s->line);
    if (s->typed)
        json_doc_print(item, "", &s->line);
    else
        append_map(&s->line, item, "");
    buf_append_char(&s->line, '\n');
    fwrite(s->line.ptr, 1, s->line.len, stdout);
    return true;
}

/* Returns the answer, or NULL after printing the error. */
static struct json_doc *ask(struct session *s, const char *operation, struct bytes body)
{
    struct buf reply = {0};
    char why[DYNAMO_WHY_MAX];
    enum dynamo_result result = dynamo_client_fetch(s->client, operation, body, &reply, why);
    struct json_doc *d = result == DYNAMO_OK ? json_doc_parse(buf_bytes(&reply)) : NULL;
    if (!d)
        tool_fail(EX_TEMPFAIL, "%s of the table %s: %s", operation, s->table, why);
    buf_free(&reply);
    return d;
}

/* Returns the type of an attribute in the keys of the table: 'S', 'N' or 'B'; or '\0'. */
static char type_of(const struct session *s, struct bytes name)
{
    size_t n = json_doc_length(s->description, "/Table/AttributeDefinitions");
    for (int i = 0; i < (int)n; i++)
        if (bytes_equal(
                json_doc_text(s->description, "/Table/AttributeDefinitions/%d/AttributeName", i), name)) {
            struct bytes type =
                json_doc_text(s->description, "/Table/AttributeDefinitions/%d/AttributeType", i);
            return type.len == 1 ? type.ptr[0] : '\0';
        }
    return '\0';
}

static int fail_no_key(const struct session *s, struct bytes name)
{
    struct buf names = {0};
    for (int i = 0; i < (int)json_doc_length(s->description, "/Table/KeySchema"); i++) {
        buf_append_str(&names, i > 0 ? ", " : "");
        buf_append_printable(&names, json_doc_text(s->description, "/Table/KeySchema/%d/AttributeName", i));
    }
    buf_append_char(&names, '\0');
    int status = tool_fail(EX_USAGE, "%.*s is not a key of the table %s; its keys: %s", (int)name.len,
        name.ptr, s->table, names.ptr);
    buf_free(&names);
    return status;
}

/* Appends NAME=VALUE operands: as "NAME":{"S":"VALUE"} for a get, else as the conditions of a query. Returns an exit
 * status. */
static int append_key(struct session *s, char **words, size_t n, bool is_query, struct buf *body)
{
    struct buf names = {0}, values = {0}, condition = {0};
    int status = EX_OK;
    for (size_t i = 0; i < n && status == EX_OK; i++) {
        const char *equals = strchr(words[i], '=');
        struct bytes name = bytes_of(words[i], equals ? (size_t)(equals - words[i]) : strlen(words[i]));
        char type = type_of(s, name);
        if (!equals)
            status = tool_fail(EX_USAGE, "%s is not KEY=VALUE", words[i]);
        else if (type == '\0')
            status = fail_no_key(s, name);
        if (status != EX_OK)
            break;
        const char *comma = i > 0 ? "," : "";
        buf_printf(&names, "%s\"#k%zu\":", comma, i);
        buf_append_json(&names, name);
        if (is_query) {
            buf_printf(&values, "%s\":v%zu\":", comma, i);
        } else {
            buf_append_str(&values, comma);
            buf_append_json(&values, name);
            buf_append_char(&values, ':');
        }
        buf_printf(&values, "{\"%c\":", type);
        buf_append_json(&values, bytes_str(equals + 1));
        buf_append_char(&values, '}');
        buf_printf(&condition, "%s#k%zu = :v%zu", i > 0 ? " AND " : "", i, i);
    }
    if (status == EX_OK && is_query)
        buf_printf(body,
            ",\"KeyConditionExpression\":\"%s\",\"ExpressionAttributeNames\":{%.*s},"
            "\"ExpressionAttributeValues\":{%.*s}",
            condition.ptr, (int)names.len, names.ptr, (int)values.len, values.ptr);
    else if (status == EX_OK)
        buf_printf(body, ",\"Key\":{%.*s}", (int)values.len, values.ptr);
    buf_free(&names);
    buf_free(&values);
    buf_free(&condition);
    return status;
}

static int get(struct session *s, struct buf *body)
{
    buf_append_str(body, ",\"ConsistentRead\":true}");
    struct json_doc *d = ask(s, "GetItem", buf_bytes(body));
    if (!d)
        return EX_TEMPFAIL;
    bool is_there = json_doc_at(d, "/Item").type == JSON_OBJECT;
    struct buf text = {0};
    json_doc_print(d, "/Item", &text);
    struct json_doc *item = json_doc_parse(buf_bytes(&text));
    if (is_there)
        print_item(item, 0, s);
    json_doc_free(&item);
    buf_free(&text);
    json_doc_free(&d);
    return is_there ? EX_OK : tool_fail(EX_NOINPUT, "the table %s has no such item", s->table);
}

static int query(struct session *s, struct buf *body, uint64_t limit)
{
    size_t end = body->len;
    struct buf from = {0};
    while (limit > 0) {
        body->len = end;
        buf_printf(body, ",\"Limit\":%" PRIu64 "%.*s}", limit, (int)from.len, from.len ? from.ptr : "");
        struct json_doc *d = ask(s, "Query", buf_bytes(body));
        if (!d)
            break;
        uint64_t n = json_doc_length(d, "/Items");
        json_doc_each(d, "/Items", print_item, s);
        limit -= n < limit ? n : limit;
        buf_clear(&from);
        buf_append_str(&from, ",\"ExclusiveStartKey\":");
        bool is_last = json_doc_at(d, "/LastEvaluatedKey").type != JSON_OBJECT;
        json_doc_print(d, "/LastEvaluatedKey", &from);
        json_doc_free(&d);
        if (is_last)
            limit = 0;
    }
    buf_free(&from);
    return limit == 0 ? EX_OK : EX_TEMPFAIL;
}

static int dynamo_with(const struct options *o)
{
    char **words;
    struct error error;
    struct buf body = {0};
    size_t n = options_operands(o, &words);
    bool is_query = n > 0 && strcmp(words[0], "query") == 0;
    if (n < 3 || (!is_query && strcmp(words[0], "get") != 0))
        return tool_fail(EX_USAGE, "usage: millrace dynamo get|query TABLE KEY=VALUE...");
    if (dynamo_client_check(o, &error) != 0)
        return tool_fail(EX_USAGE, "%s", error.text);
    struct session s = {.base = event_base_new(), .table = words[1], .typed = options_bool(o, "typed")};
    s.client = dynamo_client_new(o, s.base, 1, &error);
    int status = s.client ? EX_OK : tool_fail(EX_CONFIG, "%s", error.text);
    buf_append_str(&body, "{\"TableName\":");
    buf_append_json(&body, bytes_str(s.table));
    size_t end = body.len;
    if (status == EX_OK) {
        buf_append_char(&body, '}');
        s.description = ask(&s, "DescribeTable", buf_bytes(&body));
        status = s.description ? EX_OK : EX_TEMPFAIL;
    }
    body.len = end;
    if (status == EX_OK)
        status = append_key(&s, words + 2, n - 2, is_query, &body);
    if (status == EX_OK)
        status = is_query ? query(&s, &body, (uint64_t)options_int(o, "limit")) : get(&s, &body);
    buf_free(&body);
    buf_free(&s.line);
    json_doc_free(&s.description);
    dynamo_client_free(&s.client);
    event_base_free(s.base);
    return tool_flush(status);
}

int tool_dynamo(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "dynamo",
        .summary = "prints items of a DynamoDB table",
        .operands = "get|query TABLE KEY=VALUE...",
        .more =
            "get prints the item with these keys, and query those with this partition key, as JSON lines.\n",
        .rows = {rows, NULL}};
    return tool_run_on_files(&spec, argc, argv, dynamo_with);
}
