#include "daemon/daemon.h"
#include "daemon/daemon_internal.h"
#include "base/errno_class.h"
#include "base/io.h"
#include "base/log.h"
#include "http/server/http_origin.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define LOCK_WAIT_MS 15000 /* above the default drain_timeout */
#define LOCK_POLL_MS 20
#define HEAD_BYTES (256 * 1024) /* of a request, besides its body */
#define DAY_MS (INT64_C(24) * 3600 * 1000)

static const struct option_row common_rows[] = {
    {.name = "address",
        .type = OPTION_STRING,
        .fallback = "127.0.0.1",
        .letter = 'a',
        .help = "address to listen on: an IP address, a host name, or unix:PATH"},
    {.name = "port",
        .type = OPTION_INT,
        .min = 0,
        .max = 65535,
        .letter = 'p',
        .help = "TCP port; 0 takes a free port, which is logged"},
    {.name = "log_level",
        .type = OPTION_CHOICE,
        .fallback = "info",
        .choices = "debug|info|warn|error",
        .help = "lowest level to log"},
    {.name = "log_format",
        .type = OPTION_CHOICE,
        .fallback = "text",
        .choices = "text|json",
        .help = "format of log lines"},
    {.name = "enable_logging",
        .type = OPTION_BOOL,
        .fallback = "false",
        .help = "log every request (bitly's name for log_level=debug)"},
    {.name = "auth_token_file",
        .type = OPTION_STRING,
        .help = "file with the token that requests must send in `Authorization: Bearer`; unset: no token"},
    {.name = "allowed_hosts",
        .type = OPTION_STRING,
        .help =
            "further host names to accept in Host and Origin, separated by commas; addresses, this host's "
            "name and names without a dot are always accepted; *: any"},
    {.name = "allow_exit",
        .type = OPTION_BOOL,
        .fallback = "false",
        .help = "allow stopping, deleting and resetting without a token"},
    {.name = "max_connections",
        .type = OPTION_INT,
        .fallback = "20000",
        .min = 1,
        .max = 1000000,
        .help = "limit on connections; above it, or when file descriptors run short, requests get 503"},
    {.name = "max_buffered",
        .type = OPTION_SIZE,
        .fallback = "256M",
        .min = 1 << 20,
        .max = INT64_C(1) << 40,
        .unit = "bytes",
        .help = "memory for requests and replies of all clients; above it requests get 503 and stalled "
                "connections are closed; at least 2 * max_body + 256K, to which a smaller default rises"},
    {.name = "max_body",
        .type = OPTION_SIZE,
        .fallback = "16M",
        .min = 1,
        .max = INT64_C(1) << 30,
        .unit = "bytes",
        .help = "largest request body"},
    {.name = "header_timeout",
        .type = OPTION_DURATION,
        .fallback = "20s",
        .max = DAY_MS,
        .unit = "s",
        .help = "longest time to receive the headers of a request"},
    {.name = "body_timeout",
        .type = OPTION_DURATION,
        .fallback = "30s",
        .max = DAY_MS,
        .unit = "s",
        .help = "longest pause inside a request body"},
    {.name = "write_timeout",
        .type = OPTION_DURATION,
        .fallback = "60s",
        .max = DAY_MS,
        .unit = "s",
        .help = "longest time without progress of a pending reply"},
    {.name = "idle_timeout",
        .type = OPTION_DURATION,
        .fallback = "5m",
        .max = DAY_MS,
        .unit = "s",
        .help = "longest time of a connection without a request"},
    {.name = "drain_timeout",
        .type = OPTION_DURATION,
        .fallback = "10s",
        .max = DAY_MS,
        .unit = "s",
        .help = "longest time for work in flight to end when the daemon stops"},
    {.name = "root",
        .type = OPTION_STRING,
        .flags = OPTION_WARN_OBSOLETE,
        .help = "change to this directory first"},
    {.name = "user", .type = OPTION_STRING, .flags = OPTION_WARN_OBSOLETE, .help = "run as this user"},
    {.name = "group", .type = OPTION_STRING, .flags = OPTION_WARN_OBSOLETE, .help = "run as this group"},
    {.name = "daemon",
        .type = OPTION_BOOL,
        .flags = OPTION_WARN_OBSOLETE | OPTION_COMMAND_LINE,
        .fallback = "false",
        .letter = 'd',
        .help = "run in the background; the command returns once the daemon is ready"},
    {.name = NULL},
};

