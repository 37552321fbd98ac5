#include "tools/run/host_status.h"

#include "base/amount.h"
#include "base/rfc3339.h"
#include "counts/manifest.h"
#include "counts/slice_files.h"
#include "daemon/daemon.h"
#include "tools/run/status_problems.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NEWEST_SETTLED 10  /* seconds */
#define DISK_FREE_MIN 0.05 /* minimum free part of the file system */
#define DAYS_MIN 3
#define DAYS_MAX 1000 /* maximum forecast; longer forecasts are not reliable */
#define DAY_SECONDS 86400
#define DISK_SPAN_MAX                                                                                        \
    (2 *                                                                                                     \
        DAY_SECONDS) /* `millrace up` keeps samples of one day, so an older sample means that the clock was set */
#define CLOCK_BEHIND_MIN 60 /* seconds */
#define CLOCK_AHEAD_MIN 600 /* seconds */
#define DISK_SPAN_MIN 3600  /* seconds over which the growth of the data is measured */

/* Returns the directory of a daemon and its device. A daemon without files is on the disk of the pipeline. The caller
 * frees the directory. */
static char *disk_of(const struct pipeline_status *s, size_t daemon, dev_t *device)
{
    struct stat st = {0};
    const char *data_dir = s->pipeline.data_dir;
    bool is_archive = daemon == PIPELINE_SORTDB || daemon == PIPELINE_COMPACTOR;
    char *dir = is_archive ? pipeline_archive_dir(s->config, data_dir)
                           : pipeline_daemon_dir(s->config, data_dir, pipeline_daemon_name(daemon), "");
    if (stat(dir, &st) != 0)
        (void)stat(data_dir, &st);
    *device = st.st_dev;
    return dir;
}

static bool is_of_disk(const struct pipeline_status *s, const struct status_problem *p, dev_t device)
{
    dev_t own = device;
    if (p->daemon == PIPELINE_DAEMONS || strncmp(p->remedy, DAEMON_DISK, strlen(DAEMON_DISK)) != 0)
        return false;
    free(disk_of(s, p->daemon, &own));
    return own == device;
}

#define STOPS "; this stops "
/* Removes the problems that more space on the disk ends. Appends STOPS and the names of the stopped work to the
 * text. */
static enum status_level fold_disk(struct pipeline_status *s, dev_t device, struct buf *text)
{
    static const char *const work[PIPELINE_DAEMONS] = {"new events", "the relay", "the relay",
        "the copies from JetStream", "publishes", "the storage of counts", "sortdb", "updates of marks",
        "the storage of samples", "scrapes", "rules", "queries", "compactions"};
    enum status_level level = STATUS_FINE;
    size_t kept = 0, before = PIPELINE_DAEMONS;
    for (size_t i = 0; i < s->n_problems; i++) {
        struct status_problem p = s->problems[i];
        if (!is_of_disk(s, &p, device)) {
            s->problems[kept++] = p;
            continue;
        }
        const char *min_free = strstr(p.text, "min_free is ");
        if (min_free && before == PIPELINE_DAEMONS)
            buf_printf(text, ", %.*s", (int)strcspn(min_free, ";"), min_free);
        if (p.daemon != before && strcmp(p.remedy, DAEMON_DISK_LOW) != 0) {
            buf_printf(text, "%s%s", before == PIPELINE_DAEMONS ? STOPS : ", ", work[p.daemon]);
            before = p.daemon;
        }
        level = p.level > level ? p.level : level;
        free(p.text);
        free(p.remedy);
    }
    s->n_problems = kept;
    return level;
}

/* Adds the problem of a disk that is full, nearly full, or soon full. */
static void look_at_disk(
    struct pipeline_status *s, const char *dir, dev_t device, const struct statvfs *fs, bool fills)
{
    char is_free[SIZE_TEXT], all[SIZE_TEXT];
    struct buf text = {0};
    uint64_t size = fs->f_blocks * fs->f_frsize, left = fs->f_bavail * fs->f_frsize;
    buf_printf(&text, "the disk of %s has %s of %s free%s", dir, size_write(is_free, left),
        size_write(all, size), fills ? " and is full within three days" : "");
    enum status_level level = fold_disk(s, device, &text);
    bool is_low = (double)left < DISK_FREE_MIN * (double)size, is_full = strstr(text.ptr, STOPS) != NULL;
    s->is_disk_low = s->is_disk_low || is_low || fills;
    if (is_low || fills || level > STATUS_FINE)
        status_add_problem(s, level > STATUS_ATTENTION ? level : STATUS_ATTENTION,
            is_full ? DAEMON_FREE_DISK : DAEMON_DISK_LOW, "%s", text.ptr);
    buf_free(&text);
}

