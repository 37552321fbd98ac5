/* child_fork: forks a process that runs another program.
 *
 * Between fork and exec the child has the handlers of its parent. libevent's handler writes to a socket that both
 * processes share, so a signal to the child would take effect in the parent, and the child would miss the signal.
 *
 * 1. In the child no handler of the parent runs. Signals that the parent ignores stay ignored, other signals have their
 *    default effect.
 * 2. A signal that arrives during the fork waits, and takes effect before the child returns from child_fork.
 * 3. The child blocks no signal. The parent's mask is unchanged. */
#ifndef MILLRACE_CHILD_FORK_H
#define MILLRACE_CHILD_FORK_H

#include <sys/types.h>

/* Returns as fork(2) does. SIGPIPE and SIGXFSZ, which daemons ignore, have their default effect in the child. */
pid_t child_fork(void);

#endif
