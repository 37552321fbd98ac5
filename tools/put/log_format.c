#include "tools/put/log_format.h"

#include "base/clock.h"
#include "base/rfc3339.h"
#include "counts/event_seconds.h"
#include "enrich/client_address.h"
#include "tools/put/log_fields.h"

#include <ctype.h>
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFIX_MAX 1024
#define FORMED_TIME_MAX 64 /* buffer for a time that strptime reads, with a NUL */
#define FOUND_SHOWN 40     /* bytes of a line in an error */
#define TIME_STEPS 100     /* cost of a call of strptime, in bytes read (LOG_FORMAT_STEPS_MAX) */
#define RFC3339 "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)"

static const char *const kind_words[LOG_KINDS] = {"a word", "a virtual host", "an address", "a list",
    "a number", "a number", "a text", "a path", "a path", "a request", "a time"};

struct log_format {
    struct log_fields fields;
    struct bytes *spans; /* span of each field in the line */
    const char *start, *end;
    uint64_t steps, steps_max;
    size_t
        literal_matched; /* length of the part of the latest literal that matches, and its end in the line */
    const char *literal_end;
    size_t far; /* the farthest field that did not fit, and its place in the line */
    const char *far_at;
    struct bytes far_literal; /* the literal before that field, if the line does not have it; else empty */
    regex_t prefix;
    struct buf text, docker;
    bool is_changed;
    char wrong[400];
};

/* Prefixes of log collectors: Compose and Swarm, with or without a time; kubectl; Docker's time; Kubernetes (CRI); syslog of
 * RFC 5424; syslog, busybox and journald with each of their times, with or without the host. */
static const char prefix_pattern[] =
    "^([A-Za-z0-9_.@-]+ +\\| (" RFC3339 " )?"
    "|\\[pod/[^]]+\\] "
    "|" RFC3339 " ((stdout|stderr) [FP] )?"
    "|<[0-9]{1,3}>1 [^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ (-|(\\[[^]]*\\])+) "
    "|(<[0-9]{1,3}>)?(([A-Z][a-z]{2} )?[A-Z][a-z]{2} [ 0-3][0-9] [0-9:]{8}([.][0-9]+)?( [0-9]{4})?"
    "|" RFC3339 "|[A-Z][a-z]{2} [0-9-]{10} [0-9:]{8} [^ ]+|[0-9]{9,}[.][0-9]{6})"
    " ([^ ]+ ){0,2}[^][ :]+(\\[[0-9]+\\])?: )";

struct log_format *log_format_new(const char *text, struct error *error)
{
    struct log_format *f = mem_zalloc(sizeof *f);
    if (regcomp(&f->prefix, prefix_pattern, REG_EXTENDED) != 0)
        abort();
    if (log_fields_compile(&f->fields, text, error) != 0)
        log_format_free(&f);
    else
        f->spans = mem_zalloc(f->fields.n * sizeof *f->spans);
    return f;
}

