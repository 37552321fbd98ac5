#include "tools/sql/sql_session.h"

#include "base/io.h"
#include "base/progress.h"
#include "sql/sql_tables.h"
#include "tools/sql/sql_print.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sysexits.h>
#include <unistd.h>

#define EX_INTERRUPTED 130
#define STEPS_A_CALL 10000 /* steps of SQLite's virtual machine between two calls of the progress handler */
#define STATM_MAX 200
#define KILL_AFTER 2 /* seconds after max_time */
#define PROGRESS_AFTER USEC_PER_SEC

struct sql_session {
    const struct options *o;
    const char *archive; /* directory */
    sqlite3 *db;
    struct sql_tables tables;
    struct sql_printer *printer;
    struct progress progress;
    usec_t began;
    bool has_rows; /* the statement has printed a row, so progress would disturb it */
};

static atomic_bool cancel;
static volatile sig_atomic_t timed_out;
static sqlite3 *running; /* interrupted by a signal; NULL: no statement runs */

#define TOO_LONG "the statement took longer than --max-time"

/* Ends the statement. SQLite looks for this only between two calls of a function, so the second signal ends the process. */
static void on_signal(int number)
{
    static const char text[] = "millrace sql: " TOO_LONG "\n";
    if (atomic_exchange(&cancel, true) && running) {
        ssize_t n = number == SIGALRM ? write(STDERR_FILENO, text, sizeof text - 1) : 0;
        (void)n;
        _exit(number == SIGALRM ? EX_TEMPFAIL : EX_INTERRUPTED);
    }
    timed_out = number == SIGALRM;
    if (running)
        sqlite3_interrupt(running);
}

static int authorize(void *arg, int action, const char *a, const char *b, const char *c, const char *d)
{
    (void)arg, (void)a, (void)c, (void)d;
    bool reads = action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_RECURSIVE;
    bool calls = action == SQLITE_FUNCTION && sqlite3_stricmp(b, "load_extension") != 0;
    return reads || calls ? SQLITE_OK : SQLITE_DENY;
}

/* Returns true to end the statement. SQLite forgets an interrupt that arrives between two statements. */
static int show_progress(void *arg)
{
    struct sql_session *s = arg;
    usec_t now = clock_monotonic();
    if (!s->has_rows && now - s->began > PROGRESS_AFTER)
        progress_show(&s->progress, "running", s->tables.rows, 0, s->tables.rows, false, now);
    return atomic_load(&cancel);
}

/* Limits the memory of SQLite, and that of the process to as much again beside what the archive needs. */
static void limit_memory(int64_t bytes)
{
    struct buf words = {0};
    uint64_t pages = 0;
    if (io_read_file("/proc/self/statm", STATM_MAX, &words) == 0) {
        struct bytes rest = buf_bytes(&words);
        for (int i = 0; i < 5; i++)
            bytes_take_word(&rest);
        bytes_to_u64(bytes_take_word(&rest), &pages); /* the sixth word: pages of data and stack */
    }
    buf_free(&words);
    sqlite3_hard_heap_limit64(bytes);
    rlim_t limit = (rlim_t)pages * 4096 + 2 * (rlim_t)bytes;
#ifndef MILLRACE_SANITIZED /* the sanitizer's own memory has no limit */
    setrlimit(RLIMIT_DATA, &(struct rlimit){limit, limit});
#else
    (void)limit;
#endif
}

