/* ps_to_http: posts a stream to HTTP servers, at least once, or into a millrace stream or queue, exactly once
 * (republisher.h).
 *
 * Lines are sent to HTTP servers in batches. If a destination's URL contains %s, each request sends one line, which is
 * escaped and replaces the %s. Several destinations take turns. A failing destination counts as down for a while
 * (http_pool.h).
 *
 * 1. Every line before the cursor was answered with 2xx, or skipped. After a crash, the program continues at the stored
 *    cursor. Lines that were answered but are not below the stored cursor are delivered again.
 * 2. A batch is retried until a destination answers the batch with 2xx. If the failed destination does not count as
 *    down, the next attempt is a second later.
 * 3. With skip_refused, each answer that blames the request (http_pool_is_poison) halves the batch, down to one line.
 *    Once every destination that is up has refused a single line, the line is skipped, logged with its offsets and
 *    counted. After poison_limit skipped lines in a row, the program assumes that the destination is faulty, and
 *    retries refused lines until a line is accepted.
 * 4. At most `parallel` requests are in progress. With `parallel` = 1, a single destination gets the lines in order.
 *    While more than `parallel` batches exist, the source pauses. */
#include "streams/archive/archive_lock.h"
#include "http/client/http_client.h"
#include "http/client/http_pool.h"
#include "base/erased_line.h"
#include "base/io.h"
#include "base/log.h"
#include "config/reject_options.h"
#include "base/xxh3.h"
#include "daemon/loop_timer.h"
#include "streams/filter/republisher.h"
#include "stream/stream_client.h"
#include "stream/stream_program.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

/* Delay after a host has refused lines or answered 302 or 408. The pool does not count such a host as down. */
#define REFUSED_RETRY (1 * USEC_PER_SEC)

static const struct option_row option_rows[] = {
    STREAM_OPTIONS("stream to read", "longest line accepted"),
    STREAM_ACCEPT_LOSS_OPTIONS(
        "although the stream is a restored copy; otherwise the program stays not ready"),
    SETTING_STRING("destination", HTTP_POOL_URLS_HELP "%s is replaced by one line in escaped form",
        .flags = OPTION_LIST),
    SETTING_STRING(
        "destination_token_file", "file with the token that each destination gets as Authorization: Bearer"),
    SETTING_STRING("state",
        "state file with the offset below which all lines are delivered (default: "
        ".ps_to_http-STREAM-HASH.json in the working directory, with a HASH of pubsub_url and destination)"),
    SETTING_CHOICE("method", "POST", "POST|GET", "method of the requests"),
    SETTING_STRING("content_type", "content type of a POST", .fallback = "application/x-ndjson"),
    SETTING_INT("batch", "100", 1, 1000000, "maximum lines per request"),
    SETTING_BOOL("bare_line", "with batch=1: send the line without its LF"),
    SETTING_SIZE("batch_bytes", "1M", 1, 64 << 20, "maximum bytes per request, unless one line is longer"),
    SETTING_DURATION(
        "gather", "0", 0, 60000, "ms", "longest time that a line waits for further lines of its batch"),
    SETTING_INT(
        "parallel", "1", 1, 256, "concurrent requests; with more than one, lines may arrive out of order"),
    SETTING_DURATION("timeout", "10s", 10, 600000, "ms", "timeout of a request"),
    SETTING_BOOL("skip_refused", "skip a line, instead of retrying the line, once every reachable "
                                 "destination answers 400, 413 or 422"),
    SETTING_INT("poison_limit", "100", 0, 1000000,
        "with skip_refused: maximum number of lines skipped in a row; further refused lines are retried (0: "
        "unlimited)"),
    SETTING_STRING("rejects", "with skip_refused: file to which skipped lines are appended"),
    REJECT_LIMIT_OPTIONS,
    SETTING_DURATION("commit_every", "1s", 10, 3600000, "ms", "interval at which the state is stored"),
    SETTING_STRING(
        "destination_get_url", "URL with %s for a GET of each line", .means = "destination method=GET"),
    SETTING_STRING("destination_post_url", "URL for a POST of each line",
        .means = "destination method=POST batch=1 bare_line=true"),
    SETTING_BOOL("round_robin",
        "required if several destination_get_url or destination_post_url are set; these URLs take turns"),
    SETTING_STRING("max_silence", "no effect: ps_to_http notices a dead connection to pubsub and reconnects",
        .means = ""),
    SETTING_STRING("to_stream",
        "stream of another pubsub that gets the lines instead of destination; each line is stored once"),
    SETTING_STRING("to_queue",
        "queue of a simplequeue that gets the lines instead of destination; each line is stored once"),
    SETTING_STRING("to_url", "address of the pubsub or simplequeue for to_stream or to_queue"),
    SETTING_STRING("to_token_file", "file with the token for to_url"),
    SETTING_STRING("producer", "producer name at to_url (default: the id of the stream)"),
    {.name = NULL},
};

