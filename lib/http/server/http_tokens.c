#include "http/server/http_tokens.h"

#include "base/url.h"
#include <stdio.h>
#include <stdlib.h>

#define RATE_MAX 1000000
#define LINE_FORM "write NAME SCOPES TOKEN [rate=N] [keys=NAMESPACE|KEY,...] [views=VIEW,...]"

struct key_rule {
    char *text; /* "ns|key", decoded */
    size_t len;
    bool is_prefix;
};

struct http_token {
    char *name, *secret;
    size_t secret_len;
    unsigned scopes;
    unsigned views; /* 0: the token has no list of views */
    uint64_t rate;  /* limit on requests per second; 0: unlimited */
    uint64_t used;  /* requests in the second that began at `since` */
    usec_t since;
    bool is_limited;
    struct key_rule *rules;
    size_t n_rules, room_rules;
};

struct http_tokens {
    unsigned refs;
    struct http_token *rows;
    size_t n, room;
};

static const struct named_bit {
    const char *name;
    unsigned bit;
} scope_names[] = {{"read", HTTP_SCOPE_READ}, {"write", HTTP_SCOPE_WRITE}, {"admin", HTTP_SCOPE_ADMIN},
    {NULL, 0}},
  view_names[] = {{"overview", HTTP_VIEW_OVERVIEW}, {"key", HTTP_VIEW_KEY}, {"live", HTTP_VIEW_LIVE},
      {"queues", HTTP_VIEW_QUEUES}, {"pipeline", HTTP_VIEW_PIPELINE}, {"metrics", HTTP_VIEW_METRICS},
      {NULL, 0}};

struct http_tokens *http_tokens_ref(struct http_tokens *t)
{
    t->refs++;
    return t;
}

void http_tokens_unref(struct http_tokens **tp)
{
    struct http_tokens *t = *tp;
    *tp = NULL;
    if (!t || --t->refs > 0)
        return;
    for (size_t i = 0; i < t->n; i++) {
        struct http_token *row = &t->rows[i];
        for (size_t j = 0; j < row->n_rules; j++)
            free(row->rules[j].text);
        free(row->rules);
        free(row->name);
        free(row->secret);
    }
    free(t->rows);
    free(t);
}

/* Compares all bytes of a token, so that the time does not depend on the first different byte. */
static bool is_secret(const struct http_token *row, struct bytes text)
{
    unsigned char differ = text.len != row->secret_len;
    for (size_t i = 0; i < text.len; i++)
        differ |= (unsigned char)(text.ptr[i] ^ row->secret[i % row->secret_len]);
    return differ == 0;
}

struct http_token *http_tokens_find(struct http_tokens *t, struct bytes text)
{
    struct http_token *found = NULL;
    for (size_t i = 0; i < t->n; i++)
        if (is_secret(&t->rows[i], text))
            found = &t->rows[i];
    return found;
}

const char *http_token_name(const struct http_token *token)
{
    return token->name;
}

bool http_token_has_scope(const struct http_token *token, unsigned scope)
{
    return (token->scopes & scope) == scope;
}

bool http_token_is_limited(const struct http_token *token)
{
    return token->is_limited;
}

bool http_token_may_see(const struct http_token *token, struct bytes ns, struct bytes key)
{
    bool found = !token->is_limited;
    struct buf both = {0};
    buf_append_bytes(&both, ns);
    buf_append_char(&both, '|');
    buf_append_bytes(&both, key);
    for (size_t i = 0; i < token->n_rules && !found; i++) {
        const struct key_rule *rule = &token->rules[i];
        struct bytes text = bytes_of(rule->text, rule->len);
        found =
            rule->is_prefix ? bytes_starts_with(buf_bytes(&both), text) : bytes_equal(buf_bytes(&both), text);
    }
    buf_free(&both);
    return found;
}

bool http_token_may_open(const struct http_token *token, unsigned views)
{
    return !token->views || (token->views & views);
}

static void print_names(const struct named_bit *names, unsigned bits, struct buf *out)
{
    const char *comma = "[";
    for (; names->name; names++)
        if (bits & names->bit) {
            buf_printf(out, "%s\"%s\"", comma, names->name);
            comma = ",";
        }
    buf_append_str(out, "]");
}

void http_token_print(const struct http_token *token, struct buf *out)
{
    buf_printf(out, "{\"token\":\"%s\",\"scopes\":", token->name);
    print_names(scope_names, token->scopes, out);
    buf_append_str(out, ",\"views\":");
    if (token->views)
        print_names(view_names, token->views, out);
    else
        buf_append_str(out, "null");
    buf_printf(out, ",\"has_keys\":%s}", token->is_limited ? "true" : "false");
}

bool http_token_admit(struct http_token *token, usec_t now)
{
    if (now - token->since >= USEC_PER_SEC) {
        token->since = now;
        token->used = 0;
    }
    return token->rate == 0 || token->used++ < token->rate;
}

