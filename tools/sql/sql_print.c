#include "tools/sql/sql_print.h"

#include <stdio.h>
#include <stdlib.h>

#define WIDTH_MAX 60 /* of a held column; longer texts move the rest of their row */

struct cell {
    size_t at, len; /* in `texts` */
    bool is_number;
};

struct sql_printer {
    const struct format *format;
    bool has_header;
    int columns;
    uint64_t rows;
    size_t *widths; /* of a table */
    struct cell *cells;
    size_t n_cells, room;
    struct buf texts, line;
};

struct format {
    const char *name;
    void (*begin)(struct sql_printer *p, sqlite3_stmt *s);
    void (*row)(struct sql_printer *p, sqlite3_stmt *s);
    void (*end)(struct sql_printer *p);
};

static struct bytes column_text(sqlite3_stmt *s, int i)
{
    const unsigned char *text = sqlite3_column_text(s, i);
    return bytes_of(text, text ? (size_t)sqlite3_column_bytes(s, i) : 0);
}

static bool is_number(sqlite3_stmt *s, int i)
{
    int type = sqlite3_column_type(s, i);
    return type == SQLITE_INTEGER || type == SQLITE_FLOAT;
}

static void print_line(struct sql_printer *p)
{
    buf_append_char(&p->line, '\n');
    fwrite(p->line.ptr, 1, p->line.len, stdout);
    buf_clear(&p->line);
}

/* Appends a text without control bytes, which could change the terminal. */
static void append_printable(struct buf *out, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool is_c1 = c == 0xC2 && i + 1 < text.len && ((unsigned char)text.ptr[i + 1] & 0xE0) == 0x80;
        if (c >= 0x20 && c != 0x7F && !is_c1)
            buf_append_char(out, (char)c);
        else
            buf_printf(out, "\\x%02x", is_c1 ? (unsigned char)text.ptr[++i] : c);
    }
}

static void hold(struct sql_printer *p, struct bytes text, bool right)
{
    size_t at = p->texts.len;
    append_printable(&p->texts, text);
    *ARRAY_ADD(p->cells, p->n_cells, p->room) = (struct cell){at, p->texts.len - at, right};
}

/* The number of characters of a UTF-8 text. */
static size_t width_of(struct bytes text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((unsigned char)text.ptr[i] & 0xC0) != 0x80;
    return n;
}

static void append_padded(struct sql_printer *p, const struct cell *c, int column)
{
    struct bytes text = bytes_of(p->texts.ptr + c->at, c->len);
    size_t width = width_of(text), wanted = p->widths[column];
    size_t pad = wanted > width ? wanted - width : 0;
    if (column > 0)
        buf_append_str(&p->line, "  ");
    for (size_t i = 0; c->is_number && i < pad; i++)
        buf_append_char(&p->line, ' ');
    buf_append_bytes(&p->line, text);
    for (size_t i = 0; !c->is_number && column + 1 < p->columns && i < pad; i++)
        buf_append_char(&p->line, ' ');
}

static void print_rule(struct sql_printer *p)
{
    for (int k = 0; k < p->columns; k++) {
        if (k > 0)
            buf_append_str(&p->line, "  ");
        for (size_t i = 0; i < p->widths[k]; i++)
            buf_append_char(&p->line, '-');
    }
    print_line(p);
}

/* Prints the held rows. The first print also sets the widths. */
static void print_held(struct sql_printer *p)
{
    size_t columns = (size_t)p->columns;
    bool is_first = !p->widths;
    if (is_first)
        p->widths = mem_zalloc((columns + 1) * sizeof *p->widths);
    for (size_t i = 0; is_first && i < p->n_cells; i++) {
        size_t width = width_of(bytes_of(p->texts.ptr + p->cells[i].at, p->cells[i].len));
        if (width > p->widths[i % columns])
            p->widths[i % columns] = width < WIDTH_MAX ? width : WIDTH_MAX;
    }
    for (size_t i = 0; i < p->n_cells; i++) {
        append_padded(p, &p->cells[i], (int)(i % columns));
        if (i % columns == columns - 1)
            print_line(p);
        if (is_first && p->has_header && i == columns - 1)
            print_rule(p);
    }
    p->n_cells = 0;
    buf_clear(&p->texts);
}

