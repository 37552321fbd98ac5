/* supervisor: keeps a list of programs running until it is stopped.
 *
 * It starts the programs in order; each starts once the required programs before it are ready. It stops them in reverse
 * order; each is stopped once the program after it has ended. So a program can rely on the required programs before it,
 * while it starts and while it stops.
 *
 * 1. A program is ready when it sends READY=1 to NOTIFY_SOCKET (sd_notify). Messages count only while their sender
 *    runs.
 * 2. The supervisor passes the listening socket on at each start (LISTEN_FDS). A restarted program keeps its address,
 *    and clients that connect meanwhile wait in the backlog.
 * 3. A program that ends is restarted after a delay, which doubles from delay_min to delay_max. The delay is reset once
 *    the program has been ready for SUPERVISOR_STEADY. The other programs keep running.
 * 4. A required program that exits with EX_USAGE or EX_CONFIG before it was ready stops the supervisor with that status.
 * 5. A program that exits with EX_DATAERR is not restarted, because a restart could do harm. The other programs keep
 *    running.
 * 6. The programs after an optional program do not wait until it is ready. If an optional program exits as in 4, it is
 *    not restarted and the other programs keep running.
 * 7. Every program leads a process group of its own, so that a terminal's Ctrl-C reaches only the supervisor. A program
 *    gets SIGTERM when the supervisor dies. Every program inherits shared_fd, whose lock shows that one still runs.
 * 8. To stop a program the supervisor sends one SIGTERM, then one SIGKILL after stop_timeout.
 *
 * One event loop; no call blocks. */
#ifndef MILLRACE_SUPERVISOR_H
#define MILLRACE_SUPERVISOR_H

#include "base/bytes.h"
#include "base/clock.h"
#include <sys/types.h>

#define SUPERVISOR_STEADY (10 * USEC_PER_SEC)
#define SUPERVISOR_FD_MIN                                                                                    \
    10 /* lower descriptors are for what programs get, so none of the supervisor's is below */

struct event_base;
struct supervisor;

enum supervisor_state {
    SUPERVISOR_WAITING,    /* for the programs before it */
    SUPERVISOR_STARTING,   /* running, not ready yet */
    SUPERVISOR_READY,      /* running */
    SUPERVISOR_RESTARTING, /* ended; waiting for its delay */
    SUPERVISOR_FAILED,     /* ended for good (invariants 5 and 6) */
    SUPERVISOR_STOPPING,
    SUPERVISOR_STOPPED,
};
const char *supervisor_state_name(enum supervisor_state s);

struct supervisor_program {
    const char *name;
    char **argv;   /* argv[0] is the executable's path */
    int listen_fd; /* -1: none */
    bool optional;
};

struct supervisor_config {
    struct event_base *base;
    size_t n;
    const struct supervisor_program *programs; /* borrowed until supervisor_free, with all they point to */
    usec_t delay_min, delay_max, stop_timeout;
    int shared_fd; /* every program inherits it; -1: none */
    /* A line of a program's standard output or error, without its LF. */
    void (*on_line)(size_t program, struct bytes line, void *arg);
    /* A program's state, pid or status text changed. */
    void (*on_change)(size_t program, void *arg);
    /* Every program has ended, after supervisor_stop or by invariant 4. */
    void (*on_stopped)(int status, void *arg);
    void *arg;
};

/* NULL with the reason in error. */
struct supervisor *supervisor_new(const struct supervisor_config *config, char *error, size_t error_size);
/* Starts the waiting programs in order. Stops after the first required program that was never ready: the next programs
 * wait for it. */
void supervisor_start(struct supervisor *s);
/* Begins to stop the programs; on_stopped is called when all have ended. A second call kills the program that is
 * stopping. */
void supervisor_stop(struct supervisor *s, int status);
/* Stops a program with SIGTERM and starts it anew, without a delay and without counting a restart. Does nothing if the program has failed or
 * the supervisor stops. */
void supervisor_renew(struct supervisor *s, size_t program);
/* Only after on_stopped. */
void supervisor_free(struct supervisor **s);

struct supervisor_report {
    enum supervisor_state state;
    pid_t pid; /* 0: not running */
    unsigned restarts;
    const char *last_end;    /* how the previous process ended: "signal 9"; "" if none; borrowed */
    const char *status_text; /* the last STATUS= message of the latest process; "" if none; borrowed */
};
struct supervisor_report supervisor_report(const struct supervisor *s, size_t program);

#endif
