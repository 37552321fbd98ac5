/* A bare publisher of libnats: bare_nats URL STREAM BYTES SECONDS creates the stream with one replica, publishes messages of
 * BYTES with one in flight for SECONDS, and prints the bytes per second. */
#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>

static void check(natsStatus s, const char *what)
{
    if (s == NATS_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, natsStatus_GetText(s));
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 64;
    natsOptions *options;
    natsConnection *nc;
    jsCtx *js;
    jsStreamConfig config;
    const char *subjects[] = {argv[2]};
    int bytes = atoi(argv[3]);
    char *data = malloc((size_t)bytes);
    long long n = 0;
    for (int i = 0; i < bytes; i++)
        data[i] = i % 450 == 449 ? '\n' : 'x';
    check(natsOptions_Create(&options), "options");
    check(natsOptions_SetURL(options, argv[1]), "url");
    check(natsOptions_SetSendAsap(options, true), "send asap");
    check(natsConnection_Connect(&nc, options), "connect");
    check(natsConnection_JetStream(&js, nc, NULL), "JetStream");
    jsStreamConfig_Init(&config);
    config.Name = argv[2];
    config.Subjects = subjects;
    config.SubjectsLen = 1;
    check(js_AddStream(NULL, js, &config, NULL, NULL), "stream");
    int64_t began = nats_NowInNanoSeconds(), now, until = began + atoll(argv[4]) * 1000000000;
    do {
        check(js_Publish(NULL, js, argv[2], data, bytes, NULL, NULL), "publish");
        n++;
        now = nats_NowInNanoSeconds();
    } while (now < until);
    printf("%.0f\n", (double)n * bytes / ((double)(now - began) / 1e9));
    js_DeleteStream(js, argv[2], NULL, NULL);
    jsCtx_Destroy(js);
    natsConnection_Destroy(nc);
    natsOptions_Destroy(options);
    nats_Close();
    free(data);
    return 0;
}
