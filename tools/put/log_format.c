#include "tools/put/log_format.h"

#include "base/rfc3339.h"
#include "json/json_fields.h"

#include <ctype.h>
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>

/* In a built-in format: a line may end here. What follows the whole format is ignored. */
#define OPTIONAL '\1'
#define LOCAL_TIME "%d/%b/%Y:%H:%M:%S %z"

enum kind {
    LITERAL,
    WORD,    /* without blanks */
    ADDRESS, /* a list of addresses */
    WHOLE,   /* a number of digits, or "-" */
    DECIMAL, /* a JSON number, or "-" */
    TEXT,    /* any text */
    REQUEST, /* METHOD TARGET PROTOCOL */
    TARGET,  /* PATH?QUERY */
    TIME,    /* by `form` */
    ISO_TIME,
    UNIX_TIME,
    UNIX_MSEC,
    UNIX_USEC,
    KINDS
};

static const char *const kind_words[KINDS] = {"", "a word", "an address", "a number", "a number", "a text",
    "a request", "a path", "a time", "a time", "a time", "a time", "a time"};

struct part {
    enum kind kind;
    struct bytes source; /* the directive, or the text of a literal */
    char *member;        /* NULL: left out of the event */
    char *form;          /* TIME, for strptime */
    bool is_quoted;
};

struct log_format {
    char *text;
    const char *builtin; /* NULL: given in directives */
    struct part *parts;
    size_t n, room, required; /* required: a line may end after these */
    struct bytes *spans;      /* of the line, by part */
    const char *start, *end;
    size_t steps;
    size_t far_part; /* the last part that was reached and did not fit, and where */
    const char *far_at;
    regex_t prefix;
    struct buf text_buf, docker;
    bool is_changed;
    char wrong[400];
};

static const struct {
    const char *name, *text;
} builtins[] = {
    {"combined", "%h %l %u %t \"%r\" %>s %b\1 \"%{Referer}i\" \"%{User-Agent}i\""},
    {"vhost_combined", "%v:%p %h %l %u %t \"%r\" %>s %O\1 \"%{Referer}i\" \"%{User-Agent}i\""},
};

/* Directives of both servers. Headers, cookies and all other names become a text with the name in lower case. */
static const struct directive {
    const char *name, *member;
    enum kind kind;
} directives[] = {
    {"%h", "host", ADDRESS},
    {"%a", "host", ADDRESS},
    {"%A", "local_address", WORD},
    {"%l", "ident", WORD},
    {"%u", "user", TEXT},
    {"%r", "request", REQUEST},
    {"%m", "method", WORD},
    {"%U", "path", TEXT},
    {"%q", "query", TEXT},
    {"%H", "protocol", WORD},
    {"%s", "status", WHOLE},
    {"%b", "bytes", WHOLE},
    {"%B", "bytes", WHOLE},
    {"%O", "bytes", WHOLE},
    {"%I", "bytes_in", WHOLE},
    {"%D", "duration_us", WHOLE},
    {"%T", "duration", DECIMAL},
    {"%v", "vhost", TEXT},
    {"%V", "vhost", TEXT},
    {"%p", "port", WHOLE},
    {"%P", "pid", WHOLE},
    {"%X", "connection", WORD},
    {"%k", "keepalive", WHOLE},
    {"%L", "log_id", WORD},
    {"%f", "file", TEXT},
    {"%R", "handler", TEXT},
    {"$remote_addr", "host", ADDRESS},
    {"$realip_remote_addr", "proxy", ADDRESS},
    {"$remote_user", "user", TEXT},
    {"$time_local", NULL, TIME},
    {"$time_iso8601", NULL, ISO_TIME},
    {"$msec", NULL, UNIX_TIME},
    {"$request", "request", REQUEST},
    {"$status", "status", WHOLE},
    {"$body_bytes_sent", "bytes", WHOLE},
    {"$bytes_sent", "bytes", WHOLE},
    {"$host", "vhost", TEXT},
    {"$http_host", "vhost", TEXT},
    {"$server_name", "vhost", WORD},
    {"$server_port", "port", WHOLE},
    {"$request_method", "method", WORD},
    {"$request_uri", "path", TARGET},
    {"$uri", "path", TEXT},
    {"$args", "query", TEXT},
    {"$query_string", "query", TEXT},
    {"$server_protocol", "protocol", WORD},
    {"$request_time", "duration", DECIMAL},
    {"$request_length", "bytes_in", WHOLE},
    {"$http_referer", "referrer", TEXT},
    {"$http_user_agent", "agent", TEXT},
    {"$http_x_forwarded_for", "forwarded_for", ADDRESS},
};

