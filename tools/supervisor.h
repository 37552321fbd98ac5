/* supervisor: keeps a list of programs running, in order, until it is told to stop.
 *
 * It starts the programs one after another, each once the one before it is ready, restarts one that dies, and
 * stops them in the reverse order, each when the one after it in the list has ended: so what depends on a
 * program ends before it, and finds it there while finishing what is in flight.
 *
 * 1. A program is ready when it has sent READY=1 to NOTIFY_SOCKET (sd_notify); messages are taken only from
 *    the process that is running as that program.
 * 2. Its listening socket is the supervisor's and is passed on at each start (LISTEN_FDS): a restart keeps its
 *    address, and clients that connect meanwhile wait in the socket's backlog.
 * 3. A program that dies is started again after a delay that doubles from delay_min to delay_max while it keeps
 *    dying, and is delay_min again once it was ready for SUPERVISOR_STEADY. The others go on.
 * 4. A program that has never been ready and exits with EX_USAGE or EX_CONFIG would do so for ever: everything
 *    is stopped and that is the supervisor's own status.
 * 5. A program that exits with EX_DATAERR says that going on would do harm, however often it is tried: it is left as it
 *    is, with what it said of itself, and the others go on.
 * 6. Every program is the leader of a process group of its own (a terminal's Ctrl-C reaches the supervisor
 *    alone) and gets SIGTERM when the supervisor dies, however that happens.
 * 7. Stopping is SIGTERM, then SIGKILL after stop_timeout: at most once for each program.
 *
 * One event loop; nothing blocks.
 */
#ifndef MILLRACE_SUPERVISOR_H
#define MILLRACE_SUPERVISOR_H

#include "base/bytes.h"
#include "base/clock.h"
#include <sys/types.h>

#define SUPERVISOR_STEADY (10 * USEC_PER_SEC)

struct event_base;
struct supervisor;

enum supervisor_state {
    SUPERVISOR_WAITING,  /* for its turn to start */
    SUPERVISOR_STARTING, /* runs, not ready yet */
    SUPERVISOR_READY,
    SUPERVISOR_RESTARTING, /* died; waits out its delay */
    SUPERVISOR_FAILED,     /* ended for good (invariant 5) */
    SUPERVISOR_STOPPING,
    SUPERVISOR_STOPPED,
};
const char *supervisor_state_name(enum supervisor_state s);

struct supervisor_program {
    const char *name;
    char *const *argv; /* argv[0] is the executable's path */
    int listen_fd;     /* -1: none */
};

struct supervisor_config {
    struct event_base *base;
    size_t n;
    const struct supervisor_program *programs; /* borrowed, with what they point to, until supervisor_free */
    usec_t delay_min, delay_max, stop_timeout;
    /* A line that a program wrote to standard output or error, without its LF. */
    void (*on_line)(size_t program, struct bytes line, void *arg);
    /* A program's state, pid or what it says of itself changed. */
    void (*on_change)(size_t program, void *arg);
    /* Every program has ended after supervisor_stop or invariant 4. */
    void (*on_end)(int status, void *arg);
    void *arg;
};

/* NULL with the reason in error. */
struct supervisor *supervisor_new(const struct supervisor_config *config, char *error, size_t error_size);
void supervisor_start(struct supervisor *s);
/* Begins to stop; on_end follows. Called again: the program that is being waited for is killed. */
void supervisor_stop(struct supervisor *s, int status);
/* Only after on_end. */
void supervisor_free(struct supervisor **s);

enum supervisor_state supervisor_state(const struct supervisor *s, size_t program);
pid_t supervisor_pid(const struct supervisor *s, size_t program); /* 0 when it does not run */
unsigned supervisor_restarts(const struct supervisor *s, size_t program);
/* The last STATUS= it sent in its present life, "" before one. */
const char *supervisor_said(const struct supervisor *s, size_t program);
/* Of those that have not failed. */
bool supervisor_all_ready(const struct supervisor *s);

#endif
