#include "tools/put/put_follow.h"

#include "base/io.h"
#include "tools/put/log_tail.h"
#include "tools/put/put_door.h"
#include "tools/put/put_report.h"

#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define LINES_A_TURN 10000
#define SEARCH_EVERY (1 * USEC_PER_SEC)

struct log {
    struct put_input in;
    char *producer, *state, *tag; /* tag: tag of the mark */
    uint64_t mark;
    bool has_said; /* the message that the log does not exist was printed */
};

struct follow {
    struct put *put;
    struct log **logs;
    size_t n, room;
    bool has_several;
    char *report; /* path of the report; NULL: none */
    int lock; /* lock of the report; -1: none, for example because another follower of the producer has it */
    usec_t reported_at;
    uint64_t reported[PUT_NUMBERS];
    char *lost, *lost_remedy; /* the latest content that was gone; NULL: none */
    bool has_failed;
};

/* Begins a content at the present position in the current log file. */
static void begin_content(struct put_input *in)
{
    uint64_t base = log_tail_base(in->tail);
    put_content_begin(&in->content, base, 0);
    in->content.end = log_tail_offset(in->tail) - base;
    in->skipping = false;
}

/* Called when the current log file is complete or truncated. Sets *is_idle if the next file does not exist yet. */
static int next_log_file(struct put_input *in, bool *is_idle)
{
    struct error error;
    int status = put_flush(in), rc = status == 0 ? log_tail_next_file(in->tail, &error) : 0;
    if (rc < 0)
        return tool_fail(EX_IOERR, "%s", error.text);
    *is_idle = rc > 0;
    if (status == 0 && rc == 0)
        begin_content(in);
    return status;
}

/* Reads and posts lines for a turn, or until the log has no more lines. Sets *is_idle if the log has no more lines. */
static int take_turn(struct put_input *in, bool *is_idle)
{
    struct error error;
    struct bytes bytes;
    int status = 0;
    *is_idle = false;
    for (size_t i = 0; i < LINES_A_TURN && status == 0 && !put_stopped && !*is_idle; i++) {
        enum line_source_result r = log_tail_next(in->tail, clock_wall(), &bytes, &error);
        if (r == LINE_SOURCE_FAILED) {
            (void)put_flush(in);
            return tool_fail(EX_IOERR, "%s", error.text);
        }
        if (r == LINE_SOURCE_CUT)
            tool_fail(0,
                "%s was truncated or rewritten; continuing at its beginning; lines that were not posted "
                "before "
                "are missing",
                in->name);
        *is_idle = r == LINE_SOURCE_END;
        if (r == LINE_SOURCE_END)
            status = put_flush(in);
        else if (r == LINE_SOURCE_CUT || r == LINE_SOURCE_FINISHED)
            status = next_log_file(in, is_idle);
        else
            status = put_take(in, r, bytes);
        bool all_stored = status == 0 && put_batch_state(in->batch)->lines == 0;
        if (all_stored && log_tail_stored(in->tail, &error) != 0)
            status = tool_fail(EX_IOERR, "%s", error.text);
    }
    return status;
}

/* Prints and keeps the problem that the content before the mark is gone. */
static void note_lost(struct follow *f, const struct log *log, enum log_tail_start place)
{
    int64_t posted = log_tail_posted(log->in.tail);
    const char *name = log->in.name;
    free(f->lost);
    free(f->lost_remedy);
    if (posted < 0) {
        f->lost = mem_printf("the producer's mark is before the log file that was being posted; lines of %s "
                             "from the mark on are not posted",
            name);
        f->lost_remedy = mem_strdup("post the rotated files under another producer");
    } else {
        f->lost = mem_printf(
            place == LOG_TAIL_GONE
                ? "the log file before %s was deleted or packed while put was not running; its lines after "
                  "byte %" PRId64 ", and rotated files after it, are not posted"
                : "%s was truncated or rewritten while put was not running; the lines after byte %" PRId64
                  " of its former content are not posted",
            name, posted);
        f->lost_remedy =
            mem_printf("if COPY has this content, post its rest: zcat -f COPY | tail -c +%" PRId64
                       " | millrace put, with the follower's --format or --log-format",
                posted + 1);
    }
    memset(f->reported, 0xff, sizeof f->reported); /* the next report is due */
    tool_fail(0, "%s; %s; continuing at the beginning of %s", f->lost, f->lost_remedy, name);
}

