/* millrace distribute: copies the current generation of an archive to other hosts, whose sortdbs then serve it.
 *
 * For each destination: ask the compactor there whether it has the generation; if not, copy the files with rsync into
 * copy-N, beside the generation that the destination serves; ask again, so that the compactor there verifies the copy and
 * publishes it (compactor/receive.h). Each step may be repeated after a kill. */
#include "base/io.h"
#include "base/xxh3.h"
#include "counts/manifest.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define NOT_COPIED 2 /* exit statuses of the compactor's --receive */
#define DAMAGED 1
#define NOT_FOUND 127 /* exit status of env if the program is missing */

static const struct option_row rows[] = {TOOL_DATA_DIR_SETTING,
    SETTING_STRING("archive", "directory of the archive (default: the pipeline's)"),
    SETTING_STRING("sortdb_url",
        "addresses, separated by commas, at which a destination reaches all daemons that serve its copy; "
        "none: the copy is not loaded, and old generations remain",
        .fallback = "http://127.0.0.1:8083"),
    SETTING_STRING("auth_token_file", "file with the token of these daemons, on the destination"),
    SETTING_INT("keep", "2", 2, 1000000,
        "number of generations to keep on each destination, including the current generation",
        .unit = "generations"),
    SETTING_STRING("ssh", "command that runs a command on a host", .fallback = "ssh -o BatchMode=yes"),
    SETTING_STRING("program", "path of millrace on the hosts", .fallback = "millrace"),
    SETTING_BOOL("dry_run", "show which destinations do not have the current generation, and change nothing"),
    {.name = NULL}};

/* DIR, HOST or HOST:DIR. */
struct destination {
    const char *text;
    char *host;    /* NULL: a directory of this host */
    char *archive; /* directory of the archive there */
};

struct copy {
    const struct options *o;
    const char *from; /* directory of the archive */
    uint64_t generation, xxh3, bytes;
};

/* Without a directory, a host has its archive in the same directory as this host. Returns false for another form. */
static bool read_destination(const char *text, const char *archive, struct destination *out)
{
    const char *colon = strchr(text, ':');
    bool is_local = text[0] == '/' || text[0] == '.';
    *out = (struct destination){.text = text};
    if (text[0] == '\0' || text[0] == '-' || text[0] == ':' || strstr(text, "://"))
        return false;
    if (is_local) {
        out->archive = mem_strdup(text);
        return true;
    }
    out->host = bytes_dup(bytes_of(text, strcspn(text, ":")));
    out->archive = mem_strdup(colon && colon[1] ? colon + 1 : archive);
    return out->archive[0] == '/';
}

static void free_destination(struct destination *d)
{
    free(d->host);
    free(d->archive);
}

/* Finds the current generation, the checksum of its manifest and its size. Returns an exit status. */
static int find_generation(struct copy *c)
{
    struct manifest m;
    struct error error;
    struct buf text = {0};
    char directory[MANIFEST_NAME_TEXT];
    enum manifest_result r = manifest_read_current(c->from, &m, &error);
    if (r != MANIFEST_OK)
        return tool_fail_at(r == MANIFEST_ABSENT ? EX_NOINPUT : EX_CONFIG, c->from, error.text);
    manifest_directory_name(m.generation, directory);
    char *path = mem_printf("%s/%s/manifest.json", c->from, directory);
    bool is_read = io_read_file(path, MANIFEST_BYTES_MAX, &text) == 0;
    c->generation = m.generation;
    c->xxh3 = XXH3_64bits(text.ptr, text.len);
    c->bytes = 0;
    const struct manifest_file *f;
    for (size_t i = 0; (f = manifest_next_file(&m, &i));)
        c->bytes += f->bytes;
    int status = is_read ? EX_OK : tool_fail(EX_TEMPFAIL, "%s: the generation was replaced: run again", path);
    manifest_free(&m);
    buf_free(&text);
    free(path);
    return status;
}

static void append_quoted(struct buf *out, const char *text)
{
    buf_append_str(out, out->len > 0 ? " '" : "'");
    for (; *text; text++)
        if (*text == '\'')
            buf_append_str(out, "'\\''");
        else
            buf_append_char(out, *text);
    buf_append_char(out, '\'');
}

/* Replaces the arguments by those of ssh with the same command on the host. */
static void send_to_host(const struct copy *c, const struct destination *d, struct tool_args *a)
{
    struct buf command = {0};
    append_quoted(&command, options_string(c->o, "program"));
    append_quoted(&command, "compactor");
    for (size_t i = 1; i < a->n; i++)
        append_quoted(&command, a->argv[i]);
    tool_free_args(a);
    tool_add_arg(a, "/bin/sh");
    tool_add_arg(a, "-c");
    tool_add_arg(a, "exec %s \"$@\"", options_string(c->o, "ssh"));
    tool_add_arg(a, "sh");
    tool_add_arg(a, "%s", d->host);
    tool_add_arg(a, "%.*s", (int)command.len, command.ptr);
    buf_free(&command);
}

