#include "tools/put/log_fields.h"

#include "base/rfc3339.h"
#include "base/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCAL_TIME "%d/%b/%Y:%H:%M:%S %z"

static const struct {
    const char *name;
    size_t required;
    const char *text;
} builtins[] = {
    {"combined", 7, "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\""},
    {"vhost_combined", 8, "%v %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\""},
};

/* Directives of both servers. Apache's %{NAME}i is listed under nginx's name, $http_name. A variable that is not listed
 * is a text. */
static const struct known {
    const char *member; /* for a time: its form */
    enum log_kind kind;
    const char *directives;
} known[] = {
    {"host", LOG_ADDRESS, "%h %a $remote_addr"},
    {"proxy", LOG_ADDRESS, "$realip_remote_addr"},
    {"forwarded_for", LOG_ADDRESS, "$http_x_forwarded_for $proxy_add_x_forwarded_for"},
    {"proxy_protocol_addr", LOG_ADDRESS, "$proxy_protocol_addr"},
    {"x_real_ip", LOG_ADDRESS, "$http_x_real_ip"},
    {"cf_connecting_ip", LOG_ADDRESS, "$http_cf_connecting_ip"},
    {"true_client_ip", LOG_ADDRESS, "$http_true_client_ip"},
    {"x_forwarded_port", LOG_TEXT, "$http_x_forwarded_port"},
    {"ident", LOG_WORD, "%l"},
    {"user", LOG_TEXT, "%u $remote_user"},
    {LOCAL_TIME, LOG_TIME, "$time_local"},
    {"[" LOCAL_TIME "]", LOG_TIME, "%t"},
    {"", LOG_TIME, "$time_iso8601 $msec"},
    {"request", LOG_REQUEST, "%r $request"},
    {"method", LOG_WORD, "%m $request_method"},
    {"path", LOG_TARGET, "$request_uri"},
    {"path", LOG_TEXT, "%U $uri"},
    {"path", LOG_PATH, "%U%q $uri$is_args$args $uri$is_args$query_string"},
    {"query", LOG_PATH, "%q"},
    {"query", LOG_TEXT, "$args $query_string"},
    {"protocol", LOG_WORD, "%H $server_protocol"},
    {"status", LOG_WHOLE, "%s $status"},
    {"bytes", LOG_WHOLE, "%b %B %O $body_bytes_sent $bytes_sent"},
    {"bytes_in", LOG_WHOLE, "%I $request_length"},
    {"duration", LOG_DECIMAL, "%T %{s}T $request_time"},
    {"duration_ms", LOG_WHOLE, "%{ms}T"},
    {"duration_us", LOG_WHOLE, "%D %{us}T"},
    {"vhost", LOG_SITE, "%v %V $host $server_name"},
    {"vhost", LOG_TEXT, "$http_host"},
    {"port", LOG_WHOLE, "%p $server_port"},
    {"referrer", LOG_TEXT, "$http_referer"},
    {"agent", LOG_TEXT, "$http_user_agent"},
    {"upstream_addr", LOG_LIST, "$upstream_addr"},
    {"upstream_status", LOG_LIST, "$upstream_status"},
    {"upstream_response_time", LOG_LIST, "$upstream_response_time"},
    {"upstream_response_length", LOG_LIST, "$upstream_response_length"},
    {"upstream_connect_time", LOG_LIST, "$upstream_connect_time"},
    {"upstream_header_time", LOG_LIST, "$upstream_header_time"},
    {"upstream_cache_status", LOG_WORD, "$upstream_cache_status"},
    {"", LOG_WORD, "%A %k %L %P %S %X"},
    {"", LOG_TEXT, "%f %R"},
};

static bool is_of_variable(char c)
{
    return islower((unsigned char)c) || isdigit((unsigned char)c) || c == '_';
}

/* Returns the longest directive at `text`, which begins after "%" or "$". NULL: no directive is known. */
static const struct known *find(char mark, const char *text, size_t *length)
{
    const struct known *found = NULL;
    *length = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *list = known[i].directives;
        for (struct bytes word; bytes_next_word(&list, " ", &word);) {
            size_t n = word.len - 1;
            if (word.ptr[0] != mark || n <= *length || strncmp(text, word.ptr + 1, n) != 0 ||
                (mark == '$' && is_of_variable(text[n])))
                continue;
            found = &known[i];
            *length = n;
        }
    }
    return found;
}

