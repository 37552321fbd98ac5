#include "tools/put/log_format.h"

#include "counts/event_seconds.h"
#include "base/clock.h"
#include "base/rfc3339.h"

#include <ctype.h>
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFIX_MAX 1024
#define FORMED_TIME_MAX 64 /* bytes of a time with a form, and a NUL */
#define TIME_STEPS 100     /* the work of strptime, in bytes looked at */
#define RFC3339 "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)"
#define LOCAL_TIME "%d/%b/%Y:%H:%M:%S %z"

enum kind {
    WORD,    /* without blanks */
    ADDRESS, /* a list of addresses */
    WHOLE,   /* a number of digits, or "-" */
    DECIMAL, /* a number with or without a fraction, or "-" */
    TEXT,    /* any text */
    REQUEST, /* METHOD TARGET PROTOCOL */
    TARGET,  /* PATH?QUERY */
    TIME,
    REMAINS, /* TARGET, but with blanks; a TEXT in struct field */
    SITE,    /* a word, with or without ":PORT" */
    KINDS
};

static const char *const kind_words[KINDS] = {"a word", "an address", "a number", "a number", "a text",
    "a request", "a path", "a time", "a path", "a virtual host"};

struct field {
    enum kind kind;
    struct bytes directive;
    char *member;         /* NULL: left out of the event */
    char *form;           /* TIME: of strptime. NULL: a number or RFC 3339 */
    int64_t units;        /* TIME, of a number: units in a second */
    bool is_target;       /* TEXT: PATH?QUERY, or ?QUERY */
    bool is_quoted;       /* between quotes of the literals */
    struct bytes literal; /* after the field */
};

struct log_format {
    char *text;
    bool is_builtin;
    struct bytes literal; /* before the first field */
    struct buf literals;
    struct field *fields;
    size_t n, room, required; /* required: a line may end after these */
    struct bytes *spans;      /* of the line, by field */
    const char *start, *end, *required_end;
    uint64_t steps, steps_max;
    size_t far; /* the farthest field that did not fit, and its place in the line */
    const char *far_at;
    regex_t prefix;
    struct buf text_buf, docker;
    bool is_changed;
    char wrong[400];
};

static const struct {
    const char *name;
    size_t required; /* fields after which a line may end; the rest of a line is ignored */
    const char *text;
} builtins[] = {
    {"combined", 7, "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\""},
    {"vhost_combined", 8, "%v %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\""},
};

/* Directives of both servers. Apache's header %{NAME}i has the name of nginx's $http_name. Each other name is a text. */
static const struct {
    const char *member; /* of a time: its form */
    enum kind kind;
    const char *directives;
} known[] = {
    {"host", ADDRESS, "%h %a $remote_addr"},
    {"proxy", ADDRESS, "$realip_remote_addr"},
    {"forwarded_for", ADDRESS, "$http_x_forwarded_for"},
    {"local_address", WORD, "%A"},
    {"ident", WORD, "%l"},
    {"user", TEXT, "%u $remote_user"},
    {LOCAL_TIME, TIME, "$time_local"},
    {"[" LOCAL_TIME "]", TIME, "%t"},
    {NULL, TIME, "$time_iso8601 $msec"},
    {"request", REQUEST, "%r $request"},
    {"method", WORD, "%m $request_method"},
    {"path", TARGET, "$request_uri"},
    {"path", TEXT, "%U $uri"},
    {"path", REMAINS, "%U%q $uri$is_args$args $uri$is_args$query_string"},
    {"query", REMAINS, "%q"},
    {"query", TEXT, "$args $query_string"},
    {"protocol", WORD, "%H $server_protocol"},
    {"status", WHOLE, "%s $status"},
    {"bytes", WHOLE, "%b %B %O $body_bytes_sent $bytes_sent"},
    {"bytes_in", WHOLE, "%I $request_length"},
    {"bytes_total", WHOLE, "%S"},
    {"duration", DECIMAL, "%T $request_time"},
    {"duration_ms", WHOLE, "%{ms}T"},
    {"duration_us", WHOLE, "%D %{us}T"},
    {"first_byte_us", WHOLE, "%^FB"},
    {"vhost", TEXT, "%v %V $host $http_host $server_name"},
    {"port", WHOLE, "%p $server_port"},
    {"pid", WHOLE, "%P"},
    {"connection", WORD, "%X"},
    {"keepalive", WHOLE, "%k"},
    {"log_id", WORD, "%L"},
    {"file", TEXT, "%f"},
    {"handler", TEXT, "%R"},
    {"referrer", TEXT, "$http_referer"},
    {"agent", TEXT, "$http_user_agent"},
};

