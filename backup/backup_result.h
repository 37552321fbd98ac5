/* backup_result: the results of backup and restore, and the exit status for each result. */
#ifndef MILLRACE_BACKUP_RESULT_H
#define MILLRACE_BACKUP_RESULT_H

#include "base/error.h"

enum backup_result {
    BACKUP_OK,
    BACKUP_CHANGED, /* a file was deleted before it was copied; another attempt may succeed */
    BACKUP_EXISTS,  /* the destination exists */
    BACKUP_MISSING, /* the pipeline, the backup or the parent of the destination does not exist */
    BACKUP_DAMAGED, /* a file of the pipeline or of the backup is damaged */
    BACKUP_BUSY,    /* another process backs up the pipeline, or restores into the destination */
    BACKUP_FULL,    /* the disk is full */
    BACKUP_FAILED,  /* any other system error */
};
/* Returns 0 or a status of sysexits.h. */
int backup_exit_status(enum backup_result r);

/* Returns BACKUP_FULL or BACKUP_FAILED. Sets the error to "PATH: " and the text of errno. */
int backup_fail_errno(struct error *error, const char *path);

#endif
