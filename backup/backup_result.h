/* backup_result: results of the parts of backup and restore, and the exit status of each. */
#ifndef MILLRACE_BACKUP_RESULT_H
#define MILLRACE_BACKUP_RESULT_H

#define BACKUP_ERROR_TEXT 2048 /* bytes of an error text */

enum backup_result {
    BACKUP_OK,
    BACKUP_CHANGED, /* a file was deleted before it was copied; another attempt may succeed */
    BACKUP_EXISTS,  /* the destination exists */
    BACKUP_MISSING, /* nothing to copy, or no backup */
    BACKUP_DAMAGED, /* a file of the pipeline or of the backup is damaged */
    BACKUP_BUSY,    /* another process backs up this pipeline, or restores into this directory */
    BACKUP_FULL,    /* the disk is full */
    BACKUP_FAILED,  /* any other system error */
};
/* 0, or a status of sysexits.h. */
int backup_exit_status(enum backup_result r);

/* Formats the error and returns r. */
enum backup_result backup_fail(char error[BACKUP_ERROR_TEXT], enum backup_result r, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns BACKUP_FULL or BACKUP_FAILED with "PATH: " and the text of errno. */
enum backup_result backup_fail_errno(char error[BACKUP_ERROR_TEXT], const char *path);

#endif