/* Prefixes of log collectors: Compose, with or without a time; Docker's time; Kubernetes (CRI); syslog of RFC 5424; syslog and journald with either time. */
static const char prefix_pattern[] = "^([A-Za-z0-9_.-]+ +\\| (" RFC3339 " )?"
                                     "|" RFC3339 " ((stdout|stderr) [FP] )?"
                                     "|<[0-9]{1,3}>1 [^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ (-|(\\[[^]]*\\])+) "
                                     "|(<[0-9]{1,3}>)?([A-Z][a-z]{2} [ 0-3][0-9] [0-9:]{8}|" RFC3339 ")"
                                     " ([^ ]+ )?[^][ :]+(\\[[0-9]+\\])?: )";

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* ---- compiling ---- */

/* Makes a name of letters, digits and "_", in lower case. */
static void normalize(char *name)
{
    for (char *c = name; *c; c++)
        *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
}

/* Takes the name, which begins with "%" or "$". Returns false if it is an unknown directive. */
static bool add_field(struct log_format *f, const char *from, const char *end, char *name)
{
    struct field *p = ARRAY_ADD(f->fields, f->n, f->room);
    *p = (struct field){.kind = KINDS, .directive = bytes_of(from, (size_t)(end - from)), .units = 1};
    for (size_t i = 0; i < sizeof known / sizeof *known && p->kind == KINDS; i++) {
        const char *list = known[i].directives;
        for (struct bytes word; p->kind == KINDS && bytes_next_word(&list, " ", &word);) {
            if (!bytes_equal_str(word, name))
                continue;
            p->kind = known[i].kind;
            *(p->kind == TIME ? &p->form : &p->member) = known[i].member ? mem_strdup(known[i].member) : NULL;
        }
    }
    p->is_target = p->kind == REMAINS;
    if (p->is_target)
        p->kind = TEXT;
    bool is_known = p->kind != KINDS || *name == '$';
    if (p->kind == KINDS) {
        p->kind = TEXT;
        p->member = mem_strdup(name + (strncmp(name, "$http_", 6) == 0 ? 6 : 1));
        normalize(p->member);
    }
    free(name);
    return is_known;
}

/* The directives of a path and its query, which nothing separates. Returns the end, or NULL if they are not at `at`. */
static const char *add_target(struct log_format *f, const char *at)
{
    static const char *const targets[] = {"%U%q", "$uri$is_args$args", "$uri$is_args$query_string"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        size_t n = strlen(targets[i]);
        if (strncmp(at, targets[i], n) != 0 ||
            (*at == '$' && (isalnum((unsigned char)at[n]) || at[n] == '_')))
            continue;
        (void)add_field(f, at, at + n, mem_strdup(targets[i]));
        return at + n;
    }
    return NULL;
}

/* "$name" and "${name}". Returns the end, or NULL. */
static const char *add_variable(struct log_format *f, const char *at)
{
    bool is_braced = at[1] == '{';
    const char *name = at + 1 + is_braced;
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (n == 0 || (is_braced && name[n] != '}'))
        return NULL;
    (void)add_field(f, at, name + n + is_braced, mem_printf("$%.*s", (int)n, name));
    return name + n + is_braced;
}