/* The lines in the bytes [begin, end) of the stream. The list of batches is in the stream's order, and the first batch
 * begins at the cursor. */
struct batch {
    struct program *program;
    struct batch *next;
    const struct http_pool_host *host; /* host of the last attempt */
    uint64_t refusers; /* for a single line: bits of the hosts that refused it (http_pool_host_bit) */
    struct buf lines;
    size_t n_lines;
    uint64_t begin, end;
    char opening[STREAM_OPENING_TEXT]; /* opening (id of a run of pubsub) of the byte before `end` */
    usec_t due; /* time of the next attempt; before `due` the batch gathers lines or waits for a retry */
    enum { GATHERING, WAITING, UNDER_WAY, DONE } state;
};

struct program {
    struct daemon *daemon;
    struct http_client *source;
    struct http_pool *pool;          /* the destinations, or the server of to_url */
    struct republisher *republisher; /* NULL: to_stream and to_queue are not set */
    struct stream_client *stream;
    struct archive_state state; /* the stored state, of which only the member `cursor` is used */
    const char *state_path;
    int state_lock;             /* descriptor of the state's lock; -1: not locked */
    struct reject_file rejects; /* file of the refused lines; path NULL: refused lines are only logged */
    struct loop_timer *committer;
    bool state_found; /* a state was found at the start, or has been stored */
    bool state_failed;
    /* Settings: */
    bool bare_line;
    bool get; /* requests are GETs with the line in the URL, not POSTs */
    bool skip_refused;
    size_t batch_lines, batch_bytes, parallel;
    usec_t gather;
    uint64_t poison_limit; /* 0: unlimited */
    const char *content_type;
    /* Delivery: */
    struct batch *first, *last;
    size_t n_batches, under_way;
    struct stream_cursor cursor; /* position before which every line is delivered or skipped */
    uint64_t refused_in_row;     /* number of lines skipped since the last accepted line */
    struct loop_timer *timer;    /* timer of the next attempt */
    bool was_full, stopping;
    bool refuses_all; /* poison_limit is reached, and another line was refused */
    char trouble[400];
    struct stats_counter *lines, *batches, *failures, *refused;
};

/* Fails if a setting in `names` is set, because the setting would have no effect. */
static int refuse_settings(struct options *o, const char *const *names, const char *why, struct error *error)
{
    for (; *names != NULL; names++)
        if (options_is_set(o, *names))
            return options_refuse(o, *names, error, "%s", why);
    return 0;
}

static int set_default_state(struct options *o, struct error *error)
{
    struct buf path = {0};
    buf_printf(&path, "%s %s", peer_url(o, "pubsub"), options_text(o, "destination"));
    uint64_t hash = XXH3_64bits(path.ptr, path.len);
    buf_clear(&path);
    buf_printf(&path, ".ps_to_http-%s-%016" PRIx64 ".json", options_string(o, "stream"), hash);
    const char *kept = options_keep(o, buf_bytes(&path));
    buf_free(&path);
    log_warn("state is not set: the state is stored in the working directory", LOG_S("path", kept));
    return options_inherit(o, "state", kept, "default", error);
}