void log_format_free(struct log_format **fp)
{
    struct log_format *f = *fp;
    if (!f)
        return;
    log_fields_free(&f->fields);
    regfree(&f->prefix);
    free(f->spans);
    buf_free(&f->text);
    buf_free(&f->docker);
    free(f);
    *fp = NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Returns the end of the literal at `from`, or NULL. A blank matches several blanks. */
static const char *match_literal(struct log_format *f, struct bytes literal, const char *from)
{
    const char *at = from, *end = f->end;
    size_t i = 0;
    for (; i < literal.len; i++) {
        if (at == end || (literal.ptr[i] == ' ' ? !is_blank(*at) : *at != literal.ptr[i]))
            break;
        at++;
        while (literal.ptr[i] == ' ' && at < end && is_blank(*at))
            at++;
    }
    f->steps += (uint64_t)(at - from) + 1;
    f->literal_matched = i;
    f->literal_end = at;
    return i == literal.len ? at : NULL;
}

static bool read_time(
    const char *form, int64_t units, struct bytes text, int64_t *time, enum rfc3339_zone *zone)
{
    struct json_value value = {.type = JSON_STRING, .v.string = text};
    char copy[LOG_TIMES_MAX * FORMED_TIME_MAX];
    *zone = RFC3339_ZONED;
    if (!form[0])
        return event_seconds_read_lenient(&value, units, time);
    if (text.len >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.ptr);
    return rfc3339_read_form(copy, form, time, zone);
}

static bool fits(struct log_format *f, const struct log_field *p, struct bytes text)
{
    int64_t time;
    uint64_t number;
    enum rfc3339_zone zone;
    f->steps += p->kind == LOG_TIME ? TIME_STEPS : 1;
    switch (p->kind) {
    case LOG_WHOLE:
        return bytes_equal_str(text, "-") || bytes_to_u64(text, &number);
    case LOG_DECIMAL:
        return bytes_equal_str(text, "-") || bytes_to_usec(text, &time);
    case LOG_TIME:
        return read_time(p->form, f->fields.units, text, &time, &zone);
    case LOG_WORD:
    case LOG_SITE:
    case LOG_ADDRESS:
    case LOG_LIST:
        return text.len > 0;
    default:
        return true;
    }
}

/* Returns the only possible end of a field, or NULL. */
static const char *only_end(struct log_format *f, const struct log_field *p, const char *at)
{
    const char *c = at, *end = f->end;
    if (p->is_quoted) {
        while (c < end && *c != '"')
            c += *c == '\\' && c + 1 < end ? 2 : 1;
        f->steps += (uint64_t)(c - at);
        return c < end ? c : NULL;
    }
    bool has_form = p->form[0];
    if (has_form && end - at > FORMED_TIME_MAX)
        end = at + FORMED_TIME_MAX;
    if (p->form[0] == '[') {
        const char *bracket = memchr(at, ']', (size_t)(end - at));
        return bracket ? bracket + 1 : NULL;
    }
    bool is_list = p->kind == LOG_ADDRESS || p->kind == LOG_LIST,
         in_list = false; /* after a comma or colon */
    for (; c < end; c++) {
        bool ends = !in_list && p->literal.len > 0 && match_literal(f, p->literal, c);
        if (has_form ? ends && fits(f, p, bytes_of(at, (size_t)(c - at)))
                     : (ends || is_blank(*c) || (p->ends_at_slash && *c == '/')) && !in_list)
            break;
        bool is_colon = p->kind == LOG_LIST && end - c > 3 && memcmp(c + 1, " : ", 3) == 0;
        in_list = is_list && (*c == ',' || is_colon || (in_list && (is_blank(*c) || *c == ':')));
    }
    f->steps += (uint64_t)(c - at);
    return c;
}

/* Returns the part of the latest literal that the line does not have. */
static struct bytes rest_of(const struct log_format *f, struct bytes literal)
{
    return bytes_of(literal.ptr + f->literal_matched, literal.len - f->literal_matched);
}

/* Notes that the line does not match at `at`, where the literal and then the field are expected. */
static void note(struct log_format *f, size_t field, const char *at, struct bytes literal)
{
    if (field > f->far) {
        f->far = field;
        f->far_at = at;
        f->far_literal = literal;
    }
}

static struct bytes unquoted(struct bytes text)
{
    bool is_quoted = text.len > 1 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"';
    return is_quoted ? bytes_of(text.ptr + 1, text.len - 2) : text;
}

/* Matches the fields from i on. Tries each possible end of a text without quotes. In a run of blanks, only the first
 * blank is tried, because a blank literal matches the whole run. */
static bool match(struct log_format *f, size_t i, const char *at)
{
    const struct log_fields *fields = &f->fields;
    const struct log_field *p = &fields->list[i];
    if (i == fields->n) {
        note(f, i, at, BYTES_NONE);
        return fields->is_builtin || at == f->end;
    }
    bool is_open = p->is_open && (i + 1 < fields->n || p->literal.len > 0);
    /* Between two blanks, a text may be empty. */
    bool may_be_empty = is_open && at >= f->start + 2 && is_blank(at[-1]) && is_blank(at[-2]);
    bool skips_blanks = is_open && p->literal.len > 0 && p->literal.ptr[0] == ' ';
    const char *first = is_open ? at - may_be_empty : p->is_open ? f->end : only_end(f, p, at), *rest;
    for (const char *stop = first; stop && stop <= f->end; stop++) {
        struct bytes span = bytes_of(at, stop > at ? (size_t)(stop - at) : 0);
        if (is_open && f->steps++ > f->steps_max)
            return false;
        if (skips_blanks && stop > first && is_blank(stop[-1]) && stop < f->end && is_blank(*stop))
            continue;
        if (!is_open && !fits(f, p, span))
            break;
        rest = match_literal(f, p->literal, stop);
        if (!rest && !is_open)
            note(f, i + 1, f->literal_end, rest_of(f, p->literal));
        f->spans[i] = p->kind == LOG_ADDRESS ? unquoted(span) : span;
        if (rest && match(f, i + 1, rest))
            return true;
        /* The line may end after the required fields. Further text without quotes is ignored. */
        if (i + 1 == fields->required && !memchr(stop, '"', (size_t)(f->end - stop))) {
            memset(f->spans + i + 1, 0, (fields->n - i - 1) * sizeof *f->spans);
            return true;
        }
        if (!is_open)
            return false;
    }
    note(f, i + is_open, at, BYTES_NONE); /* an error names the next field, not the literal before it */
    return false;
}

static struct bytes unescape(struct bytes text, struct buf *out)
{
    static const char codes[] = "ntrvbf\"\\", meanings[] = "\n\t\r\v\b\f\"\\";
    if (!memchr(text.ptr, '\\', text.len))
        return text;
    buf_clear(out);
    for (const char *c = text.ptr, *end = c + text.len; c < end; c++) {
        bool is_escape = *c == '\\' && c + 1 < end, is_hex = is_escape && end - c > 3 && c[1] == 'x';
        int high = is_hex ? bytes_hex_digit(c[2]) : -1, low = high >= 0 ? bytes_hex_digit(c[3]) : -1;
        const char *code = is_escape && c[1] ? strchr(codes, c[1]) : NULL;
        buf_append_char(out, low >= 0 ? (char)(high * 16 + low) : code ? meanings[code - codes] : *c);
        c += low >= 0 ? 3 : code != NULL;
    }
    return buf_bytes(out);
}

static bool is_no_value(struct bytes text)
{
    return text.len == 0 || bytes_equal_str(text, "-");
}

static void append_text(struct log_format *f, struct buf *event, const char *name, struct bytes value)
{
    if (is_no_value(value) && (strcmp(name, "ident") == 0 || strcmp(name, "request") == 0))
        return;
    f->is_changed = f->is_changed || !bytes_is_utf8(value);
    buf_append_char(event, ',');
    buf_append_json(event, bytes_str(name));
    buf_append_char(event, ':');
    if (is_no_value(value))
        buf_append_str(event, "null");
    else
        buf_append_json(event, value);
}

static void append_target(struct log_format *f, struct buf *event, struct bytes target)
{
    const char *mark = target.len ? memchr(target.ptr, '?', target.len) : NULL;
    size_t path = mark ? (size_t)(mark - target.ptr) : target.len;
    if (path > 0) /* a query from %q has no path */
        append_text(f, event, "path", bytes_of(target.ptr, path));
    if (mark)
        append_text(f, event, "query", bytes_of(mark + 1, target.len - path - 1));
}

static void append_request(struct log_format *f, struct buf *event, struct bytes request)
{
    struct bytes protocol = request, method = bytes_take_word(&protocol), target = bytes_take_word(&protocol);
    if (method.len == 0 || target.len == 0 || !bytes_starts_with(protocol, BYTES_LITERAL("HTTP/")) ||
        memchr(protocol.ptr, ' ', protocol.len)) {
        append_text(f, event, "request", request);
        return;
    }
    append_text(f, event, "method", method);
    append_target(f, event, target);
    append_text(f, event, "protocol", protocol);
}

static void append_site(struct log_format *f, struct buf *event, struct bytes site)
{
    const char *colon = site.len ? memrchr(site.ptr, ':', site.len) : NULL;
    size_t n = colon ? (size_t)(colon - site.ptr) : 0;
    uint64_t port;
    bool has_port = n > 0 && bytes_to_u64(bytes_of(colon + 1, site.len - n - 1), &port);
    append_text(f, event, "vhost", has_port ? bytes_of(site.ptr, n) : site);
    if (has_port)
        buf_printf(event, ",\"port\":%" PRIu64, port);
}

/* Appends the first valid address of a list, without its port. A proxy that does not know an address writes another
 * word, such as `unknown`. Without a valid address, the list begins with the name of a host. */
static void append_address(struct log_format *f, struct buf *event, const char *member, struct bytes list)
{
    char text[CLIENT_ADDRESS_TEXT];
    struct client_address address;
    struct bytes first = BYTES_NONE;
    while (list.len > 0) {
        const char *comma = memchr(list.ptr, ',', list.len);
        size_t n = comma ? (size_t)(comma - list.ptr) : list.len, next = n + (comma != NULL);
        struct bytes item = bytes_trim(bytes_of(list.ptr, n));
        if (client_address_parse(item, &address)) {
            append_text(f, event, member, bytes_str(client_address_print(&address, text)));
            return;
        }
        if (first.len == 0)
            first = item;
        list = bytes_of(list.ptr + next, list.len - next);
    }
    append_text(f, event, member, first);
}

static void append_field(
    struct log_format *f, struct buf *event, const struct log_field *p, struct bytes span)
{
    uint64_t number = 0;
    int64_t usec;
    bool is_absent = is_no_value(span) || bytes_equal_str(span, "\"\"");
    struct bytes text = is_absent ? BYTES_NONE : unescape(span, &f->text);
    switch (p->kind) {
    case LOG_ADDRESS:
        append_address(f, event, p->member, text);
        break;
    case LOG_REQUEST:
        append_request(f, event, text);
        break;
    case LOG_TARGET:
    case LOG_PATH:
        if (strcmp(p->member, "query") == 0 && text.len > 0 && text.ptr[0] != '?')
            append_text(f, event, "query", text); /* other servers than Apache write no `?` */
        else
            append_target(f, event, text);
        break;
    case LOG_SITE:
        append_site(f, event, text);
        break;
    case LOG_WHOLE:
        if (bytes_to_u64(span, &number) || strcmp(p->member, "bytes") == 0)
            buf_printf(event, ",\"%s\":%" PRIu64, p->member, number);
        else
            append_text(f, event, p->member, BYTES_NONE);
        break;
    case LOG_DECIMAL:
        if (bytes_to_usec(text, &usec))
            buf_printf(event, ",\"%s\":%.9g", p->member, (double)usec / USEC_PER_SEC);
        else
            append_text(f, event, p->member, BYTES_NONE);
        break;
    default:
        append_text(f, event, p->member, text);
    }
}

/* Drops the prefix that a log collector has put before the line. */
static struct bytes without_prefix(struct log_format *f, struct bytes line)
{
    char head[PREFIX_MAX + 1]; /* regexec reads up to a NUL */
    size_t n = line.len < PREFIX_MAX ? line.len : PREFIX_MAX;
    regmatch_t m;
    if (bytes_starts_with(line, BYTES_LITERAL("{\"log\":"))) {
        struct json_doc *doc = json_doc_parse(line);
        buf_clear(&f->docker);
        buf_append_bytes(&f->docker, json_doc_text(doc, "/log"));
        json_doc_free(&doc);
        struct bytes log = bytes_without_line_end(buf_bytes(&f->docker));
        return log.len > 0 ? log : line;
    }
    memcpy(head, line.ptr, n);
    head[n] = '\0';
    size_t prefix = regexec(&f->prefix, head, 1, &m, 0) == 0 ? (size_t)m.rm_eo : 0;
    return bytes_of(line.ptr + prefix, line.len - prefix);
}

static bool match_line(struct log_format *f, struct bytes line)
{
    f->start = f->far_at = line.ptr;
    f->end = line.ptr + line.len;
    f->far = 0;
    f->far_literal = BYTES_NONE;
    f->steps_max = f->steps + LOG_FORMAT_STEPS_MAX(line.len);
    memset(f->spans, 0, f->fields.n * sizeof *f->spans);
    const char *first = match_literal(f, f->fields.literal, line.ptr);
    if (!first) {
        f->far_at = f->literal_end;
        f->far_literal = rest_of(f, f->fields.literal);
    }
    return first && match(f, 0, first);
}

/* Returns the missing literal for an error as "`LITERAL` and ", or "" if the literal has only blanks and quotes, which the
 * words for the field imply. The caller frees the text. */
static char *missing_literal(const struct log_format *f)
{
    size_t i = 0;
    while (i < f->far_literal.len && (is_blank(f->far_literal.ptr[i]) || f->far_literal.ptr[i] == '"'))
        i++;
    bool is_shown = i < f->far_literal.len, is_last = f->far == f->fields.n;
    return is_shown
               ? mem_printf("`%.*s`%s", (int)f->far_literal.len, f->far_literal.ptr, is_last ? "" : " and ")
               : mem_strdup("");
}

/* The remedy for a line that does not fit. */
static const char *advice(const struct log_format *f)
{
    if (!f->fields.is_builtin)
        return "--log-format describes other lines";
    return "use no --format for JSON, --format=csv for CSV, and --log-format for another log";
}

/* Returns the words for the rest of the line, from the place that does not fit. The caller frees the text. */
static char *found_text(const struct log_format *f)
{
    struct bytes rest = bytes_trim(bytes_of(f->far_at, (size_t)(f->end - f->far_at)));
    struct bytes line = bytes_trim(bytes_of(f->start, (size_t)(f->end - f->start)));
    size_t cut = line.len > FOUND_SHOWN ? line.len - FOUND_SHOWN : 0;
    if (rest.len > 0)
        return mem_printf("found `%.*s`", rest.len > FOUND_SHOWN ? FOUND_SHOWN : (int)rest.len, rest.ptr);
    if (line.len == 0)
        return mem_strdup("but the line is empty");
    return mem_printf("but the line ends after `%.*s`", (int)(line.len - cut), line.ptr + cut);
}

static const char *explain(struct log_format *f)
{
    const struct log_fields *fields = &f->fields;
    const struct log_field *p = &fields->list[f->far];
    if (f->steps > f->steps_max)
        return "the fields of --log-format fit the line in too many ways, or the line is too long";
    char *literal = missing_literal(f), *found = found_text(f);
    if (f->far == fields->n && literal[0])
        snprintf(f->wrong, sizeof f->wrong, "expected %s at the end, %s; %s", literal, found, advice(f));
    else if (f->far == fields->n)
        snprintf(f->wrong, sizeof f->wrong, "expected the end of the line, %s; %s", found, advice(f));
    else
        snprintf(f->wrong, sizeof f->wrong, "expected %s%s%s (%.*s), %s; %s", literal,
            p->kind == LOG_TIME && fields->is_builtin ? "a time such as [24/Mar/2012:09:00:00 +0900]"
                                                      : kind_words[p->kind],
            p->is_quoted ? " in quotes" : "", (int)p->directive.len, p->directive.ptr, found, advice(f));
    free(found);
    free(literal);
    return f->wrong;
}

/* True if the text of several words has the word "-". */
static bool has_dash(struct bytes text)
{
    bool has_more = text.len > 1, has = false;
    while (has_more && text.len > 0 && !has)
        has = bytes_equal_str(bytes_take_word(&text), "-");
    return has;
}

/* Returns the reason to refuse a line that matches a built-in format by accident. With further fields
 * before the address, one of them would be read as the identity, and "- ann" or "192.0.2.7 - ann" as the user. Without a
 * virtual host, the identity would be read as the address. A server that asks for no identity writes "-", so no client can
 * choose the name of a user that is refused. */
static const char *find_shift(struct log_format *f, bool fitted)
{
    static const struct bytes none = {"-", 1};
    size_t client =
        f->fields.list[0].kind == LOG_SITE; /* index of the client; the identity and the user follow */
    if (!f->fields.is_builtin)
        return NULL;
    bool is_site_missing = client == 1 && (fitted ? bytes_equal(f->spans[1], none) : match(f, 1, f->start));
    bool has_more = fitted && !bytes_equal(f->spans[client + 1], none) && has_dash(f->spans[client + 2]);
    struct bytes wrong = f->spans[client];
    int shown = wrong.len < 60 ? (int)wrong.len : 60;
    if (is_site_missing)
        snprintf(f->wrong, sizeof f->wrong, "`%.*s` is not a virtual host: use --format=combined",
            fitted ? (int)f->spans[0].len : shown, fitted ? f->spans[0].ptr : wrong.ptr);
    else if (has_more)
        snprintf(f->wrong, sizeof f->wrong,
            "`%.*s` is not the client: a field precedes the client's address; use %s--log-format", shown,
            wrong.ptr, client ? "" : "--format=vhost_combined, or ");
    return is_site_missing || has_more ? f->wrong : NULL;
}

/* Sets the time of the line from the spans of its directives. Returns NULL, or the reason of a failure. */
static const char *take_time(struct log_format *f, int64_t *time)
{
    enum rfc3339_zone zone = RFC3339_ZONED;
    buf_clear(&f->text);
    for (size_t i = 0; i < f->fields.n; i++)
        if (f->fields.list[i].is_time) {
            buf_append_str(&f->text, f->text.len > 0 ? " " : "");
            buf_append_bytes(&f->text, f->spans[i]);
        }
    struct bytes text = buf_bytes(&f->text);
    bool ok = read_time(f->fields.form, f->fields.units, text, time, &zone);
    if (ok && zone != RFC3339_SKIPPED)
        return NULL;
    snprintf(f->wrong, sizeof f->wrong,
        ok ? "the clocks of --time-zone skip the time %.*s" : "%.*s is not a time",
        text.len < 60 ? (int)text.len : 60, text.ptr);
    return f->wrong;
}

const char *log_format_read(struct log_format *f, struct bytes line, struct buf *event, bool *is_changed)
{
    int64_t time = 0;
    f->is_changed = false;
    f->steps = 0;
    /* The given directives may include the prefix, so the line is first matched with its prefix. */
    bool fitted = (!f->fields.is_builtin && match_line(f, line)) || match_line(f, without_prefix(f, line));
    const char *why = fitted ? NULL : explain(f), *shift = find_shift(f, fitted);
    if (shift || why)
        return shift ? shift : why;
    if ((why = take_time(f, &time)))
        return why;
    buf_clear(event);
    buf_printf(event, "{\"time\":%" PRId64, time);
    for (size_t i = 0; i < f->fields.n; i++)
        if (f->fields.list[i].member[0])
            append_field(f, event, &f->fields.list[i], f->spans[i]);
    buf_append_char(event, '}');
    *is_changed = f->is_changed;
    return NULL;
}

bool log_format_copy(const struct log_format *f, const char *member, struct buf *out)
{
    struct buf plain = {0};
    struct bytes span = BYTES_NONE;
    for (size_t i = 0; member && i < f->fields.n && !span.ptr; i++)
        if (strcmp(f->fields.list[i].member, member) == 0)
            span = f->spans[i];
    buf_clear(out);
    if (span.len > 0 && !bytes_equal_str(span, "-") && !bytes_equal_str(span, "\"\""))
        buf_append_bytes(out, unescape(span, &plain));
    buf_free(&plain);
    return span.ptr != NULL;
}

bool log_format_address(const struct log_format *f, size_t i, const char **member)
{
    if (i >= f->fields.n)
        return false;
    *member = f->fields.list[i].kind == LOG_ADDRESS ? f->fields.list[i].member : NULL;
    return true;
}

uint64_t log_format_steps(const struct log_format *f)
{
    return f->steps;
}