/* Apache's "%{...}t": a form of strftime, or a unit. */
static void set_time(struct field *p, struct bytes form)
{
    if (bytes_starts_with(form, BYTES_LITERAL("begin:")) || bytes_starts_with(form, BYTES_LITERAL("end:"))) {
        size_t n = (size_t)((const char *)memchr(form.ptr, ':', form.len) - form.ptr) + 1;
        form = bytes_of(form.ptr + n, form.len - n);
    }
    if (form.len == 0)
        return;
    p->units = bytes_equal_str(form, "sec")    ? 1
               : bytes_equal_str(form, "msec") ? 1000
               : bytes_equal_str(form, "usec") ? 1000000
                                               : 0;
    free(p->form);
    p->form = p->units > 0 ? NULL : bytes_dup(form);
}

/* "%X", "%>X", "%!200X" and "%{NAME}X". Returns the end, or NULL. */
static const char *add_directive(struct log_format *f, const char *at)
{
    const char *c = at + 1 + strspn(at + 1, "<>!,0123456789");
    struct bytes name = BYTES_NONE;
    if (*c == '{') {
        size_t n = strcspn(c, "}");
        name = bytes_of(c + 1, n - 1);
        c += n + (c[n] == '}');
    }
    const char *letters = c;
    c += *c == '^' && c[1] && c[2] ? 2 : 0;
    if (!isalpha((unsigned char)*c))
        return NULL;
    bool is_named = name.ptr && strchr("inoeCcx", *c), has_unit = *c == 'T' && name.ptr && *name.ptr != 's';
    char *full = is_named   ? mem_printf("$http_%.*s", (int)name.len, name.ptr)
                 : has_unit ? mem_printf("%%{%.*s}T", (int)name.len, name.ptr)
                            : mem_printf("%%%.*s", (int)(c + 1 - letters), letters);
    if (is_named)
        normalize(full + 1);
    if (!add_field(f, at, c + 1, full))
        return NULL;
    if (*c == 't')
        set_time(&f->fields[f->n - 1], name);
    return c + 1;
}

static void add_literal(struct log_format *f, char c)
{
    struct bytes *literal = f->n > 0 ? &f->fields[f->n - 1].literal : &f->literal;
    if (literal->len++ == 0)
        literal->ptr = f->literals.ptr + f->literals.len;
    buf_append_char(&f->literals, c);
}

/* Where a quoted text ends that begins at `at`, or NULL. */
static const char *quote_end(const char *at)
{
    const char *c = at + 1;
    while (*c && *c != *at)
        c += *c == '\\' && c[1] ? 2 : 1;
    return *c ? c : NULL;
}

/* Reads a format as it stands in the server's configuration, with or without "log_format NAME" or "LogFormat" before
 * it. Joins the quoted pieces of nginx's configuration, and removes the quotes and escapes of Apache's. */
static char *plain_text(const char *given)
{
    given += strspn(given, " \t\n");
    bool is_whole = strncmp(given, "log_format ", 11) == 0 || strncasecmp(given, "LogFormat ", 10) == 0;
    const char *first = is_whole ? strpbrk(given, "'\"") : NULL;
    const char *from = first ? first : given,
               *quoted = *from && strchr("'\"", *from) ? quote_end(from) : NULL;
    /* Text after the closing quote means that the quotes are literals, as in "%h" "%t". */
    bool is_quoted = quoted && (first || *from == '\'' || quoted[1 + strspn(quoted + 1, " \t\n")] == '\0');
    bool inside = !is_quoted;
    char *out = mem_strdup(from), *to = out;
    for (const char *c = from; *c; c++)
        if (is_quoted && *c == *from)
            inside = !inside;
        else if (inside && *c == '\\' && c[1] && strchr("\"'\\t", c[1]))
            *to++ = *++c == 't' ? '\t' : *c;
        else if (inside)
            *to++ = *c;
    *to = '\0';
    return out;
}