/* Looks at the disk of the pipeline, then at the disks of daemons that have another one. */
static void look_at_disks(struct pipeline_status *s)
{
    struct statvfs fs;
    struct stat st;
    s->disk_free = s->disk_size = -1;
    s->days_until_full = -1;
    s->daemon = PIPELINE_DAEMONS;
    if (statvfs(s->pipeline.data_dir, &fs) != 0 || stat(s->pipeline.data_dir, &st) != 0)
        return;
    s->disk_free = (int64_t)(fs.f_bavail * fs.f_frsize);
    s->disk_size = (int64_t)(fs.f_blocks * fs.f_frsize);
    int64_t span = clock_wall() / USEC_PER_SEC - s->pipeline.disk_at,
            used = s->pipeline.disk_free - s->disk_free;
    if (s->pipeline.disk_at > 0 && span >= DISK_SPAN_MIN && span <= DISK_SPAN_MAX && used > 0)
        s->days_until_full = (double)s->disk_free / ((double)used / (double)span) / DAY_SECONDS;
    if (s->days_until_full > DAYS_MAX)
        s->days_until_full = -1;
    look_at_disk(
        s, s->pipeline.data_dir, st.st_dev, &fs, s->days_until_full >= 0 && s->days_until_full < DAYS_MIN);
    for (size_t i = 0; i < s->n_problems; i++) {
        dev_t device = 0;
        size_t daemon = s->problems[i].daemon;
        char *dir = daemon < PIPELINE_DAEMONS ? disk_of(s, daemon, &device) : NULL;
        if (dir && is_of_disk(s, &s->problems[i], device) && statvfs(dir, &fs) == 0) {
            look_at_disk(s, dir, device, &fs, false);
            i--; /* the problem is folded */
        }
        free(dir);
    }
}

/* The compactor does not run while `current` is older than `newest`, unless that generation was discarded. A run that
 * publishes a generation moves both links, so that a new link `newest` is no problem. */
static void look_at_newest(struct pipeline_status *s, const char *archive)
{
    struct stat st;
    char name[MANIFEST_NAME_TEXT], *path = mem_printf("%s/newest", archive);
    uint64_t newest;
    ssize_t n = readlink(path, name, sizeof name - 1);
    name[n > 0 ? n : 0] = '\0';
    if (manifest_directory_number(name, &newest) && newest > (uint64_t)s->archive_generation &&
        access(path, F_OK) == 0 && lstat(path, &st) == 0 &&
        clock_wall() / USEC_PER_SEC - st.st_mtime > NEWEST_SETTLED)
        status_add_problem(s, STATUS_ATTENTION,
            "to drop the newer generations: millrace compact --discard-newer; to keep them, make `current` a "
            "link to the newest one: millrace help compaction, \"Return to an older generation\"",
            "the archive's current generation is %" PRId64 ", but generation %" PRIu64 " is newer",
            s->archive_generation, newest);
    free(path);
}

/* True if a file of the current generation does not exist. A compaction may remove a generation that is no longer
 * current. */
static bool is_missing(const char *archive, const char *path, uint64_t generation)
{
    struct stat st;
    struct manifest now;
    if (stat(path, &st) == 0 || errno != ENOENT || manifest_read_current(archive, &now, NULL) != MANIFEST_OK)
        return false;
    bool is_current = now.generation == generation;
    manifest_free(&now);
    return is_current;
}