static int check_destination(struct options *o, struct error *error)
{
    static const char *const of_our_own[] = {"to_url", "to_token_file", "producer", NULL};
    static const char *const of_refusals[] = {
        "rejects", "rejects_max_bytes", "rejects_max_age", "poison_limit", NULL};
    const char *rejects = options_text(o, "rejects");
    struct http_pool_config config = {.urls = options_text(o, "destination"), .max_connections = 1};
    struct http_pool *pool = http_pool_new(&config, error->text, sizeof error->text);
    if (!pool)
        return options_refuse(o, "destination", error, "%s", error->text);
    bool all_placeholders = http_pool_without_placeholder(pool) == NULL, several = http_pool_size(pool) > 1;
    http_pool_free(&pool);
    if (several && !options_bool(o, "round_robin") &&
        (options_is_set(o, "destination_get_url") || options_is_set(o, "destination_post_url")))
        return options_refuse(o, "destination", error,
            "several destinations take turns: set --round-robin; to send each line to all destinations, "
            "start one ps_to_http per destination");
    if (strcmp(options_string(o, "method"), "GET") == 0 && !all_placeholders)
        return options_refuse(o, "destination", error, "method GET requires %%s in each URL");
    if (strstr(options_text(o, "destination"), "%s") && options_is_set(o, "batch") &&
        options_int(o, "batch") > 1)
        return options_refuse(
            o, "batch", error, "a request to a destination with %%s has one line: omit batch");
    if (options_bool(o, "bare_line") && options_int(o, "batch") > 1)
        return options_refuse(o, "bare_line", error, "requires batch=1");
    if (refuse_settings(o, of_our_own, "only allowed with to_stream or to_queue", error) != 0)
        return -1;
    if (!options_text(o, "state") && set_default_state(o, error) != 0)
        return -1;
    if (!options_bool(o, "skip_refused")) {
        if (refuse_settings(o, of_refusals, "requires skip_refused", error) != 0)
            return -1;
    } else if (rejects && io_is_same_file(rejects, options_text(o, "state"))) {
        return options_refuse(o, "rejects", error, "is the state file");
    }
    if (strpbrk(options_string(o, "content_type"), "\r\n"))
        return options_refuse(o, "content_type", error, "not a valid header value");
    return 0;
}

static int check(struct options *o, struct error *error)
{
    static const char *const of_strangers[] = {"state", "destination_token_file", "method", "content_type",
        "batch", "bare_line", "batch_bytes", "gather", "parallel", "skip_refused", "poison_limit", "rejects",
        "rejects_max_bytes", "rejects_max_age", "commit_every", "accept_loss", "accept_loss_from", NULL};
    struct url_address address;
    int ways = (options_text(o, "destination") != NULL) + (options_text(o, "to_stream") != NULL) +
               (options_text(o, "to_queue") != NULL);
    const char *to = options_text(o, "to_url");
    if (stream_program_check(o, error) != 0 || options_check_name(o, "to_stream", error) != 0 ||
        options_check_name(o, "to_queue", error) != 0 || options_check_name(o, "producer", error) != 0)
        return -1;
    if (ways != 1)
        return options_refuse(
            o, "destination", error, "set exactly one of --destination, --to_stream and --to_queue");
    if (options_text(o, "destination"))
        return check_destination(o, error);
    if (refuse_settings(o, of_strangers, "only allowed with destination", error) != 0)
        return -1;
    if (!to || url_address_parse(to, 80, &address) != 0)
        return options_refuse(o, "to_url", error, "required: http://HOST:PORT or unix:PATH");
    return stream_program_check_target(o, to, error);
}

static void update_health(struct program *p)
{
    const char *trouble = NULL;
    if (p->republisher)
        trouble = republisher_trouble(p->republisher);
    else if (p->state_failed)
        trouble = "cannot store the state";
    else if (p->trouble[0] != '\0')
        trouble = p->trouble;
    else
        trouble = stream_client_trouble(p->stream, NULL);
    stream_program_set_trouble(p->daemon, trouble);
}

static void write_state(struct program *p);
static void end_drain(struct program *p);

/* If the stream does not exist yet, `latest` means the beginning of the stream. A state without an id records this
 * position, so that a restart after the creation of the stream also begins at the first line. */
static void on_change(void *arg)
{
    struct program *p = arg;
    if (p->stream && stream_program_awaits(p->stream) && stream_program_begins_at_end(p->daemon) &&
        !p->state_found)
        write_state(p);
    update_health(p);
    if (!p->republisher && daemon_is_draining(p->daemon) && p->under_way == 0)
        end_drain(p);
}

/* Stores the state. After a failed write, delivery continues, and the next commit tries again. After a crash, the lines
 * since the last stored state are delivered again. */
