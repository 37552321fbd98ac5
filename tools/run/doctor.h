/* doctor: checks a pipeline and reports findings, each with the command that corrects it.
 *
 * A check reports at least one finding, also if all is well: what it compared. It changes nothing. The pipeline may run. */
#ifndef MILLRACE_DOCTOR_H
#define MILLRACE_DOCTOR_H

#include "tools/run/pipeline_status.h"

#include <stdio.h>
#include <sys/types.h>

struct law;

struct doctor {
    const struct config *config;
    const char *data_dir;
    struct pipeline_status status;
    enum status_level level; /* the worst finding */
    size_t findings;
    bool json;
    struct law *law; /* of the conservation check */
};

/* `remedy`: NULL for none. */
void doctor_find(struct doctor *d, enum status_level level, const char *check, const char *remedy,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Calls fn for each entry that does not begin with a dot, in order, of a directory below that of a daemon. daemon NULL: of the pipeline's
 * directory. */
void doctor_each_entry(struct doctor *d, const char *daemon, const char *below,
    void (*fn)(struct doctor *d, const char *path, const char *name));

/* Runs the compactor on the pipeline's archive. Returns its standard output or error (`fd`), or NULL. */
FILE *doctor_run_compactor(const struct doctor *d, const char *option, int fd, pid_t *pid);
/* Closes the output, and returns the exit status as tool_wait does. */
int doctor_end_compactor(FILE *output, pid_t pid);

/* The conservation law (tools/run/conservation.c). */
void doctor_check_conservation(struct doctor *d);

#endif
