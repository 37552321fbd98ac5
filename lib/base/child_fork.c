#include "base/child_fork.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static void reset_handlers(void)
{
    struct sigaction action;
    for (int i = 1; i < NSIG; i++)
        if (sigaction(i, NULL, &action) == 0 &&
            (action.sa_handler != SIG_IGN || i == SIGPIPE || i == SIGXFSZ))
            signal(i, SIG_DFL);
}

pid_t child_fork(void)
{
    sigset_t all, none, before;
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    int error = errno;
    if (pid == 0)
        reset_handlers();
    sigprocmask(SIG_SETMASK, pid == 0 ? &none : &before, NULL);
    errno = error;
    return pid;
}