static void begin_table(struct sql_printer *p, sqlite3_stmt *s)
{
    free(p->widths);
    p->widths = NULL;
    for (int i = 0; p->has_header && i < p->columns; i++)
        hold(p, bytes_str(sqlite3_column_name(s, i)), false);
}

static void row_of_table(struct sql_printer *p, sqlite3_stmt *s)
{
    for (int i = 0; i < p->columns; i++)
        hold(p, sqlite3_column_type(s, i) == SQLITE_NULL ? bytes_str("NULL") : column_text(s, i),
            is_number(s, i));
    if (p->rows >= SQL_PRINT_HELD)
        print_held(p);
}

static void end_table(struct sql_printer *p)
{
    print_held(p);
}

static void begin_csv(struct sql_printer *p, sqlite3_stmt *s)
{
    for (int i = 0; p->has_header && i < p->columns; i++) {
        if (i > 0)
            buf_append_char(&p->line, ',');
        buf_append_csv(&p->line, bytes_str(sqlite3_column_name(s, i)));
    }
    if (p->has_header)
        print_line(p);
}

static void row_of_csv(struct sql_printer *p, sqlite3_stmt *s)
{
    for (int i = 0; i < p->columns; i++) {
        if (i > 0)
            buf_append_char(&p->line, ',');
        if (is_number(s, i))
            buf_append_bytes(&p->line, column_text(s, i));
        else
            buf_append_csv(&p->line, column_text(s, i));
    }
    print_line(p);
}

static void end_csv(struct sql_printer *p)
{
    (void)p;
}

static void begin_json(struct sql_printer *p, sqlite3_stmt *s)
{
    (void)p, (void)s;
    putchar('[');
}

static void append_json_value(struct buf *out, sqlite3_stmt *s, int i)
{
    struct bytes text = column_text(s, i);
    switch (sqlite3_column_type(s, i)) {
    case SQLITE_NULL:
        buf_append_str(out, "null");
        break;
    case SQLITE_INTEGER:
        buf_append_bytes(out, text);
        break;
    case SQLITE_FLOAT: /* an infinite number reads back as such */
        buf_append_bytes(out, bytes_equal_str(text, "Inf")    ? bytes_str("9e999")
                              : bytes_equal_str(text, "-Inf") ? bytes_str("-9e999")
                                                              : text);
        break;
    default:
        buf_append_json(out, text);
    }
}

static void append_hex(struct buf *out, sqlite3_stmt *s, int i)
{
    const unsigned char *blob = sqlite3_column_blob(s, i);
    int n = sqlite3_column_bytes(s, i);
    buf_append_char(out, '"');
    for (int k = 0; k < n; k++)
        buf_printf(out, "%02x", blob[k]);
    buf_append_char(out, '"');
}

static void row_of_json(struct sql_printer *p, sqlite3_stmt *s)
{
    buf_append_str(&p->line, p->rows > 1 ? ",\n{" : "\n{");
    for (int i = 0; i < p->columns; i++) {
        if (i > 0)
            buf_append_char(&p->line, ',');
        buf_append_json(&p->line, bytes_str(sqlite3_column_name(s, i)));
        buf_append_char(&p->line, ':');
        if (sqlite3_column_type(s, i) == SQLITE_BLOB)
            append_hex(&p->line, s, i);
        else
            append_json_value(&p->line, s, i);
    }
    buf_append_char(&p->line, '}');
    fwrite(p->line.ptr, 1, p->line.len, stdout);
    buf_clear(&p->line);
}

static void end_json(struct sql_printer *p)
{
    puts(p->rows > 0 ? "\n]" : "]");
}

static const struct format formats[] = {{"table", begin_table, row_of_table, end_table},
    {"csv", begin_csv, row_of_csv, end_csv}, {"json", begin_json, row_of_json, end_json}};

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
    buf_free(&p->texts);
    buf_free(&p->line);
    free(p->cells);
    free(p->widths);
    free(p);
    *pp = NULL;
}

void sql_printer_begin(struct sql_printer *p, sqlite3_stmt *statement)
{
    p->columns = sqlite3_column_count(statement);
    p->rows = 0;
    p->format->begin(p, statement);
}

void sql_printer_row(struct sql_printer *p, sqlite3_stmt *statement)
{
    p->rows++;
    p->format->row(p, statement);
}

void sql_printer_end(struct sql_printer *p)
{
    p->format->end(p);
}