static void write_state(struct program *p)
{
    bool failed = archive_state_write(p->state_path, &p->state) != 0;
    if (failed && !p->state_failed)
        log_error("cannot store the state", LOG_S("path", p->state_path), LOG_S("error", strerror(errno)));
    p->state_failed = failed;
    p->state_found = p->state_found || !failed;
}

static void commit(struct program *p)
{
    struct stream_cursor *stored = &p->state.cursor;
    bool same = strcmp(p->cursor.id, stored->id) == 0 && strcmp(p->cursor.opening, stored->opening) == 0 &&
                p->cursor.offset == stored->offset;
    if (p->cursor.id[0] == '\0' || (same && !p->state_failed))
        return;
    *stored = p->cursor;
    write_state(p);
}

static void end_drain(struct program *p)
{
    commit(p);
    daemon_drained(p->daemon);
}

static void on_commit(void *arg)
{
    struct program *p = arg;
    commit(p);
    update_health(p);
}

static void start_waiting(void *arg);

/* Inserts a batch after the batch `before`, or as the first batch if `before` is NULL. */
static struct batch *batch_new(struct program *p, struct batch *before, uint64_t begin, const char *opening)
{
    struct batch *b = mem_zalloc(sizeof *b), **place = before ? &before->next : &p->first;
    *b = (struct batch){
        .program = p, .next = *place, .begin = begin, .end = begin, .due = clock_monotonic() + p->gather};
    snprintf(b->opening, sizeof b->opening, "%s", opening);
    *place = b;
    if (p->last == before)
        p->last = b;
    p->n_batches++;
    return b;
}

/* Moves the cursor past the leading batches that are DONE, and frees these batches. */
static void drop_done(struct program *p)
{
    while (p->first && p->first->state == DONE) {
        struct batch *b = p->first;
        p->first = b->next;
        p->last = p->first ? p->last : NULL;
        p->cursor.offset = b->end;
        memcpy(p->cursor.opening, b->opening, sizeof b->opening);
        p->n_batches--;
        buf_free(&b->lines);
        free(b);
    }
}

/* Returns whether the program must pause the source. The program still accepts the rest of the current read. */
static bool is_full(const struct program *p)
{
    return p->n_batches > p->parallel;
}

/* Returns true if the batch has no room for a line of `n` bytes, including the LF. */
static bool is_full_batch(const struct program *p, const struct batch *b, size_t n)
{
    return b->n_lines >= p->batch_lines || b->lines.len + n > p->batch_bytes;
}

static void set_trouble(struct program *p, const char *text)
{
    if (strcmp(p->trouble, text) == 0)
        return;
    if (*text != '\0')
        log_warn("cannot deliver", LOG_S("error", text));
    snprintf(p->trouble, sizeof p->trouble, "%s", text);
}

static void failed(struct batch *b, enum http_client_result result, const struct http_reply_view *reply)
{
    struct program *p = b->program;
    int status = result == HTTP_CLIENT_OK ? reply->status : 0;
    bool fault = http_pool_is_fault(result, status);
    const char *url = http_pool_host_url(b->host);
    char why[180], text[sizeof p->trouble];
    b->state = WAITING;
    b->due = fault ? 0 : clock_monotonic() + REFUSED_RETRY;
    stats_add(p->failures, 1);
    http_pool_describe(reply, why, sizeof why);
    if (result == HTTP_CLIENT_OK && !fault)
        snprintf(text, sizeof text, "%.200s %s", url, why);
    else if (result == HTTP_CLIENT_OK)
        snprintf(text, sizeof text, "%.200s answered %d", url, status);
    else
        snprintf(text, sizeof text, "%.200s: %s", url, http_client_strerror(result));
    set_trouble(p, text);
}

static void wait_refused(struct batch *b, const char *trouble)
{
    b->state = WAITING;
    b->due = clock_monotonic() + REFUSED_RETRY;
    b->refusers = 0;
    set_trouble(b->program, trouble);
}

/* Appends a refused line to `rejects`. Returns false if this fails. */
static bool keep_refused(const struct program *p, struct bytes line)
{
    bool expired;
    if (!p->rejects.path)
        return true;
    if (reject_file_add(&p->rejects, line, &expired) != 0) {
        log_warn(
            "cannot store a refused line", LOG_S("path", p->rejects.path), LOG_S("error", strerror(errno)));
        return false;
    }
    if (expired)
        log_warn("deleted the oldest refused lines", LOG_S("path", p->rejects.path));
    return true;
}

