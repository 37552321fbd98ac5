/* ruler_state: the file of the ruler's state. */
#include "base/io.h"
#include "base/log.h"
#include "ruler/ruler_server.h"

#include <errno.h>
#include <stdlib.h>
#include <sysexits.h>

#define STATE_MAX ((size_t)1 << 30)
#define STATE_VERSION 2

int64_t ruler_now(const struct ruler *r)
{
    return daemon_trusted_time(r->daemon) / USEC_PER_MSEC;
}

static void print_state(const struct ruler *r, struct buf *out)
{
    buf_printf(out, "{\"version\":%d,", STATE_VERSION);
    rule_book_print(r->book, out);
    buf_append_str(out, ",\"silences\":");
    silences_print(&r->silences, out);
    buf_append_str(out, "}\n");
}

int ruler_save(struct ruler *r)
{
    struct buf out = {0}, why = {0};
    print_state(r, &out);
    int rc = io_replace_file(r->state_path, buf_bytes(&out), IO_PRIVATE_MODE);
    if (rc != 0)
        buf_printf(&why, "%s: %s", r->state_path, strerror(errno));
    daemon_set_notice(r->daemon, "state", NOTICE_ALARM, DAEMON_FREE_DISK, why.ptr);
    r->saved_at = clock_monotonic();
    r->is_changed = rc != 0;
    buf_free(&why);
    buf_free(&out);
    return rc;
}

static bool restore_silence(const struct json_doc *d, size_t i, void *arg)
{
    struct ruler *r = arg;
    struct error error;
    const char *id;
    (void)i;
    silences_add(&r->silences, d, ruler_now(r), &id, &error); /* refuses those that have ended */
    return true;
}

int ruler_restore(struct ruler *r, struct error *error)
{
    struct buf text = {0};
    if (io_read_file(r->state_path, STATE_MAX, &text) != 0)
        return errno == ENOENT ? EX_OK : error_errno(error, EX_TEMPFAIL, r->state_path);
    struct json_doc *d = json_doc_parse(buf_bytes(&text));
    bool is_good = json_doc_number(d, "/version") == STATE_VERSION &&
                   rule_book_restore(r->book, d, ruler_now(r)) &&
                   json_doc_each(d, "/silences", restore_silence, r);
    json_doc_free(&d);
    buf_free(&text);
    return is_good
               ? EX_OK
               : error_set(error, EX_CONFIG,
                     "%s: not a state of this version; delete it to start without pending and firing alerts",
                     r->state_path);
}

int ruler_read_rules(struct ruler *r, struct rule_book **old, struct error *error)
{
    const struct options *o = daemon_options(r->daemon);
    struct rule_groups groups = {0};
    struct buf state = {0};
    int rc = rules_read(options_text(o, "files"), options_int(o, "interval"), &groups, error);
    char *unmatched = groups.unmatched ? mem_printf("no file matches %s", groups.unmatched) : NULL;
    daemon_set_notice(r->daemon, "files", NOTICE_WARNING,
        rc == 0 ? "write the files, or correct `files`; then reload with SIGHUP"
                : "correct the file; then reload with SIGHUP; the earlier rules stay",
        rc == 0 ? unmatched : error->text);
    if (rc != 0 || unmatched)
        log_warn("rule files", LOG_S("error", rc != 0 ? error->text : unmatched));
    free(unmatched);
    if (rc != 0)
        return -1;
    *old = r->book;
    r->book = rule_book_new(&groups, options_int(o, "failure_for"));
    if (!*old)
        return 0;

    buf_append_char(&state, '{'); /* a reload is a restart within the process */
    rule_book_print(*old, &state);
    buf_append_char(&state, '}');
    struct json_doc *d = json_doc_parse(buf_bytes(&state));
    rule_book_restore(r->book, d, ruler_now(r));
    json_doc_free(&d);
    buf_free(&state);
    return 0;
}
