#include "tools/sql/sql_print.h"

#include <stdio.h>
#include <stdlib.h>

#define WIDTH_MAX 60 /* maximum width of a held column; a longer text shifts the rest of its row */
#define RULE "------------------------------------------------------------"
_Static_assert(sizeof RULE - 1 == WIDTH_MAX, "a rule is as wide as a column");

/* A value of a row, or the name of a column. */
struct cell {
    struct bytes text;
    int type; /* of SQLite */
};

struct sql_printer {
    const struct format *format;
    bool has_header;
    int columns;
    uint64_t rows;
    struct cell *cells; /* cells of the row in progress */
    size_t *widths;     /* widths of a table's columns; NULL: not yet known */
    struct buf held; /* the cells of a table, each as '>' if it is aligned to the right, the text and an LF */
    struct buf line;
};

struct format {
    const char *name;
    void (*row)(struct sql_printer *p, const struct cell *cells, sqlite3_stmt *s);
    bool has_names; /* each row contains the names of the columns */
    const char *begin;
};

static void print_line(struct sql_printer *p)
{
    buf_append_char(&p->line, '\n');
    fwrite(p->line.ptr, 1, p->line.len, stdout);
    buf_clear(&p->line);
}

/* The number of characters of a UTF-8 text. */
static size_t width_of(struct bytes text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((unsigned char)text.ptr[i] & 0xC0) != 0x80;
    return n;
}

/* Removes the first cell from *held, which is not empty. */
static struct bytes take_cell(struct bytes *held, bool *is_right)
{
    struct bytes text = BYTES_NONE;
    bytes_take_line(held, &text);
    *is_right = text.ptr[0] == '>';
    return bytes_of(text.ptr + 1, text.len - 1);
}

static void set_widths(struct sql_printer *p, struct bytes held)
{
    bool is_right;
    p->widths = mem_zalloc(((size_t)p->columns + 1) * sizeof *p->widths);
    for (int i = 0; held.len > 0; i = (i + 1) % p->columns) {
        size_t width = width_of(take_cell(&held, &is_right));
        if (width > p->widths[i])
            p->widths[i] = width < WIDTH_MAX ? width : WIDTH_MAX;
    }
}

static void print_row(struct sql_printer *p, struct bytes *held)
{
    bool is_right;
    for (int i = 0; i < p->columns; i++) {
        struct bytes text = take_cell(held, &is_right);
        size_t width = width_of(text), pad = p->widths[i] > width ? p->widths[i] - width : 0;
        buf_printf(&p->line, "%s%*s", i > 0 ? "  " : "", is_right ? (int)pad : 0, "");
        buf_append_bytes(&p->line, text);
        buf_printf(&p->line, "%*s", is_right || i + 1 == p->columns ? 0 : (int)pad, "");
    }
    print_line(p);
}

static void print_rule(struct sql_printer *p)
{
    for (int i = 0; i < p->columns; i++)
        buf_printf(&p->line, "%s%.*s", i > 0 ? "  " : "", (int)p->widths[i], RULE);
    print_line(p);
}

/* Prints the held rows. The first print also sets the widths. */
static void print_held(struct sql_printer *p)
{
    struct bytes held = buf_bytes(&p->held);
    bool is_first = !p->widths && held.len > 0;
    if (is_first)
        set_widths(p, held);
    if (is_first && p->has_header) {
        print_row(p, &held);
        print_rule(p);
    }
    while (held.len > 0)
        print_row(p, &held);
    buf_clear(&p->held);
}

static bool is_number(const struct cell *c)
{
    return c->type == SQLITE_INTEGER || c->type == SQLITE_FLOAT;
}

static void row_of_table(struct sql_printer *p, const struct cell *cells, sqlite3_stmt *s)
{
    (void)s;
    for (int i = 0; i < p->columns; i++) {
        buf_append_char(&p->held, is_number(&cells[i]) ? '>' : '<');
        buf_append_printable(&p->held, cells[i].type == SQLITE_NULL ? bytes_str("NULL") : cells[i].text);
        buf_append_char(&p->held, '\n');
    }
    if (p->rows >= SQL_PRINT_HELD)
        print_held(p);
}

