/* work_thread: a thread that runs one job at a time for its owner.
 *
 * work_thread_start passes a job to it, and work_thread_done returns the job once it is complete. In between only
 * the thread uses the job. One owner thread makes all calls; the thread calls `run` and `notify`. */
#ifndef MILLRACE_WORK_THREAD_H
#define MILLRACE_WORK_THREAD_H

struct work_thread;
struct work_thread_config {
    void (*run)(void *ctx, void *job);
    void *ctx;
    void (*notify)(void *arg); /* after each job; must only make the owner call work_thread_done soon */
    void *notify_arg;
};

/* Returns NULL with errno if the thread cannot be started. */
struct work_thread *work_thread_new(const struct work_thread_config *config);
/* Waits for the current job, and returns the job that work_thread_done has not returned, or NULL. */
void *work_thread_free(struct work_thread **w);
void work_thread_start(struct work_thread *w, void *job);
/* The completed job, or NULL. */
void *work_thread_done(struct work_thread *w);
/* The same, but waits for the job in progress. NULL: there is none. */
void *work_thread_wait(struct work_thread *w);

#endif
