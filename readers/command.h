/* command: runs a program once, with given standard input, and reports how it ended.
 *
 * 1. The program leads a process group of its own. After the timeout the whole group gets SIGTERM, and COMMAND_GRACE later SIGKILL.
 *    The program also gets SIGKILL when this process dies.
 * 2. Standard output and error share one pipe. It is read continuously, so output never blocks the program. At most output_max bytes
 *    of a run are passed on, as whole lines without the empty ones; the rest is counted.
 * 3. The program need not read its input; the unread part is dropped.
 * 4. A run ends with the process, even if another process still holds its pipes.
 * 5. One run at a time, on the loop's thread. on_end is called exactly once a run: from the loop, or from command_run if the program
 *    cannot be started. It is never called after command_free. */
#ifndef MILLRACE_COMMAND_H
#define MILLRACE_COMMAND_H

#include "base/bytes.h"
#include "base/clock.h"

struct event_base;
struct command;

#define COMMAND_GRACE USEC_PER_SEC
#define COMMAND_LINE_MAX 1000 /* bytes of a line passed on */

enum command_end { COMMAND_EXITED, COMMAND_SIGNALLED, COMMAND_TIMED_OUT, COMMAND_NOT_STARTED };

struct command_result {
    enum command_end end;
    int code;              /* exit status, signal, or errno */
    bool signalled;        /* code is a signal, also after COMMAND_TIMED_OUT */
    const char *last_line; /* of the output; "" if there was none */
    uint64_t hidden;       /* bytes of output beyond output_max */
};

struct command_config {
    struct event_base *base;
    char *const *argv; /* argv[0] is searched in PATH; borrowed */
    usec_t timeout;
    size_t output_max;
    void (*on_line)(struct bytes line, void *arg);
    void (*on_end)(const struct command_result *result, void *arg);
    void *arg;
};

struct command *command_new(const struct command_config *config);
void command_free(struct command **c); /* kills the program */
/* Ends the run as after the timeout. Returns false if no program is running. */
bool command_cut_short(struct command *c);
/* Starts a run; copies the input. Call it only while no program is running. */
void command_run(struct command *c, struct bytes input);

#endif