/* Returns the end of the directive. */
static const char *add(
    struct log_fields *f, const char *from, const char *end, const struct known *k, const char *member)
{
    struct log_field *p = ARRAY_ADD(f->list, f->n, f->room);
    *p =
        (struct log_field){.kind = k ? k->kind : LOG_TEXT, .directive = bytes_of(from, (size_t)(end - from))};
    char *name = p->kind == LOG_TIME ? p->form : p->member;
    snprintf(name, LOG_MEMBER_TEXT, "%s", k ? k->member : member);
    return end;
}

/* True if `name` is probably a misspelt known variable: up to a third of its characters differ. Stores the known name.
 * A name that extends a known name, such as $args_x, is another variable. */
static bool is_misspelt(const char *name, char meant[LOG_MEMBER_TEXT])
{
    struct suggest s = suggest_for(name);
    char text[LOG_MEMBER_TEXT];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *list = known[i].directives;
        for (struct bytes word; bytes_next_word(&list, " ", &word);) {
            size_t before = s.distance;
            snprintf(text, sizeof text, "%.*s", (int)word.len - 1, word.ptr + 1);
            bool extends = strncmp(name, text, word.len - 1) == 0 && name[word.len - 1] == '_';
            if (word.ptr[0] == '$' && !strchr(text, '$') && !extends)
                suggest_try(&s, text);
            if (s.distance < before)
                memcpy(meant, text, sizeof text);
        }
    }
    return s.nearest && s.distance <= strlen(name) / 3;
}

/* Parses "$name" or "${name}". Returns the end, or NULL. Sets the error if the name is misspelt. */
static const char *add_variable(struct log_fields *f, const char *at, struct error *error)
{
    char name[LOG_MEMBER_TEXT], meant[LOG_MEMBER_TEXT];
    bool is_braced = at[1] == '{';
    const char *from = at + 1 + is_braced;
    size_t n = 0, length;
    const struct known *k = find('$', from, &length);
    while (is_of_variable(from[n]))
        n++;
    if (n == 0 || n >= sizeof name || (is_braced && from[n] != '}'))
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)n, from);
    if (!k && is_misspelt(name, meant)) {
        error_set(error, -1,
            "--log-format: unknown variable $%s: did you mean $%s? To keep a variable of your own, "
            "give it a less similar name",
            name, meant);
        return NULL;
    }
    return add(f, at, from + (k && !is_braced ? length : n) + is_braced, k,
        name + (strncmp(name, "http_", 5) == 0 ? 5 : 0));
}

/* Parses Apache's "%{...}t": a form of strftime, a unit, or a fraction of a second, which is ignored. */
static const char *add_time(struct log_fields *f, const char *at, struct bytes form, const char *end)
{
    static const struct known local = {"[" LOCAL_TIME "]", LOG_TIME, ""}, number = {"", LOG_TIME, ""},
                              fraction = {"", LOG_WHOLE, ""};
    const char *colon = memchr(form.ptr, ':', form.len);
    if (bytes_starts_with(form, BYTES_LITERAL("begin:")) || bytes_starts_with(form, BYTES_LITERAL("end:")))
        form = bytes_of(colon + 1, form.len - (size_t)(colon + 1 - form.ptr));
    int64_t units = bytes_equal_str(form, "sec")    ? 1
                    : bytes_equal_str(form, "msec") ? 1000
                    : bytes_equal_str(form, "usec") ? 1000000
                                                    : 0;
    if (units > 0)
        f->units = units;
    if (units > 0 || form.len == 0)
        return add(f, at, end, units > 0 ? &number : &local, "");
    if (bytes_equal_str(form, "msec_frac") || bytes_equal_str(form, "usec_frac"))
        return add(f, at, end, &fraction, "");
    add(f, at, end, &number, "");
    struct log_field *p = &f->list[f->n - 1];
    int n = snprintf(p->form, sizeof p->form, "%.*s", (int)form.len, form.ptr);
    return n < LOG_FORM_TEXT && rfc3339_form_is_valid(p->form) ? end : NULL;
}

