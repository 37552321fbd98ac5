#include "scraper/targets_put.h"

#include "base/clock.h"
#include "base/io.h"
#include "scraper/scraper_settings.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <zookeeper/zookeeper.h>

#define NODE_MAX ((size_t)1000 * 1000) /* ZooKeeper's default limit is 1 MiB for a whole request */

struct put {
    zhandle_t *zh;
    usec_t deadline;
    bool is_done; /* the request has an answer: `result` */
    int result;
};

static void on_session(zhandle_t *zh, int type, int state, const char *path, void *arg)
{
    (void)zh, (void)path;
    ((struct put *)arg)->is_done |= type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE;
}

static void on_answer(int result, const struct Stat *stat, const void *arg)
{
    struct put *p = (struct put *)(uintptr_t)arg;
    (void)stat;
    p->is_done = true;
    p->result = result;
}

static void on_created(int result, const char *path, const void *arg)
{
    (void)path;
    on_answer(result, NULL, arg);
}

/* Waits for the answer to a request, whose own result was `sent`. Returns the result. */
static int await(struct put *p, int sent)
{
    int result = sent;
    while (result == ZOK && !p->is_done) {
        int fd = -1, interest = 0;
        struct timeval wait = {0};
        zookeeper_interest(p->zh, &fd, &interest, &wait);
        struct pollfd polled = {.fd = fd,
            .events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) |
                              (interest & ZOOKEEPER_WRITE ? POLLOUT : 0))};
        poll(&polled, 1, 100);
        if (fd >= 0)
            zookeeper_process(p->zh, (polled.revents & ~POLLOUT ? ZOOKEEPER_READ : 0) |
                                         (polled.revents & POLLOUT ? ZOOKEEPER_WRITE : 0));
        if (clock_monotonic() > p->deadline)
            result = ZOPERATIONTIMEOUT;
    }
    p->is_done = false;
    return result == ZOK ? p->result : result;
}

/* Replaces the node, or creates it and the nodes above. */
static int store(struct put *p, const char *path, struct bytes text)
{
    int result = await(p, zoo_aset(p->zh, path, text.ptr, (int)text.len, -1, on_answer, p));
    if (result != ZNONODE)
        return result;
    for (const char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
        char *part = mem_printf("%.*s", (int)(end - path), path);
        await(p, zoo_acreate(p->zh, part, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, on_created, p));
        free(part);
    }
    return await(
        p, zoo_acreate(p->zh, path, text.ptr, (int)text.len, &ZOO_OPEN_ACL_UNSAFE, 0, on_created, p));
}

/* A file that becomes a node. */
struct node {
    char *path; /* of the file */
    const char *name;
    struct buf text;
};

struct nodes {
    struct node *all;
    size_t n, cap;
};

/* Reads and checks a file. Returns 0, or an exit status with the error. */
static int read_node(struct node *node, const struct target_defaults *defaults, struct error *error)
{
    struct target_list list = {0};
    const char *slash = strrchr(node->path, '/');
    node->name = slash ? slash + 1 : node->path;
    if (!bytes_is_name(bytes_str(node->name)))
        return error_set(error, EX_DATAERR, "%s: the file's name cannot be the name of a node", node->path);
    if (io_read_regular(node->path, NODE_MAX, &node->text) != 0)
        return error_set(error, EX_NOINPUT, "%s: %s", node->path,
            errno == EFBIG    ? "longer than 1 MB, the limit of a node; divide the file"
            : errno == EINVAL ? "not a regular file"
                              : strerror(errno));
    int r = targets_read(buf_bytes(&node->text), defaults, &list, error);
    targets_free(&list);
    return r == 0 ? 0 : error_set(error, EX_DATAERR, "%s: %s", node->path, error->text);
}

static int read_all(struct nodes *nodes, const struct options *o, struct error *error)
{
    struct target_defaults defaults = scraper_defaults(o);
    const char *rest = options_text(o, "put_targets");
    struct bytes word;
    int status = 0;
    while (status == 0 && bytes_next_word(&rest, " ", &word)) {
        struct node *node = ARRAY_ADD(nodes->all, nodes->n, nodes->cap);
        *node = (struct node){.path = bytes_dup(word)};
        status = read_node(node, &defaults, error);
    }
    return status;
}

static int put_all(const struct nodes *nodes, const struct options *o, struct error *error)
{
    const char *servers = options_string(o, "zookeeper");
    int64_t timeout = options_int(o, "zookeeper_timeout");
    struct put p = {.deadline = clock_monotonic() + timeout * USEC_PER_MSEC};
    zoo_set_debug_level((ZooLogLevel)0);
    p.zh = zookeeper_init(servers, on_session, (int)timeout, NULL, &p, 0);
    int result = p.zh ? await(&p, ZOK) : ZCONNECTIONLOSS;
    for (size_t i = 0; i < nodes->n && result == ZOK; i++) {
        char *path = mem_printf("%s/targets/%s", options_string(o, "zookeeper_path"), nodes->all[i].name);
        p.deadline = clock_monotonic() + timeout * USEC_PER_MSEC;
        result = store(&p, path, buf_bytes(&nodes->all[i].text));
        free(path);
    }
    zookeeper_close(p.zh);
    if (result == ZOK)
        return 0;
    return error_set(
        error, EX_TEMPFAIL, "cannot store the targets in ZooKeeper at %s: %s", servers, zerror(result));
}

bool targets_put(struct options *o, int *status)
{
    struct nodes nodes = {0};
    struct error error;
    if (!options_text(o, "put_targets"))
        return false;
    *status = read_all(&nodes, o, &error);
    if (*status == 0)
        *status = put_all(&nodes, o, &error);
    if (*status != 0)
        fprintf(stderr, "scraper: %s\n", error.text);
    for (size_t i = 0; i < nodes.n; i++) {
        free(nodes.all[i].path);
        buf_free(&nodes.all[i].text);
    }
    free(nodes.all);
    return true;
}
