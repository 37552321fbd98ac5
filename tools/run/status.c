/* millrace status: shows the daemons of a pipeline, problems and remedies, or waits until every posted event is
 * counted. */
#include "tools/run/pipeline_status.h"
#include "tools/run/cells_status.h"
#include "tools/run/status_problems.h"

#include "base/amount.h"
#include "base/rfc3339.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define POLL_INTERVAL (50 * USEC_PER_MSEC)
#define START_GRACE (3 * USEC_PER_SEC)
#define CLEAR "\033[H\033[2J"
#define SCREEN_COLUMNS 80
#define SCREEN_LINES 24
#define OTHER_LINES 17 /* number of screen lines that do not show problems */
#define REASONS_SHOWN 2
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define GREEN "\033[32m"
#define NO_COLOR "\033[0m"

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_BOOL(
        "wait", "wait until every daemon is ready and every posted event is counted", .excludes = "watch"),
    SETTING_DURATION("timeout", "120s", 100, 86400000, "s", "longest wait", .needs = "wait"),
    SETTING_DURATION("sample", "1s", 0, 60000, "s", "time over which rates are measured; 0: no rates"),
    SETTING_DURATION("watch", NULL, 100, 3600000, "s", "show the screen again in this interval until Ctrl-C",
        .alone = "2s"),
    SETTING_BOOL("json", "print JSON"),
    TOOL_COLOR_SETTING("colour of the states"),
    {.name = NULL},
};

static const char *const levels[] = {"fine", "needs attention", "down"};
static const char *const colors[] = {GREEN, YELLOW, RED};

struct screen {
    bool is_terminal, has_color;
    size_t columns, lines;
};

static struct screen screen_of(const struct options *o)
{
    struct screen s = {.is_terminal = isatty(STDOUT_FILENO),
        .has_color = tool_has_color(o, STDOUT_FILENO),
        .columns = SCREEN_COLUMNS,
        .lines = SCREEN_LINES};
    struct winsize w;
    if (s.is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0) {
        s.columns = w.ws_col;
        s.lines = w.ws_row;
    }
    return s;
}

/* Prints a text after `head`. On a terminal, wraps the text into at most `room` lines; else prints one line.
 * Returns the number of lines. */
static size_t print_wrapped(const struct screen *s, const char *head, const char *text, size_t room)
{
    size_t width = s->columns > 20 ? s->columns - 4 : SCREEN_COLUMNS - 4, n = 0;
    struct bytes rest = bytes_str(text);
    if (!s->is_terminal) {
        printf("%s%s\n", head, text);
        return 1;
    }
    while (rest.len > 0 && n < room) {
        size_t len = rest.len;
        if (len > width) {
            for (len = width; len > width / 2 && rest.ptr[len] != ' '; len--)
                continue;
        }
        bool is_cut = n + 1 == room && len < rest.len;
        printf("%s%.*s%s\n", n == 0 ? head : "    ", (int)(is_cut ? len - 3 : len), rest.ptr,
            is_cut ? "..." : "");
        rest.ptr += len;
        rest.len -= len;
        for (; rest.len > 0 && rest.ptr[0] == ' '; rest.len--)
            rest.ptr++;
        n++;
    }
    return n;
}

static void print_problems(const struct pipeline_status *s, const struct screen *screen)
{
    size_t room = screen->lines > OTHER_LINES + 3 ? screen->lines - OTHER_LINES : 3, used = 0, i = 0;
    for (enum status_level level = STATUS_DOWN; level > STATUS_FINE; level--)
        for (size_t at = 0; at < s->n_problems; at++) {
            const struct status_problem *p = &s->problems[at];
            if (p->level != level || (screen->is_terminal && used + 2 + (i + 1 < s->n_problems) > room))
                continue;
            size_t left = room - used, most = left > 3 ? 3 : left - 1;
            used += print_wrapped(screen, level == STATUS_DOWN ? "!!  " : "!   ", p->text, most);
            used += p->remedy[0] ? print_wrapped(screen, " -> ", p->remedy, room - used > 2 ? 2 : 1) : 0;
            i++;
        }
    if (i < s->n_problems)
        printf("    and %zu more: millrace status --json\n", s->n_problems - i);
}