/* Finds a removed file, which the daemons that have mapped it serve until they restart. */
static void look_at_files(struct pipeline_status *s, const char *archive, const struct manifest *m)
{
    bool found = false;
    const struct manifest_file *f;
    char directory[MANIFEST_NAME_TEXT];
    manifest_directory_name(m->generation, directory);
    for (size_t at = 0; !found && (f = manifest_next_file(m, &at));) {
        char *path = mem_printf("%s/%s/%s", archive, directory, f->name);
        found = is_missing(archive, path, m->generation);
        if (found)
            status_add_problem(s, STATUS_ATTENTION,
                "restore the file from a backup; daemons that have opened it serve it until they restart",
                "the archive's file %s does not exist", path);
        free(path);
    }
}

/* Returns the last slice of which the aggregator has deleted the file; 0: none. */
static uint64_t cleared_slice(const struct pipeline_status *s)
{
    struct slice_range range = {0};
    char *slices = pipeline_daemon_dir(s->config, s->pipeline.data_dir, "aggregator", "/slices");
    slice_files_find(slices, 0, &range);
    free(slices);
    return range.first > 0 ? range.first - 1 : 0;
}

/* A slice is cleared only after `current` includes the slice, so the slices are read before the manifest. */
static void look_at_archive(struct pipeline_status *s)
{
    struct manifest m;
    char *path = pipeline_archive_dir(s->config, s->pipeline.data_dir);
    uint64_t cleared = cleared_slice(s);
    s->archive_generation = -1;
    if (manifest_read_current(path, &m, NULL) == MANIFEST_OK) {
        s->archive_generation = (int64_t)m.generation;
        s->archive_made = m.made;
        if (m.through < cleared)
            status_add_problem(s, STATUS_DOWN, MANIFEST_BEHIND_REMEDY,
                "the archive's current generation %" PRId64 " goes to slice %" PRIu64
                ", but slices up to %" PRIu64 " were cleared",
                s->archive_generation, m.through, cleared);
        else
            look_at_newest(s, path);
        look_at_files(s, path, &m);
        manifest_free(&m);
    }
    const struct pipeline_daemon *c = &s->pipeline.daemons[PIPELINE_COMPACTOR];
    if (c->status_text && strstr(c->status_text, "failed")) {
        char *remedy =
            mem_printf("%s, then run `millrace compact`", c->remedy ? c->remedy : "correct the cause");
        char *error = c->last_error ? status_last_error(c) : NULL;
        status_add_problem(s, STATUS_ATTENTION, remedy, "compaction: %s%s%s", c->status_text,
            error ? "; " : "", error ? error : "");
        free(error);
        free(remedy);
    }
    free(path);
}

/* Adds a problem if the clock is earlier than a time that the pipeline has written, or if it has jumped ahead. Completeness
 * follows a jump ahead after an hour. */
static void look_at_clock(struct pipeline_status *s)
{
    char here[RFC3339_TEXT], there[RFC3339_TEXT];
    const struct json_doc *counts = s->daemons[PIPELINE_AGGREGATOR].stats;
    int64_t now = clock_wall() / USEC_PER_SEC, behind = s->complete_until > 0 ? now - s->complete_until : 0;
    bool has_jumped = json_doc_number(counts, "/clock_jumps_total") > 0 &&
                      json_doc_text(counts, "/held_by").len == 0 && behind > CLOCK_AHEAD_MIN;
    const struct {
        const char *what;
        int64_t time;
        bool is_wrong;
    } written[] = {{"the archive was made at", s->archive_made, s->archive_made > now + CLOCK_BEHIND_MIN},
        {"counts are complete until", s->complete_until, behind < -CLOCK_BEHIND_MIN},
        {"`millrace up` measured the disk at", s->pipeline.disk_at,
            s->pipeline.disk_at > now + CLOCK_BEHIND_MIN},
        {"it has jumped, and counts are complete until", s->complete_until, has_jumped}};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (written[i].is_wrong) {
            status_add_problem(s, STATUS_ATTENTION,
                written[i].what[0] == 'i'
                    ? "if the clock is wrong, set it: timedatectl set-ntp true (in a container: on the "
                      "host); if it is right, wait an hour"
                    : "set the clock: timedatectl set-ntp true (in a container: on the host)",
                "this host's clock says %s; %s %s", rfc3339_write(now, here), written[i].what,
                rfc3339_write(written[i].time, there));
            return;
        }
}

void host_status_look(struct pipeline_status *s)
{
    look_at_archive(s);
    look_at_clock(s);
    look_at_disks(s);
}
