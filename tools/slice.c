/* millrace slice: prints a slice as archive text. */
#include "counts/records.h"
#include "counts/slice_reader.h"
#include "counts/slice_state.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>

static const char help[] =
    "prints a slice of the aggregator as archive text\n\n"
    "usage: millrace slice [--members] FILE\n"
    "\n"
    "  FILE       verify the slice and print its records in order; 65: damaged, 66: missing, 78: not a "
    "slice\n"
    "  --members  print all members of each set as chunks; default: the size, or at most three members\n";

static int fail(enum slice_result r, const struct error *error)
{
    if (r == SLICE_DAMAGED)
        return tool_fail(EX_DATAERR, "%s", error->text);
    return tool_fail(r == SLICE_FULL || r == SLICE_FAILED ? EX_TEMPFAIL : EX_CONFIG, "%s", error->text);
}

int tool_open_slice(const char *path, struct slice_reader **out, struct error *error)
{
    struct stat st;
    enum slice_result opened = SLICE_FOREIGN;
    if (stat(path, &st) != 0)
        error_errno(error, SLICE_FOREIGN, path);
    else
        opened = slice_reader_open_sealed(path, out, error);
    return (int)(opened == SLICE_UNSEALED ? slice_reader_open(path, out, error) : opened);
}

static int print(const char *path, bool has_members)
{
    struct error error;
    struct slice_reader *reader;
    struct buf text = {0};
    enum count_next r;
    if (tool_check_input(path) != 0)
        return EX_NOINPUT;
    enum slice_result opened = (enum slice_result)tool_open_slice(path, &reader, &error);
    if (opened != SLICE_OK)
        return fail(opened, &error);
    struct count_sources sources = {0};
    slice_reader_add_sources(reader, BYTES_NONE, &sources);
    struct count_merge *m = count_merge_new(sources.list, sources.n);
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        buf_clear(&text);
        r = has_members ? count_merge_print(m, &text) : count_merge_print_short(m, &text);
        if (r == COUNT_FAILED)
            break;
        fwrite(text.ptr, 1, text.len, stdout);
    }
    int status = r == COUNT_FAILED ? fail(SLICE_DAMAGED, count_merge_error(m)) : EX_OK;
    count_merge_free(&m);
    count_sources_free(&sources);
    buf_free(&text);
    slice_reader_close(&reader);
    return status;
}

int tool_slice(int argc, char **argv)
{
    bool asks = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    bool has_members = argc == 3 && strcmp(argv[1], "--members") == 0;
    if (argc == 2 + has_members && argv[argc - 1][0] != '-')
        return print(argv[argc - 1], has_members);
    fputs(help, asks ? stdout : stderr);
    return asks ? EX_OK : EX_USAGE;
}