static const char *cell(char out[24], double n, int decimals, const char *unit)
{
    if (n < 0)
        return "-";
    snprintf(out, 24, "%.*f%s", decimals, n, unit);
    return out;
}

/* Most pipelines run without these daemons. */
static bool is_shown(const struct pipeline_status *s, size_t i)
{
    const char *name = pipeline_daemon_name(i);
    static const char *const rare[] = {
        "queue_to_nats", "nats_to_pubsub", "spamfilter", "lists", "metricdb", "scraper", "ruler"};
    bool is_rare = false;
    for (size_t k = 0; k < sizeof rare / sizeof *rare; k++)
        is_rare = is_rare || strcmp(name, rare[k]) == 0;
    return !s->pipeline.daemons[i].is_off || !is_rare;
}

/* Returns the number of restarts; -1: not known, because run.json is missing, unreadable or too old. */
static double restarts_of(const struct pipeline_status *s, size_t i)
{
    bool is_known = s->pipeline.is_known && !s->daemons[i].is_replaced;
    return is_known ? (double)s->pipeline.daemons[i].restarts : -1;
}

static void print_daemons(const struct pipeline_status *s, const struct screen *screen)
{
    char rate[24], waiting[24], lag[24], restarts[24];
    printf("%-15s %-11s %8s %8s %7s %8s  %s\n", "daemon", "state", "events/s", "waiting", "lag", "restarts",
        "address");
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++) {
        const struct daemon_status *d = &s->daemons[i];
        const struct pipeline_daemon *p = &s->pipeline.daemons[i];
        if (!is_shown(s, i))
            continue;
        bool was_asked = d->events >= 0 || d->ready || strcmp(d->state, "unreachable") == 0;
        const char *url = was_asked && !p->is_off && p->url ? p->url : "";
        printf("%-15s %s%-11s%s %8s %8s %7s %8s  %.*s\n", pipeline_daemon_name(i),
            screen->has_color ? colors[d->level] : "", d->state, screen->has_color ? NO_COLOR : "",
            cell(rate, d->rate, 1, ""), cell(waiting, (double)d->waiting, 0, ""), cell(lag, d->lag, 1, " s"),
            cell(restarts, restarts_of(s, i), 0, ""), screen->is_terminal ? 16 : 300,
            strncmp(url, "http://", 7) == 0 ? url + 7 : url);
    }
}

struct reason {
    uint64_t lines;
    struct bytes text;
};

/* The most frequent reason first. */
static int by_lines(const void *a, const void *b)
{
    const struct reason *x = a, *y = b;
    return (x->lines < y->lines) - (x->lines > y->lines);
}

