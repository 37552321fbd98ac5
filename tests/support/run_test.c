/* Runs one test, so that nothing outlives it: run_test SECONDS COMMAND [ARGUMENT...]
 *
 * Invariants
 *  1. The test has a directory of its own, named by TMPDIR and MILLRACE_TEST_DIR, which is deleted after it. The directory is in
 *     MILLRACE_TEST_DIR if that is set, else in memory if the machine has room, because most tests would otherwise wait for syncs.
 *     MILLRACE_OTHER_DIR names another one, for tests that need two file systems.
 *  2. No process that the test began runs on after it: orphans become children of this process, which kills them.
 *  3. Both hold however the test ends: by itself, after SECONDS (times MILLRACE_TEST_STRETCH, which scripts/test sets when it runs
 *     several tests at once), or because this process is stopped or the process above it dies.
 *
 * The status is the test's, 128 + N if signal N ended the test, 124 after SECONDS, and 125 if the test could not be run. */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_NEEDED ((unsigned long long)8 << 30) /* bytes free in /dev/shm, and available to the machine */

#define LAST_WORDS 10    /* seconds that a test may take to end when it is stopped */
#define PATIENCE_MAX 120 /* seconds; more than any one wait of a test that passes */

static char directory[512], other[512];

static void fail(const char *what)
{
    fprintf(stderr, "run_test: %s: %s\n", what, strerror(errno));
    exit(125);
}

static unsigned long long available_memory(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib << 10;
}

static const char *root(void)
{
    struct statvfs shm;
    const char *given = getenv("MILLRACE_TEST_DIR"), *temporary = getenv("TMPDIR");
    if (given && *given)
        return given;
    if (statvfs("/dev/shm", &shm) == 0 && access("/dev/shm", W_OK) == 0 &&
        (unsigned long long)shm.f_bavail * shm.f_frsize >= MEMORY_NEEDED &&
        available_memory() >= MEMORY_NEEDED)
        return "/dev/shm";
    return temporary && *temporary ? temporary : "/tmp";
}

static void make_directory(char *path, const char *below)
{
    if (snprintf(path, sizeof directory, "%s/millrace-XXXXXX", below) >= (int)sizeof directory ||
        !mkdtemp(path))
        fail("cannot make the test's directory");
    chmod(path, 0711); /* some tests become another user */
}

static void make_directories(void)
{
    const char *below = root();
    make_directory(directory, below);
    make_directory(
        other, strcmp(below, "/dev/shm") == 0 || access("/dev/shm", W_OK) != 0 ? "/tmp" : "/dev/shm");
    setenv("TMPDIR", directory, 1);
    setenv("MILLRACE_TEST_DIR", directory, 1);
    setenv("MILLRACE_OTHER_DIR", other, 1);
}

/* Tests take permissions away. */
static int open_up(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)at;
    if (type == FTW_D || type == FTW_DNR)
        chmod(path, st->st_mode | 0700);
    return 0;
}

static int delete_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path) != 0 && errno != ENOENT;
}

static void delete_directory(const char *path)
{
    if (nftw(path, open_up, 16, FTW_PHYS) != 0 || nftw(path, delete_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fprintf(stderr, "run_test: cannot delete %s: %s\n", path, strerror(errno));
}

static pid_t parent_of(const char *pid)
{
    char path[300], line[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *f = fopen(path, "r");
    char *name_end = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    if (name_end)
        sscanf(name_end, ") %*c %d", &parent);
    if (f)
        fclose(f);
    return parent;
}

static void kill_children(void)
{
    struct dirent *entry;
    DIR *processes = opendir("/proc");
    if (!processes)
        return;
    while ((entry = readdir(processes)))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name) == getpid())
            kill(atoi(entry->d_name), SIGKILL);
    closedir(processes);
}

/* Each round kills the present children; what these began is a child of this process afterwards. */
static void kill_all(void)
{
    do {
        kill_children();
    } while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
}

static pid_t begin(char **command)
{
    sigset_t none;
    pid_t us = getpid(), test = fork();
    if (test < 0)
        fail("cannot fork");
    if (test > 0)
        return test;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid(); /* Ctrl-C reaches this process alone, which ends the test */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != us)
        _exit(125);
    execvp(command[0], command);
    fail(command[0]);
    return -1;
}

/* Reaps every child that has ended. True once the test has. */
static int is_over(pid_t test, int *status)
{
    int ended, over = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &ended, WNOHANG)) > 0)
        if (pid == test) {
            *status = ended;
            over = 1;
        }
    return over;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Waits for the test's end. Its wait status; or an exit status of 124 after the limit, or of 128 + the signal that stops this process. */
static int wait_for(pid_t test, double limit, const sigset_t *signals)
{
    double end = seconds() + limit;
    bool is_late = false;
    for (;;) {
        int status, number;
        double left = end - seconds();
        if (is_over(test, &status))
            return is_late ? 124 << 8 : status;
        if (left <= 0 && is_late)
            return 124 << 8;
        if (left <= 0) {
            fprintf(stderr, "run_test: stopped after %g s\n", limit);
            kill(test, SIGABRT); /* a Python program prints where it is */
            is_late = true;
            end += LAST_WORDS;
            continue;
        }
        number = sigtimedwait(
            signals, NULL, &(struct timespec){(time_t)left, (long)((left - (double)(time_t)left) * 1e9)});
        if (number > 0 && number != SIGCHLD)
            return (128 + number) << 8;
    }
}

/* How long the test may wait for one thing: less than the limit, so that a test that waits in vain names what it waits for. */
static void set_patience(double limit)
{
    char text[32];
    double patience = limit * 2 / 3 < PATIENCE_MAX ? limit * 2 / 3 : PATIENCE_MAX;
    snprintf(text, sizeof text, "%.0f", patience);
    setenv("MILLRACE_PATIENCE", text, 0);
}

static void print_cost(void)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    printf("run_test: processor time %.2f s, of that %.2f s in the kernel\n",
        (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
            (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6,
        (double)used.ru_stime.tv_sec + (double)used.ru_stime.tv_usec / 1e6);
}

int main(int argc, char **argv)
{
    sigset_t signals;
    double limit = argc > 2 ? atof(argv[1]) : 0;
    const char *given = getenv("MILLRACE_TEST_STRETCH");
    double stretch = given && atof(given) > 1 ? atof(given) : 1;
    if (limit <= 0) {
        fprintf(stderr, "usage: run_test SECONDS COMMAND [ARGUMENT...]\n");
        return 64;
    }
    limit *= stretch;
    set_patience(limit);
    sigemptyset(&signals);
    for (const int *s = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP, 0}; *s; s++)
        sigaddset(&signals, *s);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setenv("PYTHONFAULTHANDLER", "1", 1);
    make_directories();
    int status = wait_for(begin(argv + 2), limit, &signals);
    kill_all();
    print_cost();
    delete_directory(directory);
    delete_directory(other);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
