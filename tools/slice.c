/* millrace slice: prints a slice as archive text, and converts slices of older formats. */
#include "counts/slice_reader.h"
#include "tools/slice_convert.h"
#include "tools/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>

static const char help[] =
    "prints a slice of the aggregator as archive text, or converts slices of an older format\n\n"
    "usage: millrace slice FILE\n"
    "       millrace slice convert FILE...\n"
    "\n"
    "  FILE     verify the slice and print its records in order; 65: damaged, 78: not a slice\n"
    "  convert  rewrite each FILE in the current format, unless it has that format; stop the\n"
    "           aggregator first\n";

static int fail(enum slice_result r, const char *error)
{
    fprintf(stderr, "millrace slice: %s\n", error);
    switch (r) {
    case SLICE_DAMAGED:
        return EX_DATAERR;
    case SLICE_FULL:
    case SLICE_FAILED:
        return EX_TEMPFAIL;
    default:
        return EX_CONFIG;
    }
}

/* A sealed slice is opened immutable. An open one may still have its log. */
static enum slice_result open_reader(
    const char *path, struct slice_reader **out, char error[SLICE_ERROR_TEXT])
{
    struct stat st;
    struct buf log = {0};
    buf_printf(&log, "%s-wal", path);
    bool is_open = stat(log.ptr, &st) == 0 && st.st_size > 0;
    buf_free(&log);
    if (stat(path, &st) != 0) {
        snprintf(error, SLICE_ERROR_TEXT, "%.400s: %s", path, strerror(errno));
        return SLICE_FOREIGN;
    }
    enum slice_result r = is_open ? SLICE_UNSEALED : slice_reader_open_sealed(path, out, error);
    return r == SLICE_UNSEALED ? slice_reader_open(path, out, error) : r;
}

static int print(const char *path)
{
    char error[SLICE_ERROR_TEXT];
    struct slice_reader *reader;
    struct buf text = {0};
    enum count_next r;
    enum slice_result opened = open_reader(path, &reader, error);
    if (opened != SLICE_OK)
        return fail(opened, error);
    size_t n = slice_reader_runs(reader);
    struct count_source **sources = mem_zalloc((n + 1) * sizeof(*sources));
    for (size_t i = 0; i < n; i++)
        sources[i] = slice_reader_source(reader, i, BYTES_NONE);
    struct count_merge *m = count_merge_new(sources, n);
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        buf_clear(&text);
        r = count_merge_print(m, &text);
        if (r == COUNT_FAILED)
            break;
        fwrite(text.ptr, 1, text.len, stdout);
    }
    int status = r == COUNT_FAILED ? fail(SLICE_DAMAGED, count_merge_error(m)) : EX_OK;
    count_merge_free(&m);
    for (size_t i = 0; i < n; i++)
        count_source_close(&sources[i]);
    free(sources);
    buf_free(&text);
    slice_reader_close(&reader);
    return tool_flush("slice", status);
}

static int convert(int n, char **paths)
{
    char error[SLICE_ERROR_TEXT];
    for (int i = 0; i < n; i++) {
        bool is_done;
        enum slice_result r = slice_convert(paths[i], &is_done, error);
        if (r != SLICE_OK)
            return fail(r, error);
        printf("%s: %s\n", paths[i], is_done ? "converted" : "already has the current format");
    }
    return EX_OK;
}

int tool_slice(int argc, char **argv)
{
    bool asks = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc > 2 && strcmp(argv[1], "convert") == 0)
        return convert(argc - 2, argv + 2);
    if (argc == 2 && argv[1][0] != '-' && strcmp(argv[1], "convert") != 0)
        return print(argv[1]);
    fputs(help, asks ? stdout : stderr);
    return asks ? EX_OK : EX_USAGE;
}