/* What stands before the server's own line: Compose; Kubernetes (CRI); syslog of RFC 5424; syslog and journald with either time. */
static const char prefix_pattern[] =
    "^([A-Za-z0-9_.-]+ +\\| "
    "|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+) (stdout|stderr) [FP] "
    "|<[0-9]{1,3}>1 [^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ (-|(\\[[^]]*\\])+) "
    "|(<[0-9]{1,3}>)?([A-Z][a-z]{2} [ 0-3][0-9] [0-9:]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+))"
    " ([^ ]+ )?[^][ :]+(\\[[0-9]+\\])?: )";

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* ---- compiling ---- */

static struct part *add_part(struct log_format *f, enum kind kind, const char *from, const char *end)
{
    struct part *p = ARRAY_ADD(f->parts, f->n, f->room);
    *p = (struct part){.kind = kind, .source = bytes_of(from, (size_t)(end - from))};
    return p;
}

/* A member's name of a header or a variable: lower case, with "_". */
static char *member_name(struct bytes name)
{
    static const struct {
        const char *from, *to;
    } known[] = {{"referer", "referrer"}, {"user_agent", "agent"}, {"host", "vhost"},
        {"x_forwarded_for", "forwarded_for"}};
    static const struct bytes header = {"http_", 5};
    char *out = bytes_dup(bytes_starts_with(name, header) ? bytes_of(name.ptr + 5, name.len - 5) : name);
    for (char *c = out; *c; c++)
        *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(out, known[i].from) == 0) {
            free(out);
            return mem_strdup(known[i].to);
        }
    return out;
}

static void add_named(struct log_format *f, const char *from, const char *end, struct bytes name)
{
    struct part *p = add_part(f, TEXT, from, end);
    for (size_t i = 0; i < sizeof directives / sizeof *directives; i++) {
        const struct directive *d = &directives[i];
        if (!bytes_equal_str(name, d->name))
            continue;
        p->kind = d->kind;
        p->member = d->member ? mem_strdup(d->member) : NULL;
        p->form = d->kind == TIME ? mem_strdup(LOCAL_TIME) : NULL;
        return;
    }
    p->member = member_name(bytes_of(name.ptr + 1, name.len - 1));
    if (strcmp(p->member, "forwarded_for") == 0)
        p->kind = ADDRESS;
}

/* "$name" and "${name}". Returns the end, or NULL. */
static const char *add_variable(struct log_format *f, const char *at)
{
    char name[128];
    bool is_braced = at[1] == '{';
    size_t n = strspn(at + 1 + is_braced, "abcdefghijklmnopqrstuvwxyz0123456789_");
    const char *end = at + 1 + is_braced + n + is_braced;
    if (n == 0 || n + 2 > sizeof name || (is_braced && end[-1] != '}'))
        return NULL;
    snprintf(name, sizeof name, "$%.*s", (int)n, at + 1 + is_braced);
    add_named(f, at, end, bytes_str(name));
    return end;
}

/* Apache's "%{...}t": a form of strftime, or a unit. */
static void set_time(struct part *p, struct bytes form)
{
    static const struct bytes begin = {"begin:", 6}, end = {"end:", 4};
    for (const struct bytes *b = &begin; b; b = b == &begin ? &end : NULL)
        if (bytes_starts_with(form, *b))
            form = bytes_of(form.ptr + b->len, form.len - b->len);
    p->kind = bytes_equal_str(form, "sec")    ? UNIX_TIME
              : bytes_equal_str(form, "msec") ? UNIX_MSEC
              : bytes_equal_str(form, "usec") ? UNIX_USEC
                                              : TIME;
    p->form = form.len > 0 ? bytes_dup(form) : mem_strdup("[" LOCAL_TIME "]");
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
    c += *c == '^' && c[1] && c[2] ? 2 : 0;
    if (!isalpha((unsigned char)*c))
        return NULL;
    char simple[3] = {'%', *c, '\0'};
    if (*c == 't')
        set_time(add_part(f, TIME, at, c + 1), name);
    else if (name.ptr && strchr("inoeCx", *c)) {
        struct bytes named = bytes_of(name.ptr - 1, name.len + 1);
        add_named(f, at, c + 1, named);
    } else
        add_named(f, at, c + 1, bytes_str(simple));
    return c + 1;
}

