/* bare_marks: the bare loop of bench_marks.py. Answers the same checks as spamfilter, and shares no code with millrace.
 *
 *     bare_marks FILE     a mark in each line; prints the port
 *
 * An epoll loop, a hash table of all marks in memory, and the least work for a link: its host in lower case, its path and the
 * parents of both. The loop trusts its client: nothing is normalized, and no limit is checked. */
#define _GNU_SOURCE /* memmem */
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#define CONNECTIONS 256
#define REQUEST_MAX (2 << 20)
#define LINK_MAX 1024

static struct {
    const char *text;
    size_t len;
} * slots;
static size_t n_slots;

static uint64_t hash(const char *text, size_t len)
{
    uint64_t h = len, word;
    for (; len >= 8; text += 8, len -= 8) {
        memcpy(&word, text, 8);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    for (; len > 0; text++, len--)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

static size_t slot_of(const char *text, size_t len)
{
    size_t at = hash(text, len) & (n_slots - 1);
    while (slots[at].text && (slots[at].len != len || memcmp(slots[at].text, text, len) != 0))
        at = (at + 1) & (n_slots - 1);
    return at;
}

static int read_marks(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        return -1;
    size_t size = (size_t)ftell(f), lines = 0;
    char *text = malloc(size + 1);
    rewind(f);
    if (!text || fread(text, 1, size, f) != size)
        return -1;
    fclose(f);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    for (n_slots = 1; n_slots < 2 * lines;)
        n_slots *= 2;
    slots = calloc(n_slots, sizeof *slots);
    for (char *at = text, *end; slots && (end = memchr(at, '\n', size - (size_t)(at - text))); at = end + 1) {
        size_t i = slot_of(at, (size_t)(end - at));
        slots[i].text = at;
        slots[i].len = (size_t)(end - at);
    }
    return slots ? 0 : -1;
}

static char out[4 * REQUEST_MAX], head[256];
static size_t out_len;

static int answer_if_marked(const char *text, size_t len)
{
    if (!slots[slot_of(text, len)].text)
        return 0;
    out_len += (size_t)sprintf(out + out_len, "{\"marked\":true,\"match\":\"%.*s\"}\n", (int)len, text);
    return 1;
}

static void check(const char *link, size_t len)
{
    static const char no[] = "{\"marked\":false}\n";
    char form[LINK_MAX];
    const char *scheme = memmem(link, len, "://", 3), *end = link + len;
    const char *host = scheme ? scheme + 3 : link, *at = host;
    size_t n = 0;
    for (; at < end && *at != '/' && *at != ':' && *at != '?' && n < LINK_MAX; at++)
        form[n++] = (char)tolower((unsigned char)*at);
    size_t host_len = n;
    while (at < end && *at != '/' && *at != '?')
        at++;
    for (; at < end && *at != '?' && *at != '#' && n < LINK_MAX; at++)
        form[n++] = *at;
    while (n > host_len && form[n - 1] == '/')
        n--;
    while (n > host_len) {
        if (answer_if_marked(form, n))
            return;
        n = (size_t)((const char *)memrchr(form, '/', n) - form);
    }
    for (const char *name = form, *dot; (dot = memchr(name, '.', host_len - (size_t)(name - form)));
         name = dot + 1)
        if (answer_if_marked(name, host_len - (size_t)(name - form)))
            return;
    memcpy(out + out_len, no, sizeof no - 1);
    out_len += sizeof no - 1;
}

static void check_target(const char *target, const char *end)
{
    char link[LINK_MAX];
    size_t n = 0;
    for (const char *at = target; at < end && *at != ' ' && n < LINK_MAX; at++) {
        unsigned byte = (unsigned char)*at;
        if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1)
            at += 2;
        link[n++] = (char)byte;
    }
    check(link, n);
}

static void send_all(int fd, const char *text, size_t len)
{
    for (ssize_t n; len > 0; text += n, len -= (size_t)n)
        if ((n = send(fd, text, len, MSG_NOSIGNAL)) < 0)
            return;
}

static struct connection {
    char *text;
    size_t len;
} connections[CONNECTIONS];

/* Answers the first request. Returns 0 until it is complete. */
static int answer(int fd, struct connection *c)
{
    static const char length[] = "Content-Length: ", url[] = "url=";
    const char *body = memmem(c->text, c->len, "\r\n\r\n", 4), *end;
    if (!body)
        return 0;
    body += 4;
    const char *given = memmem(c->text, (size_t)(body - c->text), length, sizeof length - 1),
               *target = memmem(c->text, (size_t)(body - c->text), url, sizeof url - 1);
    size_t size = given ? strtoul(given + sizeof length - 1, NULL, 10) : 0,
           whole = (size_t)(body - c->text) + size;
    if (c->len < whole)
        return 0;
    out_len = 0;
    if (size == 0 && target)
        check_target(target + sizeof url - 1, body);
    for (const char *at = body; at < body + size; at = end + 1) {
        end = memchr(at, '\n', (size_t)(body + size - at));
        end = end ? end : body + size;
        check(at, (size_t)(end - at));
    }
    int n = sprintf(
        head, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", out_len);
    if (out_len < 1000) {
        memmove(out + n, out, out_len);
        memcpy(out, head, (size_t)n);
        send_all(fd, out, out_len + (size_t)n);
    } else {
        send_all(fd, head, (size_t)n);
        send_all(fd, out, out_len);
    }
    c->len -= whole;
    memmove(c->text, c->text + whole, c->len);
    return 1;
}

static void take(int fd)
{
    struct connection *c = &connections[fd];
    if (!c->text)
        c->text = malloc(REQUEST_MAX);
    ssize_t n = recv(fd, c->text + c->len, REQUEST_MAX - c->len, 0);
    if (n <= 0) {
        close(fd);
        c->len = 0;
        return;
    }
    c->len += (size_t)n;
    while (c->len > 0 && answer(fd, c))
        ;
}

int main(int argc, char **argv)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), on = 1;
    struct epoll_event events[CONNECTIONS], e = {.events = EPOLLIN, .data = {.fd = listener}};
    if (argc < 2 || read_marks(argv[1]) != 0 || bind(listener, (struct sockaddr *)&name, sizeof name) != 0 ||
        listen(listener, CONNECTIONS) != 0 || getsockname(listener, (struct sockaddr *)&name, &len) != 0)
        return 1;
    printf("%d\n", ntohs(name.sin_port));
    fflush(stdout);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(epoll, events, CONNECTIONS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener) {
                take(events[i].data.fd);
                continue;
            }
            e.data.fd = accept(listener, NULL, NULL);
            if (e.data.fd < 0 || e.data.fd >= CONNECTIONS)
                return 1;
            setsockopt(e.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            epoll_ctl(epoll, EPOLL_CTL_ADD, e.data.fd, &e);
        }
    }
}
