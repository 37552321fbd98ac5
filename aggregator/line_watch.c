#include "aggregator/line_watch.h"

#include "base/amount.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct reason {
    struct line_watch_reason shown; /* `lines` is 0 if the entry is unused */
    uint32_t in[LINE_WATCH_SECONDS];
};

struct line_watch {
    usec_t began; /* start of the current second */
    unsigned now; /* index of the current second in the rings */
    struct slice_tally before;
    struct slice_tally in[LINE_WATCH_SECONDS];
    struct reason reasons[LINE_WATCH_REASONS];
};

struct line_watch *line_watch_new(usec_t now)
{
    struct line_watch *w = mem_zalloc(sizeof *w);
    w->began = now;
    return w;
}

void line_watch_free(struct line_watch **wp)
{
    struct line_watch *w = *wp;
    for (size_t i = 0; w && i < LINE_WATCH_REASONS; i++)
        buf_free(&w->reasons[i].shown.line);
    free(w);
    *wp = NULL;
}

static void advance(struct line_watch *w)
{
    w->now = (w->now + 1) % LINE_WATCH_SECONDS;
    w->in[w->now] = (struct slice_tally){0};
    for (size_t i = 0; i < LINE_WATCH_REASONS; i++) {
        struct reason *r = &w->reasons[i];
        r->shown.lines -= r->in[w->now];
        r->in[w->now] = 0;
    }
}

void line_watch_tick(struct line_watch *w, usec_t now, const struct slice_tally *counted)
{
    struct slice_tally *in = &w->in[w->now];
    in->events += counted->events - w->before.events;
    in->skipped += counted->skipped - w->before.skipped;
    in->rejected += counted->rejected - w->before.rejected;
    w->before = *counted;
    for (unsigned i = 0; i < LINE_WATCH_SECONDS && now - w->began >= USEC_PER_SEC; i++) {
        advance(w);
        w->began += USEC_PER_SEC;
    }
    if (now - w->began >= USEC_PER_SEC)
        w->began = now; /* the latest tick was more than a window ago */
}

void line_watch_hide_lines(struct line_watch *w)
{
    for (size_t i = 0; i < LINE_WATCH_REASONS; i++)
        buf_free(&w->reasons[i].shown.line);
}

/* Returns the entry of a reason: an existing entry, an unused entry, or the last entry, which counts all other
 * reasons. */
static struct reason *find(struct line_watch *w, struct bytes text, bool *is_new)
{
    struct reason *unused = NULL;
    for (size_t i = 0; i < LINE_WATCH_REASONS - 1; i++) {
        struct reason *r = &w->reasons[i];
        *is_new = false;
        if (r->shown.lines > 0 && bytes_equal_str(text, r->shown.text))
            return r;
        unused = !unused && r->shown.lines == 0 ? r : unused;
    }
    unused = unused ? unused : &w->reasons[LINE_WATCH_REASONS - 1];
    *is_new = unused->shown.lines == 0;
    return unused;
}

void line_watch_reject(struct line_watch *w, const struct rejects_entry *entry)
{
    bool is_new;
    struct reason *r = find(w,
        bytes_of(entry->reason.ptr,
            entry->reason.len < sizeof r->shown.text ? entry->reason.len : sizeof r->shown.text - 1),
        &is_new);
    bool is_other = r == &w->reasons[LINE_WATCH_REASONS - 1];
    r->shown.lines++;
    r->in[w->now]++;
    if (!is_new && r->shown.line.len > 0)
        return;
    struct line_watch_reason *s = &r->shown;
    snprintf(s->text, sizeof s->text, "%.*s",
        (int)(is_other ? sizeof LINE_WATCH_OTHER - 1 : entry->reason.len),
        is_other ? LINE_WATCH_OTHER : entry->reason.ptr);
    snprintf(s->source, sizeof s->source, "%.*s", (int)entry->name.len, entry->name.ptr);
    s->offset = entry->offset;
    buf_clear(&s->line);
    buf_append(
        &s->line, entry->line.ptr, entry->line.len < LINE_WATCH_LINE ? entry->line.len : LINE_WATCH_LINE);
}

struct slice_tally line_watch_sum(const struct line_watch *w)
{
    struct slice_tally sum = {0};
    for (unsigned i = 0; i < LINE_WATCH_SECONDS; i++) {
        sum.events += w->in[i].events;
        sum.skipped += w->in[i].skipped;
        sum.rejected += w->in[i].rejected;
    }
    return sum;
}

const struct line_watch_reason *line_watch_reason(const struct line_watch *w, size_t i)
{
    for (size_t at = 0; at < LINE_WATCH_REASONS; at++)
        if (w->reasons[at].shown.lines > 0 && i-- == 0)
            return &w->reasons[at].shown;
    return NULL;
}

static const struct line_watch_reason *most(const struct line_watch *w)
{
    const struct line_watch_reason *r, *found = NULL;
    for (size_t i = 0; (r = line_watch_reason(w, i)); i++)
        if (!found || r->lines > found->lines)
            found = r;
    return found;
}

/* Appends all reasons with the numbers of their lines, which add up to the number of rejected lines. */
static void append_reasons(const struct line_watch *w, struct buf *out)
{
    const struct line_watch_reason *r;
    for (size_t i = 0; (r = line_watch_reason(w, i)); i++)
        buf_printf(out, "%s%" PRIu64 " %s", i ? ", " : "", r->lines, r->text);
}

void line_watch_describe(const struct line_watch *w, struct buf *out)
{
    struct slice_tally sum = line_watch_sum(w);
    const struct line_watch_reason *r = most(w);
    if (!r)
        return;
    buf_printf(out, "%" PRIu64 " %s counted, %" PRIu64 " %s rejected in the last minute: ", sum.events,
        plural(sum.events, "event", "events"), sum.rejected, plural(sum.rejected, "line", "lines"));
    if (r->lines < sum.rejected)
        append_reasons(w, out);
    else
        buf_printf(out, "%s", r->text);
    if (r->line.len == 0)
        return;
    buf_printf(out, "; %s offset %" PRIu64 " of %s: `", r->lines < sum.rejected ? "such as" : "first at",
        r->offset, r->source);
    for (size_t i = 0; i < r->line.len; i++)
        buf_append_char(
            out, (unsigned char)r->line.ptr[i] < ' ' || r->line.ptr[i] == 0x7f ? '?' : r->line.ptr[i]);
    buf_printf(out, "`");
}

void line_watch_print_json(const struct line_watch *w, struct buf *out)
{
    struct slice_tally sum = line_watch_sum(w);
    const struct line_watch_reason *r;
    buf_printf(out, "{\"counted\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"rejected\":%" PRIu64 ",\"reasons\":[",
        sum.events, sum.skipped, sum.rejected);
    for (size_t i = 0; (r = line_watch_reason(w, i)); i++) {
        buf_printf(out, "%s{\"reason\":", i ? "," : "");
        buf_append_json(out, bytes_str(r->text));
        buf_printf(out, ",\"lines\":%" PRIu64 ",\"source\":", r->lines);
        buf_append_json(out, bytes_str(r->source));
        buf_printf(out, ",\"offset\":\"%" PRIu64 "\",\"line\":", r->offset);
        buf_append_json(out, buf_bytes(&r->line));
        buf_append_char(out, '}');
    }
    buf_append_str(out, "]}");
}