const struct option_row *daemon_rows(int default_port, struct option_row *rows)
{
    static char port[16];
    static_assert(sizeof common_rows / sizeof *common_rows <= DAEMON_ROWS_MAX, "the rows must fit");
    memcpy(rows, common_rows, sizeof common_rows);
    snprintf(port, sizeof port, "%d", default_port);
    for (struct option_row *r = rows; r->name != NULL && default_port >= 0; r++)
        if (strcmp(r->name, "port") == 0)
            r->fallback = port;
    return rows;
}

/* A growing body buffer may be twice as long as the body, so a smaller max_buffered would refuse one large request for ever. */
int daemon_check_common(struct options *o, struct config_error *error)
{
    if (!http_origin_hosts_valid(options_string(o, "allowed_hosts")))
        return options_refuse(o, "allowed_hosts", error,
            "it must list host names or addresses without scheme and port, separated by commas");
    int64_t body = options_int(o, "max_body"), needed = 2 * body + HEAD_BYTES;
    if (options_int(o, "max_buffered") >= needed)
        return 0;
    if (!options_is_set(o, "max_buffered"))
        return options_set_default(o, "max_buffered", needed, error);
    return options_refuse(o, "max_buffered", error,
        "too small for one request: a max_body of %lld bytes needs at least %lld", (long long)body,
        (long long)needed);
}

void daemon_init_log(const char *name, const struct options *o)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    const char *wanted = options_string(o, "log_level");
    enum log_level level = LOG_LEVEL_DEBUG;
    while (strcmp(levels[level], wanted) != 0)
        level++;
    if (options_bool(o, "enable_logging"))
        level = LOG_LEVEL_DEBUG;
    log_init(name, level,
        strcmp(options_string(o, "log_format"), "json") == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT);
}

static int fail(struct config_error *error, int status, const char *what, const char *name)
{
    snprintf(error->text, sizeof error->text, "%s %s: %s", what, name, strerror(errno));
    return status;
}

void daemon_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int parent_pipe = -1; /* --daemon: the parent process waits at the other end */

/* The parent process waits for the child and exits with status 0 once the child is ready, otherwise with the child's status. */
static int go_into_background(void)
{
    int ends[2], status;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child <= 0) {
        close(ends[0]);
        parent_pipe = ends[1];
        return child < 0 || setsid() < 0 ? -1 : 0;
    }
    char ready;
    ssize_t n;
    close(ends[1]);
    do
        n = read(ends[0], &ready, 1);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        _exit(EX_OK);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            _exit(EXIT_FAILURE);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
}

void daemon_notify_parent(void)
{
    if (parent_pipe < 0)
        return;
    (void)!write(parent_pipe, "r", 1); /* the parent may be gone */
    close(parent_pipe);
    parent_pipe = -1;
}

int daemon_enter(const struct options *o, struct config_error *error)
{
    const char *root = options_string(o, "root");
    daemon_raise_file_limit();
    if (root != NULL && chdir(root) != 0)
        return fail(error, EX_CONFIG, "cannot enter the directory", root);
    if (options_bool(o, "daemon") && go_into_background() != 0)
        return fail(error, EXIT_FAILURE, "cannot go into the", "background");
    return 0;
}

