/* log_fields: compiles the format of an access log, in the directives of Apache or of nginx, into literals and
 * fields.
 *
 *     %h %l %u %t "%r" %>s %b                          https://httpd.apache.org/docs/2.4/mod/mod_log_config.html
 *     $remote_addr - $remote_user [$time_local] ...    https://nginx.org/en/docs/http/ngx_http_log_module.html
 *
 * 1. The built-in formats are such texts too. The text may also be quoted pieces of nginx's configuration, or a whole
 *    statement: `log_format NAME 'PIECE' ...;` of nginx, `LogFormat "FORMAT" NAME` of Apache.
 * 2. A member occurs once: of two directives with one member, the first counts.
 * 3. The time may be in several directives, such as `%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t`, up to the one with the
 *    zone. */
#ifndef MILLRACE_LOG_FIELDS_H
#define MILLRACE_LOG_FIELDS_H

#include "base/bytes.h"
#include "base/error.h"

#define LOG_MEMBER_TEXT 64
#define LOG_FORM_TEXT 64
#define LOG_TIMES_MAX 4 /* directives of one time */

enum log_kind {
    LOG_WORD,    /* without blanks */
    LOG_SITE,    /* a word, with or without ":PORT" */
    LOG_ADDRESS, /* a list of addresses */
    LOG_LIST,    /* words of nginx's upstreams, separated by ", " or " : " */
    LOG_WHOLE,   /* a number of digits, or "-" */
    LOG_DECIMAL, /* a number with or without a fraction, or "-" */
    LOG_TEXT,    /* any text */
    LOG_PATH,    /* any text, PATH?QUERY or ?QUERY */
    LOG_TARGET,  /* a word, PATH?QUERY */
    LOG_REQUEST, /* METHOD TARGET PROTOCOL */
    LOG_TIME,
    LOG_KINDS
};

struct log_field {
    enum log_kind kind;
    struct bytes directive;
    char member[LOG_MEMBER_TEXT]; /* "": left out of the event */
    char form[LOG_FORM_TEXT];     /* LOG_TIME: form for strptime; "": a number or RFC 3339 */
    bool is_time;                 /* a part of the event's time */
    bool is_quoted;               /* the literals before and after it are quotes */
    bool is_open;                 /* a text that may end anywhere */
    bool ends_at_slash;           /* a host directly before a path */
    struct bytes literal;         /* literal after the field */
};

struct log_fields {
    char *text; /* text of the format, from which directives and literals are borrowed */
    bool is_builtin;
    size_t required;      /* for a built-in format: number of fields after which a line may end */
    struct bytes literal; /* literal before the first field */
    struct log_field *list;
    size_t n, room;
    char form[LOG_TIMES_MAX * LOG_FORM_TEXT]; /* forms of the time's directives, separated by blanks */
    int64_t units;                            /* units per second, if the time is a number */
};

/* Compiles a built-in format ("combined", "vhost_combined") or directives. Returns 0, or -1 with the reason. Always
 * free *f. */
int log_fields_compile(struct log_fields *f, const char *text, struct error *error);
void log_fields_free(struct log_fields *f);

#endif
