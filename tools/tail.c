/* millrace tail: prints the lines of a stream as they arrive. */
#include "tools/stream_view.h"

#include "json/json_path.h"
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define NAME_COLOR "\033[36m"
#define NO_COLOR "\033[0m"

static const struct option_row rows[] = {
    STREAM_VIEW_SETTINGS,
    SETTING_INT("count", "0", 0, INT64_MAX, "end after this many lines (0: unlimited)"),
    SETTING_STRING("fields", "print only these fields, separated by tabs: l,c,user.id"),
    TOOL_COLOR_SETTING("colour of the names of members"),
    {.name = NULL},
};

struct tail {
    size_t n_fields;
    int64_t left; /* number of lines to print before the end; 0: unlimited */
    bool has_color, is_terminal;
};

/* Prints a line with colours for the names of members. A name is a string that precedes a colon. */
static void print_colored(struct bytes line)
{
    size_t begin = 0;
    for (size_t i = 0; i < line.len; i++) {
        if (line.ptr[i] != '"')
            continue;
        size_t end = i + 1;
        while (end < line.len && line.ptr[end] != '"')
            end += line.ptr[end] == '\\' ? 2 : 1;
        if (end >= line.len)
            break;
        if (end + 1 < line.len && line.ptr[end + 1] == ':') {
            stream_view_print(bytes_of(line.ptr + begin, i - begin));
            fputs(NAME_COLOR, stdout);
            stream_view_print(bytes_of(line.ptr + i, end + 1 - i));
            fputs(NO_COLOR, stdout);
            begin = end + 1;
        }
        i = end;
    }
    stream_view_print(bytes_of(line.ptr + begin, line.len - begin));
}

static void on_line(struct stream_view *v, struct bytes line, const struct json_value *values, void *arg)
{
    struct tail *t = arg;
    char space[STREAM_VIEW_VALUE_TEXT];
    for (size_t i = 0; i < t->n_fields; i++) {
        if (i > 0)
            putchar('\t');
        stream_view_print(stream_view_text(&values[i], space));
    }
    if (t->n_fields == 0 && t->has_color)
        print_colored(line);
    else if (t->n_fields == 0 && t->is_terminal)
        stream_view_print(line);
    else if (t->n_fields == 0)
        fwrite(line.ptr, 1, line.len, stdout);
    putchar('\n');
    if (t->left > 0 && --t->left == 0)
        stream_view_end(v);
}

static int tail_with(const struct options *o)
{
    const char *list = options_text(o, "fields");
    char *names = mem_strdup(list ? list : ""), *rest = names;
    const char **fields = mem_alloc((strlen(names) + 1) * sizeof *fields);
    struct tail t = {.left = options_int(o, "count"),
        .has_color = tool_has_color(o, STDOUT_FILENO),
        .is_terminal = isatty(STDOUT_FILENO)};
    int status = EX_OK;
    for (char *name; list && status == EX_OK && (name = strsep(&rest, ","));) {
        fields[t.n_fields++] = name;
        if (!json_path_is_valid(bytes_str(name)))
            status = tool_fail(EX_USAGE, "--fields: \"%s\" is not a field", name);
    }
    if (status == EX_OK)
        status =
            stream_view_run(o, &(struct stream_view_config){
                                   .fields = fields, .n_fields = t.n_fields, .on_line = on_line, .arg = &t});
    free(fields);
    free(names);
    return status;
}

int tool_tail(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "tail",
        .summary = "prints the lines of a stream as they arrive",
        .more = "docs/guide/counting.md (Conditions) has the rules of --if.\n",
        .rows = {rows, NULL}};
    return tool_run_on_stream(&spec, argc, argv, tail_with);
}