static void print_rejects(const struct pipeline_status *s)
{
    const struct json_doc *d = s->daemons[peer_named("aggregator") - peers].stats;
    uint64_t counted = 0, rejected = 0, rest = 0, skipped = json_doc_number(d, "/last_minute/skipped");
    if (!json_doc_u64(d, "/last_minute/counted", &counted) ||
        !json_doc_u64(d, "/last_minute/rejected", &rejected))
        return;
    struct json_value uptime = json_doc_at(d, "/uptime_seconds");
    char time[24] = "minute";
    if (uptime.type == JSON_F64 && uptime.v.f64 < 59) /* since its start, the aggregator counts anew */
        snprintf(time, sizeof time, "%d s", (int)uptime.v.f64 + 1);
    printf("last %-11s%" PRIu64 " counted, ", time, counted);
    if (skipped > 0)
        printf("%" PRIu64 " skipped (skip_if, keep_if), ", skipped);
    printf("%" PRIu64 " rejected", rejected);
    size_t n = json_doc_length(d, "/last_minute/reasons");
    struct reason *reasons = mem_alloc((n + 1) * sizeof *reasons);
    for (size_t i = 0; i < n; i++)
        reasons[i] = (struct reason){(uint64_t)json_doc_number(d, "/last_minute/reasons/%zu/lines", i),
            json_doc_text(d, "/last_minute/reasons/%zu/reason", i)};
    qsort(reasons, n, sizeof *reasons, by_lines);
    for (size_t i = 0; i < n; i++) {
        if (i < REASONS_SHOWN)
            printf("%s%" PRIu64 " %.*s", i ? ", " : ": ", reasons[i].lines, (int)reasons[i].text.len,
                reasons[i].text.ptr);
        rest += i < REASONS_SHOWN ? 0 : reasons[i].lines;
    }
    free(reasons);
    if (rest > 0)
        printf(", %" PRIu64 " for other reasons", rest);
    putchar('\n');
}

static void print_facts(const struct pipeline_status *s)
{
    char text[RFC3339_TEXT], age[STATUS_AGE_TEXT], disk_free[SIZE_TEXT], disk_size[SIZE_TEXT];
    int64_t now = clock_wall() / USEC_PER_SEC;
    status_format_age(age, now - s->complete_until);
    struct bytes held_by = json_doc_text(s->daemons[peer_named("aggregator") - peers].stats, "/held_by");
    printf("complete until  %s%s%s%s%s%.*s\n",
        s->complete_until > 0 ? rfc3339_write(s->complete_until, text) : "not known",
        s->complete_until > 0 ? " (" : "", s->complete_until > 0 ? age : "",
        s->complete_until > 0 ? " ago)" : "", held_by.len ? ", held back by " : "", (int)held_by.len,
        held_by.len ? held_by.ptr : "");
    uint64_t quarters_since = 0;
    json_doc_u64(s->daemons[peer_named("aggregator") - peers].stats, "/quarters_since", &quarters_since);
    if (quarters_since > 0)
        printf("resolution      15m since %s\n", rfc3339_write((int64_t)quarters_since, text));
    if (s->unsettled > 0)
        printf("not settled     %" PRIu64
               " messages are in JetStream, and stay in the queue for settle_after\n",
            s->unsettled);
    status_format_age(age, now - s->archive_made);
    bool is_ahead = s->archive_made > now;
    if (s->archive_generation >= 0)
        printf("archive         generation %" PRId64 " of %s%s%s%s\n", s->archive_generation,
            rfc3339_write(s->archive_made, text), is_ahead ? "" : " (", is_ahead ? "" : age,
            is_ahead ? "" : " ago)");
    const char *next = s->pipeline.daemons[PEERS].status_text;
    if (next && !s->pipeline.has_ended && !s->pipeline.starting)
        printf("compaction      %s\n", next);
    if (s->disk_size > 0) {
        printf("disk            %s of %s free", size_write(disk_free, (uint64_t)s->disk_free),
            size_write(disk_size, (uint64_t)s->disk_size));
        if (s->days_until_full >= 0)
            printf(", full in %.0f days", s->days_until_full);
        putchar('\n');
    }
    print_rejects(s);
}

static void print_screen(const struct pipeline_status *s, const struct screen *screen)
{
    char now[RFC3339_TEXT];
    printf("%smillrace: %s%s%*s\n", screen->has_color ? colors[s->level] : "", levels[s->level],
        screen->has_color ? NO_COLOR : "",
        (int)(SCREEN_COLUMNS - sizeof "millrace: " + 1 - strlen(levels[s->level])),
        rfc3339_write(clock_wall() / USEC_PER_SEC, now));
    print_problems(s, screen);
    putchar('\n');
    print_daemons(s, screen);
    putchar('\n');
    cells_status_print(s->cells);
    print_facts(s);
}

