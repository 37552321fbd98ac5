/* millrace put: posts lines to the local queue in batches.
 *
 * With --producer every batch moves that producer's mark from the offset of its first byte to that behind its last, the
 * inputs counted as one run of bytes. So a batch can be sent again after any trouble, and a put that was cut off can be
 * repeated from the start: what is there already is a duplicate, and where the batches' borders differ the queue's
 * answer names the mark to go on from. Without a producer only what was surely not taken is tried again. */
#include "clock.h"
#include "http_client.h"
#include "json_fields.h"
#include "options.h"
#include "pipeline.h"
#include "tools.h"
#include "url.h"
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define BATCH_BYTES ((size_t)1 << 20)
#define BACKOFF_FIRST (50 * USEC_PER_MSEC)
#define BACKOFF_LAST (2 * USEC_PER_SEC)
#define PROGRESS_EVERY (100 * USEC_PER_MSEC)

static const struct option_row rows[] = {
    {.name = "queue_url", .type = OPTION_STRING, .help = "where simplequeue is; by default as --config says"},
    {.name = "data_dir",
        .type = OPTION_STRING,
        .help = "the pipeline's directory, if not the configured one"},
    {.name = "queue", .type = OPTION_STRING, .fallback = "default", .help = "the queue to put to"},
    {.name = "producer",
        .type = OPTION_STRING,
        .help = "a name under which this same input may be put again and is stored once"},
    {.name = "batch",
        .type = OPTION_INT,
        .fallback = "2000",
        .min = 1,
        .max = 1000000,
        .help = "lines a request"},
    {.name = "timeout",
        .type = OPTION_DURATION,
        .fallback = "60s",
        .min = 100,
        .max = 86400000,
        .unit = "s",
        .help = "give up after this long without progress"},
    {.name = "quiet", .type = OPTION_BOOL, .fallback = "false", .help = "no progress, no summary"},
    {.name = NULL},
};

struct put {
    const struct options *o;
    struct event_base *base;
    struct http_client *client;
    const char *producer; /* NULL: none */
    int64_t batch_lines;
    usec_t timeout;
    /* the batch */
    struct buf body;
    int64_t lines;
    uint64_t mark, next; /* offsets of its first byte and behind its last */
    uint64_t resume;     /* lines before this offset are there already */
    /* what is done */
    uint64_t posted, duplicates, size; /* size 0: unknown */
    usec_t started, shown;
    bool progress;
};

static void show_progress(struct put *p, bool last)
{
    usec_t now = clock_monotonic();
    if (!p->progress || (!last && now - p->shown < PROGRESS_EVERY))
        return;
    p->shown = now;
    double seconds = (double)(now - p->started) / USEC_PER_SEC + 1e-6;
    double done = (double)p->next;
    fprintf(stderr, "\r%10" PRIu64 " events  %8.1f MB  %9.0f events/s", p->posted + p->duplicates, done / 1e6,
        (double)(p->posted + p->duplicates) / seconds);
    if (p->size)
        fprintf(stderr, "  %5.1f %%  ETA %.0f s", 100 * done / (double)p->size,
            done > 0 ? ((double)p->size - done) * seconds / done : 0.0);
    fputs(last ? "\033[K\n" : "\033[K", stderr);
}

static void wait_a_while(usec_t t)
{
    struct timespec ts = {.tv_sec = t / USEC_PER_SEC, .tv_nsec = t % USEC_PER_SEC * 1000};
    nanosleep(&ts, NULL);
}

struct reply {
    struct put *put;
    enum http_client_result result;
    int status;
    bool duplicate;
    struct buf body;
};

static void on_done(enum http_client_result result, const struct http_reply_view *view, void *arg)
{
    struct reply *r = arg;
    r->result = result;
    if (result == HTTP_CLIENT_OK) {
        r->status = view->status;
        r->duplicate = *http_reply_header(view, "X-Millrace-Duplicate") != '\0';
        buf_append_bytes(&r->body, view->body);
    }
    event_base_loopbreak(r->put->base);
}

static void ask_queue(struct put *p, struct reply *r)
{
    struct buf target = {0};
    buf_append_str(&target, "/mput?separator=%0A&queue=");
    url_encode(bytes_str(options_string(p->o, "queue")), &target);
    if (p->producer) {
        buf_append_str(&target, "&producer=");
        url_encode(bytes_str(p->producer), &target);
        buf_printf(&target, "&mark=%" PRIu64 "&next=%" PRIu64, p->mark, p->next);
    }
    buf_append_char(&target, '\0');
    http_client_request(p->client, &(struct http_call_spec){.method = "POST",
                                       .target = target.ptr,
                                       .content_type = "application/octet-stream",
                                       .body = buf_bytes(&p->body),
                                       .arg = r,
                                       .on_done = on_done});
    event_base_dispatch(p->base);
    buf_free(&target);
}

