/* Any bytes as a file of lines, plain or packed: the lines follow one another, and those of a plain file are the file. The first
 * byte is the length of a piece for the line splitter, which returns the same lines however its input is cut. */
#include "base/line_splitter.h"
#include "base/line_source.h"

#include "support/fuzz_copy.h"
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINE_MAX_HERE 20

static bool is_packed(struct bytes file)
{
    return bytes_starts_with(file, BYTES_LITERAL("\x1f\x8b")) ||
           bytes_starts_with(file, BYTES_LITERAL("\x28\xb5\x2f\xfd"));
}

static void check_source(struct bytes file)
{
    struct error error = {0};
    struct buf text = {0};
    struct bytes line;
    enum line_source_result r = LINE_SOURCE_FAILED;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, file.ptr, file.len) != (ssize_t)file.len || lseek(fd, 0, SEEK_SET) != 0)
        abort();
    struct line_source *s = line_source_of(fd, "fuzz", &error);
    while (s && text.len < 1 << 20 && (r = line_source_next(s, false, &line, &error)) == LINE_SOURCE_LINE) {
        const char *lf = memchr(line.ptr, '\n', line.len);
        assert(line.len > 0 && (!lf || lf == line.ptr + line.len - 1));
        buf_append_bytes(&text, line);
        assert(line_source_offset(s) == text.len);
    }
    if (r == LINE_SOURCE_END && !is_packed(file))
        assert(bytes_equal(buf_bytes(&text), file));
    assert(r != LINE_SOURCE_FAILED || error.text[0]);
    line_source_close(&s);
    buf_free(&text);
}

static void on_lines(void *arg, struct bytes run)
{
    assert(run.len > 0 && run.ptr[run.len - 1] == '\n');
    buf_append_bytes(arg, run);
}

static void on_overlong(void *arg, struct bytes head, uint64_t length)
{
    assert(head.len <= LINE_MAX_HERE + 1 && length > LINE_MAX_HERE);
    buf_printf(arg, "<%.*s %llu>", (int)LINE_MAX_HERE, head.ptr, (unsigned long long)length);
}

static void split(struct bytes text, size_t step, struct buf *out)
{
    struct line_splitter s = {
        .max_line = LINE_MAX_HERE, .lines = on_lines, .overlong = on_overlong, .arg = out};
    for (size_t at = 0; at < text.len; at += step) {
        char *piece = fuzz_copy(bytes_of(text.ptr + at, text.len - at < step ? text.len - at : step));
        line_splitter_feed(&s, bytes_of(piece, text.len - at < step ? text.len - at : step));
        free(piece);
    }
    line_splitter_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf cut = {0}, whole = {0};
    if (size < 2)
        return 0;
    struct bytes text = bytes_of(data + 1, size - 1);
    check_source(text);
    split(text, data[0] % 32 + 1, &cut);
    split(text, text.len, &whole);
    assert(bytes_equal(buf_bytes(&cut), buf_bytes(&whole)));
    buf_free(&cut);
    buf_free(&whole);
    return 0;
}
