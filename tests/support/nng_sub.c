/* nng_sub URL TOPIC [BUFFER]: prints each message of the topic as `LENGTH\n` and its bytes, by the nng library's own SUB
 * socket, which keeps up to BUFFER messages. */
#include "base/bytes.h"

#include <nng/nng.h>
#include <nng/protocol/pubsub0/sub.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, int why)
{
    fprintf(stderr, "nng_sub: %s: %s\n", what, nng_strerror(why));
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    nng_socket s;
    if (argc < 3)
        return EXIT_FAILURE;
    int why = nng_sub0_open(&s);
    if (why == 0)
        why = nng_socket_set(s, NNG_OPT_SUB_SUBSCRIBE, argv[2], strlen(argv[2]));
    if (why == 0 && argc > 3)
        why = nng_socket_set_int(s, NNG_OPT_RECVBUF, atoi(argv[3]));
    if (why == 0)
        why = nng_dial(s, argv[1], NULL, 0);
    if (why != 0)
        return fail(argv[1], why);
    printf("connected\n");
    fflush(stdout);
    for (nng_msg *msg; (why = nng_recvmsg(s, &msg, 0)) == 0; nng_msg_free(msg)) {
        printf("%zu\n", nng_msg_len(msg));
        fwrite(nng_msg_body(msg), 1, nng_msg_len(msg), stdout);
        if (fflush(stdout) != 0)
            return EXIT_FAILURE;
    }
    return fail("receiving", why);
}
