/* work_thread: a thread that runs one job at a time for its owner.
 *
 * work_thread_start passes a job to the thread, and work_thread_done returns the job once the job is complete.
 * Between the two calls, only the work thread uses the job. Only the owner's thread may call the functions of this
 * header. The work thread calls `run` and `notify`. */
#ifndef MILLRACE_WORK_THREAD_H
#define MILLRACE_WORK_THREAD_H

struct work_thread;
struct work_thread_config {
    void (*run)(void *ctx, void *job);
    void *ctx;
    void (*notify)(void *arg); /* after each job: makes the owner call work_thread_done soon */
    void *notify_arg;
};

/* Returns NULL with errno if the thread cannot be started. */
struct work_thread *work_thread_new(const struct work_thread_config *config);
/* Waits for the current job and frees the thread. Returns a job that work_thread_done has not returned, or NULL. */
void *work_thread_free(struct work_thread **w);
void work_thread_start(struct work_thread *w, void *job);
/* Returns the completed job, or NULL if no job is complete. */
void *work_thread_done(struct work_thread *w);
/* Waits for the job in progress and returns it. Returns NULL if no job is in progress. */
void *work_thread_wait(struct work_thread *w);

#endif
