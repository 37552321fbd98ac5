#include "tools/sql/sql_shell.h"

#include <editline/readline.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

static const char help_text[] =
    ".tables   the names of the tables\n"
    ".schema   the columns of the tables\n"
    ".help     this list\n"
    ".quit     end; so does Ctrl-D\n"
    "A statement ends with a semicolon: select ns, sum(n) from counts group by ns;\n";
static const char schema_text[] =
    "counts(\n"
    "  ns TEXT,        -- the counter: u for a total, c.u for a subtotal\n"
    "  key TEXT,       -- the key of the total\n"
    "  sub TEXT,       -- the key of the subtotal; NULL for a total\n"
    "  period TEXT,    -- UTC: 2026-11-30 13:00:00, or 2026-11-30 for a day, or 2026-11-01 for a month\n"
    "  unit TEXT,      -- hour or quarter; with unit = 'hour', 'day' or 'month' the rows are sums of these\n"
    "  n INTEGER)\n"
    "events(            -- WHERE stream = 'NAME', or file = 'PATH'\n"
    "  stream TEXT,\n"
    "  offset INTEGER,\n"
    "  time TEXT,      -- UTC: 2026-11-30 13:05:59, the event's time as the aggregator reads it\n"
    "  line TEXT)      -- a field: line ->> '$.country'\n";

/* Runs a command that begins with a dot. Returns false at .quit. */
static bool command(const char *line)
{
    static const char *const texts[][2] = {{".quit", NULL}, {".exit", NULL}, {".tables", "counts\nevents\n"},
        {".schema", schema_text}, {".help", help_text}};
    size_t n = strcspn(line, " \t;"), i = 0, most = sizeof texts / sizeof *texts;
    while (i < most && !bytes_equal_str(bytes_of(line, n), texts[i][0]))
        i++;
    if (i == most)
        fprintf(stderr, "no command %.*s; .help lists the commands\n", (int)n, line);
    else if (texts[i][1])
        fputs(texts[i][1], stdout);
    return i == most || texts[i][1];
}

int sql_shell_run(struct sql_session *s)
{
    struct buf text = {0};
    bool is_open = true;
    puts("Statements end with a semicolon; .help lists the commands.");
    while (is_open) {
        errno = 0;
        char *line = readline(text.len == 0 ? "millrace> " : "     ...> ");
        if (!line && errno == EINTR) {
            putchar('\n');
            buf_clear(&text);
            continue;
        }
        if (!line)
            break;
        if (*line)
            add_history(line);
        if (text.len == 0 && *line == '.') {
            is_open = command(line);
        } else {
            buf_printf(&text, "%s\n", line);
            bool is_complete = sqlite3_complete(text.ptr);
            if (is_complete)
                sql_session_run(s, text.ptr);
            if (is_complete || bytes_trim(buf_bytes(&text)).len == 0)
                buf_clear(&text);
        }
        free(line);
    }
    buf_free(&text);
    return EX_OK;
}