/* Parses "%X", "%>X", "%!200X" or "%{NAME}X". Returns the end, or NULL. */
static const char *add_directive(struct log_fields *f, const char *at)
{
    const char *c = at + 1 + strspn(at + 1, "<>!,0123456789"), *close = *c == '{' ? strchr(c, '}') : NULL;
    char name[LOG_MEMBER_TEXT];
    size_t n;
    const struct known *k = find('%', c, &n);
    char letter = !k && close ? close[1] : '\0';
    if (letter == 't')
        return add_time(f, at, bytes_of(c + 1, (size_t)(close - c - 1)), close + 2);
    if (letter && strchr("inoeCcx", letter)) {
        if ((size_t)snprintf(name, sizeof name, "http_%.*s", (int)(close - c - 1), c + 1) >= sizeof name)
            return NULL;
        for (char *l = name; *l; l++)
            *l = isalnum((unsigned char)*l) ? (char)tolower((unsigned char)*l) : '_';
        return add(f, at, close + 2, find('$', name, &n), name + strlen("http_"));
    }
    if (letter && letter != 'T')
        k = find('%', c = close + 1, &n);
    return k ? add(f, at, c + n, k, "") : NULL;
}

/* Returns the text after a keyword, blanks and `words` further words, or NULL if the text does not begin in this way. */
static const char *after_keyword(const char *text, const char *keyword, int words)
{
    static const char blanks[] = " \t\r\n";
    size_t n = strlen(keyword);
    if (strncmp(text, keyword, n) != 0 || !text[n] || !strchr(blanks, text[n]))
        return NULL;
    text += n + strspn(text + n, blanks);
    for (; words > 0; words--) {
        text += strcspn(text, blanks);
        text += strspn(text, blanks);
    }
    return text;
}

/* Appends a character of a format, or the character that a backslash of nginx's or Apache's configuration escapes.
 * Returns the rest. */
static const char *append_char(char **to, const char *c)
{
    if (*c == '\\' && c[1] && strchr("\"'\\t", c[1]))
        *(*to)++ = *++c == 't' ? '\t' : *c;
    else
        *(*to)++ = *c;
    return c + 1;
}

/* Appends the quoted pieces of a statement, and with `joins_words` the words between them. Returns the end. */
static const char *join_pieces(const char *c, const char *quotes, bool joins_words, char **to)
{
    while (*c && *c != ';')
        if (strchr(quotes, *c)) {
            char quote = *c++;
            while (*c && *c != quote)
                c = append_char(to, c);
            c += *c == quote;
        } else if (*c == '#') {
            c += strcspn(c, "\n");
        } else if (joins_words && !isspace((unsigned char)*c)) {
            c = append_char(to, c);
        } else {
            c++;
        }
    return c;
}

/* Returns the format itself from the text of a configuration: quoted pieces, or a whole statement (`log_format NAME ...;`
 * of nginx, `LogFormat "..." NAME` of Apache). Returns NULL with the reason if the lines of the statement have no such format. */
static char *plain_text(const char *given, struct error *error)
{
    static const char blanks[] = " \t\r\n", escape[] = "escape=";
    char *out = mem_strdup(given), *to = out;
    const char *c = given + strspn(given, blanks), *why = NULL;
    const char *nginx = after_keyword(c, "log_format", 1), *apache = after_keyword(c, "LogFormat", 0);
    if (nginx && strncmp(nginx, escape, strlen(escape)) == 0) {
        nginx += strlen(escape);
        if (strncmp(nginx, "json", 4) == 0)
            why = "the lines of a format with escape=json are events: omit --log-format";
        nginx += strcspn(nginx, blanks);
    }
    if (nginx || apache || *c == '\'') {
        c = nginx    ? join_pieces(nginx, "\"'", true, &to)
            : apache ? join_pieces(apache, "\"", false, &to)
                     : join_pieces(c, "'", false, &to);
        c += *c == ';';
        c += strspn(c, blanks);
        if (*c && *c != '#' && !why)
            why = "text follows the format: give one statement only";
    } else {
        while (*c)
            c = append_char(&to, c);
    }
    *to = '\0';
    if (!why)
        return out;
    error_set(error, -1, "--log-format: %s", why);
    free(out);
    return NULL;
}

