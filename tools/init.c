/* millrace init KIND [DIR]: writes a configuration with comments. The texts are the samples in etc/, whose first comment
 * has the commands to run next. */
#include "base/embed.h"
#include "base/io.h"
#include "base/suggest.h"
#include "tools/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define COMMAND "#   " /* beginning of a line with a command */

EMBED(init_website, SAMPLES_DIR "/website.conf");
EMBED(init_shop, SAMPLES_DIR "/shop.conf");
EMBED(init_api, SAMPLES_DIR "/api.conf");
EMBED(init_clicks, SAMPLES_DIR "/clicks.conf");

struct kind {
    const char *name, *help;
    struct bytes text;
};
#define KINDS 4

/* The addresses of embedded texts are not constants of the compiler. */
static void list_kinds(struct kind out[KINDS])
{
    out[0] = (struct kind){
        "website", "views, referrers, campaigns, links and downloads of web sites", EMBEDDED(init_website)};
    out[1] = (struct kind){"shop", "views, carts, orders and revenue of products", EMBEDDED(init_shop)};
    out[2] = (struct kind){"api", "requests by route, status and customer", EMBEDDED(init_api)};
    out[3] = (struct kind){"clicks", "clicks on short links", EMBEDDED(init_clicks)};
}

static void print_kinds(const struct kind *kinds, FILE *out)
{
    for (size_t i = 0; i < KINDS; i++)
        fprintf(out, "  %-8s  %s\n", kinds[i].name, kinds[i].help);
}

static void print_help(const struct kind *kinds, FILE *out)
{
    fputs("writes the configuration DIR/millrace.conf of a kind of pipeline, and prints the next commands\n\n"
          "usage: millrace init KIND [DIR]\n\n",
        out);
    print_kinds(kinds, out);
    fputs(
        "\n"
        "      --list                  print the kinds and exit\n"
        "  -h, --help                  print this help and exit\n\n"
        "DIR is the current directory by default, and is created if it is missing. Exit status 73: the file\n"
        "exists, or cannot be written.\n",
        out);
}

static void print_commands(struct bytes text, const char *dir, const char *path)
{
    printf("%s is written. Run the first command, and the others in another terminal:\n", path);
    if (strcmp(dir, ".") != 0)
        printf("  cd %s\n", dir);
    const char *line = text.ptr, *end;
    for (; *line == '#' && (end = strchr(line, '\n')); line = end + 1)
        if (strncmp(line, COMMAND, strlen(COMMAND)) == 0)
            printf("  %.*s\n", (int)(end - line) - (int)strlen(COMMAND), line + strlen(COMMAND));
}

/* Creates the file at once with its whole content. Returns 0, or -1 with errno, EEXIST if the file exists. */
static int create_file(const char *path, struct bytes text)
{
    char *part = mem_printf("%s.part", path);
    int fd = io->open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int r = fd < 0 ? -1 : io_write_all(fd, text.ptr, text.len, 0);
    if (fd >= 0 && io->close(fd) != 0)
        r = -1;
    if (r == 0)
        r = io->rename_new(part, path);
    int code = errno;
    if (r != 0 && fd >= 0)
        io->unlink(part);
    free(part);
    errno = code;
    return r;
}

static int write_kind(const struct kind *k, const char *dir)
{
    char *path = strcmp(dir, ".") == 0 ? mem_strdup("millrace.conf") : mem_printf("%s/millrace.conf", dir);
    int status = EX_OK;
    if (io_make_dirs(dir) != 0)
        status = tool_fail(EX_CANTCREAT, "%s: %s", dir, strerror(errno));
    else if (create_file(path, k->text) != 0)
        status = errno == EEXIST
                     ? tool_fail(EX_CANTCREAT, "%s exists; remove it, or name another directory", path)
                     : tool_fail(EX_CANTCREAT, "%s: %s", path, strerror(errno));
    else
        print_commands(k->text, dir, path);
    free(path);
    return tool_flush(status);
}

static int unknown_kind(const struct kind *kinds, const char *name)
{
    struct suggest s = suggest_for(name);
    for (size_t i = 0; i < KINDS; i++)
        suggest_try(&s, kinds[i].name);
    if (s.nearest)
        return tool_fail(EX_USAGE, "there is no kind %s; did you mean %s?", name, s.nearest);
    tool_fail(EX_USAGE, "there is no kind %s; the kinds are:", name);
    print_kinds(kinds, stderr);
    return EX_USAGE;
}

int tool_init(int argc, char **argv)
{
    struct kind kinds[KINDS];
    list_kinds(kinds);
    bool is_alone = argc == 2;
    if (is_alone && strcmp(argv[1], "--list") == 0) {
        print_kinds(kinds, stdout);
        return tool_flush(EX_OK);
    }
    if (is_alone && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help(kinds, stdout);
        return tool_flush(EX_OK);
    }
    if (argc < 2 || argc > 3 || argv[1][0] == '-' || (argc == 3 && argv[2][0] == '-')) {
        print_help(kinds, stderr);
        return EX_USAGE;
    }
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, argv[1]) == 0)
            return write_kind(&kinds[i], argc == 3 ? argv[2] : ".");
    return unknown_kind(kinds, argv[1]);
}