/* Joins the quoted pieces of nginx's configuration, and removes what Apache's needs for quotes. */
static char *plain_text(const char *given)
{
    char *out = mem_strdup(given), *to = out;
    bool is_quoted = *given == '\'' && strchr(given + 1, '\'');
    bool inside = !is_quoted;
    for (const char *c = given; *c; c++)
        if (is_quoted && *c == '\'')
            inside = !inside;
        else if (inside && *c == '\\' && (c[1] == '"' || c[1] == '\\' || c[1] == 't'))
            *to++ = *++c == 't' ? '\t' : *c;
        else if (inside)
            *to++ = *c;
    *to = '\0';
    return out;
}

/* Marks the fields in quotes, and keeps of two members with one name the first. */
static void finish(struct log_format *f)
{
    static const char *const of_request[] = {"method", "path", "query", "protocol"};
    bool has_request = false;
    for (size_t i = 0; i < f->n; i++)
        has_request = has_request || f->parts[i].kind == REQUEST;
    for (size_t i = 0; i < f->n; i++) {
        struct part *p = &f->parts[i];
        struct bytes before = i > 0 ? f->parts[i - 1].source : BYTES_NONE,
                     after = i + 1 < f->n ? f->parts[i + 1].source : BYTES_NONE;
        p->is_quoted = p->kind != LITERAL && before.len > 0 && f->parts[i - 1].kind == LITERAL &&
                       before.ptr[before.len - 1] == '"' && after.len > 0 && after.ptr[0] == '"';
        bool is_known = false;
        for (size_t k = 0; p->member && k < i; k++)
            is_known = is_known || (f->parts[k].member && strcmp(f->parts[k].member, p->member) == 0);
        for (size_t k = 0; p->member && p->kind != REQUEST && has_request && k < 4; k++)
            is_known = is_known || strcmp(of_request[k], p->member) == 0;
        if (is_known && p->kind != REQUEST) {
            free(p->member);
            p->member = NULL;
        }
    }
}

static int compile(struct log_format *f, struct error *error)
{
    bool is_nginx = false, has_time = false;
    for (const char *c = f->text; *c; c++)
        is_nginx = is_nginx || (*c == '$' && (islower((unsigned char)c[1]) || c[1] == '{'));
    char sign = is_nginx ? '$' : '%';
    f->required = SIZE_MAX;
    for (const char *c = f->text; *c;) {
        size_t n = 0;
        if (*c == OPTIONAL) {
            f->required = f->n;
            c++;
            continue;
        }
        while (c[n] && c[n] != sign && c[n] != OPTIONAL)
            n++;
        if (n == 0 && c[0] == '%' && c[1] == '%') {
            add_part(f, LITERAL, c, c + 1);
            c += 2;
            continue;
        }
        if (n > 0)
            add_part(f, LITERAL, c, c + n);
        c += n;
        if (n > 0)
            continue;
        const char *end = is_nginx ? add_variable(f, c) : add_directive(f, c);
        if (!end)
            return error_set(error, -1, "--log-format: `%.40s` is not a directive", c);
        has_time = has_time || f->parts[f->n - 1].kind >= TIME;
        c = end;
    }
    for (size_t i = 1; i < f->n; i++)
        if (f->parts[i - 1].kind == TEXT && f->parts[i].kind == TEXT)
            return error_set(error, -1, "--log-format: nothing separates `%.*s` from the next directive",
                (int)f->parts[i - 1].source.len, f->parts[i - 1].source.ptr);
    if (!has_time)
        return error_set(
            error, -1, "--log-format: the format has no time (%%t, $time_local, $time_iso8601, $msec)");
    finish(f);
    return 0;
}

struct log_format *log_format_new(const char *text, struct error *error)
{
    struct log_format *f = mem_zalloc(sizeof *f);
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (strcmp(text, builtins[i].name) == 0) {
            f->builtin = builtins[i].name;
            f->text = mem_strdup(builtins[i].text);
        }
    if (!f->text)
        f->text = plain_text(text);
    if (regcomp(&f->prefix, prefix_pattern, REG_EXTENDED) != 0)
        abort();
    if (compile(f, error) != 0)
        log_format_free(&f);
    else
        f->spans = mem_zalloc((f->n + 1) * sizeof *f->spans);
    return f;
}

