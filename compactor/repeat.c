#include "compactor/repeat.h"

#include "base/clock.h"
#include "base/rfc3339.h"
#include "base/log.h"
#include "counts/manifest.h"
#include "daemon/service_manager.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY 2 /* interval of reading the wall clock (seconds), which may jump */

struct repeat {
    const struct repeat_spec *spec;
    sigset_t waited, before; /* the signals for which repeat waits; the signal mask at the start */
    int64_t last, failed;    /* begin of the last complete run, end of the last failed run; 0: none */
    unsigned failures;       /* number of failed runs since the last complete run */
    int64_t announced;       /* the due time that was logged */
};

static int64_t now_seconds(void)
{
    return clock_wall() / USEC_PER_SEC;
}

/* Waits for a signal, up to `seconds`. Returns the signal, or 0. */
static int wait_signal(const struct repeat *r, int64_t seconds)
{
    struct timespec limit = {.tv_sec = seconds};
    int got = sigtimedwait(&r->waited, NULL, &limit);
    return got > 0 ? got : 0;
}

static bool is_stop(int got)
{
    return got == SIGTERM || got == SIGINT;
}

static int64_t last_run(const struct repeat *r)
{
    struct manifest m;
    int64_t made = 0;
    if (manifest_read_current(r->spec->archive, &m, NULL) == MANIFEST_OK) {
        made = m.made;
        manifest_free(&m);
    }
    return made > r->last ? made : r->last;
}

/* Each complete run sets the time of the link `newest`, so `millrace compact` ends the failure of an earlier run. */
static void note_other_run(struct repeat *r)
{
    char *newest = mem_printf("%s/newest", r->spec->archive);
    struct stat st;
    if (r->failures > 0 && lstat(newest, &st) == 0 && st.st_mtim.tv_sec > r->failed) {
        r->failures = 0;
        r->last = st.st_mtim.tv_sec;
        r->announced = 0;
    }
    free(newest);
}

static void tell(struct repeat *r, int64_t due)
{
    char text[RFC3339_TEXT];
    if (due == r->announced)
        return;
    r->announced = due;
    rfc3339_write(due, text);
    log_info("next run", LOG_S("at", text));
    service_notify(0, "%snext run at %s",
        r->failures ? "the last run failed; "
        : r->last   ? "the last run succeeded; "
                    : "",
        text);
}

/* Performs a run in a new process. Returns the wait status, or -1 if the process could not be created. Sets *stop if
 * a signal has requested a stop. */
static int run_once(const struct repeat *r, bool *stop)
{
    int status, got;
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &r->before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(EX_TEMPFAIL);
        exit(r->spec->run(r->spec->arg));
    }
    if (pid < 0)
        return -1;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        got = wait_signal(r, LOOK_EVERY);
        if (is_stop(got) && !*stop) {
            *stop = true;
            kill(pid, SIGTERM);
        }
    }
    return status;
}

static void take_run(struct repeat *r, bool *stop)
{
    int64_t began = now_seconds();
    int status = run_once(r, stop);
    if (*stop)
        return;
    if (status == 0) {
        r->last = began;
        r->failures = 0;
        return;
    }
    r->failed = now_seconds();
    r->failures++;
    if (status == -1)
        log_error("cannot start a run", LOG_S("error", strerror(errno)));
    else if (WIFSIGNALED(status))
        log_error("a run was killed", LOG_I("signal", WTERMSIG(status)));
}

int repeat_runs(const struct repeat_spec *spec)
{
    struct repeat r = {.spec = spec};
    bool stop = false;
    sigemptyset(&r.waited);
    sigaddset(&r.waited, SIGTERM);
    sigaddset(&r.waited, SIGINT);
    sigaddset(&r.waited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &r.waited, &r.before);
    signal(SIGHUP, SIG_IGN);
    service_notify(SERVICE_READY, NULL);
    while (!stop) {
        note_other_run(&r);
        int64_t now = now_seconds(),
                due = schedule_due(&spec->schedule, last_run(&r), r.failed, r.failures, now);
        if (due <= now) {
            take_run(&r, &stop);
            continue;
        }
        tell(&r, due);
        stop = is_stop(wait_signal(&r, due - now < LOOK_EVERY ? due - now : LOOK_EVERY));
    }
    service_notify(SERVICE_STOPPING, NULL);
    return EX_OK;
}