/* True if an earlier field has the same member, or if a part of the request has it. */
static bool is_given(const struct log_fields *f, size_t i)
{
    const char *member = f->list[i].member;
    bool is_of_request = strcmp(member, "method") == 0 || strcmp(member, "path") == 0 ||
                         strcmp(member, "query") == 0 || strcmp(member, "protocol") == 0;
    for (size_t k = 0; k < f->n; k++)
        if ((k < i && strcmp(f->list[k].member, member) == 0) ||
            (is_of_request && f->list[k].kind == LOG_REQUEST))
            return true;
    return false;
}

/* Adds a field to the time, unless the time is complete. */
static void join_time(struct log_fields *f, struct log_field *p, size_t *n)
{
    bool is_complete = *n > 0 && (!f->form[0] || strstr(f->form, "%z") || strstr(f->form, "%s"));
    if (p->kind != LOG_TIME || is_complete || *n == LOG_TIMES_MAX || (*n > 0 && !p->form[0]))
        return;
    size_t end = strlen(f->form);
    snprintf(f->form + end, sizeof f->form - end, "%s%s", *n > 0 ? " " : "", p->form);
    p->is_time = true;
    ++*n;
}

static int finish(struct log_fields *f, struct error *error)
{
    size_t times = 0;
    for (size_t i = 0; i < f->n; i++) {
        struct log_field *p = &f->list[i], *next = i + 1 < f->n ? p + 1 : NULL;
        struct bytes before = i > 0 ? p[-1].literal : f->literal;
        p->is_quoted = before.len > 0 && before.ptr[before.len - 1] == '"' && p->literal.len > 0 &&
                       p->literal.ptr[0] == '"';
        p->ends_at_slash = p->literal.len == 0 && strcmp(p->member, "vhost") == 0 && next &&
                           strcmp(next->member, "path") == 0;
        bool is_text = (p->kind == LOG_TEXT || p->kind == LOG_PATH) && !p->ends_at_slash;
        p->is_open = (is_text || p->kind == LOG_REQUEST) && !p->is_quoted;
        if (is_text && p->literal.len == 0 && next && (next->kind == LOG_TEXT || next->kind == LOG_PATH))
            return error_set(error, -1, "--log-format: nothing separates `%.*s` from the next directive",
                (int)p->directive.len, p->directive.ptr);
        join_time(f, p, &times);
        if (is_given(f, i))
            p->member[0] = '\0';
    }
    if (f->n == 0)
        return error_set(error, -1,
            "--log-format: the text has no directive. Within double quotes the shell removes $NAME; save the "
            "text in a file, and use --log-format=\"$(cat FILE)\"");
    return times > 0 ? 0
                     : error_set(error, -1,
                           "--log-format: the format has no time (%%t, $time_local, $time_iso8601, $msec)");
}

int log_fields_compile(struct log_fields *f, const char *text, struct error *error)
{
    bool is_nginx = false;
    *f = (struct log_fields){.required = SIZE_MAX, .units = 1};
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins && !f->is_builtin; i++)
        if ((f->is_builtin = strcmp(text, builtins[i].name) == 0)) {
            f->required = builtins[i].required;
            text = builtins[i].text;
        }
    f->text = plain_text(text, error);
    if (!f->text)
        return -1;
    for (const char *c = f->text; *c; c++)
        is_nginx = is_nginx || (*c == '$' && (islower((unsigned char)c[1]) || c[1] == '{'));
    for (const char *c = f->text, *end; *c; c = end) {
        struct bytes *literal = f->n > 0 ? &f->list[f->n - 1].literal : &f->literal;
        end = c + 1;
        if (*c != (is_nginx ? '$' : '%')) {
            *literal = bytes_of(literal->len > 0 ? literal->ptr : c, literal->len + 1);
            continue;
        }
        error_set(error, -1, "--log-format: `%.*s` is not a directive", 1 + (int)strcspn(c + 1, " \t\"'"), c);
        end = is_nginx ? add_variable(f, c, error) : add_directive(f, c);
        if (!end)
            return -1;
    }
    return finish(f, error);
}

void log_fields_free(struct log_fields *f)
{
    free(f->list);
    free(f->text);
}