static void append_number(struct buf *out, const char *name, double n, int decimals)
{
    buf_printf(out, ",\"%s\":", name);
    if (n < 0)
        buf_append_str(out, "null");
    else
        buf_printf(out, "%.*f", decimals, n);
}

static void append_text(struct buf *out, const char *before, const char *text)
{
    buf_append_str(out, before);
    if (text)
        buf_append_json(out, bytes_str(text));
    else
        buf_append_str(out, "null");
}

static void append_daemon(struct buf *out, const struct pipeline_status *s, size_t i)
{
    const struct daemon_status *d = &s->daemons[i];
    const struct pipeline_daemon *p = &s->pipeline.daemons[i];
    bool was_asked = d->events >= 0 || d->ready || strcmp(d->state, "unreachable") == 0;
    buf_printf(out, "%s\"%s\":{\"state\":\"%s\"", i ? "," : "", pipeline_daemon_name(i), d->state);
    append_text(out, ",\"url\":", was_asked && !p->is_off && p->url && p->url[0] ? p->url : NULL);
    buf_append_str(out, ",\"detail\":");
    buf_append_json(out, buf_bytes(&d->detail));
    append_number(out, "events_per_second", d->rate, 1);
    append_number(out, "waiting", (double)d->waiting, 0);
    append_number(out, "lag_seconds", d->lag, 3);
    append_number(out, "restarts", restarts_of(s, i), 0);
    append_number(out, "restarted_at", p->restarted_at > 0 ? (double)p->restarted_at : -1, 0);
    append_text(out, ",\"last_error\":", p->last_error);
    append_number(out, "last_error_at", p->error_at > 0 ? (double)p->error_at : -1, 0);
    buf_append_char(out, '}');
}

static void print_json(const struct pipeline_status *s)
{
    struct buf out = {0};
    buf_printf(&out, "{\"level\":\"%s\",\"ready\":%s,\"settled\":%s,\"problems\":[", levels[s->level],
        s->all_ready ? "true" : "false", pipeline_is_settled(s) ? "true" : "false");
    for (size_t i = 0; i < s->n_problems; i++) {
        buf_printf(&out, "%s{\"level\":\"%s\"", i ? "," : "", levels[s->problems[i].level]);
        append_text(&out, ",\"problem\":", s->problems[i].text);
        append_text(&out, ",\"remedy\":", s->problems[i].remedy);
        buf_append_char(&out, '}');
    }
    buf_append_str(&out, "],\"daemons\":{");
    for (size_t i = 0; i < PIPELINE_DAEMONS; i++)
        if (is_shown(s, i))
            append_daemon(&out, s, i);
    buf_append_char(&out, '}');
    append_number(&out, "complete_until", s->complete_until ? (double)s->complete_until : -1, 0);
    struct bytes held_by = json_doc_text(s->daemons[peer_named("aggregator") - peers].stats, "/held_by");
    buf_append_str(&out, ",\"held_by\":");
    buf_append_json(&out, held_by);
    uint64_t quarters_since = 0;
    if (json_doc_u64(s->daemons[peer_named("aggregator") - peers].stats, "/quarters_since", &quarters_since))
        append_number(&out, "quarters_since", quarters_since ? (double)quarters_since : -1, 0);
    if (s->unsettled > 0)
        append_number(&out, "unsettled", (double)s->unsettled, 0);
    cells_status_json(s->cells, &out);
    append_number(&out, "archive_generation", (double)s->archive_generation, 0);
    append_number(&out, "archive_made", s->archive_made ? (double)s->archive_made : -1, 0);
    append_number(&out, "disk_free_bytes", (double)s->disk_free, 0);
    append_number(&out, "disk_size_bytes", (double)s->disk_size, 0);
    append_number(&out, "days_until_full", s->days_until_full, 1);
    buf_append_str(&out, "}\n");
    fwrite(out.ptr, 1, out.len, stdout);
    buf_free(&out);
}

