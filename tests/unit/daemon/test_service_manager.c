/* service_manager: sockets that are passed, messages that are sent, and what is malformed. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "daemon/service_manager.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPEN 2 /* descriptors from SERVICE_FIRST_SOCKET on */
#define WRONG 100

/* What service_sockets returns in a process of its own, or WRONG if it leaves something undone. `pid` NULL: that of the process. */
static int sockets_of(const char *fds, const char *pid)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char own[20];
        snprintf(own, sizeof own, "%d", (int)getpid());
        for (int fd = SERVICE_FIRST_SOCKET; fd < SERVICE_FIRST_SOCKET + OPEN; fd++)
            dup2(STDOUT_FILENO, fd);
        close(SERVICE_FIRST_SOCKET + OPEN);
        setenv("LISTEN_FDS", fds, 1);
        setenv("LISTEN_PID", pid ? pid : own, 1);
        setenv("LISTEN_FDNAMES", "a:b", 1);
        int n = service_sockets();
        bool is_done = !getenv("LISTEN_FDS") && !getenv("LISTEN_PID") && !getenv("LISTEN_FDNAMES");
        for (int fd = SERVICE_FIRST_SOCKET; fd < SERVICE_FIRST_SOCKET + n; fd++)
            is_done = is_done && fcntl(fd, F_GETFD) == FD_CLOEXEC;
        _exit(is_done && service_sockets() == 0 ? n : WRONG);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void sockets_are_taken_once(void **state)
{
    (void)state;
    assert_int_equal(sockets_of("1", NULL), 1);
    assert_int_equal(sockets_of("2", NULL), 2);
}

static void sockets_that_are_none(void **state)
{
    (void)state;
    static const char *const malformed[] = {
        "", "0", "-1", "x", "2x", "2 ", "99999999999999999999", "3" /* one is not open */};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        assert_int_equal(sockets_of(malformed[i], NULL), 0);
    assert_int_equal(sockets_of("2", "1"), 0);
    assert_int_equal(sockets_of("2", ""), 0);
    unsetenv("LISTEN_FDS");
    assert_int_equal(service_sockets(), 0);
}

/* A socket at `path`, in which a first @ stands for the NUL of an abstract name. */
static int receiver(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(at.sun_path, path, strlen(path));
    if (path[0] == '@')
        at.sun_path[0] = '\0';
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    return fd;
}

static void notifies(const char *path)
{
    char text[100];
    int fd = receiver(path);
    setenv("NOTIFY_SOCKET", path, 1);
    service_notify(SERVICE_READY | SERVICE_STOPPING, "%s", "ready");
    ssize_t n = recv(fd, text, sizeof text, 0);
    assert_int_equal(n, strlen("READY=1\nSTOPPING=1\nSTATUS=ready\n"));
    assert_memory_equal(text, "READY=1\nSTOPPING=1\nSTATUS=ready\n", (size_t)n);
    close(fd);
    service_notify(SERVICE_READY, NULL); /* returns although the socket is closed */
}

static void messages_arrive(void **state)
{
    (void)state;
    char dir[80], path[100], abstract[100];
    make_test_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/notify", dir);
    snprintf(abstract, sizeof abstract, "@millrace-test-%d", (int)getpid());
    notifies(path);
    notifies(abstract);
    unlink(path);
    rmdir(dir);
}

/* Removes a message from `fd` and adds what it says to *what. Returns false if no message is there. */
static bool take(int fd, unsigned *what, char status[100])
{
    char text[100];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    if (n < 0)
        return false;
    text[n] = '\0';
    *what |= strstr(text, "READY=1\n") ? SERVICE_READY : 0;
    *what |= strstr(text, "STOPPING=1\n") ? SERVICE_STOPPING : 0;
    const char *line = strstr(text, "STATUS=");
    if (line)
        snprintf(status, 100, "%s", line);
    return true;
}

/* A full socket loses no READY=1, no STOPPING=1 and not the last text, and blocks no caller. */
static void a_full_socket_gets_the_last_state(void **state)
{
    (void)state;
    char path[100], status[100] = "";
    unsigned what = 0;
    snprintf(path, sizeof path, "@millrace-test-full-%d", (int)getpid());
    int fd = receiver(path);
    setenv("NOTIFY_SOCKET", path, 1);
    for (int i = 1; i <= 2000; i++)
        service_notify(i == 1500 ? SERVICE_READY : i == 1600 ? SERVICE_STOPPING : 0, "%d of 2000", i);
    int messages = 0;
    while (strcmp(status, "STATUS=2000 of 2000\n") != 0) {
        if (take(fd, &what, status))
            messages++;
        else
            usleep(1000); /* the thread sends the last one */
    }
    assert_int_equal(what, SERVICE_READY | SERVICE_STOPPING);
    assert_in_range(messages, 2, 1999);
    close(fd);
    unsetenv("NOTIFY_SOCKET");
}

/* A relative path is not the manager's, even if somebody listens there. */
static void nobody_to_notify(void **state)
{
    (void)state;
    char longest[300], dir[80], text[100];
    make_test_dir(dir, sizeof dir);
    assert_int_equal(chdir(dir), 0);
    int fd = receiver("relative");
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    const char *const paths[] = {"", "/", "relative", "vsock:2:1", longest, "/does/not/exist"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        setenv("NOTIFY_SOCKET", paths[i], 1);
        service_notify(SERVICE_READY, NULL);
    }
    unsetenv("NOTIFY_SOCKET");
    service_notify(SERVICE_READY, NULL);
    assert_int_equal(recv(fd, text, sizeof text, 0), -1);
    close(fd);
    unlink("relative");
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sockets_are_taken_once),
        cmocka_unit_test(sockets_that_are_none),
        cmocka_unit_test(messages_arrive),
        cmocka_unit_test(a_full_socket_gets_the_last_state),
        cmocka_unit_test(nobody_to_notify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
