/* Functions that doctor.c and conservation.c share. */
#include "tools/run/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

void doctor_find(
    struct doctor *d, enum status_level level, const char *check, const char *remedy, const char *fmt, ...)
{
    static const char *const words[] = {"ok", "warn", "fail"};
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    d->level = level > d->level ? level : d->level;
    if (d->json) {
        struct buf out = {0};
        buf_printf(&out, "%s{\"check\":\"%s\",\"result\":\"%s\",\"finding\":", d->findings ? ",\n" : "",
            check, words[level]);
        buf_append_json(&out, bytes_str(text.ptr));
        buf_append_str(&out, ",\"remedy\":");
        buf_append_json(&out, bytes_str(remedy ? remedy : ""));
        buf_append_char(&out, '}');
        fwrite(out.ptr, 1, out.len, stdout);
        buf_free(&out);
    } else {
        printf("%-4s  %-12s  %s\n", words[level], check, text.ptr);
        if (remedy)
            printf("   -> %s\n", remedy);
    }
    d->findings++;
    buf_free(&text);
}

void doctor_each_in(
    struct doctor *d, const char *dir, void (*fn)(struct doctor *d, const char *path, const char *name))
{
    struct dirent **names = NULL;
    int n = scandir(dir, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *path = mem_printf("%s/%s", dir, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            fn(d, path, names[i]->d_name);
        free(path);
        free(names[i]);
    }
    free(names);
}

void doctor_each_entry(struct doctor *d, const char *daemon, const char *below,
    void (*fn)(struct doctor *d, const char *path, const char *name))
{
    char *dir = pipeline_daemon_dir(d->config, d->data_dir, daemon, below);
    doctor_each_in(d, dir, fn);
    free(dir);
}

FILE *doctor_run_compactor(const struct doctor *d, const char *option, int fd, pid_t *pid)
{
    struct tool_args a = tool_args_for("compactor");
    int ends[2];
    if (d->config)
        tool_add_arg(&a, "--config=%s", d->config->path);
    tool_add_compactor_paths(&a, d->config, d->data_dir);
    tool_add_arg(&a, "%s", option);
    bool has_pipe = pipe2(ends, O_CLOEXEC) == 0;
    *pid = has_pipe ? tool_start(&a, ends[1], fd) : -1;
    tool_free_args(&a);
    if (!has_pipe)
        return NULL;
    close(ends[1]);
    return fdopen(ends[0], "r");
}

int doctor_end_compactor(FILE *output, pid_t pid)
{
    if (output)
        fclose(output);
    return tool_wait(pid);
}
