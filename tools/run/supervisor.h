/* supervisor: keeps a list of programs running until it is stopped.
 *
 * Programs are started in the order of the list. A program starts once all earlier required programs are ready.
 * Programs are stopped in reverse order. A program is stopped once the next program has ended. Therefore earlier
 * required programs are available while a program starts and stops.
 *
 * 1. A program is ready after a message READY=1 to NOTIFY_SOCKET (sd_notify). Messages of ended processes are
 *    ignored.
 * 2. The supervisor passes the listening socket to each new process (LISTEN_FDS). A restarted program keeps its
 *    address, and clients that connect during the restart wait in the backlog.
 * 3. A program that has ended is restarted after a delay, which doubles from delay_min to delay_max. The delay is
 *    reset once the program has been ready for SUPERVISOR_STEADY. The other programs keep running.
 * 4. If a required program exits with EX_USAGE or EX_CONFIG before it was ready, the supervisor stops with this
 *    status.
 * 5. A program that exits with EX_DATAERR is not restarted, because a restart could do harm. The other programs keep
 *    running.
 * 6. Other programs do not wait for an optional program. If an optional program exits as in 4, the optional program
 *    is not restarted, and the other programs keep running.
 * 7. Every program has its own process group, so that Ctrl-C in a terminal reaches only the supervisor. A program
 *    gets SIGTERM when the supervisor dies. Every program inherits shared_fd, whose lock is held while any program
 *    runs.
 * 8. To stop a program, the supervisor sends one SIGTERM, and one SIGKILL after stop_timeout.
 *
 * All functions run in one event loop, and do not block. */
#ifndef MILLRACE_SUPERVISOR_H
#define MILLRACE_SUPERVISOR_H

#include "base/bytes.h"
#include "base/clock.h"
#include <sys/types.h>

#define SUPERVISOR_STEADY (10 * USEC_PER_SEC)
#define SUPERVISOR_FD_MIN                                                                                    \
    10 /* the supervisor uses no lower descriptors, which are reserved for descriptors that programs inherit */

struct event_base;
struct supervisor;

enum supervisor_state {
    SUPERVISOR_WAITING,    /* waiting until earlier programs are ready */
    SUPERVISOR_STARTING,   /* running, not ready yet */
    SUPERVISOR_READY,      /* running */
    SUPERVISOR_RESTARTING, /* ended; waiting for the delay before the restart */
    SUPERVISOR_FAILED,     /* ended without a restart (invariants 5 and 6) */
    SUPERVISOR_STOPPING,
    SUPERVISOR_STOPPED,
};
const char *supervisor_state_name(enum supervisor_state s);

struct supervisor_program {
    const char *name;
    char **argv;   /* argv[0] is the executable's path */
    int listen_fd; /* listening socket; -1: none */
    bool optional;
};

struct supervisor_config {
    struct event_base *base;
    size_t n;
    const struct supervisor_program
        *programs; /* list and all its pointers are borrowed until supervisor_free */
    usec_t delay_min, delay_max, stop_timeout;
    int shared_fd; /* descriptor that every program inherits; -1: none */
    /* Called for each line of a program's standard output or error, without the LF. */
    void (*on_line)(size_t program, struct bytes line, void *arg);
    /* Called after a change of a program's state, pid or status text. */
    void (*on_change)(size_t program, void *arg);
    /* Called when every program has ended, after supervisor_stop or by invariant 4. */
    void (*on_stopped)(int status, void *arg);
    void *arg;
};

/* Returns NULL with the reason in `error` after a failure. */
struct supervisor *supervisor_new(const struct supervisor_config *config, char *error, size_t error_size);
/* Starts the waiting programs in order, up to the first required program that was never ready. The next programs
 * wait for this program. */
void supervisor_start(struct supervisor *s);
/* Begins to stop the programs. on_stopped is called when all programs have ended. A second call kills the program
 * that is stopping. */
void supervisor_stop(struct supervisor *s, int status);
/* Stops a program with SIGTERM and starts the program again without a delay. Does not count as a restart. No effect
 * if the program has failed or the supervisor stops. */
void supervisor_renew(struct supervisor *s, size_t program);
/* May be called only after on_stopped. */
void supervisor_free(struct supervisor **s);

struct supervisor_report {
    enum supervisor_state state;
    pid_t pid; /* 0: the program is not running */
    unsigned restarts;
    const char *last_end;    /* how the previous process ended: "signal 9"; "" if none; borrowed */
    const char *status_text; /* the last STATUS= message of the latest process; "" if none; borrowed */
};
struct supervisor_report supervisor_report(const struct supervisor *s, size_t program);

#endif
