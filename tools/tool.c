#include "tools/tool.h"
#include "base/bytes.h"
#include "http/client/http_client.h"
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

int tool_run(const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o))
{
    struct options *o;
    struct buf run_file = {0};
    enum options_result r = options_parse(spec, argc, argv, &o);
    int status = r == OPTIONS_USAGE ? EX_USAGE : r == OPTIONS_CONFIG ? EX_CONFIG : EX_OK;
    /* An explicit --data-dir must hold a pipeline: the default ports could belong to another one. */
    if (r == OPTIONS_OK && options_is_set(o, "data_dir"))
        buf_printf(&run_file, "%s/run.json", options_string(o, "data_dir"));
    if (status != EX_OK) {
        fprintf(stderr, "millrace %s: %s\n", spec->program, options_error(o));
    } else if (r == OPTIONS_OK && options_check_only(o)) {
        options_show_settings(o);
    } else if (run_file.len > 0 && access(run_file.ptr, R_OK) != 0) {
        fprintf(stderr, "millrace %s: --data-dir=%s has no run.json: no pipeline has run there\n",
            spec->program, options_string(o, "data_dir"));
        status = EX_CONFIG;
    } else if (r == OPTIONS_OK) {
        status = run(o);
    }
    buf_free(&run_file);
    options_free(&o);
    return status;
}

int tool_get(const char *url, const char *target, usec_t timeout, struct buf *body, const char **why)
{
    int status = 0;
    enum http_client_result r = HTTP_CLIENT_REFUSED;
    struct event_base *base = event_base_new();
    struct http_client *c =
        http_client_new(&(struct http_client_config){.base = base, .url = url, .timeout = timeout});
    if (c != NULL)
        r = http_client_fetch(c, &(struct http_call_spec){.method = "GET", .target = target}, &status, body);
    http_client_free(&c);
    event_base_free(base);
    *why = http_client_strerror(r);
    return r == HTTP_CLIENT_OK ? status : 0;
}

int tool_flush(const char *program, int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "millrace %s: cannot write to standard output: %s\n", program, strerror(errno));
    return EX_IOERR;
}

char *tool_libexec_dir(void)
{
    char self[4096];
    struct buf dir = {0};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    const char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    buf_append(&dir, self, slash ? (size_t)(slash - self) : 0);
    buf_append(&dir, "/../libexec/millrace", sizeof "/../libexec/millrace");
    return dir.ptr;
}