/* True if an earlier field has the same member, or if a part of the request has it. */
static bool is_given(const struct log_format *f, size_t i)
{
    static const char of_request[] = "method path query protocol";
    for (size_t k = 0; k < f->n; k++) {
        const struct field *other = &f->fields[k];
        const char *list = other->kind == REQUEST ? of_request : k < i && other->member ? other->member : "";
        for (struct bytes word; k != i && bytes_next_word(&list, " ", &word);)
            if (bytes_equal_str(word, f->fields[i].member))
                return true;
    }
    return false;
}

/* Marks the fields in quotes. Of two fields with one member, only the first keeps the member. */
static int finish(struct log_format *f, struct error *error)
{
    bool has_time = false;
    for (size_t i = 0; i < f->n; i++) {
        struct field *p = &f->fields[i];
        struct bytes before = i > 0 ? f->fields[i - 1].literal : f->literal;
        p->is_quoted = before.len > 0 && before.ptr[before.len - 1] == '"' && p->literal.len > 0 &&
                       p->literal.ptr[0] == '"';
        has_time = has_time || p->kind == TIME;
        if (p->kind == TEXT && p->literal.len == 0 && i + 1 < f->n && f->fields[i + 1].kind == TEXT)
            return error_set(error, -1, "--log-format: nothing separates `%.*s` from the next directive",
                (int)p->directive.len, p->directive.ptr);
        if (p->member && is_given(f, i)) {
            free(p->member);
            p->member = NULL;
        }
    }
    return has_time ? 0
                    : error_set(error, -1,
                          "--log-format: the format has no time (%%t, $time_local, $time_iso8601, $msec)");
}

static int compile(struct log_format *f, struct error *error)
{
    bool is_nginx = false;
    for (const char *c = f->text; *c; c++)
        is_nginx = is_nginx || (*c == '$' && (islower((unsigned char)c[1]) || c[1] == '{'));
    buf_reserve(&f->literals, strlen(f->text) + 1);
    for (const char *c = f->text, *end; *c; c = end) {
        bool is_escaped = !is_nginx && c[0] == '%' && c[1] == '%';
        end = c + 1 + is_escaped;
        if (*c != (is_nginx ? '$' : '%') || is_escaped)
            add_literal(f, *c);
        else if ((end = add_target(f, c)))
            continue;
        else if (!(end = is_nginx ? add_variable(f, c) : add_directive(f, c)))
            return error_set(
                error, -1, "--log-format: `%.*s` is not a directive", 1 + (int)strcspn(c + 1, " \t\"'"), c);
    }
    return finish(f, error);
}

struct log_format *log_format_new(const char *text, struct error *error)
{
    struct log_format *f = mem_zalloc(sizeof *f);
    f->required = SIZE_MAX;
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (strcmp(text, builtins[i].name) == 0) {
            f->is_builtin = true;
            f->required = builtins[i].required;
            text = builtins[i].text;
        }
    f->text = f->is_builtin ? mem_strdup(text) : plain_text(text);
    if (regcomp(&f->prefix, prefix_pattern, REG_EXTENDED) != 0)
        abort();
    if (compile(f, error) != 0) {
        log_format_free(&f);
        return NULL;
    }
    if (f->is_builtin && strcmp(f->fields[0].member, "vhost") == 0)
        f->fields[0].kind = SITE;
    f->spans = mem_zalloc(f->n * sizeof *f->spans);
    return f;
}

void log_format_free(struct log_format **fp)
{
    struct log_format *f = *fp;
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++) {
        free(f->fields[i].member);
        free(f->fields[i].form);
    }
    regfree(&f->prefix);
    free(f->fields);
    free(f->spans);
    free(f->text);
    buf_free(&f->literals);
    buf_free(&f->text_buf);
    buf_free(&f->docker);
    free(f);
    *fp = NULL;
}

/* ---- matching ---- */