/* Sets the bits of the words in a list. Returns false for an empty list or an unknown word. */
static bool parse_bits(struct bytes text, const struct named_bit *names, unsigned *bits)
{
    char *copy = bytes_dup(text);
    const char *rest = copy;
    struct bytes word;
    bool ok = true;
    while (bytes_next_word(&rest, ",", &word)) {
        unsigned found = 0;
        for (const struct named_bit *one = names; one->name; one++)
            found |= bytes_equal_str(word, one->name) ? one->bit : 0;
        ok = ok && found;
        *bits |= found;
    }
    free(copy);
    return ok && *bits;
}

static bool parse_keys(struct bytes text, struct http_token *row)
{
    char *copy = bytes_dup(text);
    const char *rest = copy;
    struct bytes word;
    bool ok = true;
    while (bytes_next_word(&rest, ",", &word)) {
        struct key_rule rule = {.is_prefix = word.ptr[word.len - 1] == '*'};
        struct buf decoded = {0};
        word.len -= rule.is_prefix;
        ok = ok && memchr(word.ptr, '|', word.len) && !memchr(word.ptr, '*', word.len) &&
             url_decode(word, &decoded) == 0;
        rule.text = decoded.ptr;
        rule.len = decoded.len;
        *ARRAY_ADD(row->rules, row->n_rules, row->room_rules) = rule;
    }
    free(copy);
    row->is_limited = true;
    return ok && row->n_rules > 0;
}

static const char *parse_limit(struct bytes word, struct http_token *row)
{
    struct bytes rate = BYTES_LITERAL("rate="), keys = BYTES_LITERAL("keys="),
                 views = BYTES_LITERAL("views=");
    if (bytes_starts_with(word, rate)) {
        word = bytes_of(word.ptr + rate.len, word.len - rate.len);
        bool ok = !row->rate && bytes_to_u64(word, &row->rate) && row->rate >= 1 && row->rate <= RATE_MAX;
        return ok ? NULL : "rate= must be a number from 1 to 1000000";
    }
    if (bytes_starts_with(word, views) && !row->views) {
        word = bytes_of(word.ptr + views.len, word.len - views.len);
        return parse_bits(word, view_names, &row->views)
                   ? NULL
                   : "views= must list overview, key, live, queues, pipeline or metrics";
    }
    if (!bytes_starts_with(word, keys) || row->is_limited)
        return LINE_FORM;
    word = bytes_of(word.ptr + keys.len, word.len - keys.len);
    return parse_keys(word, row) ? NULL : "keys= must list NAMESPACE|KEY; a star may stand at the end";
}

/* Fills the row from the words of a line. Returns the error, or NULL. */
static const char *parse_words(const char *words, struct http_token *row)
{
    const char *error = NULL;
    struct bytes word;
    for (size_t i = 0; !error && bytes_next_word(&words, " \t\r", &word); i++) {
        for (size_t at = 0; at < word.len; at++)
            if (word.ptr[at] <= ' ' || word.ptr[at] > '~')
                return "a line must be printable ASCII";
        if (i == 0 && bytes_is_name(word)) {
            row->name = bytes_dup(word);
        } else if (i == 0) {
            error = "the name must be 1 to 64 of A-Z a-z 0-9 _ . -";
        } else if (i == 1) {
            error = parse_bits(word, scope_names, &row->scopes) ? NULL
                                                                : "the scopes must be read, write or admin";
        } else if (i == 2 && word.len <= HTTP_TOKEN_MAX) {
            row->secret = bytes_dup(word);
            row->secret_len = word.len;
        } else {
            error = i == 2 ? "the token is too long" : parse_limit(word, row);
        }
    }
    return error || row->secret ? error : LINE_FORM;
}

static const char *parse_line(struct http_tokens *t, struct bytes line)
{
    char *words = bytes_dup(line);
    struct http_token *row = ARRAY_ADD(t->rows, t->n, t->room);
    *row = (struct http_token){.scopes = 0};
    const char *error = t->n > HTTP_TOKENS_MAX ? "more than 1000 tokens" : parse_words(words, row);
    for (size_t i = 0; i + 1 < t->n && !error; i++) {
        if (strcmp(t->rows[i].name, row->name) == 0)
            error = "the name is used twice";
        else if (strcmp(t->rows[i].secret, row->secret) == 0)
            error = "the token is used twice";
    }
    free(words);
    return error;
}

struct http_tokens *http_tokens_parse(struct bytes text, char error[HTTP_TOKENS_ERROR_TEXT])
{
    struct http_tokens *t = mem_zalloc(sizeof *t);
    const char *why = memchr(text.ptr ? text.ptr : "", '\0', text.len) ? "the file has a NUL byte" : NULL;
    size_t n = 1;
    t->refs = 1;
    for (struct bytes line; !why && bytes_take_line(&text, &line); n++) {
        line = bytes_trim(line);
        if (line.len && line.ptr[0] != '#')
            why = parse_line(t, line);
    }
    if (!why)
        return t;
    snprintf(error, HTTP_TOKENS_ERROR_TEXT, "line %zu: %s", n - 1 > 0 ? n - 1 : 1, why);
    http_tokens_unref(&t);
    return NULL;
}