static void refused(struct batch *b, const struct http_reply_view *reply)
{
    struct program *p = b->program;
    char why[180], text[sizeof p->trouble];
    stats_add(p->failures, 1);
    b->state = WAITING;
    b->due = 0;
    if (b->n_lines > 1) { /* the second half becomes a new batch after the first half */
        size_t keep = b->n_lines / 2;
        const char *at = b->lines.ptr;
        for (size_t i = 0; i < keep; i++)
            at = (const char *)memchr(at, '\n', (size_t)(b->lines.ptr + b->lines.len - at)) + 1;
        size_t length = (size_t)(at - b->lines.ptr);
        struct batch *rest = batch_new(p, b, b->begin + length, b->opening);
        rest->end = b->end;
        rest->n_lines = b->n_lines - keep;
        rest->state = WAITING;
        rest->due = 0;
        buf_append(&rest->lines, at, b->lines.len - length);
        b->end = rest->begin;
        b->n_lines = keep;
        b->lines.len = length;
        return;
    }
    b->refusers |= http_pool_host_bit(b->host);
    if (http_pool_next(p->pool, b->refusers))
        return; /* another host may accept the line, for example with a larger limit */
    http_pool_describe(reply, why, sizeof why);
    /* Without a limit, a mistyped address that answers 400 would make the program skip all lines. */
    p->refuses_all = p->poison_limit > 0 && p->refused_in_row >= p->poison_limit;
    if (p->refuses_all) {
        snprintf(text, sizeof text, "%.80s refuses every line (poison_limit): %s",
            http_pool_host_url(b->host), why);
        wait_refused(b, text);
        return;
    }
    if (!keep_refused(p, bytes_of(b->lines.ptr, b->lines.len - 1))) {
        wait_refused(b, "cannot store a refused line");
        return;
    }
    log_warn("line skipped: the destination refuses the line",
        LOG_S("destination", http_pool_host_url(b->host)), LOG_I("status", reply->status),
        LOG_U("from", b->begin), LOG_U("to", b->end), LOG_S("error", why));
    set_trouble(p, "");
    stats_add(p->refused, 1);
    p->refused_in_row++;
    b->state = DONE;
}

static void answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct batch *b = arg;
    struct program *p = b->program;
    int status = result == HTTP_CLIENT_OK ? reply->status : 0;
    p->under_way--;
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    if (status >= 200 && status < 300) {
        b->state = DONE;
        stats_add(p->batches, 1);
        stats_add(p->lines, b->n_lines);
        p->refuses_all = false;
        p->refused_in_row = 0;
        set_trouble(p, "");
        /* Only an answer can show that the destination is the source stream. Before the answer, the stream has already
         * stored the batch. */
        struct stream_place place;
        stream_place_read(reply, &place);
        if (stream_place_is_same(&place, stream_client_place(p->stream)))
            stream_program_fail_into_itself(p->daemon);
    } else if (http_pool_is_poison(status) && p->skip_refused) {
        refused(b, reply);
    } else {
        failed(b, result, reply);
    }
    drop_done(p);
    start_waiting(p);
    on_change(p);
    if (p->was_full && !is_full(p)) {
        p->was_full = false;
        stream_client_resume(p->stream);
    }
}

/* Sends the batches that are due. A batch that waits for a retry occupies one of the `parallel` slots, so that with one
 * slot no batch overtakes another batch. */
static void start_waiting(void *arg)
{
    struct program *p = arg;
    usec_t now = clock_monotonic(), wake = INT64_MAX;
    size_t slots = p->stopping ? 0 : p->parallel - p->under_way;
    for (struct batch *b = p->first; b && slots > 0; b = b->next) {
        if (b->state == UNDER_WAY || b->state == DONE)
            continue;
        struct http_pool_host *host = NULL;
        bool early = b->due > now && !(b->state == GATHERING && (b->next || is_full_batch(p, b, 1)));
        if (!early)
            host = http_pool_next(p->pool, b->refusers);
        if (!early && !host) /* tries a host that refused the line, because all other hosts are down */
            host = http_pool_next(p->pool, 0);
        usec_t due = early ? b->due : now + http_pool_wait(p->pool) + USEC_PER_MSEC;
        slots--;
        if (!host) {
            wake = due < wake ? due : wake;
            continue;
        }
        struct buf target = {0};
        struct bytes line = bytes_of(b->lines.ptr, b->lines.len - 1); /* the line without its LF */
        http_pool_fill_target(host, line, &target);
        b->host = host;
        b->state = UNDER_WAY;
        p->under_way++;
        http_pool_request(host, &(struct http_call_spec){.method = p->get ? "GET" : "POST",
                                    .target = target.ptr,
                                    .content_type = p->get ? NULL : p->content_type,
                                    .body = p->get         ? BYTES_NONE
                                            : p->bare_line ? line
                                                           : buf_bytes(&b->lines),
                                    .arg = b,
                                    .on_done = answered});
        buf_free(&target);
    }
    if (wake == INT64_MAX)
        return;
    loop_timer_set(p->timer, wake > now ? wake - now : 0);
}

