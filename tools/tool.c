#include "tools/tool.h"
#include "base/bytes.h"
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

/* An explicit --data-dir must hold a pipeline: the default ports could belong to another one. */
static bool has_pipeline(const struct options *o)
{
    struct buf path = {0};
    if (!options_is_set(o, "data_dir"))
        return true;
    buf_printf(&path, "%s/run.json", options_string(o, "data_dir"));
    bool found = access(path.ptr, R_OK) == 0;
    buf_free(&path);
    return found;
}

int tool_run(const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o))
{
    struct options *o;
    enum options_result r = options_parse(spec, argc, argv, &o);
    int status = r == OPTIONS_USAGE ? EX_USAGE : r == OPTIONS_CONFIG ? EX_CONFIG : EX_OK;
    if (r == OPTIONS_USAGE || r == OPTIONS_CONFIG) {
        fprintf(stderr, "millrace %s: %s\n", spec->program, options_error(o));
    } else if (r == OPTIONS_OK && options_check_only(o)) {
        options_show_settings(o);
    } else if (r == OPTIONS_OK && !has_pipeline(o)) {
        fprintf(stderr, "millrace %s: --data-dir=%s holds no run.json: no pipeline has run there\n",
            spec->program, options_string(o, "data_dir"));
        status = EX_CONFIG;
    } else if (r == OPTIONS_OK) {
        status = run(o);
    }
    options_free(&o);
    return status;
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
