#include "tools/run/reload.h"

#include "base/log.h"
#include "tools/tool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

static int judge(const struct supervisor_program *program)
{
    struct tool_args a = {0};
    if (access(program->argv[0], X_OK) != 0) {
        log_error("cannot run a program that checks the configuration", LOG_S("path", program->argv[0]),
            LOG_S("error", strerror(errno)));
        return EX_OSERR;
    }
    for (char **arg = program->argv; *arg; arg++)
        tool_add_arg(&a, "%s", *arg);
    tool_add_arg(&a, "--check-config");
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int status = tool_wait(tool_start(&a, null, STDOUT_FILENO));
    close(null);
    return status;
}

int reload_judge(const struct supervisor_program *programs, size_t n)
{
    int status = EX_OK;
    for (size_t i = 0; i < n && status == EX_OK; i++)
        status = judge(&programs[i]);
    return status;
}

static bool is_of(const struct config_section *s, const char *kinds)
{
    for (struct bytes word; bytes_next_word(&kinds, " ", &word);)
        if (bytes_equal_str(word, s->kind))
            return true;
    return false;
}

static void append_name(const struct config_section *s, const char *key, struct buf *out)
{
    buf_printf(out, "%s[%s%s%s] %s", out->len ? ", " : "", s->kind, s->name[0] ? " " : "", s->name, key);
}

/* Appends the settings of `a` that are missing in `b` or, unless only_missing, have another value in `b`. */
static void append_section(
    const struct config_section *a, const struct config_section *b, bool only_missing, struct buf *out)
{
    for (size_t i = 0; i < a->n_entries; i++) {
        const char *other = config_value(b, a->entries[i].key);
        if (!other || (!only_missing && strcmp(other, a->entries[i].value) != 0))
            append_name(a, a->entries[i].key, out);
    }
}

/* With `kinds`, compares the sections of these kinds, otherwise all sections that no daemon reads again. */
static void append_differences(
    const struct config *a, const struct config *b, const char *kinds, bool only_missing, struct buf *out)
{
    for (size_t i = 0; i < a->n_sections; i++) {
        const struct config_section *s = &a->sections[i], *other = config_section(b, s->kind, s->name);
        if (kinds ? !is_of(s, kinds) : is_of(s, RELOAD_COUNTERS " " RELOAD_DOOR " " RELOAD_CELLS))
            continue;
        append_section(s, other, only_missing, out);
        if (kinds && !other)
            append_name(s, "", out); /* a section without entries is also a setting */
    }
}

bool reload_changes(const struct config *before, const struct config *after, const char *kinds)
{
    struct buf changes = {0};
    append_differences(after, before, kinds, false, &changes);
    append_differences(before, after, kinds, true, &changes);
    bool any = changes.len > 0;
    buf_free(&changes);
    return any;
}

void reload_append_changes(const struct config *before, const struct config *after, struct buf *out)
{
    append_differences(after, before, NULL, false, out);
    append_differences(before, after, NULL, true, out);
}