/* Adds a batch without lines for an erased line, which is not sent. The batch only moves the cursor. */
static void pass_erased(struct program *p, uint64_t begin, uint64_t end, const char *opening)
{
    struct batch *b = p->last;
    if (!b || b->state != DONE || strcmp(b->opening, opening) != 0)
        b = batch_new(p, b, begin, opening);
    b->state = DONE;
    b->end = end;
}

static void on_lines(struct bytes lines, void *arg)
{
    struct program *p = arg;
    const struct stream_cursor *end = stream_client_cursor(p->stream);
    uint64_t at = end->offset - lines.len;
    while (lines.len > 0) {
        struct batch *b = p->last;
        size_t n = (size_t)((char *)memchr(lines.ptr, '\n', lines.len) + 1 - lines.ptr);
        if (erased_line_is(bytes_of(lines.ptr, n - 1))) {
            pass_erased(p, at, at + n, end->opening);
            at += n;
            lines = bytes_of(lines.ptr + n, lines.len - n);
            continue;
        }
        if (!b || b->state != GATHERING || is_full_batch(p, b, n) || strcmp(b->opening, end->opening) != 0)
            b = batch_new(p, b, at, end->opening);
        buf_append(&b->lines, lines.ptr, n);
        b->n_lines++;
        b->end = at += n;
        lines = bytes_of(lines.ptr + n, lines.len - n);
    }
    drop_done(p);
    start_waiting(p);
    p->was_full = p->was_full || is_full(p);
    if (is_full(p))
        stream_client_pause(p->stream);
}

static void on_begin(void *arg)
{
    struct program *p = arg;
    p->cursor = *stream_client_cursor(p->stream);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct program *p = arg;
    (void)before;
    /* The new batch has no lines, and only moves the cursor once the earlier batches are DONE. */
    batch_new(p, p->last, after, stream_client_cursor(p->stream)->opening)->state = DONE;
    drop_done(p);
}

STATS_READ(read_refuses_all, ((struct program *)ctx)->refuses_all)

static double read_offset(void *ctx)
{
    struct program *p = ctx;
    return (double)(p->republisher ? republisher_numbers(p->republisher).offset : p->cursor.offset);
}

