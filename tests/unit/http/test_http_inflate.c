/* http_inflate: the output is the same wherever the input is cut, and never exceeds the limit. */
#include "support/cm.h"
#include "http/server/http_inflate.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#define TEXT_BYTES 200000
#define OUT_MAX (1 << 20)

static void make_text(struct buf *out)
{
    for (unsigned i = 0; out->len < TEXT_BYTES; i++)
        buf_printf(out, "{\"n\":%u,\"square\":%u}\n", i, i * i);
}

static void pack(enum http_coding coding, struct bytes text, struct buf *out)
{
    buf_reserve(out, text.len + 1000);
    if (coding == HTTP_CODING_ZSTD) {
        out->len += ZSTD_compress(out->ptr + out->len, out->cap - out->len, text.ptr, text.len, 3);
        return;
    }
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text.ptr;
    z.avail_in = (uInt)text.len;
    z.next_out = (Bytef *)out->ptr + out->len;
    z.avail_out = (uInt)(out->cap - out->len);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->len += z.total_out;
    deflateEnd(&z);
}

static enum http_refusal unpack(
    enum http_coding coding, struct bytes in, size_t step, size_t max, struct buf *out, bool *complete)
{
    struct http_inflate *z = http_inflate_new(coding);
    enum http_refusal r = HTTP_REFUSED_NOT;
    for (size_t at = 0; at < in.len && r == HTTP_REFUSED_NOT; at += step) {
        r = http_inflate_feed(z, bytes_of(in.ptr + at, in.len - at < step ? in.len - at : step), max, out);
        while (r == HTTP_REFUSED_NOT && http_inflate_has_more(z))
            r = http_inflate_feed(z, BYTES_NONE, max, out);
    }
    *complete = http_inflate_is_complete(z);
    assert_in_range(http_inflate_memory(z), 1, 16 << 20);
    http_inflate_free(&z);
    assert_null(z);
    return r;
}

static const enum http_coding codings[] = {HTTP_CODING_GZIP, HTTP_CODING_ZSTD};

static void test_pieces_of_any_size(void **state)
{
    static const size_t steps[] = {1, 7, 1000, OUT_MAX};
    (void)state;
    struct buf text = {0}, packed = {0}, out = {0};
    bool complete;
    make_text(&text);
    for (size_t i = 0; i < 2; i++) {
        buf_clear(&packed);
        pack(codings[i], bytes_of(text.ptr, 100), &packed);
        pack(codings[i], bytes_of(text.ptr + 100, text.len - 100), &packed);
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            buf_clear(&out);
            assert_int_equal(
                unpack(codings[i], buf_bytes(&packed), steps[k], OUT_MAX, &out, &complete), HTTP_REFUSED_NOT);
            assert_true(complete);
            assert_true(bytes_equal(buf_bytes(&out), buf_bytes(&text)));
        }
    }
    buf_free(&text);
    buf_free(&packed);
    buf_free(&out);
}

static void test_limit(void **state)
{
    (void)state;
    struct buf text = {0}, packed = {0};
    bool complete;
    make_text(&text);
    for (size_t i = 0; i < 2; i++) {
        buf_clear(&packed);
        pack(codings[i], buf_bytes(&text), &packed);
        for (size_t less = 0; less < 2; less++) {
            struct buf out = {0};
            enum http_refusal r =
                unpack(codings[i], buf_bytes(&packed), 4096, text.len - less, &out, &complete);
            assert_int_equal(r, less ? HTTP_REFUSED_BODY_TOO_LARGE : HTTP_REFUSED_NOT);
            assert_in_range(out.len, 0, text.len - less);
            buf_free(&out);
        }
    }
    buf_free(&text);
    buf_free(&packed);
}

static void test_damage(void **state)
{
    (void)state;
    struct buf text = {0}, packed = {0};
    bool complete;
    make_text(&text);
    for (size_t i = 0; i < 2; i++) {
        buf_clear(&packed);
        pack(codings[i], buf_bytes(&text), &packed);
        for (size_t len = 1; len < packed.len; len += 997) {
            struct buf out = {0};
            assert_int_equal(unpack(codings[i], bytes_of(packed.ptr, len), OUT_MAX, OUT_MAX, &out, &complete),
                HTTP_REFUSED_NOT);
            assert_false(complete);
            buf_free(&out);
        }
        struct buf out = {0};
        buf_append_str(&packed, "more");
        enum http_refusal r = unpack(codings[i], buf_bytes(&packed), OUT_MAX, OUT_MAX, &out, &complete);
        assert_true(r == HTTP_REFUSED_DAMAGED_BODY || !complete);
        buf_free(&out);
    }
    buf_free(&text);
    buf_free(&packed);
}

/* A few bytes that stand for many are decompressed in steps. */
static void test_steps(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_reserve(&text, 3 * HTTP_INFLATE_STEP);
    memset(text.ptr, '\n', 3 * HTTP_INFLATE_STEP);
    text.len = 3 * HTTP_INFLATE_STEP;
    for (size_t i = 0; i < 2; i++) {
        struct buf packed = {0}, out = {0};
        size_t steps = 1;
        pack(codings[i], buf_bytes(&text), &packed);
        struct http_inflate *z = http_inflate_new(codings[i]);
        assert_int_equal(http_inflate_feed(z, buf_bytes(&packed), text.len, &out), HTTP_REFUSED_NOT);
        memset(packed.ptr, 0, packed.len); /* the input is lent for the call */
        for (; http_inflate_has_more(z); steps++) {
            size_t before = out.len;
            assert_int_equal(http_inflate_feed(z, BYTES_NONE, text.len, &out), HTTP_REFUSED_NOT);
            assert_in_range(out.len - before, 0, HTTP_INFLATE_STEP + (64 << 10));
        }
        assert_true(steps >= 3 && http_inflate_is_complete(z));
        assert_true(bytes_equal(buf_bytes(&out), buf_bytes(&text)));
        http_inflate_free(&z);
        buf_free(&packed);
        buf_free(&out);
    }
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_of_any_size),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
