/* aws_signature: numbers of AWS's test suite of Signature Version 4. */
#include "support/cm.h"

#include "aws/aws_signature.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIME (INT64_C(1440938160) * USEC_PER_SEC) /* 2015-08-30T12:36:00Z */

static const struct aws_keys keys = {
    .id = "AKIDEXAMPLE", .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};

/* The token of AWS's test post-sts-header-before. */
static const char token[] =
    "AQoDYXdzEPT//////////"
    "wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI"
    "/qkPpKPi/"
    "kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+"
    "xo0rKwT"
    "38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

static void check_with(
    const struct aws_keys *k, const char *method, const char *type, const char *body, const char *expected)
{
    struct buf headers = {0};
    aws_sign(k,
        &(struct aws_request){.region = "us-east-1",
            .service = "service",
            .method = method,
            .host = "example.amazonaws.com",
            .content_type = type,
            .body = bytes_str(body)},
        TIME, &headers);
    buf_append_char(&headers, '\0');
    const char *signature = strstr(headers.ptr, "Signature=");
    assert_non_null(signature);
    assert_memory_equal(headers.ptr, "X-Amz-Date: 20150830T123600Z\r\n", 30);
    assert_int_equal(strlen(signature), 10 + 64 + 2);
    assert_memory_equal(signature + 10, expected, 64);
    buf_free(&headers);
}

static void check(const char *method, const char *type, const char *body, const char *expected)
{
    check_with(&keys, method, type, body, expected);
}

static void vectors(void **state)
{
    struct aws_keys with_token = keys;
    (void)state;
    assert_true(aws_key_copy(bytes_str(token), with_token.session, sizeof with_token.session));
    check_with(&with_token, "POST", NULL, "",
        "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"); /* post-sts-header-before */
    check("GET", NULL, "",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"); /* get-vanilla */
    check("POST", NULL, "",
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"); /* post-vanilla */
    check("POST", "application/x-www-form-urlencoded", "Param1=value1",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
}

static void check_file(const char *text, const char *id, const char *session)
{
    char path[] = "/tmp/millrace-keys-XXXXXX";
    struct aws_keys out;
    struct error error;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(aws_keys_read(path, &out, &error), id ? 0 : -1);
    if (id) {
        assert_string_equal(out.id, id);
        assert_string_equal(out.secret, "S/+=");
        assert_string_equal(out.session, session);
    }
    chmod(path, 0644);
    assert_int_equal(aws_keys_read(path, &out, &error), -1); /* other users may read the file */
    unlink(path);
}

static void files(void **state)
{
    (void)state;
    check_file("[default]\naws_access_key_id = A\naws_secret_access_key=S/+=\n", "A", "");
    check_file("# mine\n[other]\naws_access_key_id = B\n[default]\r\naws_access_key_id = "
               "A\r\naws_secret_access_key=S/+=\naws_session_token = T==\n",
        "A", "T==");
    check_file("[other]\naws_access_key_id = A\naws_secret_access_key=S/+=\n", NULL, "");
    check_file("aws_access_key_id = A\naws_secret_access_key = a b\n", NULL, "");
    check_file("aws_access_key_id = A\n", NULL, "");
    check_file("", NULL, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