static int start_delivery(struct program *p, struct options *o, struct error *error)
{
    struct stats *s = daemon_stats(p->daemon);
    bool line_by_line = strstr(options_text(o, "destination"), "%s") != NULL;
    p->state_path = options_text(o, "state");
    p->state_lock = archive_lock_state(p->state_path, error);
    int found = p->state_lock < 0 ? -1 : archive_state_read(p->state_path, &p->state, error);
    bool foreign = found > 0 && strcmp(p->state.stream, options_string(o, "stream")) != 0;
    if (foreign)
        error_set(error, -1, "%s is the state of the stream %s", p->state_path, p->state.stream);
    if (found < 0 || foreign) {
        options_refuse(o, "state", error, "%s", error->text);
        return EX_CONFIG;
    }
    p->state_found = found > 0;
    snprintf(p->state.stream, sizeof p->state.stream, "%s", options_string(o, "stream"));
    p->pool = daemon_pool_new(p->daemon, options_text(o, "destination_token_file"),
        &(struct http_pool_config){.urls = options_text(o, "destination"),
            .max_connections = (int)options_int(o, "parallel"),
            .timeout = options_int(o, "timeout") * USEC_PER_MSEC,
            .max_reply = HTTP_POOL_REPLY_MAX,
            .cut_reply = true},
        error);
    if (!p->pool)
        return EX_CONFIG;
    p->rejects = reject_options_file(o);
    p->bare_line = options_bool(o, "bare_line");
    p->get = strcmp(options_string(o, "method"), "GET") == 0;
    p->batch_lines = line_by_line ? 1 : (size_t)options_int(o, "batch");
    p->batch_bytes = (size_t)options_int(o, "batch_bytes");
    p->parallel = (size_t)options_int(o, "parallel");
    p->gather = options_int(o, "gather") * USEC_PER_MSEC;
    p->skip_refused = options_bool(o, "skip_refused");
    p->poison_limit = (uint64_t)options_int(o, "poison_limit");
    p->content_type = options_string(o, "content_type");
    p->cursor = p->state.cursor;
    p->timer = loop_timer_new(daemon_base(p->daemon), start_waiting, p);
    p->lines = stats_counter(s, "lines_delivered_total", NULL, "Lines delivered (2xx)");
    p->batches = stats_counter(s, "batches_delivered_total", NULL, "Requests answered with 2xx");
    p->failures = stats_counter(s, "tries_failed_total", NULL, "Requests that failed");
    p->refused = stats_counter(
        s, "lines_refused_total", NULL, "Lines skipped because the destinations refused the lines");
    stats_gauge(s, "refuses_all", NULL,
        "1 while poison_limit is reached: refused lines are retried, not skipped", read_refuses_all, p);
    p->stream = stream_program_follow(p->daemon, p->state_found, true,
        &(struct stream_client_config){.pubsub = p->source,
            .from = p->state.cursor,
            .loss = STREAM_LOSS_CROSSED,
            .on_begin = on_begin,
            .on_lines = on_lines,
            .on_gap = on_gap,
            .on_change = on_change,
            .arg = p});
    p->committer = loop_timer_every(
        daemon_base(p->daemon), options_int(o, "commit_every") * USEC_PER_MSEC, on_commit, p);
    return 0;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct program *p = mem_zalloc(sizeof *p);
    *ctx = p;
    p->daemon = d;
    p->state_lock = -1;
    p->source = stream_program_connect(d, error);
    if (!p->source)
        return EX_CONFIG;
    if (options_text(o, "destination")) {
        int status = start_delivery(p, o, error);
        if (status != 0)
            return status;
    } else {
        p->pool = daemon_pool_new(d, options_text(o, "to_token_file"),
            &(struct http_pool_config){.url = options_text(o, "to_url"),
                .max_connections = 1,
                .timeout = options_int(o, "timeout") * USEC_PER_MSEC},
            error);
        if (!p->pool)
            return EX_CONFIG;
        p->republisher = republisher_new(&(struct republisher_config){.program = "ps_to_http",
            .daemon = d,
            .source = p->source,
            .destination = p->pool,
            .to_queue = options_text(o, "to_queue"),
            .on_change = on_change,
            .arg = p});
    }
    stats_gauge(
        daemon_stats(d), "offset_bytes", NULL, "Offset below which the stream is delivered", read_offset, p);
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "asking pubsub for the stream");
    return 0;
}

/* Waits for the requests in progress, so that the next start does not deliver their lines again. A republisher need not
 * wait, because the next start continues at the destination's mark. */
static void drain(void *ctx)
{
    struct program *p = ctx;
    if (p->republisher) {
        daemon_drained(p->daemon);
        return;
    }
    stream_client_stop(p->stream);
    p->stopping = true; /* end_drain is called once all requests in progress are answered */
    if (p->under_way == 0)
        end_drain(p);
    else
        commit(p);
}

static void stop(void *ctx)
{
    struct program *p = ctx;
    if (!p)
        return;
    stats_remove_gauges(daemon_stats(p->daemon), p);
    loop_timer_free(&p->committer);
    republisher_free(&p->republisher);
    stream_client_free(&p->stream);
    http_pool_free(&p->pool);
    while (p->first) {
        struct batch *b = p->first;
        p->first = b->next;
        buf_free(&b->lines);
        free(b);
    }
    loop_timer_free(&p->timer);
    http_client_free(&p->source);
    archive_state_free(&p->state);
    if (p->state_lock >= 0)
        io->close(p->state_lock);
    free(p);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "ps_to_http",
        .summary = "posts a stream's lines to HTTP servers, or into another stream or a queue",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