void log_format_free(struct log_format **fp)
{
    struct log_format *f = *fp;
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++) {
        free(f->parts[i].member);
        free(f->parts[i].form);
    }
    regfree(&f->prefix);
    free(f->parts);
    free(f->spans);
    free(f->text);
    buf_free(&f->text_buf);
    buf_free(&f->docker);
    free(f);
    *fp = NULL;
}

/* ---- matching ---- */

/* Where the literal ends that begins at `at`, or NULL. A blank stands for several. */
static const char *match_literal(struct bytes literal, const char *at, const char *end)
{
    for (size_t i = 0; i < literal.len; i++) {
        if (at == end || (literal.ptr[i] == ' ' ? !is_blank(*at) : *at != literal.ptr[i]))
            return NULL;
        at++;
        while (literal.ptr[i] == ' ' && at < end && is_blank(*at))
            at++;
    }
    return at;
}

static bool read_time(const struct part *p, struct bytes text, int64_t *time)
{
    char copy[64];
    bool is_naive;
    if (text.len >= sizeof copy)
        return false;
    if (p->kind == ISO_TIME)
        return rfc3339_read_lenient(text, time, &is_naive);
    if (p->kind != TIME) {
        bool ok = bytes_to_usec(text, time);
        *time /= p->kind == UNIX_TIME ? 1000000 : p->kind == UNIX_MSEC ? 1000000000 : INT64_C(1000000000000);
        return ok;
    }
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.ptr);
    return rfc3339_read_form(copy, p->form, time, &is_naive);
}

static bool is_decimal(struct bytes text)
{
    size_t digits = 0, points = 0;
    for (size_t i = 0; i < text.len; i++) {
        digits += isdigit((unsigned char)text.ptr[i]) != 0;
        points += text.ptr[i] == '.' && i > 0 && i + 1 < text.len;
    }
    return digits > 0 && digits + points == text.len && points <= 1 && text.len < 18;
}

static bool fits(const struct part *p, struct bytes text)
{
    int64_t time;
    uint64_t number;
    switch (p->kind) {
    case WHOLE:
        return bytes_equal_str(text, "-") || bytes_to_u64(text, &number);
    case DECIMAL:
        return bytes_equal_str(text, "-") || is_decimal(text);
    case WORD:
    case ADDRESS:
        return text.len > 0;
    case TIME:
    case ISO_TIME:
    case UNIX_TIME:
    case UNIX_MSEC:
    case UNIX_USEC:
        return read_time(p, text, &time);
    default:
        return true;
    }
}

/* The end of a field that has only one: in quotes, or a word. NULL: none. */
static const char *only_end(const struct log_format *f, size_t i, const char *at)
{
    const struct part *p = &f->parts[i];
    const struct bytes *next = i + 1 < f->n ? &f->parts[i + 1].source : NULL;
    const char *c = at;
    if (p->is_quoted) {
        while (c < f->end && *c != '"')
            c += *c == '\\' && c + 1 < f->end ? 2 : 1;
        return c < f->end ? c : NULL;
    }
    if (p->kind == TIME && p->form[0] == '[') {
        const char *bracket = memchr(at, ']', (size_t)(f->end - at));
        return bracket ? bracket + 1 : NULL;
    }
    bool in_list = false; /* after a comma between addresses */
    for (; c < f->end; c++) {
        bool ends = next && f->parts[i + 1].kind == LITERAL && match_literal(*next, c, f->end);
        if (p->kind == TIME ? ends && fits(p, bytes_of(at, (size_t)(c - at)))
                            : (ends || is_blank(*c)) && !in_list)
            return c;
        in_list = p->kind == ADDRESS && (*c == ',' || (in_list && is_blank(*c)));
    }
    return c;
}

static void note(struct log_format *f, size_t part, const char *at)
{
    if (f->far_at && part <= f->far_part)
        return;
    f->far_part = part;
    f->far_at = at;
}