static void take(struct pipeline_status *s, const struct options *o)
{
    pipeline_status_take(s, options_config(o), options_string(o, "data_dir"));
}

/* Repeats the look until the pipeline is settled, the timeout has passed, or `millrace up` has failed. In the first moments, the
 * failure may be that of the start before. Returns the exit status. */
static int wait_settled(const struct options *o, struct pipeline_status *s)
{
    static const char waiting[] = "millrace status: still waiting for";
    usec_t began = clock_monotonic(), end = began + options_int(o, "timeout") * USEC_PER_MSEC;
    bool has_failed = false;
    take(s, o);
    while (!pipeline_is_settled(s) && !has_failed && clock_monotonic() < end) {
        clock_sleep(POLL_INTERVAL);
        pipeline_status_close(s);
        take(s, o);
        has_failed = s->pipeline.end_reason && clock_monotonic() - began >= START_GRACE;
    }
    if (pipeline_is_settled(s))
        return STATUS_FINE;
    if (has_failed) {
        fprintf(stderr, "millrace status: `millrace up` has ended: %s\n", s->pipeline.end_reason);
        return STATUS_DOWN;
    }
    for (size_t i = 0; i < PEERS; i++)
        if (!s->daemons[i].ready)
            fprintf(stderr, "%s %s: %s\n", waiting, peers[i].name, s->daemons[i].state);
    if (s->depth > 0)
        fprintf(stderr, "%s %" PRIu64 " %s on queue %s\n", waiting, s->depth,
            plural(s->depth, "message", "messages"), pipeline_counted_queue(s->config));
    if (s->lag > 0)
        fprintf(stderr, "%s %" PRIu64 " uncounted bytes of streams\n", waiting, s->lag);
    return s->level == STATUS_FINE ? STATUS_ATTENTION : (int)s->level;
}

/* Takes two looks and computes the rates. A stopped pipeline has no rates. */
static void measure(const struct options *o, struct pipeline_status *s)
{
    struct pipeline_status before;
    usec_t sample = options_int(o, "sample") * USEC_PER_MSEC;
    take(s, o);
    if (sample == 0 || s->pipeline.has_ended)
        return;
    before = *s;
    clock_sleep(sample);
    take(s, o);
    pipeline_status_rates(s, &before);
    pipeline_status_close(&before);
}

static int watch(const struct options *o, const struct screen *screen)
{
    struct pipeline_status s, before;
    take(&before, o);
    for (;;) {
        clock_sleep(options_int(o, "watch") * USEC_PER_MSEC);
        take(&s, o);
        pipeline_status_rates(&s, &before);
        if (screen->is_terminal)
            fputs(CLEAR, stdout);
        (options_bool(o, "json") ? (void)print_json(&s) : print_screen(&s, screen));
        pipeline_status_close(&before);
        before = s;
        if (!tool_show())
            break; /* the output was closed */
    }
    int status = before.level;
    pipeline_status_close(&before);
    return status;
}

static int status_with(const struct options *o)
{
    struct screen screen = screen_of(o);
    struct pipeline_status s;
    signal(SIGPIPE, SIG_IGN);
    if (options_is_set(o, "watch"))
        return watch(o, &screen);
    int status = STATUS_FINE;
    if (options_bool(o, "wait"))
        status = wait_settled(o, &s);
    else
        measure(o, &s);
    if (options_bool(o, "json"))
        print_json(&s);
    else
        print_screen(&s, &screen);
    status = options_bool(o, "wait") ? status : (int)s.level;
    pipeline_status_close(&s);
    return status;
}

int tool_status(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "status",
        .summary = "shows the daemons of a pipeline, and the problems with their remedies",
        .more = "The exit status is 0 if all is fine, 1 if something needs attention, and 2 if a daemon is "
                "down.\n",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, status_with);
}
