/* ruler_state: the file of the ruler's state. */
#include "base/io.h"
#include "ruler/ruler_server.h"

#include <errno.h>
#include <sysexits.h>

#define STATE_MAX ((size_t)1 << 30)

int64_t ruler_now(const struct ruler *r)
{
    return daemon_trusted_time(r->daemon) / USEC_PER_MSEC;
}

void ruler_print_state(const struct ruler *r, struct buf *out)
{
    buf_append_str(out, "{\"version\":1,");
    rule_book_print(r->book, out);
    buf_append_str(out, ",\"silences\":");
    silences_print(&r->silences, out);
    buf_append_str(out, "}\n");
}

int ruler_save(struct ruler *r)
{
    struct buf out = {0}, why = {0};
    ruler_print_state(r, &out);
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
    bool is_good = json_doc_number(d, "/version") == 1 && rule_book_restore(r->book, d, ruler_now(r)) &&
                   json_doc_each(d, "/silences", restore_silence, r);
    json_doc_free(&d);
    buf_free(&text);
    return is_good
               ? EX_OK
               : error_set(error, EX_CONFIG,
                     "%s: not a state of this version; delete it to start without pending and firing alerts",
                     r->state_path);
}