/* Matches the parts from i on. Sets *end to the end of the last part. */
static bool match(struct log_format *f, size_t i, const char *at, const char **end)
{
    for (; i < f->n; i++) {
        const struct part *p = &f->parts[i];
        const char *stop;
        if (i == f->required)
            *end = at;
        if (p->kind == LITERAL) {
            stop = match_literal(p->source, at, f->end);
        } else if (p->kind == TEXT && !p->is_quoted && i + 1 < f->n) {
            const struct bytes next = f->parts[i + 1].source;
            bool may_be_empty =
                at >= f->start + 2 && is_blank(at[-1]) && is_blank(at[-2]); /* between two blanks */
            f->spans[i] = bytes_of(at, 0);
            if (may_be_empty && match(f, i + 1, at - 1, end))
                return true;
            for (stop = at; stop <= f->end; stop++)
                if (f->steps++ > LOG_FORMAT_STEPS_MAX)
                    return false;
                else if (f->parts[i + 1].kind != LITERAL || match_literal(next, stop, f->end)) {
                    f->spans[i] = bytes_of(at, (size_t)(stop - at));
                    if (match(f, i + 1, stop, end))
                        return true;
                }
            note(f, i, at);
            return false;
        } else {
            stop = p->kind == TEXT && !p->is_quoted ? f->end : only_end(f, i, at);
            if (stop && !fits(p, bytes_of(at, (size_t)(stop - at))))
                stop = NULL;
        }
        if (!stop) {
            note(f, i, at);
            if (i < f->required || memchr(*end, '"', (size_t)(f->end - *end)))
                return false;
            memset(f->spans + f->required, 0, (f->n - f->required) * sizeof *f->spans);
            return true;
        }
        f->spans[i] = bytes_of(at, (size_t)(stop - at));
        at = stop;
    }
    *end = at;
    if (f->builtin || at == f->end)
        return true;
    note(f, f->n, at);
    return false;
}

/* ---- the event ---- */

/* Reads the character after a backslash into *out. Returns the end. */
static const char *read_escape(const char *at, const char *end, struct buf *out)
{
    static const char codes[] = "ntrvbf\"\\", meanings[] = "\n\t\r\v\b\f\"\\";
    bool is_hex = end - at >= 3 && at[0] == 'x';
    int high = is_hex ? bytes_hex_digit(at[1]) : -1, low = is_hex ? bytes_hex_digit(at[2]) : -1;
    if (high >= 0 && low >= 0) {
        buf_append_char(out, (char)(high * 16 + low));
        return at + 3;
    }
    const char *code = *at ? strchr(codes, *at) : NULL;
    if (!code)
        buf_append_char(out, '\\');
    buf_append_char(out, code ? meanings[code - codes] : *at);
    return at + 1;
}