/* 409: the producer's mark is inside this batch, so the input up to there is stored. */
static bool take_mark(struct put *p, const struct reply *r)
{
    struct json_doc *doc = json_doc_parse(buf_bytes(&r->body));
    uint64_t mark = 0;
    if (!doc)
        return false;
    struct json_value v = json_doc_at(doc, "/mark");
    bool ok = v.type == JSON_STRING && bytes_to_u64(v.v.string, &mark) && mark > p->mark && mark < p->next;
    json_doc_free(&doc);
    if (ok)
        p->resume = mark;
    return ok;
}

static int give_up(struct put *p, const struct reply *r, const char *why)
{
    if (r->status)
        fprintf(stderr, "\nmillrace put: the queue answered %d: %.*s\n", r->status, (int)r->body.len,
            r->body.ptr ? r->body.ptr : "");
    else
        fprintf(stderr, "\nmillrace put: %s\n", http_client_strerror(r->result));
    fprintf(stderr, "millrace put: %s; the first %" PRIu64 " bytes (%" PRIu64 " events) are stored\n", why,
        p->mark, p->posted + p->duplicates);
    return r->status && r->status != 503 && r->status != 429 ? EX_DATAERR : EX_TEMPFAIL;
}

/* What met failing storage may be found after a restart all the same: only marks make it harmless to send it again. */
static bool was_not_taken(const struct reply *r)
{
    static const char failed[] = "\"storage-failed\"";
    bool unsure =
        !r->put->producer && r->body.len > 0 && memmem(r->body.ptr, r->body.len, failed, strlen(failed));
    return r->result == HTTP_CLIENT_REFUSED ||
           (r->result == HTTP_CLIENT_OK && !unsure && (r->status == 503 || r->status == 429));
}

enum sent { SENT_DONE, SENT_CUT, SENT_FAILED };

/* Sends the batch until it is stored. SENT_CUT: only what is behind p->resume is missing. */
static enum sent send_batch(struct put *p, int *status)
{
    usec_t end = clock_monotonic() + p->timeout, backoff = BACKOFF_FIRST;
    for (;;) {
        struct reply r = {.put = p};
        enum sent sent = SENT_FAILED;
        bool again = false;
        ask_queue(p, &r);
        if (r.result == HTTP_CLIENT_OK && r.status == 200) {
            *(r.duplicate ? &p->duplicates : &p->posted) += (uint64_t)p->lines;
            sent = SENT_DONE;
        } else if (r.status == 409 && p->producer && take_mark(p, &r)) {
            sent = SENT_CUT;
        } else if (!was_not_taken(&r) && !(p->producer && r.result != HTTP_CLIENT_OK)) {
            *status =
                give_up(p, &r, r.status ? "refused" : "perhaps stored; with --producer it could be repeated");
        } else if (clock_monotonic() + backoff > end) {
            *status = give_up(p, &r, "no progress within --timeout");
        } else {
            again = true;
        }
        buf_free(&r.body);
        if (!again)
            return sent;
        wait_a_while(backoff);
        backoff = backoff * 2 < BACKOFF_LAST ? backoff * 2 : BACKOFF_LAST;
    }
}

/* Drops the lines that end at or before p->resume from the batch. */
static void cut_batch(struct put *p, const struct buf *ends)
{
    const uint64_t *at = (const uint64_t *)(const void *)ends->ptr;
    size_t dropped = 0, n = (size_t)p->lines;
    const char *from = p->body.ptr;
    while (dropped < n && at[dropped] <= p->resume) {
        from = (const char *)memchr(from, '\n', (size_t)(p->body.ptr + p->body.len - from)) + 1;
        dropped++;
    }
    size_t left = (size_t)(p->body.ptr + p->body.len - from);
    memmove(p->body.ptr, from, left);
    p->body.len = left;
    p->duplicates += dropped;
    p->lines -= (int64_t)dropped;
    p->mark = p->resume;
}

static int flush(struct put *p, struct buf *ends)
{
    int status = 0;
    if (p->lines == 0)
        return 0;
    enum sent sent = send_batch(p, &status);
    if (sent == SENT_CUT) {
        cut_batch(p, ends);
        sent = send_batch(p, &status);
    }
    if (sent != SENT_DONE)
        return status ? status : EX_TEMPFAIL;
    p->mark = p->next;
    p->lines = 0;
    buf_clear(&p->body);
    buf_clear(ends);
    show_progress(p, false);
    return 0;
}