/* Opens the log. If its writer starts later, the log is opened in a later call. */
static int open_tail(struct follow *f, struct log *log)
{
    struct put_input *in = &log->in;
    struct error error;
    enum log_tail_start place;
    struct stat st;
    if (stat(in->name, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return tool_fail(EX_NOINPUT, "%s is not a regular file: to post a pipe, omit --follow", in->name);
    in->tail = log_tail_open(in->name, log->state, log->mark, bytes_str(log->tag), &place, &error);
    bool is_open =
        in->tail || place == LOG_TAIL_LOCKED || place == LOG_TAIL_OTHER || error.code == EX_CANTCREAT;
    if (!is_open && access(in->name, F_OK) != 0 && errno == ENOENT) {
        if (!log->has_said)
            tool_fail(0, "waiting for %s to be created", in->name);
        log->has_said = true;
        return 0;
    }
    if (!is_open && tool_check_input(in->name) != 0)
        return EX_NOINPUT;
    if (!in->tail)
        return tool_fail(place == LOG_TAIL_LOCKED     ? EX_CONFIG
                         : error.code == EX_CANTCREAT ? EX_CANTCREAT
                                                      : EX_DATAERR,
            "%s%s", error.text,
            place == LOG_TAIL_OTHER
                ? "; use another --producer, or set the mark again (millrace producers --set)"
                : "");
    if (place == LOG_TAIL_GONE || place == LOG_TAIL_REWRITTEN)
        note_lost(f, log, place);
    put_batch_begin_at(in->batch, log_tail_offset(in->tail), log_tail_offset(in->tail));
    begin_content(in);
    return 0;
}

static bool is_pattern(const char *operand)
{
    return strpbrk(operand, "*?[") && access(operand, F_OK) != 0;
}

/* Returns the path of the state file of a log and its producer. The caller frees it. */
static char *state_path(const struct follow *f, const char *log, const char *producer)
{
    const char *given = options_string(f->put->o, "state"), *slash = strrchr(log, '/');
    int parent = slash ? (int)(slash - log) + 1 : 0;
    return given ? mem_strdup(given) : mem_printf("%.*s.%s.%s", parent, log, log + parent, producer);
}

/* Returns the name of a producer that follows only this log. */
static void own_producer(const char *producer, const char *path, char name[NAME_LEN_MAX + 1])
{
    char full[PATH_MAX], parent[PATH_MAX];
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    io_parent_of(path, parent);
    char *whole = mem_printf("%s/%s", realpath(parent, full) ? full : parent, last);
    int room = NAME_LEN_MAX - (int)strlen(producer) - (int)strlen(".-00000000");
    snprintf(name, NAME_LEN_MAX + 1, "%s.%.*s-%08x", producer, room > 0 ? room : 0, last,
        (unsigned)XXH3_64bits(whole, strlen(whole)));
    free(whole);
    for (char *c = name; *c; c++)
        if (!bytes_are_of_name(bytes_of(c, 1)))
            *c = '_';
}

/* A log that was followed before keeps its producer, whether alone or among others. */
static int add_log(struct follow *f, const char *path)
{
    struct bytes tag;
    char own[NAME_LEN_MAX + 1];
    own_producer(f->put->producer, path, own);
    const char *usual = f->has_several ? own : f->put->producer;
    const char *other = f->has_several ? f->put->producer : own;
    char *usual_state = state_path(f, path, usual), *other_state = state_path(f, path, other);
    bool is_other = access(usual_state, F_OK) != 0 && access(other_state, F_OK) == 0;
    struct log *log = mem_zalloc(sizeof *log);
    log->producer = mem_strdup(is_other ? other : usual);
    log->state = is_other ? other_state : usual_state;
    free(is_other ? usual_state : other_state);
    *ARRAY_ADD(f->logs, f->n, f->room) = log;
    put_input_begin(&log->in, f->put, path, log->producer);
    int status = put_batch_ask_mark(log->in.batch, &log->mark, &tag);
    log->tag = bytes_dup(tag);
    if (status == 0 && tag.len > 0 && !log_tail_is_tag(tag))
        return tool_fail(EX_DATAERR,
            "the producer %s has posted files or standard input: --follow needs another --producer",
            log->producer);
    f->put->resumed += status == 0 ? log->mark : 0;
    return status;
}

/* Adds the matches of a pattern that are not followed yet. The shortest names come first, so that rotated files
 * come after their log. */
static int add_matches(struct follow *f, const char *pattern)
{
    glob_t found;
    struct stat st;
    int status = 0;
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc && status == 0 && !put_stopped; i++) {
        const char *path = found.gl_pathv[i];
        bool is_known = log_tail_is_packed(path) || stat(path, &st) != 0 || !S_ISREG(st.st_mode);
        for (size_t k = 0; k < f->n && !is_known; k++)
            is_known =
                strcmp(f->logs[k]->in.name, path) == 0 || log_tail_could_read(f->logs[k]->in.name, path);
        if (!is_known)
            status = add_log(f, path);
    }
    globfree(&found);
    return status;
}

bool put_follow_could_read(char **operands, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (log_tail_could_read(operands[i], path) || fnmatch(operands[i], path, FNM_PATHNAME) == 0)
            return true;
    return false;
}

static void begin_report(struct follow *f)
{
    f->report = put_kept_path(f->put, NULL, "prom");
    f->lock = f->report ? put_report_lock(f->report) : -1;
}

/* Takes the lock over from a follower that has ended. The next report then replaces that of the other follower. */
static bool has_lock(struct follow *f)
{
    if (f->lock < 0 && (f->lock = put_report_lock(f->report)) >= 0)
        memset(f->reported, 0xff, sizeof f->reported);
    return f->lock >= 0;
}

static void end_report(struct follow *f)
{
    if (f->lock >= 0)
        io->close(f->lock);
    free(f->report);
    free(f->lost);
    free(f->lost_remedy);
}

static void report(struct follow *f, int exit_status, bool is_last)
{
    struct put *p = f->put;
    struct put_report r = {.queue = options_string(p->o, "queue"),
        .producer = p->producer,
        .rejects = p->rejects.file.path,
        .why = p->rejects.why,
        .lost = f->lost,
        .lost_remedy = f->lost_remedy,
        .numbers = {[PUT_POSTED] = p->numbers.posted,
            [PUT_REFUSED] = p->rejects.n + p->rejects.skipped,
            [PUT_SKIPPED_BYTES] = p->skipped_bytes,
            [PUT_REPLACED] = p->replaced,
            [PUT_NO_VISITOR] = put_door_missed(p->form.door),
            [PUT_EXIT_STATUS] = (uint64_t)exit_status},
        .has_ended = is_last};
    usec_t now = clock_monotonic();
    if (!f->report || (!is_last && now - f->reported_at < PUT_REPORT_EVERY))
        return;
    for (size_t i = 0; i < f->n && !is_last; i++)
        r.numbers[PUT_POSTED] += put_batch_state(f->logs[i]->in.batch)->numbers.posted;
    f->reported_at = now;
    if (!has_lock(f) || (!is_last && memcmp(r.numbers, f->reported, sizeof r.numbers) == 0))
        return;
    memcpy(f->reported, r.numbers, sizeof r.numbers);
    if (put_report_write(f->report, &r) != 0 && !f->has_failed) {
        tool_fail(0, "%s: %s", f->report, strerror(errno));
        f->has_failed = true;
    }
}

static int follow_all(struct follow *f, char **operands, size_t n)
{
    int status = 0;
    usec_t searched_at = 0;
    while (status == 0 && !put_stopped) {
        usec_t now = clock_monotonic();
        bool all_idle = true, is_first = searched_at == 0;
        bool is_due = is_first || now - searched_at >= SEARCH_EVERY;
        for (size_t i = 0; i < n && status == 0 && is_due; i++)
            if (is_pattern(operands[i]))
                status = add_matches(f, operands[i]);
            else if (is_first)
                status = add_log(f, operands[i]);
        searched_at = is_due ? now : searched_at;
        for (size_t i = 0; i < f->n && status == 0 && !put_stopped; i++) {
            struct log *log = f->logs[i];
            bool is_idle = true;
            if (!log->in.tail)
                status = open_tail(f, log);
            if (log->in.tail && status == 0)
                status = take_turn(&log->in, &is_idle);
            all_idle = all_idle && is_idle;
        }
        put_rejects_report(&f->put->rejects, clock_monotonic(), false);
        progress_show(&f->put->progress, NULL, 0, 0, f->put->taken, false, clock_monotonic());
        put_door_tend(f->put->form.door);
        report(f, 0, false);
        if (all_idle && status == 0 && !put_stopped)
            clock_sleep(PUT_FOLLOW_POLL);
    }
    for (size_t i = 0; i < f->n && status == 0; i++)
        status = put_flush(&f->logs[i]->in);
    return status;
}

int put_follow(struct put *p, char **operands, size_t n)
{
    struct follow f = {.put = p, .has_several = n > 1 || is_pattern(operands[0]), .reported = {UINT64_MAX}};
    begin_report(&f);
    int status = follow_all(&f, operands, n);
    for (size_t i = 0; i < f.n; i++) {
        put_input_end(&f.logs[i]->in, false);
        free(f.logs[i]->producer);
        free(f.logs[i]->state);
        free(f.logs[i]->tag);
        free(f.logs[i]);
    }
    report(&f, status, true);
    free(f.logs);
    end_report(&f);
    return status;
}

void put_follow_fail(struct put *p, int status)
{
    struct follow f = {.put = p};
    begin_report(&f);
    report(&f, status, true);
    end_report(&f);
}
