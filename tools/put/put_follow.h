/* put_follow: posts the lines of growing logs until the put is stopped (log_tail.h). */
#ifndef MILLRACE_PUT_FOLLOW_H
#define MILLRACE_PUT_FOLLOW_H

#include "tools/put/put_run.h"

int put_follow(struct put *put, const char *path);

#endif
