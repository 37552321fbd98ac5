#include "tools/tools.h"
#include "base/bytes.h"
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

/* A directory that was named by hand must be a pipeline's: falling back on the default ports could talk to another. */
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

static int run_with(const char *name, const struct options *o, int (*run)(const struct options *o))
{
    if (options_check_only(o)) {
        options_show_settings(o);
        return EX_OK;
    }
    if (has_pipeline(o))
        return run(o);
    fprintf(stderr, "millrace %s: no pipeline has run in %s: it holds no run.json\n", name,
        options_string(o, "data_dir"));
    return EX_CONFIG;
}

int tool_run(const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o))
{
    struct options *o;
    enum options_result r = options_parse(spec, argc, argv, &o);
    int status = r == OPTIONS_USAGE ? EX_USAGE : r == OPTIONS_CONFIG ? EX_CONFIG : EX_OK;
    if (r == OPTIONS_OK)
        status = run_with(spec->program, o, run);
    else if (r != OPTIONS_EXIT)
        fprintf(stderr, "millrace %s: %s\n", spec->program, options_error(o));
    options_free(&o);
    return status;
}
