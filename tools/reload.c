#include "tools/reload.h"

#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sysexits.h>

static int judge(const struct supervisor_program *program)
{
    static char check[] = "--check-config";
    posix_spawn_file_actions_t actions;
    size_t n = 0;
    int status;
    pid_t pid;
    while (program->argv[n])
        n++;
    char **argv = mem_zalloc((n + 2) * sizeof *argv);
    memcpy(argv, program->argv, n * sizeof *argv);
    argv[n] = check;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    bool ran = failed == 0;
    if (!ran)
        log_error("cannot run a program that checks the configuration", LOG_S("path", argv[0]),
            LOG_S("error", strerror(failed)));
    posix_spawn_file_actions_destroy(&actions);
    free(argv);
    while (ran && waitpid(pid, &status, 0) != pid)
        ran = errno == EINTR;
    return !ran ? EX_OSERR : WIFEXITED(status) ? WEXITSTATUS(status) : EX_SOFTWARE;
}

int reload_judge(const struct supervisor_program *programs, size_t n)
{
    int status = EX_OK;
    for (size_t i = 0; i < n && status == EX_OK; i++)
        status = judge(&programs[i]);
    return status;
}

static bool is_of_counters(const struct config_section *s)
{
    static const char *const kinds[] = {"input", "counters", "total", "subtotal"};
    for (size_t i = 0; i < 4; i++)
        if (strcmp(s->kind, kinds[i]) == 0)
            return true;
    return false;
}

static void append_name(const struct config_section *s, const char *key, struct buf *out)
{
    buf_printf(out, "%s[%s%s%s] %s", out->len ? ", " : "", s->kind, s->name[0] ? " " : "", s->name, key);
}

/* Appends what `a` has and `b` lacks or, unless only_missing, has with another value. */
static void append_section(
    const struct config_section *a, const struct config_section *b, bool only_missing, struct buf *out)
{
    for (size_t i = 0; i < a->n_entries; i++) {
        const char *other = config_value(b, a->entries[i].key);
        if (!other || (!only_missing && strcmp(other, a->entries[i].value) != 0))
            append_name(a, a->entries[i].key, out);
    }
}

static void append_differences(
    const struct config *a, const struct config *b, bool of_counters, bool only_missing, struct buf *out)
{
    for (size_t i = 0; i < a->n_sections; i++) {
        const struct config_section *s = &a->sections[i], *other = config_section(b, s->kind, s->name);
        if (is_of_counters(s) != of_counters)
            continue;
        append_section(s, other, only_missing, out);
        if (of_counters && !other)
            append_name(s, "", out); /* a section counts even without entries */
    }
}

bool reload_changes_counters(const struct config *before, const struct config *after)
{
    struct buf changes = {0};
    append_differences(after, before, true, false, &changes);
    append_differences(before, after, true, true, &changes);
    bool any = changes.len > 0;
    buf_free(&changes);
    return any;
}

void reload_append_changes(const struct config *before, const struct config *after, struct buf *out)
{
    append_differences(after, before, false, false, out);
    append_differences(before, after, false, true, out);
}
