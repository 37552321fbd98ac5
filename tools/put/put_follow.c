#include "tools/put/put_follow.h"

#include "tools/put/log_tail.h"

#include <errno.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

static void warn_truncated(const char *path)
{
    tool_fail(0,
        "%s was truncated or rewritten; continuing at its beginning; lines that were not posted before "
        "are missing",
        path);
}

/* The current log file is complete or truncated. */
static int next_log_file(struct put_input *in)
{
    struct error error;
    int status = put_flush(in), rc = status == 0 ? log_tail_next_file(in->tail, &error) : 0;
    if (rc < 0)
        return tool_fail(EX_IOERR, "%s", error.text);
    if (rc > 0)
        clock_sleep(PUT_FOLLOW_POLL);
    in->base = log_tail_base(in->tail);
    return status;
}

static int post_lines(struct put_input *in)
{
    struct put *p = in->put;
    struct error error;
    int status = 0;
    while (status == 0 && !put_stopped) {
        struct bytes line;
        uint64_t start = log_tail_offset(in->tail);
        enum line_source_result r = log_tail_next(in->tail, clock_wall(), &line, &error);
        uint64_t end = log_tail_offset(in->tail);
        switch (r) {
        case LINE_SOURCE_LINE:
            status = put_take(in, line, start, end);
            break;
        case LINE_SOURCE_SKIPPING:
            status = put_skip(in, start, 0);
            break;
        case LINE_SOURCE_SKIPPED:
            status = put_skip(in, start, end);
            break;
        case LINE_SOURCE_END:
            status = put_flush(in);
            put_rejects_report(&p->rejects, clock_monotonic(), false);
            clock_sleep(PUT_FOLLOW_POLL);
            break;
        case LINE_SOURCE_CUT:
            warn_truncated(in->name);
            in->skipping = false;
            status = next_log_file(in);
            break;
        case LINE_SOURCE_FINISHED:
            status = next_log_file(in);
            break;
        case LINE_SOURCE_FAILED:
            (void)put_flush(in);
            return tool_fail(EX_IOERR, "%s", error.text);
        }
        progress_show(&p->progress, NULL, 0, 0, p->taken, false, clock_monotonic());
        bool all_stored = status == 0 && put_batch_lines(in->batch) == 0;
        if (all_stored && log_tail_stored(in->tail, &error) != 0)
            status = tool_fail(EX_IOERR, "%s", error.text);
    }
    return status == 0 ? put_flush(in) : status;
}

/* Waits for the log: its writer may start later than the put. */
static int open_tail(struct put_input *in, uint64_t mark)
{
    struct error error;
    enum log_tail_start place;
    const char *given = options_string(in->put->o, "state"), *slash = strrchr(in->name, '/');
    char *state = given ? mem_strdup(given)
                        : mem_printf("%.*s.%s.%s", slash ? (int)(slash - in->name) + 1 : 0, in->name,
                              slash ? slash + 1 : in->name, in->put->producer);
    in->tail = log_tail_open(in->name, state, mark, &place, &error);
    for (bool waits = false;
         !in->tail && !put_stopped && place != LOG_TAIL_LOCKED && access(in->name, F_OK) != 0 && errno == ENOENT;
         waits = true) {
        if (!waits)
            tool_fail(0, "waiting for %s to be created", in->name);
        clock_sleep(PUT_FOLLOW_POLL);
        in->tail = log_tail_open(in->name, state, mark, &place, &error);
    }
    free(state);
    if (!in->tail)
        return place == LOG_TAIL_LOCKED ? tool_fail(EX_CONFIG, "%s", error.text)
               : put_stopped            ? 0
                                        : tool_fail(EX_DATAERR, "%s", error.text);
    if (place == LOG_TAIL_GONE)
        tool_fail(0,
            "the previous log file was deleted or packed; lines of it that were not posted are missing; "
            "continuing at the beginning of %s",
            in->name);
    if (place == LOG_TAIL_REWRITTEN)
        warn_truncated(in->name);
    put_batch_begin_at(in->batch, log_tail_offset(in->tail), log_tail_offset(in->tail));
    in->base = log_tail_base(in->tail);
    return 0;
}

int put_follow(struct put *p, const char *path)
{
    struct put_input in;
    struct bytes tag;
    uint64_t mark;
    put_input_begin(&in, p, path, p->producer);
    int status = put_batch_ask_mark(in.batch, &mark, &tag);
    if (status == 0 && tag.len > 0 && !bytes_equal_str(tag, PUT_SOURCES_FOLLOWED))
        status = tool_fail(EX_DATAERR,
            "the producer %s has posted files or standard input: --follow needs another --producer", p->producer);
    p->resumed = status == 0 ? mark : 0;
    if (status == 0)
        status = open_tail(&in, mark);
    if (status == 0 && in.tail)
        status = post_lines(&in);
    put_input_end(&in, false);
    return status;
}
