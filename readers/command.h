/* command: runs a program once, with given standard input, and reports how it ended.
 *
 * 1. The program leads a process group of its own. After the timeout the whole group gets SIGTERM, and SIGKILL COMMAND_GRACE later. The
 *    program gets SIGKILL when this process dies.
 * 2. Standard output and error share one pipe, which is read all the time, so output never blocks the program. At most output_max
 *    bytes of a run are passed on, in whole lines; the rest is counted. Empty lines are not passed on.
 * 3. The program need not read its input. What is left of it is dropped at the end.
 * 4. A run ends with the process, even if another process still holds its pipes.
 * 5. One run at a time, on the loop's thread. on_end is called exactly once a run, and never after command_free: from the loop, or
 *    from command_run if the program cannot be started. */
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
    bool signalled;        /* code is a signal; after COMMAND_TIMED_OUT it may be either */
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
/* As after the timeout. False if none is running. */
bool command_cut_short(struct command *c);
/* Copies the input. Only while none is running. */
void command_run(struct command *c, struct bytes input);

#endif