static void row_of_csv(struct sql_printer *p, const struct cell *cells, sqlite3_stmt *s)
{
    (void)s;
    for (int i = 0; i < p->columns; i++) {
        if (i > 0)
            buf_append_char(&p->line, ',');
        (is_number(&cells[i]) ? buf_append_bytes : buf_append_csv)(&p->line, cells[i].text);
    }
    print_line(p);
}

static void append_json_value(struct buf *out, const struct cell *c)
{
    const char *quote = c->type == SQLITE_BLOB ? "\"" : "";
    buf_append_str(out, quote);
    if (c->type == SQLITE_NULL)
        buf_append_str(out, "null");
    else if (c->type == SQLITE_BLOB)
        buf_append_hex(out, c->text);
    else if (c->type == SQLITE_TEXT)
        buf_append_json(out, c->text);
    else if (bytes_equal_str(c->text, "Inf") || bytes_equal_str(c->text, "-Inf")) /* reads back as such */
        buf_append_str(out, c->text.ptr[0] == '-' ? "-9e999" : "9e999");
    else
        buf_append_bytes(out, c->text);
    buf_append_str(out, quote);
}

static void row_of_json(struct sql_printer *p, const struct cell *cells, sqlite3_stmt *s)
{
    buf_append_str(&p->line, p->rows > 1 ? ",\n" : "\n");
    for (int i = 0; i < p->columns; i++) {
        buf_append_char(&p->line, i > 0 ? ',' : '{');
        buf_append_json(&p->line, bytes_str(sqlite3_column_name(s, i)));
        buf_append_char(&p->line, ':');
        append_json_value(&p->line, &cells[i]);
    }
    buf_append_char(&p->line, '}');
    fwrite(p->line.ptr, 1, p->line.len, stdout);
    buf_clear(&p->line);
}

static const struct format formats[] = {
    {"table", row_of_table, false, ""}, {"csv", row_of_csv, false, ""}, {"json", row_of_json, true, "["}};

struct sql_printer *sql_printer_new(const char *format, bool has_header)
{
    struct sql_printer *p = mem_zalloc(sizeof *p);
    p->format = formats;
    while (strcmp(p->format->name, format) != 0)
        p->format++;
    p->has_header = has_header;
    return p;
}

void sql_printer_free(struct sql_printer **pp)
{
    struct sql_printer *p = *pp;
    buf_free(&p->held);
    buf_free(&p->line);
    free(p->widths);
    free(p->cells);
    free(p);
    *pp = NULL;
}

/* Prints the names of the columns, or the present row. */
static void print_cells(struct sql_printer *p, sqlite3_stmt *s, bool is_names)
{
    for (int i = 0; i < p->columns; i++) {
        int type = is_names ? SQLITE_TEXT : sqlite3_column_type(s, i);
        const char *text = is_names ? sqlite3_column_name(s, i) : (const char *)sqlite3_column_text(s, i);
        size_t n = is_names ? strlen(text) : (size_t)sqlite3_column_bytes(s, i);
        p->cells[i] = (struct cell){bytes_of(text, text ? n : 0), type};
    }
    p->format->row(p, p->cells, s);
}

void sql_printer_begin(struct sql_printer *p, sqlite3_stmt *statement)
{
    p->columns = sqlite3_column_count(statement);
    p->rows = 0;
    free(p->widths);
    free(p->cells);
    p->widths = NULL;
    p->cells = mem_alloc(((size_t)p->columns + 1) * sizeof *p->cells);
    fputs(p->format->begin, stdout);
    if (p->has_header && !p->format->has_names)
        print_cells(p, statement, true);
}

void sql_printer_row(struct sql_printer *p, sqlite3_stmt *statement)
{
    p->rows++;
    print_cells(p, statement, false);
}

void sql_printer_end(struct sql_printer *p)
{
    print_held(p);
    if (p->format->has_names)
        puts(p->rows > 0 ? "\n]" : "]");
}
