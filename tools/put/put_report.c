#include "tools/put/put_report.h"

#include "base/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define REPORT_MODE 0644 /* node_exporter is another user */
#define REPORT_MAX ((size_t)64 << 10)
#define SUFFIX ".prom"
#define ENDED "# ended"

static const struct {
    const char *name, *type, *help;
} metrics[PUT_NUMBERS] = {
    [PUT_POSTED] = {"millrace_put_posted_total", "counter",
        "Events that millrace put has posted since its start."},
    [PUT_REFUSED] = {"millrace_put_refused_total", "counter",
        "Lines that are not events or that the queue refused, kept in the rejects."},
    [PUT_SKIPPED_BYTES] = {"millrace_put_skipped_bytes_total", "counter",
        "NUL bytes at the beginning of lines, as copytruncate leaves them."},
    [PUT_REPLACED] = {"millrace_put_replaced_total", "counter",
        "Lines with invalid text, which U+FFFD replaces."},
    [PUT_NO_VISITOR] = {"millrace_put_events_without_visitor_total", "counter",
        "Lines of an access log that got no visitor, because of their time, the client's address or the key "
        "file."},
    [PUT_EXIT_STATUS] = {"millrace_put_exit_status", "gauge",
        "Exit status of an ended millrace put; 0: it runs, or was stopped."},
};

static int open_lock(const char *path, int flags)
{
    char *name = mem_printf("%s.lock", path);
    int fd = io->open(name, flags | O_CLOEXEC | O_NOFOLLOW, REPORT_MODE);
    free(name);
    return fd;
}

int put_report_lock(const char *path)
{
    struct flock whole = {.l_type = F_WRLCK};
    int fd = open_lock(path, O_RDWR | O_CREAT);
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &whole) == 0)
        return fd;
    if (fd >= 0)
        io->close(fd);
    return -1;
}

static void look_at_lock(const char *path, struct put_report *r)
{
    struct flock whole = {.l_type = F_WRLCK};
    int fd = open_lock(path, O_RDONLY);
    r->is_locked = fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    if (fd >= 0)
        io->close(fd);
}

int put_report_write(const char *path, const struct put_report *r)
{
    struct buf text = {0};
    buf_printf(&text, "# rejects %s\n# why %.*s\n%s", r->rejects ? r->rejects : "",
        (int)strcspn(r->why, "\n"), r->why, r->has_ended ? ENDED "\n" : "");
    if (r->lost)
        buf_printf(
            &text, "# lost %.*s\n# lost_remedy %s\n", (int)strcspn(r->lost, "\n"), r->lost, r->lost_remedy);
    for (size_t i = 0; i < PUT_NUMBERS; i++)
        buf_printf(&text, "# HELP %s %s\n# TYPE %s %s\n%s{queue=\"%s\",producer=\"%s\"} %" PRIu64 "\n",
            metrics[i].name, metrics[i].help, metrics[i].name, metrics[i].type, metrics[i].name, r->queue,
            r->producer, r->numbers[i]);
    int rc = io_replace_file(path, buf_bytes(&text), REPORT_MODE);
    buf_free(&text);
    return rc;
}

/* Returns the text after `words`, or NULL. */
static const char *after(const char *line, const char *words)
{
    size_t n = strlen(words);
    return strncmp(line, words, n) == 0 ? line + n : NULL;
}

static void read_line(const char *line, struct put_report *r, char *queue, char *producer)
{
    const char *text;
    for (size_t i = 0; i < PUT_NUMBERS; i++)
        if ((text = after(line, metrics[i].name)))
            sscanf(
                text, "{queue=\"%64[^\"]\",producer=\"%64[^\"]\"} %" SCNu64, queue, producer, &r->numbers[i]);
    if ((text = after(line, "# rejects ")))
        r->rejects = *text ? text : NULL;
    if ((text = after(line, "# why ")))
        r->why = text;
    if ((text = after(line, "# lost ")))
        r->lost = text;
    if ((text = after(line, "# lost_remedy ")))
        r->lost_remedy = text;
    r->has_ended = r->has_ended || strcmp(line, ENDED) == 0;
}

static void read_file(const char *path, void (*each)(const struct put_report *r, void *arg), void *arg)
{
    char queue[NAME_LEN_MAX + 1] = "", producer[NAME_LEN_MAX + 1] = "";
    struct put_report r = {.queue = queue, .producer = producer, .why = ""};
    struct buf text = {0};
    look_at_lock(path, &r);
    if (io_read_file(path, REPORT_MAX, &text) == 0) {
        buf_append_char(&text, '\0');
        char *rest = text.ptr;
        for (char *line; (line = strsep(&rest, "\n"));)
            read_line(line, &r, queue, producer);
    }
    if (producer[0])
        each(&r, arg);
    buf_free(&text);
}

void put_report_read(const char *data_dir, void (*each)(const struct put_report *r, void *arg), void *arg)
{
    char *dir = mem_printf("%s/put", data_dir);
    struct dirent **names;
    int n = scandir(dir, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        size_t length = strlen(names[i]->d_name), suffix = strlen(SUFFIX);
        char *path = mem_printf("%s/%s", dir, names[i]->d_name);
        if (length > suffix && strcmp(names[i]->d_name + length - suffix, SUFFIX) == 0)
            read_file(path, each, arg);
        free(path);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    free(dir);
}