/* Where the literal ends that begins at `from`, or NULL. A blank stands for several. */
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
    return i == literal.len ? at : NULL;
}

static bool read_time(const struct field *p, struct bytes text, int64_t *time)
{
    struct json_value value = {.type = JSON_STRING, .v.string = text};
    char copy[FORMED_TIME_MAX];
    enum rfc3339_zone zone;
    if (!p->form)
        return event_seconds_read_lenient(&value, p->units, time);
    if (text.len >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.ptr);
    return rfc3339_read_form(copy, p->form, time, &zone);
}

static bool fits(struct log_format *f, const struct field *p, struct bytes text)
{
    int64_t time;
    uint64_t number;
    f->steps += p->kind == TIME ? TIME_STEPS : 1;
    switch (p->kind) {
    case WHOLE:
        return bytes_equal_str(text, "-") || bytes_to_u64(text, &number);
    case DECIMAL:
        return bytes_equal_str(text, "-") || bytes_to_usec(text, &time);
    case TIME:
        return read_time(p, text, &time);
    case WORD:
    case SITE:
    case ADDRESS:
        return text.len > 0;
    default:
        return true;
    }
}

/* The only possible end of a field, or NULL. */
static const char *only_end(struct log_format *f, const struct field *p, const char *at)
{
    const char *c = at, *end = f->end;
    if (p->kind == TEXT && !p->is_quoted)
        return end;
    if (p->is_quoted) {
        while (c < end && *c != '"')
            c += *c == '\\' && c + 1 < end ? 2 : 1;
        f->steps += (uint64_t)(c - at);
        return c < end ? c : NULL;
    }
    if (p->form && end - at > FORMED_TIME_MAX)
        end = at + FORMED_TIME_MAX;
    if (p->form && p->form[0] == '[') {
        const char *bracket = memchr(at, ']', (size_t)(end - at));
        return bracket ? bracket + 1 : NULL;
    }
    bool in_list = false; /* after a comma between addresses */
    for (; c < end; c++) {
        bool ends = !in_list && p->literal.len > 0 && match_literal(f, p->literal, c);
        if (p->form ? ends && fits(f, p, bytes_of(at, (size_t)(c - at))) : (ends || is_blank(*c)) && !in_list)
            break;
        in_list = p->kind == ADDRESS && (*c == ',' || (in_list && is_blank(*c)));
    }
    f->steps += (uint64_t)(c - at);
    return c;
}

static void note(struct log_format *f, size_t field, const char *at)
{
    if (field > f->far) {
        f->far = field;
        f->far_at = at;
    }
}

static bool match(struct log_format *f, size_t i, const char *at);

/* Tries each end of a text without quotes. A blank literal leads from each blank of a run to the same place, so only the run's
 * first blank is tried. */
static bool match_text(struct log_format *f, size_t i, const char *at)
{
    const struct field *p = &f->fields[i];
    /* Between two blanks, the text may be empty. */
    bool may_be_empty = at >= f->start + 2 && is_blank(at[-1]) && is_blank(at[-2]);
    bool skips_blanks = p->literal.len > 0 && p->literal.ptr[0] == ' ';
    const char *first = at - may_be_empty;
    for (const char *stop = first, *rest; stop <= f->end; stop++) {
        if (f->steps++ > f->steps_max)
            return false;
        if (skips_blanks && stop > first && is_blank(stop[-1]) && stop < f->end && is_blank(*stop))
            continue;
        if (!(rest = match_literal(f, p->literal, stop)))
            continue;
        f->spans[i] = bytes_of(at, stop > at ? (size_t)(stop - at) : 0);
        if (match(f, i + 1, rest))
            return true;
    }
    note(f, i + 1, at); /* an error names the next field, not the literal before it */
    return false;
}