static void add_line(struct put *p, struct bytes line, struct buf *ends)
{
    if (line.len && line.ptr[line.len - 1] == '\n')
        line.len--;
    if (line.len && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (line.len == 0)
        return;
    buf_append_bytes(&p->body, line);
    buf_append_char(&p->body, '\n');
    buf_append(ends, &p->next, sizeof p->next);
    p->lines++;
}

static int put_stream(struct put *p, FILE *f, const char *name)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    struct buf ends = {0}; /* of the batch's lines: offsets in the input */
    int status = 0;
    while (!status && (n = getline(&line, &cap, f)) > 0) {
        if (p->lines && p->body.len + (size_t)n > BATCH_BYTES)
            status = flush(p, &ends);
        p->next += (uint64_t)n;
        add_line(p, bytes_of(line, (size_t)n), &ends);
        if (!status && p->lines >= p->batch_lines)
            status = flush(p, &ends);
    }
    if (!status && ferror(f)) {
        fprintf(stderr, "millrace put: %s: %s\n", name, strerror(errno));
        status = EX_IOERR;
    }
    if (!status)
        status = flush(p, &ends);
    free(line);
    buf_free(&ends);
    return status;
}

/* What unpacks a file that begins so; NULL for one that is no gzip or zstd. Pipes are not looked into. */
static const char *unpacker(FILE *f)
{
    char magic[4] = "";
    if (fseek(f, 0, SEEK_SET) != 0)
        return NULL;
    size_t n = fread(magic, 1, sizeof magic, f);
    rewind(f);
    if (n >= 2 && memcmp(magic, "\x1f\x8b", 2) == 0)
        return "zcat";
    return n == 4 && memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0 ? "zstdcat" : NULL;
}

static int put_file(struct put *p, const char *name)
{
    if (strcmp(name, "-") == 0)
        return put_stream(p, stdin, "standard input");
    FILE *f = fopen(name, "re");
    if (!f) {
        fprintf(stderr, "millrace put: %s: %s\n", name, strerror(errno));
        return EX_NOINPUT;
    }
    const char *unpack = unpacker(f);
    int status = EX_DATAERR;
    if (unpack)
        fprintf(stderr, "millrace put: %s is compressed: %s %s | millrace put\n", name, unpack, name);
    else
        status = put_stream(p, f, name);
    fclose(f);
    return status;
}

/* For the ETA; one input of unknown size makes the whole unknown. */
static uint64_t size_of(char **files, size_t n)
{
    uint64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (stat(files[i], &st) != 0 || !S_ISREG(st.st_mode))
            return 0;
        size += (uint64_t)st.st_size;
    }
    return size;
}

static void summary(struct put *p)
{
    if (options_bool(p->o, "quiet"))
        return;
    show_progress(p, true);
    double seconds = (double)(clock_monotonic() - p->started) / USEC_PER_SEC;
    fprintf(stderr, "millrace put: %" PRIu64 " events posted", p->posted);
    if (p->duplicates)
        fprintf(stderr, ", %" PRIu64 " were there already", p->duplicates);
    fprintf(stderr, ", %.2f s\n", seconds);
}

static int put_all(struct put *p)
{
    static char dash[] = "-";
    char *standard_input[] = {dash}, **files;
    size_t n = options_operands(p->o, &files);
    int status = 0;
    if (n == 0) {
        files = standard_input;
        n = 1;
    }
    p->size = size_of(files, n);
    p->started = clock_monotonic();
    p->progress = isatty(STDERR_FILENO) && !options_bool(p->o, "quiet");
    for (size_t i = 0; i < n && !status; i++)
        status = put_file(p, files[i]);
    if (!status)
        summary(p);
    return status;
}

static int put_with(const struct options *o)
{
    struct put p = {.o = o,
        .producer = options_string(o, "producer"),
        .batch_lines = options_int(o, "batch"),
        .timeout = options_int(o, "timeout") * USEC_PER_MSEC};
    struct pipeline *pipeline = pipeline_open(options_config(o), options_string(o, "data_dir"));
    const char *url = options_string(o, "queue_url");
    int status = EX_USAGE;
    signal(SIGPIPE, SIG_IGN);
    p.base = event_base_new();
    url = url ? url : pipeline_url(pipeline, "simplequeue");
    p.client =
        http_client_new(&(struct http_client_config){.base = p.base, .url = url, .max_connections = 1});
    if (p.client)
        status = put_all(&p);
    else
        fprintf(stderr, "millrace put: %s is no address\n", url);
    http_client_free(&p.client);
    event_base_free(p.base);
    pipeline_close(&pipeline);
    buf_free(&p.body);
    return status;
}

int tool_put(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "put",
        .summary = "millrace put: posts events, one a line, to the local queue",
        .operands = "[FILE...|-]",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, put_with);
}
