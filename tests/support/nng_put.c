/* nng_put URL: sends standard input as one request by the nng library's own REQ socket, and prints the reply. */
#include "base/bytes.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdio.h>
#include <stdlib.h>

#define TIMEOUT_MS 300000

static int fail(const char *what, int why)
{
    fprintf(stderr, "nng_put: %s: %s\n", what, nng_strerror(why));
    return EXIT_FAILURE;
}

static void read_input(struct buf *text)
{
    char piece[65536];
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;)
        buf_append(text, piece, n);
}

int main(int argc, char **argv)
{
    struct buf text = {0};
    nng_socket s;
    void *reply;
    size_t len;
    if (argc != 2)
        return EXIT_FAILURE;
    read_input(&text);
    int why = nng_req0_open(&s);
    if (why == 0)
        why = nng_socket_set_ms(s, NNG_OPT_RECVTIMEO, TIMEOUT_MS);
    if (why == 0)
        why = nng_dial(s, argv[1], NULL, 0);
    if (why == 0)
        why = nng_send(s, text.ptr, text.len, 0);
    buf_free(&text);
    if (why == 0)
        why = nng_recv(s, &reply, &len, NNG_FLAG_ALLOC);
    if (why != 0)
        return fail(argv[1], why);
    fwrite(reply, 1, len, stdout);
    nng_free(reply, len);
    nng_close(s);
    return EXIT_SUCCESS;
}