/* Matches the fields from i on. */
static bool match(struct log_format *f, size_t i, const char *at)
{
    for (; at && i < f->n; i++) {
        const struct field *p = &f->fields[i];
        if (p->kind == TEXT && !p->is_quoted && (i + 1 < f->n || p->literal.len > 0))
            return match_text(f, i, at);
        const char *stop = only_end(f, p, at);
        if (!stop || !fits(f, p, bytes_of(at, (size_t)(stop - at)))) {
            note(f, i, at);
            break;
        }
        f->spans[i] = bytes_of(at, (size_t)(stop - at));
        if (i + 1 == f->required)
            f->required_end = stop;
        at = match_literal(f, p->literal, stop);
        if (!at)
            note(f, i + 1, stop);
    }
    if (at && i == f->n) {
        note(f, i, at);
        return f->is_builtin || at == f->end;
    }
    if (i < f->required || memchr(f->required_end, '"', (size_t)(f->end - f->required_end)))
        return false;
    memset(f->spans + f->required, 0, (f->n - f->required) * sizeof *f->spans);
    return true;
}

/* ---- the event ---- */

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

static void append_text(struct log_format *f, struct buf *event, const char *name, struct bytes value)
{
    if (value.len == 0 || bytes_equal_str(value, "-"))
        return;
    f->is_changed = f->is_changed || !bytes_is_utf8(value);
    buf_append_char(event, ',');
    buf_append_json(event, bytes_str(name));
    buf_append_char(event, ':');
    buf_append_json(event, value);
}

static void append_target(struct log_format *f, struct buf *event, struct bytes target)
{
    const char *mark = target.len ? memchr(target.ptr, '?', target.len) : NULL;
    size_t path = mark ? (size_t)(mark - target.ptr) : target.len;
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
    struct bytes host = site;
    while (host.len > 0 && isdigit((unsigned char)host.ptr[host.len - 1]))
        host.len--;
    uint64_t port;
    bool has_port = host.len > 1 && host.ptr[host.len - 1] == ':' &&
                    bytes_to_u64(bytes_of(site.ptr + host.len, site.len - host.len), &port);
    append_text(f, event, "vhost", has_port ? bytes_of(host.ptr, host.len - 1) : site);
    if (has_port)
        buf_printf(event, ",\"port\":%" PRIu64, port);
}

static void append_field(struct log_format *f, struct buf *event, const struct field *p, struct bytes span)
{
    uint64_t number = 0;
    int64_t usec;
    bool is_absent = bytes_equal_str(span, "-") || bytes_equal_str(span, "\"\"");
    struct bytes text = is_absent ? BYTES_NONE : unescape(span, &f->text_buf);
    switch (p->kind) {
    case ADDRESS:
        for (size_t i = 0; i < text.len; i++)
            if (text.ptr[i] == ',')
                text.len = i;
        append_text(f, event, p->member, bytes_trim(text));
        break;
    case REQUEST:
        append_request(f, event, text);
        break;
    case TARGET:
        append_target(f, event, text);
        break;
    case SITE:
        append_site(f, event, text);
        break;
    case WHOLE:
        if (bytes_to_u64(span, &number) || strcmp(p->member, "bytes") == 0)
            buf_printf(event, ",\"%s\":%" PRIu64, p->member, number);
        break;
    case DECIMAL:
        if (bytes_to_usec(text, &usec))
            buf_printf(event, ",\"%s\":%.9g", p->member, (double)usec / USEC_PER_SEC);
        break;
    default:
        if (p->is_target)
            append_target(f, event, text);
        else
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

static const char *explain(struct log_format *f)
{
    const struct field *p = &f->fields[f->far];
    if (f->steps > f->steps_max)
        return "the fields of --log-format fit the line in too many ways, or the line is too long";
    struct bytes rest = bytes_trim(bytes_of(f->far_at, (size_t)(f->end - f->far_at)));
    int found = rest.len > 40 ? 40 : (int)rest.len;
    if (f->far == f->n)
        snprintf(f->wrong, sizeof f->wrong, "`%.*s` follows the last field of --log-format", found, rest.ptr);
    else
        snprintf(f->wrong, sizeof f->wrong,
            "expected %s%s (%.*s), found `%.*s`; --log-format describes other lines",
            p->kind == TIME && f->is_builtin ? "a time such as [24/Mar/2012:09:00:00 +0900]"
                                             : kind_words[p->kind],
            p->is_quoted ? " in quotes" : "", (int)p->directive.len, p->directive.ptr, found, rest.ptr);
    return f->wrong;
}

static struct bytes span_of(const struct log_format *f, const char *member)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->fields[i].member && strcmp(f->fields[i].member, member) == 0)
            return f->spans[i];
    return BYTES_NONE;
}