static int open_connection(struct sql_session *s)
{
    int code = sqlite3_open_v2(":memory:", &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK)
        code = sql_tables_add(s->db, &s->tables, NULL);
    if (code == SQLITE_OK)
        code = sql_tables_add_events(s->db, &s->tables);
    if (code == SQLITE_OK && options_int(s->o, "max_memory") > 0)
        code = sqlite3_exec(s->db, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
    /* SQLite declares the tables at their first use, which the authorizer would refuse. */
    if (code == SQLITE_OK)
        code = sqlite3_exec(
            s->db, "EXPLAIN SELECT 1 FROM counts, events, json_each(1), json_tree(1)", NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_set_authorizer(s->db, authorize, NULL);
    sqlite3_progress_handler(s->db, STEPS_A_CALL, show_progress, s);
    return code;
}

int sql_session_open(const struct options *o, const struct sql_tables *tables, const char *archive,
    const char *slices, struct sql_session **out)
{
    struct error error;
    struct sql_session *s = mem_zalloc(sizeof *s);
    s->o = o;
    s->archive = archive;
    s->printer = sql_printer_new(options_string(o, "format"), options_bool(o, "header"));
    s->tables = *tables;
    s->tables.cancel = &cancel;
    s->tables.reads_files = options_bool(o, "files");
    s->tables.snapshot = sql_snapshot_new(archive, slices, &cancel);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    *out = s;
    if (open_connection(s) != SQLITE_OK)
        return tool_fail(EX_TEMPFAIL, "%s", sqlite3_errmsg(s->db));
    if (options_int(o, "max_memory") > 0) {
        if (sql_snapshot_begin(s->tables.snapshot, &error) ==
            SQL_SNAPSHOT_OK) /* else the statement has the error */
            sql_snapshot_end(s->tables.snapshot);
        limit_memory(options_int(o, "max_memory"));
    }
    return EX_OK;
}

void sql_session_close(struct sql_session **sp)
{
    struct sql_session *s = *sp;
    if (!s)
        return;
    sqlite3_close(s->db);
    sql_snapshot_free(&s->tables.snapshot);
    sql_printer_free(&s->printer);
    free(s);
    *sp = NULL;
}

/* Prints the error of the latest call of SQLite. Returns the exit status. */
static int fail(struct sql_session *s, int code)
{
    int at = sqlite3_error_offset(s->db);
    char place[40] = "";
    if (at >= 0)
        snprintf(place, sizeof place, " (at byte %d of the statement)", at + 1);
    switch (code & 0xff) {
    case SQLITE_INTERRUPT:
        if (timed_out)
            return tool_fail(EX_TEMPFAIL, TOO_LONG);
        return tool_fail(EX_INTERRUPTED, "interrupted");
    case SQLITE_AUTH:
        return tool_fail(EX_USAGE, "%s: a statement can only select", sqlite3_errmsg(s->db));
    case SQLITE_CANTOPEN:
        return tool_fail_at(EX_NOINPUT, s->archive, sqlite3_errmsg(s->db));
    case SQLITE_CORRUPT:
        return tool_fail(EX_DATAERR, "%s", sqlite3_errmsg(s->db));
    case SQLITE_NOMEM:
        return tool_fail(EX_TEMPFAIL, "the statement needs more memory than --max-memory");
    case SQLITE_IOERR:
    case SQLITE_BUSY:
    case SQLITE_FULL:
        return tool_fail_at(EX_TEMPFAIL, s->archive, sqlite3_errmsg(s->db));
    default:
        return tool_fail(EX_USAGE, "%s%s", sqlite3_errmsg(s->db), place);
    }
}

/* Prints the rows of a statement. Returns the exit status. */
static int print_rows(struct sql_session *s, sqlite3_stmt *statement)
{
    int64_t rows = 0, limit = options_int(s->o, "max_rows"), most = limit > 0 ? limit : INT64_MAX;
    int code = sqlite3_step(statement);
    progress_erase();
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return fail(s, code);
    sql_printer_begin(s->printer, statement);
    for (; code == SQLITE_ROW && ++rows <= most && !ferror(stdout); code = sqlite3_step(statement)) {
        s->has_rows = true;
        sql_printer_row(s->printer, statement);
    }
    sql_printer_end(s->printer);
    fflush(stdout);
    if (rows > most)
        return tool_fail(EX_TEMPFAIL, "the statement has more rows than --max-rows=%" PRId64, most);
    return code == SQLITE_DONE || ferror(stdout) ? EX_OK : fail(s, code);
}

static void set_timer(int64_t ms)
{
    struct itimerval timer = {
        .it_interval = {ms > 0 ? KILL_AFTER : 0, 0}, .it_value = {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Runs the first statement of *sql, and moves *sql after it. */
static int run_first(struct sql_session *s, const char **sql)
{
    sqlite3_stmt *statement = NULL;
    s->has_rows = false;
    s->tables.rows = 0;
    s->began = clock_monotonic();
    progress_begin(&s->progress, "rows", false, s->began);
    int code = sqlite3_prepare_v2(s->db, *sql, -1, &statement, sql), status = EX_OK;
    if (code != SQLITE_OK)
        status = fail(s, code);
    else if (statement)
        status = print_rows(s, statement);
    sqlite3_finalize(statement);
    return status;
}

static int check_is_one(struct sql_session *s, const char *sql)
{
    int n = 0, code = SQLITE_OK;
    while (*sql && code == SQLITE_OK) {
        sqlite3_stmt *statement = NULL;
        code = sqlite3_prepare_v2(s->db, sql, -1, &statement, &sql);
        n += statement != NULL;
        sqlite3_finalize(statement);
    }
    if (code != SQLITE_OK)
        return fail(s, code);
    return n == 1 ? EX_OK : tool_fail(EX_USAGE, "expected one statement");
}

int sql_session_run(struct sql_session *s, const char *sql)
{
    int status = options_bool(s->o, "single") ? check_is_one(s, sql) : EX_OK;
    atomic_store(&cancel, false);
    timed_out = 0;
    running = s->db;
    while (status == EX_OK && *sql && !ferror(stdout)) {
        set_timer(options_int(s->o, "max_time"));
        status = run_first(s, &sql);
    }
    set_timer(0);
    running = NULL;
    return status;
}
