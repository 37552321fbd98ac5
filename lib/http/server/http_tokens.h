/* http_tokens: reads the tokens of a service's clients from a text, one token per line:
 *
 *     # name     scopes       token             limits
 *     dashboard  read         3yWkzC0vP1xQ      rate=50
 *     shop       read,write   9aXe72LmT4bn      rate=10 keys=site|shop.example,user|shop*
 *
 * A scope is read, write or admin, and no scope includes another. `rate` limits the requests per second. `keys` lists
 * the keys that the client may see, each as NAMESPACE|KEY. In a key, %-escapes stand for a space, a comma, a percent
 * sign and a star. A star at the end matches any text.
 * `views` lists the views of the web page that the client may open, such as views=key,overview.
 *
 * 1. Names and tokens are unique.
 * 2. The time of a search depends only on the lengths of the tokens and of the searched text.
 * 3. A table never changes, except for the counts of requests. A table is reference counted, so that requests in
 *    progress keep their table when the file is read again. Only one thread may use a table. */
#ifndef MILLRACE_HTTP_TOKENS_H
#define MILLRACE_HTTP_TOKENS_H

#include "base/bytes.h"
#include "base/clock.h"

#define HTTP_TOKEN_MAX 512 /* bytes of a token */
#define HTTP_TOKENS_MAX 1000
#define HTTP_TOKENS_ERROR_TEXT 200

#define HTTP_SCOPE_READ 1
#define HTTP_SCOPE_WRITE 2
#define HTTP_SCOPE_ADMIN 4

/* Views of the web page. The bits are also flags of a route (http_server.h). */
#define HTTP_VIEW_OVERVIEW 0x10000
#define HTTP_VIEW_KEY 0x20000
#define HTTP_VIEW_LIVE 0x40000
#define HTTP_VIEW_QUEUES 0x80000
#define HTTP_VIEW_PIPELINE 0x100000
#define HTTP_VIEW_METRICS 0x200000
#define HTTP_VIEWS 0x3F0000 /* all of them */

struct http_tokens;
struct http_token;

/* Returns NULL if the text is malformed. The error message names the line, and contains no token. */
struct http_tokens *http_tokens_parse(struct bytes text, char error[HTTP_TOKENS_ERROR_TEXT]);
struct http_tokens *http_tokens_ref(struct http_tokens *t);
void http_tokens_unref(struct http_tokens **t);

/* Returns NULL if no token equals the text. The token is valid as long as the table. */
struct http_token *http_tokens_find(struct http_tokens *t, struct bytes text);
const char *http_token_name(const struct http_token *token);
bool http_token_has_scope(const struct http_token *token, unsigned scope);
/* True if the token has a list of keys. */
bool http_token_is_limited(const struct http_token *token);
/* True if the token has no list of keys, or its list contains this key. */
bool http_token_may_see(const struct http_token *token, struct bytes ns, struct bytes key);
/* True if the token has no list of views, or its list contains one of these views. */
bool http_token_may_open(const struct http_token *token, unsigned views);
/* Appends {"token":NAME,"scopes":[...],"views":[...],"has_keys":BOOLEAN}; `views` is null without a list. */
void http_token_print(const struct http_token *token, struct buf *out);
/* Counts a request. Returns false if the token's rate is exceeded until the next second. */
bool http_token_admit(struct http_token *token, usec_t now);

#endif