/* True if a field of a builtin is not what its place says. A field before the address would make the address the
 * identity, and "- ann" the user. A missing virtual host would make the identity the address. */
static bool is_shifted(struct log_format *f)
{
    bool has_site = f->is_builtin && f->fields[0].kind == SITE;
    struct bytes first = f->spans[0], client = span_of(f, "host");
    bool is_site_missing = has_site && bytes_equal_str(client, "-");
    struct bytes wrong = has_site && !is_site_missing ? client : first;
    int shown = wrong.len < 60 ? (int)wrong.len : 60;
    if (is_site_missing)
        snprintf(f->wrong, sizeof f->wrong, "`%.*s` is not a virtual host: use --format=combined", shown,
            wrong.ptr);
    else if (f->is_builtin && !bytes_equal_str(span_of(f, "ident"), "-") &&
             bytes_starts_with(span_of(f, "user"), BYTES_LITERAL("- ")))
        snprintf(f->wrong, sizeof f->wrong,
            "`%.*s` is not the client: a field precedes the client's address; use %s--log-format", shown,
            wrong.ptr, has_site ? "" : "--format=vhost_combined, or ");
    else
        return false;
    return true;
}

static bool match_line(struct log_format *f, struct bytes line)
{
    f->start = f->far_at = line.ptr;
    f->end = line.ptr + line.len;
    f->far = 0;
    f->steps_max = f->steps + LOG_FORMAT_STEPS_MAX(line.len);
    memset(f->spans, 0, f->n * sizeof *f->spans);
    return match(f, 0, match_literal(f, f->literal, line.ptr));
}

const char *log_format_read(struct log_format *f, struct bytes line, struct buf *event, bool *is_changed)
{
    int64_t time = 0;
    f->is_changed = false;
    f->steps = 0;
    /* Directives may describe a prefix themselves. */
    bool ok = !f->is_builtin && match_line(f, line);
    if (!ok && !match_line(f, without_prefix(f, line)))
        return explain(f);
    if (is_shifted(f))
        return f->wrong;
    for (size_t i = 0; i < f->n; i++)
        if (f->fields[i].kind == TIME)
            (void)read_time(&f->fields[i], f->spans[i], &time);
    buf_clear(event);
    buf_printf(event, "{\"time\":%" PRId64, time);
    for (size_t i = 0; i < f->n; i++)
        if (f->fields[i].member && f->spans[i].ptr)
            append_field(f, event, &f->fields[i], f->spans[i]);
    buf_append_char(event, '}');
    *is_changed = f->is_changed;
    return NULL;
}

void log_format_copy(const struct log_format *f, const char *member, struct buf *out)
{
    struct buf plain = {0};
    struct bytes span = member ? span_of(f, member) : BYTES_NONE;
    buf_clear(out);
    if (span.len > 0 && !bytes_equal_str(span, "-") && !bytes_equal_str(span, "\"\""))
        buf_append_bytes(out, unescape(span, &plain));
    buf_free(&plain);
}

bool log_format_address(const struct log_format *f, size_t i, const char **member)
{
    if (i >= f->n)
        return false;
    *member = f->fields[i].kind == ADDRESS ? f->fields[i].member : NULL;
    return true;
}

uint64_t log_format_steps(const struct log_format *f)
{
    return f->steps;
}
