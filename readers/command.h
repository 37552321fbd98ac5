/* command: runs a program once, with bytes on its standard input, and tells how it ended.
 *
 * 1. The program is the leader of a process group of its own. When its time is over the whole group gets SIGTERM, and
 *    SIGKILL COMMAND_GRACE later; so does what it started. It gets SIGKILL when its starter dies.
 * 2. Standard output and error are one pipe, read all the time, so a flood does not stop the program. Of a run at most
 *    output_max bytes are shown, in whole lines and their LFs counted; the rest is counted. An empty line is not shown.
 * 3. It need not read its input: what is left is dropped when it ends.
 * 4. It has ended when the process has, whoever may still hold its pipes.
 * 5. One at a time; the loop thread only; on_end comes exactly once and not after command_free: from the loop, or from
 *    command_run itself when nothing can be started.
 */
#ifndef MILLRACE_COMMAND_H
#define MILLRACE_COMMAND_H

#include "base/bytes.h"
#include "base/clock.h"

struct event_base;
struct command;

#define COMMAND_GRACE USEC_PER_SEC
#define COMMAND_LINE_MAX 1000 /* bytes of a line that are shown */

enum command_end { COMMAND_EXITED, COMMAND_SIGNALLED, COMMAND_TIMED_OUT, COMMAND_NOT_STARTED };

struct command_result {
    enum command_end end;
    int code;              /* exit status, signal, or errno */
    bool signalled;        /* it is a signal: of COMMAND_TIMED_OUT it may be either */
    const char *last_line; /* of its output; "" when there was none */
    uint64_t hidden;       /* bytes of output beyond output_max */
};

struct command_config {
    struct event_base *base;
    char *const *argv; /* argv[0] is looked up in PATH; borrowed */
    usec_t timeout;
    size_t output_max;
    void (*on_line)(struct bytes line, void *arg);
    void (*on_end)(const struct command_result *result, void *arg);
    void *arg;
};

struct command *command_new(const struct command_config *config);
void command_free(struct command **c); /* kills what runs */
/* As when its time is over. False when none runs. */
bool command_cut_short(struct command *c);
/* The input is copied. None may be running. */
void command_run(struct command *c, struct bytes input);

#endif
