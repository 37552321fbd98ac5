/* child_fork: a signal to a child that has just been forked ends the child, and reaches no handler of the parent. */
#include "base/child_fork.h"
#include "support/cm.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int *handled; /* shared by both processes */
static int sent;            /* the signal that each child gets within fork */

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(handled, 1);
}

static void send_signal(void)
{
    if (sent)
        kill(getpid(), sent);
}

static int end_of_child(int number)
{
    int status;
    sent = number;
    pid_t pid = child_fork();
    if (pid == 0)
        _exit(7);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void a_signal_during_the_fork(void **state)
{
    (void)state;
    sigset_t mask;
    handled = mmap(NULL, sizeof *handled, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(handled != MAP_FAILED);
    assert_int_equal(pthread_atfork(NULL, NULL, send_signal), 0);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(end_of_child(SIGTERM), -SIGTERM);
    assert_int_equal(end_of_child(SIGUSR1), -SIGUSR1);
    assert_int_equal(end_of_child(SIGPIPE), -SIGPIPE);
    assert_int_equal(end_of_child(SIGHUP), 7);
    assert_int_equal(atomic_load(handled), 0);
    raise(SIGTERM);
    assert_int_equal(atomic_load(handled), 1);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGTERM), 0);
    munmap(handled, sizeof *handled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_signal_during_the_fork)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
