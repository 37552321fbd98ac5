/* Any bytes as a file of tokens. A table that is accepted finds each of its tokens again, and no part of one. */
#include "http/server/http_tokens.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(struct http_tokens *t, struct bytes line)
{
    char *words = bytes_dup(line);
    const char *rest = words;
    struct bytes name, scopes, secret;
    if (line.len && line.ptr[0] != '#' && bytes_next_word(&rest, " \t\r", &name) &&
        bytes_next_word(&rest, " \t\r", &scopes) && bytes_next_word(&rest, " \t\r", &secret)) {
        struct http_token *token = http_tokens_find(t, secret);
        if (!token || !bytes_equal_str(name, http_token_name(token)))
            abort();
        http_token_admit(token, 1);
        if (!http_token_may_see(token, BYTES_LITERAL("u"), BYTES_LITERAL("k")) &&
            !http_token_is_limited(token))
            abort();
    }
    free(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[HTTP_TOKENS_ERROR_TEXT];
    struct bytes text = bytes_of(data, size);
    struct http_tokens *t = http_tokens_parse(text, error);
    while (t && text.len) {
        const char *lf = memchr(text.ptr, '\n', text.len);
        size_t len = lf ? (size_t)(lf - text.ptr) : text.len;
        check_line(t, bytes_trim(bytes_of(text.ptr, len)));
        text = bytes_of(text.ptr + len + (lf != NULL), text.len - len - (lf != NULL));
    }
    http_tokens_unref(&t);
    return 0;
}