/* Makes the compactor of the destination publish the generation, if it is there. Returns its exit status. */
static int receive(const struct copy *c, const struct destination *d)
{
    const char *token = options_string(c->o, "auth_token_file");
    struct tool_args a = tool_args_for("compactor");
    tool_add_arg(&a, "--receive=%" PRIu64 "/%" PRIx64, c->generation, c->xxh3);
    tool_add_arg(&a, "--archive=%s", d->archive);
    tool_add_arg(&a, "--sortdb-url=%s", options_string(c->o, "sortdb_url"));
    tool_add_arg(&a, "--aggregator-url=none");
    tool_add_arg(&a, "--keep=%" PRId64, options_int(c->o, "keep"));
    tool_add_arg(&a, "--every=0");
    if (token)
        tool_add_arg(&a, "--auth-token-file=%s", token);
    if (options_bool(c->o, "dry_run"))
        tool_add_arg(&a, "--look");
    if (d->host)
        send_to_host(c, d, &a);
    return tool_wait(tool_start(&a, -1, 0));
}

/* Files that the current generation of the destination has too are linked, and similar ones are sent as differences. A
 * file of an earlier generation is never written to, because rsync replaces files by rename. */
static int send_files(const struct copy *c, const struct destination *d)
{
    char directory[MANIFEST_NAME_TEXT];
    struct tool_args a = {0};
    manifest_directory_name(c->generation, directory);
    tool_add_arg(&a, "/usr/bin/env");
    tool_add_arg(&a, "rsync");
    tool_add_arg(&a, "-r");
    tool_add_arg(&a, "--checksum");
    tool_add_arg(&a, "--delete");
    tool_add_arg(&a, "--partial");
    tool_add_arg(&a, "--link-dest=../current");
    if (isatty(STDOUT_FILENO))
        tool_add_arg(&a, "--info=progress2");
    if (d->host)
        tool_add_arg(&a, "--rsh=%s", options_string(c->o, "ssh"));
    tool_add_arg(&a, "%s/%s/", c->from, directory);
    tool_add_arg(&a, "%s%s%s/copy-%s/", d->host ? d->host : "", d->host ? ":" : "", d->archive, directory);
    return tool_wait(tool_start(&a, -1, 0));
}

static int copy_to(const struct copy *c, const struct destination *d)
{
    uint64_t now;
    int sent = send_files(c, d);
    if (sent == NOT_FOUND)
        return tool_fail(EX_OSERR, "%s: rsync is not installed here or there", d->text);
    if (sent != 0 && manifest_current(c->from, &now, NULL) == MANIFEST_OK && now != c->generation)
        return tool_fail(EX_TEMPFAIL, "%s: generation %" PRIu64 " was replaced during the copy: run again",
            d->text, c->generation);
    if (sent != 0)
        return tool_fail(EX_TEMPFAIL, "%s: rsync ended with status %d: run again", d->text, sent);
    int status = receive(c, d);
    return status == NOT_COPIED ? tool_fail(EX_TEMPFAIL, "%s: the copy is incomplete: run again", d->text)
                                : status;
}

/* Returns an exit status. */
static int distribute_to(const struct copy *c, const struct destination *d)
{
    bool is_dry = options_bool(c->o, "dry_run");
    int status = receive(c, d);
    bool is_missing = status == NOT_COPIED || status == DAMAGED;
    if (is_missing && !is_dry)
        status = copy_to(c, d);
    if (is_missing && is_dry) {
        printf(
            "%s: needs generation %" PRIu64 " (%" PRIu64 " MiB)\n", d->text, c->generation, c->bytes >> 20);
        return EX_OK;
    }
    if (status != EX_OK)
        return tool_fail(status == NOT_FOUND || status == 255 ? EX_TEMPFAIL : status,
            "%s: generation %" PRIu64 " is not served there", d->text, c->generation);
    printf("%s: generation %" PRIu64 " %s\n", d->text, c->generation, is_missing ? "was copied" : "is there");
    tool_show();
    return EX_OK;
}

static int distribute_with(const struct options *o)
{
    char **operands;
    size_t n = options_operands(o, &operands);
    char *archive = options_text(o, "archive")
                        ? mem_strdup(options_text(o, "archive"))
                        : pipeline_archive_dir(options_config(o),
                              pipeline_dir(options_config(o), options_string(o, "data_dir")));
    struct copy c = {.o = o, .from = archive};
    int status =
        n > 0 ? find_generation(&c) : tool_fail(EX_USAGE, "name a destination: HOST, HOST:DIR or DIR");
    bool is_found = status == EX_OK;
    for (size_t i = 0; is_found && i < n; i++) {
        struct destination d;
        int one =
            read_destination(operands[i], archive, &d)
                ? distribute_to(&c, &d)
                : tool_fail(EX_USAGE,
                      "%s is not a destination: HOST, HOST:DIR with an absolute path, or /DIR", operands[i]);
        status = status == EX_OK ? one : status;
        free_destination(&d);
    }
    free(archive);
    return status;
}

int tool_distribute(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "distribute",
        .summary = "copies the current generation of the archive to other hosts",
        .operands = "DESTINATION...",
        .rows = {rows, NULL}};
    return tool_run_on_files(&spec, argc, argv, distribute_with);
}
