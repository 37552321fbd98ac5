/* doctor: checks a pipeline and reports findings, each with the command that corrects it.
 *
 * Each check reports at least one finding. A finding without a problem names the compared values. Checks change no
 * data. The pipeline may run. */
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
    enum status_level level; /* level of the worst finding */
    size_t findings;
    size_t foreign; /* files and directories with a wrong owner or mode */
    bool json;
    struct law *law; /* state of the conservation check */
};

/* Reports a finding. `remedy`: command for the operator; NULL: none. */
void doctor_find(struct doctor *d, enum status_level level, const char *check, const char *remedy,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Calls fn in order for each entry of the directory. Names that begin with a dot are skipped. */
void doctor_each_in(
    struct doctor *d, const char *dir, void (*fn)(struct doctor *d, const char *path, const char *name));
/* doctor_each_in for the directory `below` in a daemon's directory. */
void doctor_each_entry(struct doctor *d, const char *daemon, const char *below,
    void (*fn)(struct doctor *d, const char *path, const char *name));

/* Runs the compactor on the pipeline's archive. Returns the compactor's standard output or error (`fd`), or NULL. */
FILE *doctor_run_compactor(const struct doctor *d, const char *option, int fd, pid_t *pid);
/* Closes the output, and returns the exit status as tool_wait does. */
int doctor_end_compactor(FILE *output, pid_t pid);

void doctor_check_conservation(struct doctor *d);
void doctor_check_cells(struct doctor *d);

#endif
