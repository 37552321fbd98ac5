/* shell: a command that a test needs to go well. */
#ifndef MILLRACE_TEST_SHELL_H
#define MILLRACE_TEST_SHELL_H

#include "support/cm.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((format(printf, 1, 2))) static inline void shell(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_in_range(n, 1, sizeof command - 1);
    assert_int_equal(system(command), 0);
}

#endif