static struct bytes unescape(struct bytes text, struct buf *out)
{
    const char *at = text.ptr, *end = text.ptr + text.len;
    if (!memchr(at, '\\', text.len))
        return text;
    buf_clear(out);
    while (at < end) {
        if (*at == '\\' && at + 1 < end)
            at = read_escape(at + 1, end, out);
        else
            buf_append_char(out, *at++);
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

static void append_field(struct log_format *f, struct buf *event, const struct part *p, struct bytes span)
{
    uint64_t number = 0;
    char number_text[24];
    snprintf(number_text, sizeof number_text, "%.*s", (int)(span.len < 20 ? span.len : 20), span.ptr);
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
    case WHOLE:
        if (bytes_to_u64(span, &number) || strcmp(p->member, "bytes") == 0)
            buf_printf(event, ",\"%s\":%" PRIu64, p->member, number);
        break;
    case DECIMAL:
        if (!is_absent)
            buf_printf(event, ",\"%s\":%.9g", p->member, strtod(number_text, NULL));
        break;
    default:
        append_text(f, event, p->member, text);
    }
}

/* The regular expression is slow. */
static bool may_have_prefix(struct bytes line)
{
    size_t n = line.len < 64 ? line.len : 64;
    if (n < 8)
        return false;
    const char *bar = memchr(line.ptr, '|', n);
    return (line.ptr[0] == '<' || (isupper((unsigned char)line.ptr[0]) && line.ptr[3] == ' ') ||
               (line.ptr[4] == '-' && line.ptr[7] == '-') || (bar && bar > line.ptr && bar[-1] == ' ')) &&
           !memchr(line.ptr, '\0', line.len);
}

/* Drops the prefix that a log collector has put before the line. */
static struct bytes without_prefix(struct log_format *f, struct bytes line)
{
    regmatch_t m = {.rm_so = 0, .rm_eo = (regoff_t)line.len};
    if (bytes_starts_with(line, BYTES_LITERAL("{\"log\":"))) {
        struct json_doc *doc = json_doc_parse(line);
        buf_clear(&f->docker);
        buf_append_bytes(&f->docker, json_doc_text(doc, "/log"));
        json_doc_free(&doc);
        struct bytes log = buf_bytes(&f->docker);
        while (log.len > 0 && (log.ptr[log.len - 1] == '\n' || log.ptr[log.len - 1] == '\r'))
            log.len--;
        return log.len > 0 ? log : line;
    }
    if (!may_have_prefix(line) || regexec(&f->prefix, line.ptr, 1, &m, REG_STARTEND) != 0)
        return line;
    return bytes_of(line.ptr + m.rm_eo, line.len - (size_t)m.rm_eo);
}

static const char *explain(struct log_format *f)
{
    size_t i = f->far_part;
    while (f->far_at < f->end && is_blank(*f->far_at))
        f->far_at++;
    int found = f->end - f->far_at > 40 ? 40 : (int)(f->end - f->far_at);
    const struct part *p = i < f->n ? &f->parts[i] : NULL;
    if (p && (p->kind == LITERAL || p->kind == TEXT) && i + 1 < f->n)
        p++; /* a field says more than the text before it */
    if (p && p->kind == LITERAL && p + 1 < f->parts + f->n)
        p++;
    if (p)
        snprintf(f->wrong, sizeof f->wrong,
            "expected %s%s (%.*s), found `%.*s`; --log-format describes other lines",
            p->kind == TIME && f->builtin ? "a time such as [24/Mar/2012:09:00:00 +0900]"
                                          : kind_words[p->kind],
            p->is_quoted ? " in quotes" : "", (int)p->source.len, p->source.ptr, found, f->far_at);
    else
        snprintf(
            f->wrong, sizeof f->wrong, "`%.*s` follows the last field of --log-format", found, f->far_at);
    return f->wrong;
}

/* A field before the address would make the address the identity, and "- ann" the user. */
static bool has_more_before(const struct log_format *f)
{
    if (!f->builtin)
        return false;
    struct bytes ident = BYTES_NONE, user = BYTES_NONE;
    for (size_t i = 0; i < f->n; i++) {
        const char *member = f->parts[i].member;
        ident = member && strcmp(member, "ident") == 0 ? f->spans[i] : ident;
        user = member && strcmp(member, "user") == 0 ? f->spans[i] : user;
    }
    return !bytes_equal_str(ident, "-") && bytes_starts_with(user, BYTES_LITERAL("- "));
}

static bool match_line(struct log_format *f, struct bytes line)
{
    const char *end = line.ptr;
    f->start = line.ptr;
    f->end = line.ptr + line.len;
    f->steps = 0;
    f->far_at = NULL;
    memset(f->spans, 0, f->n * sizeof *f->spans);
    return match(f, 0, line.ptr, &end);
}

const char *log_format_read(struct log_format *f, struct bytes line, struct buf *event, bool *is_changed)
{
    int64_t time = 0;
    f->is_changed = false;
    /* Directives may describe a prefix themselves. */
    bool ok = !f->builtin && match_line(f, line);
    if (!ok && !match_line(f, without_prefix(f, line)))
        return explain(f);
    if (has_more_before(f)) {
        snprintf(f->wrong, sizeof f->wrong,
            "`%.*s` is not the client: a field stands before it; use --format=vhost_combined, or "
            "--log-format",
            (int)(f->spans[0].len < 60 ? f->spans[0].len : 60), f->spans[0].ptr);
        return f->wrong;
    }
    for (size_t i = 0; i < f->n; i++)
        if (f->parts[i].kind >= TIME)
            (void)read_time(&f->parts[i], f->spans[i], &time);
    buf_clear(event);
    buf_printf(event, "{\"time\":%" PRId64, time);
    for (size_t i = 0; i < f->n; i++)
        if (f->parts[i].member && f->spans[i].ptr)
            append_field(f, event, &f->parts[i], f->spans[i]);
    buf_append_char(event, '}');
    *is_changed = f->is_changed;
    return NULL;
}