int daemon_change_identity(const struct options *o, struct config_error *error)
{
    const char *group = options_string(o, "group"), *user = options_string(o, "user");
    const struct group *g = group != NULL ? getgrnam(group) : NULL;
    const struct passwd *p = user != NULL ? getpwnam(user) : NULL;
    errno = ENOENT;
    if (group != NULL && g == NULL)
        return fail(error, EX_CONFIG, "no group", group);
    if (user != NULL && p == NULL)
        return fail(error, EX_CONFIG, "no user", user);
    if (g != NULL && (setgroups(1, &g->gr_gid) != 0 || setgid(g->gr_gid) != 0))
        return fail(error, EX_CONFIG, "cannot become the group", group);
    if (p != NULL && g == NULL && (initgroups(user, p->pw_gid) != 0 || setgid(p->pw_gid) != 0))
        return fail(error, EX_CONFIG, "cannot take the groups of the user", user);
    if (p != NULL && setuid(p->pw_uid) != 0)
        return fail(error, EX_CONFIG, "cannot become the user", user);
    return 0;
}

static bool is_token_char(unsigned char c)
{
    return c > ' ' && c < 0x7F;
}

int daemon_read_token(const char *path, char **token, struct config_error *error)
{
    struct stat st;
    char text[513];
    *token = NULL;
    if (path == NULL)
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool opened = fd >= 0 && fstat(fd, &st) == 0;
    ssize_t n = opened ? read(fd, text, sizeof text) : -1;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    if (n < 0)
        return fail(error, EX_CONFIG, "cannot read the token file", path);
    if (st.st_mode & S_IROTH) {
        snprintf(
            error->text, sizeof error->text, "the token file %s is readable by everybody: chmod o-r", path);
        return EX_CONFIG;
    }
    while (n > 0 && !is_token_char((unsigned char)text[n - 1]))
        n--;
    bool good = n > 0 && n < (ssize_t)sizeof text;
    for (ssize_t i = 0; i < n; i++)
        good = good && is_token_char((unsigned char)text[i]);
    if (!good) {
        snprintf(error->text, sizeof error->text,
            "the token file %s must contain one word of 1 to 512 ASCII characters", path);
        return EX_CONFIG;
    }
    *token = bytes_dup(bytes_of(text, (size_t)n));
    return 0;
}

int daemon_start_status(int why)
{
    return errno_is_shortage(why) ? EX_TEMPFAIL : EX_CONFIG;
}

static int own_lock = -1; /* open as long as the process lives */

int daemon_lock_directory(const char *dir, struct config_error *error)
{
    struct buf path = {0};
    char pid[32] = "";
    if (io_make_dirs(dir) != 0)
        return fail(error, -1, "cannot create the directory", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return fail(error, -1, "cannot write in the directory", dir);
    buf_printf(&path, "%s/lock", dir);
    int fd = open(path.ptr, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, IO_PRIVATE_MODE);
    buf_free(&path);
    if (fd < 0)
        return fail(error, -1, "cannot write in the directory", dir);
    /* Under a supervisor the owner may be the previous process of this daemon, which is about to end. */
    int tries = getenv("NOTIFY_SOCKET") != NULL ? LOCK_WAIT_MS / LOCK_POLL_MS : 1;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (--tries > 0) {
            nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL_MS * 1000000L}, NULL);
            continue;
        }
        (void)!pread(fd, pid, sizeof pid - 1, 0);
        snprintf(error->text, sizeof error->text, "the directory %s is in use by process %.*s", dir,
            (int)strcspn(pid, "\n"), pid);
        close(fd);
        errno = EWOULDBLOCK;
        return -1;
    }
    /* Not through io.h, because nothing reads the pid after a crash. */
    int n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    ssize_t did = ftruncate(fd, 0) == 0 ? pwrite(fd, pid, (size_t)n, 0) : -1;
    if (did != n) {
        int why = did >= 0 ? ENOSPC : errno;
        errno = why;
        fail(error, -1, "cannot write in the directory", dir);
        close(fd);
        errno = why;
        return -1;
    }
    own_lock = fd; /* the lock ends with the process */
    return 0;
}

bool daemon_holds_directory(const char *dir)
{
    struct stat ours, there;
    struct buf path = {0};
    buf_printf(&path, "%s/lock", dir);
    bool owns = fstat(own_lock, &ours) == 0 && stat(path.ptr, &there) == 0 && ours.st_dev == there.st_dev &&
                ours.st_ino == there.st_ino;
    buf_free(&path);
    return owns;
}
