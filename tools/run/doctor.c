/* millrace doctor: checks disk, permissions, clock, limits, versions, files and the conservation law of a pipeline. */
#include "tools/run/doctor.h"

#include "base/amount.h"
#include "base/io.h"
#include "base/rfc3339.h"
#include "daemon/daemon.h"
#include "enrich/door_settings.h"
#include "filter/mark_reader.h"
#include "journal/journal_repair.h"
#include "tools/run/status_problems.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define DESCRIPTORS_MIN 4096
#define SOMAXCONN_MIN 1024
#define INODES_MIN 1000
#define FOREIGN_SHOWN 10
#define KEY_OVERDUE 3600 /* seconds */
#define ALERTS_MAX ((size_t)1 << 30)
#define VERIFY_DAMAGED 1 /* exit status of the compactor */

static const char doctor_unreadable[] =
    "chown -R the files to the owner of the data directory, if ls -l shows another; otherwise see dmesg";

static const struct option_row rows[] = {
    TOOL_DATA_DIR_SETTING,
    SETTING_BOOL("fast", "skip the checks that read all data: journals, slices, archive and conservation"),
    SETTING_BOOL("json", "print JSON"),
    {.name = NULL},
};

static void check_daemons(struct doctor *d)
{
    const struct pipeline_status *s = &d->status;
    for (size_t i = 0; i < s->n_problems; i++)
        doctor_find(d, s->problems[i].level, "status", s->problems[i].remedy, "%s", s->problems[i].text);
    if (s->n_problems == 0)
        doctor_find(d, STATUS_FINE, "status", NULL, "every daemon works");
}

static void check_versions(struct doctor *d)
{
    size_t same = 0;
    for (size_t i = 0; i < PEERS; i++) {
        struct bytes version = json_doc_text(d->status.daemons[i].stats, "/version");
        bool is_other = version.len > 0 && !bytes_equal_str(version, MILLRACE_VERSION);
        if (is_other)
            doctor_find(d, STATUS_ATTENTION, "versions", "restart the pipeline: systemctl restart millrace",
                "%s runs version %.*s, this command is " MILLRACE_VERSION, peers[i].name, (int)version.len,
                version.ptr);
        same += version.len > 0 && !is_other;
    }
    if (same > 0)
        doctor_find(d, STATUS_FINE, "versions", NULL, "%zu %s " MILLRACE_VERSION, same,
            plural(same, "daemon runs", "daemons run"));
}

static void check_disk(struct doctor *d)
{
    struct statvfs fs;
    char is_free[SIZE_TEXT], all[SIZE_TEXT];
    if (statvfs(d->data_dir, &fs) != 0)
        doctor_find(d, STATUS_DOWN, "disk", PIPELINE_PLACE_REMEDY, "%s: %s", d->data_dir, strerror(errno));
    else if (fs.f_files > 0 && fs.f_favail < INODES_MIN)
        doctor_find(d, STATUS_ATTENTION, "disk", "delete files: df -i shows the file system",
            "%s has %" PRIu64 " free %s", d->data_dir, (uint64_t)fs.f_favail,
            plural(fs.f_favail, "inode", "inodes"));
    else
        doctor_find(d, d->status.is_disk_low ? STATUS_ATTENTION : STATUS_FINE, "disk",
            d->status.is_disk_low ? DAEMON_DISK_LOW : NULL, "%s of %s free",
            size_write(is_free, fs.f_bavail * fs.f_frsize), size_write(all, fs.f_blocks * fs.f_frsize));
}

/* Reports a wrong owner or mode of a file or directory, up to FOREIGN_SHOWN times. */
static void find_foreign(struct doctor *d, enum status_level level, const char *remedy, const char *text)
{
    if (d->foreign++ < FOREIGN_SHOWN)
        doctor_find(d, level, "permissions", remedy, "%s", text);
}

/* Checks the owner and the mode of a file or directory, and of the entries below. The daemons cannot write entries of
 * another user; entries that everyone may write are not safe. `millrace put` may run as another user. */
static void check_entry(struct doctor *d, const char *path, const char *name)
{
    struct stat st, top;
    char owner[IO_USER_NAME], own[IO_USER_NAME];
    if (lstat(path, &st) != 0 || stat(d->data_dir, &top) != 0 || S_ISLNK(st.st_mode))
        return;
    char *remedy = NULL, *text = NULL;
    bool is_wrong = st.st_uid != top.st_uid;
    if (is_wrong) {
        io_user_name(st.st_uid, owner);
        io_user_name(top.st_uid, own);
        remedy = mem_printf("chown -R --reference=%s %s", d->data_dir, path);
        text = mem_printf("%s belongs to user %s, and %s to user %s", path, owner, d->data_dir, own);
        find_foreign(d, STATUS_DOWN, remedy, text);
    } else if (st.st_mode & S_IWOTH) {
        remedy = mem_printf("chmod o-w %s", path);
        text = mem_printf("everyone may write to %s", path);
        find_foreign(d, STATUS_ATTENTION, remedy, text);
    } else if ((st.st_mode & S_IRWXU) < (S_ISDIR(st.st_mode) ? S_IRWXU : S_IRUSR)) {
        remedy = mem_printf("chmod u+rwX %s", path);
        text = mem_printf("the owner cannot use %s", path);
        find_foreign(d, STATUS_DOWN, remedy, text);
    }
    if (S_ISDIR(st.st_mode) && !is_wrong && strcmp(name, "put") != 0)
        doctor_each_in(d, path, check_entry);
    free(text);
    free(remedy);
}

/* Checks a directory that may be outside the directory of the pipeline. Frees the path. */
static void check_outside(struct doctor *d, char *dir)
{
    size_t n = strlen(d->data_dir);
    if (strncmp(dir, d->data_dir, n) != 0 || dir[n] != '/')
        check_entry(d, dir, "");
    free(dir);
}

static void check_permissions(struct doctor *d)
{
    check_entry(d, d->data_dir, "");
    for (size_t i = 0; i < PEERS; i++)
        check_outside(d, pipeline_daemon_dir(d->config, d->data_dir, peers[i].name, ""));
    check_outside(d, pipeline_archive_dir(d->config, d->data_dir));
    if (d->foreign > FOREIGN_SHOWN)
        doctor_find(d, STATUS_DOWN, "permissions", "correct these, then run this command again",
            "%zu more files have a wrong owner or mode", d->foreign - FOREIGN_SHOWN);
    if (d->foreign == 0 && access(d->data_dir, F_OK) == 0)
        doctor_find(d, STATUS_FINE, "permissions", NULL, "all files of %s have one owner", d->data_dir);
}

/* The files of the daemons are private to the pipeline's user. */
static bool is_other_user(struct doctor *d)
{
    struct stat st;
    char owner[IO_USER_NAME], own[IO_USER_NAME];
    if (geteuid() == 0 || stat(d->data_dir, &st) != 0 || st.st_uid == geteuid())
        return false;
    io_user_name(st.st_uid, owner);
    io_user_name(geteuid(), own);
    char *remedy = mem_printf("sudo -u %s millrace doctor, with the same options", owner);
    doctor_find(d, STATUS_ATTENTION, "user", remedy,
        "%s belongs to user %s: user %s cannot check journals, archive and conservation", d->data_dir, owner,
        own);
    free(remedy);
    return true;
}

static void check_clock(struct doctor *d)
{
    struct timex t = {.modes = 0};
    char here[RFC3339_TEXT], there[RFC3339_TEXT];
    int64_t now = clock_wall() / USEC_PER_SEC, made = d->status.archive_made;
    bool is_unsynced = adjtimex(&t) >= 0 && (t.status & STA_UNSYNC);
    if (made > now)
        doctor_find(d, STATUS_DOWN, "clock", "set the clock: timedatectl set-ntp true",
            "this host's clock says %s; the archive was made at %s", rfc3339_write(now, here),
            rfc3339_write(made, there));
    else if (is_unsynced)
        doctor_find(d, STATUS_ATTENTION, "clock", "timedatectl set-ntp true (in a container: on the host)",
            "the kernel's clock is not synchronized");
    else
        doctor_find(d, STATUS_FINE, "clock", NULL, "synchronized");
}

static uint64_t descriptors_of(int64_t pid)
{
    char path[64], line[256];
    unsigned long limit = 0;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/limits", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Max open files %lu", &limit) == 1)
            break;
    if (f)
        fclose(f);
    return limit;
}

static void check_limits(struct doctor *d)
{
    size_t before = d->findings;
    unsigned long somaxconn = SOMAXCONN_MIN;
    FILE *f = fopen("/proc/sys/net/core/somaxconn", "re");
    if (f) {
        if (fscanf(f, "%lu", &somaxconn) == 1 && somaxconn < SOMAXCONN_MIN)
            doctor_find(d, STATUS_ATTENTION, "limits", "sysctl -w net.core.somaxconn=4096",
                "net.core.somaxconn is %lu", somaxconn);
        fclose(f);
    }
    uint64_t least = 0;
    for (size_t i = 0; i < PEERS; i++) {
        int64_t pid = d->status.pipeline.daemons[i].pid;
        uint64_t limit = pid > 0 && !d->status.pipeline.has_ended ? descriptors_of(pid) : 0;
        if (limit > 0 && limit < DESCRIPTORS_MIN)
            doctor_find(d, STATUS_ATTENTION, "limits",
                "ulimit -n 65536, or LimitNOFILE=65536 in the unit; then restart",
                "%s may open %" PRIu64 " files", peers[i].name, limit);
        least = limit > 0 && (least == 0 || limit < least) ? limit : least;
    }
    if (d->findings == before && least > 0)
        doctor_find(d, STATUS_FINE, "limits", NULL, "descriptors %" PRIu64 " or more, somaxconn %lu", least,
            somaxconn);
    else if (d->findings == before)
        doctor_find(d, STATUS_FINE, "limits", NULL, "somaxconn %lu", somaxconn);
}

struct damage {
    struct inspect_summary sum;
    char first[PATH_MAX + 200]; /* first damage; "": none */
};

static void on_inspect(const struct inspect_event *e, void *arg)
{
    struct damage *damage = arg;
    inspect_summarize(&damage->sum, e);
    if (damage->first[0] == '\0' &&
        (e->kind == INSPECT_DAMAGE || e->kind == INSPECT_MISSING || e->kind == INSPECT_LOST))
        snprintf(damage->first, sizeof damage->first, "%s: %s at offset %" PRIu64, e->path,
            e->kind == INSPECT_DAMAGE ? e->what : "segments are missing", e->offset);
}

static void check_journal(struct doctor *d, const char *path, const char *name)
{
    struct damage damage = {.first = ""};
    char error[PATH_MAX + 128] = "";
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return;
    if (strstr(name, JOURNAL_ASIDE)) {
        doctor_find(d, STATUS_ATTENTION, "journals",
            "copy what you need; then delete the directory, because `millrace forget` does not search it",
            "%s: damaged segments that `millrace journal repair` has set aside", path);
        return;
    }
    enum journal_result r = journal_inspect(path, on_inspect, &damage, error, sizeof error);
    char *remedy = mem_printf("stop the daemon, then: millrace journal repair %s", path);
    if (r == JOURNAL_OK)
        doctor_find(d, STATUS_FINE, "journals", NULL, "%s: %" PRIu64 " %s in %" PRIu64 " %s, intact", path,
            damage.sum.frames, plural(damage.sum.frames, "frame", "frames"), damage.sum.segments,
            plural(damage.sum.segments, "segment", "segments"));
    else
        doctor_find(d, STATUS_DOWN, "journals", r == JOURNAL_DAMAGED ? remedy : doctor_unreadable, "%s",
            damage.first[0] ? damage.first : error);
    free(remedy);
}

static void check_filter(struct doctor *d, const char *path)
{
    struct filter *f;
    struct error error;
    bool is_missing = access(path, F_OK) != 0 && errno == ENOENT;
    if (filter_open_reader(path, &f, &error) == FILTER_OK)
        doctor_find(d, STATUS_FINE, "marks", NULL, "%s: %" PRIu64 " marks in %zu layers", path,
            filter_stats(f).members, filter_stats(f).layers);
    else
        doctor_find(d, is_missing ? STATUS_ATTENTION : STATUS_DOWN, "marks",
            is_missing ? MARK_READER_REMEDY
            : error.code == FILTER_DAMAGED
                ? "install the millrace that wrote the file if its version is unknown; "
                  "otherwise restore the directory of spamfilter from a backup, or delete "
                  "it and add the marks again"
                : doctor_unreadable,
            "%s", error.text);
    filter_close(&f);
}

/* Warns if no spamfilter of the running pipeline writes the marks. */
static void check_age(struct doctor *d, const char *path)
{
    const struct daemon_status *spamfilter = &d->status.daemons[peer_named("spamfilter") - peers];
    char age[STATUS_AGE_TEXT];
    struct stat st;
    if (spamfilter->stats || strcmp(spamfilter->state, "stopped") == 0 || stat(path, &st) != 0)
        return;
    status_format_age(age, clock_wall() / USEC_PER_SEC - st.st_mtime);
    doctor_find(d, STATUS_ATTENTION, "marks", MARK_READER_REMEDY,
        "%s: spamfilter is %s, and the doors use its last sync, %s old", path, spamfilter->state, age);
}

/* Checks the marks of the pipeline's spamfilter, and those that the doors read. */
static void check_marks(struct doctor *d)
{
    char *dir = pipeline_daemon_dir(d->config, d->data_dir, "spamfilter", ""),
         *own = mem_printf("%s/" MARKS_FILE, dir), *door = NULL;
    struct door_settings *s;
    struct error error;
    if (door_settings_read(d->config, d->data_dir, &s, &error) == 0 && s && s->adds[DOOR_MARKED])
        door = mem_printf("%s/" MARKS_FILE, s->marks_dir);
    bool has_own = access(own, F_OK) == 0, is_own = door && strcmp(door, own) == 0;
    if (has_own || is_own)
        check_filter(d, own);
    if (is_own)
        check_age(d, own);
    else if (door)
        check_filter(d, door);
    else if (!has_own)
        doctor_find(d, STATUS_FINE, "marks", NULL, "the doors check no links");
    door_settings_free(&s);
    free(dir);
    free(own);
    free(door);
}

static void check_journals(struct doctor *d)
{
    doctor_each_entry(d, "simplequeue", "/queues", check_journal);
    doctor_each_entry(d, "pubsub", "/streams", check_journal);
    doctor_each_entry(d, "spamfilter", "/journals", check_journal);
    doctor_each_entry(d, "lists", "/journals", check_journal);
}

/* Returns the text after "TIME LEVEL compactor " in a line of the log. */
static const char *text_of(char *line)
{
    const char *name = strstr(line, " compactor ");
    line[strcspn(line, "\n")] = '\0';
    return name ? name + sizeof " compactor " - 1 : line;
}

/* Checks the archive. The compactor verifies checksums and sort order of every file, and prints the result in the
 * last line. */
static void check_archive(struct doctor *d)
{
    char *line = NULL;
    size_t room = 0;
    pid_t pid;
    if (d->status.archive_generation < 0) {
        doctor_find(d, STATUS_FINE, "archive", NULL, "there is none");
        return;
    }
    FILE *f = doctor_run_compactor(d, "--verify", STDERR_FILENO, &pid);
    while (f && getline(&line, &room, f) > 0)
        continue;
    int status = doctor_end_compactor(f, pid);
    const char *text = line ? text_of(line) : "the compactor did not run";
    if (status == EX_OK)
        doctor_find(d, STATUS_FINE, "archive", NULL, "sort order and checksums: %s", text);
    else if (status == EX_TEMPFAIL)
        doctor_find(d, STATUS_FINE, "archive", NULL, "not checked: %s", text);
    else
        doctor_find(d, STATUS_DOWN, "archive",
            status == VERIFY_DAMAGED
                ? "restore the file from a backup or another host, then reload (SIGHUP to `millrace up`); an "
                  "older "
                  "generation helps only if it includes the cleared slices: millrace help compaction"
                : doctor_unreadable,
            "%s", text);
    free(line);
}

/* Checks owner and mode of the file of visitor keys, and that a running door has deleted expired keys. */
static void check_key_file(struct doctor *d, const struct door_settings *s)
{
    const char *path = s->visitor_key_file;
    struct stat st, top;
    struct buf text = {0}, remedy = {0};
    struct visitor_key_set set = {.n = 0};
    struct error error;
    int64_t now = clock_wall() / USEC_PER_SEC;
    buf_printf(&remedy, "chown --reference=%s %s; chmod 600 %s", d->data_dir, path, path);
    if (stat(path, &st) != 0 || stat(d->data_dir, &top) != 0)
        doctor_find(d, STATUS_ATTENTION, "visitors", "start the pipeline; the api makes the file", "%s: %s",
            path, strerror(errno));
    else if (st.st_uid != top.st_uid || (st.st_mode & (S_IRWXG | S_IRWXO)))
        doctor_find(d, STATUS_DOWN, "visitors", remedy.ptr, "%s has mode %03o and belongs to user %u", path,
            (unsigned)st.st_mode & 0777, (unsigned)st.st_uid);
    else if (io_read_file(path, VISITOR_FILE_MAX, &text) != 0)
        doctor_find(d, STATUS_ATTENTION, "visitors", "run millrace doctor as the user of the pipeline",
            "%s: %s", path, strerror(errno));
    else if (visitor_key_set_parse(buf_bytes(&text), &set, &error) != 0)
        doctor_find(d, STATUS_DOWN, "visitors", "delete the file; see millrace help privacy", "%s %s", path,
            error.text);
    else if (set.n > 0 &&
             now - visitor_period_end(set.period, set.keys[0].number) - VISITOR_KEEP > KEY_OVERDUE)
        doctor_find(d, STATUS_ATTENTION, "visitors", "start the pipeline, or delete the file",
            "%s has a key that should be deleted, because no door is running", path);
    else
        doctor_find(
            d, STATUS_FINE, "visitors", NULL, "%s has %zu %s", path, set.n, plural(set.n, "key", "keys"));
    explicit_bzero(&set, sizeof set);
    buf_free(&text);
    buf_free(&remedy);
}

static void check_visitors(struct doctor *d)
{
    struct door_settings *s;
    struct error error;
    if (door_settings_read(d->config, d->data_dir, &s, &error) != 0)
        doctor_find(d, STATUS_DOWN, "visitors", "correct the configuration", "%s", error.text);
    else if (s && s->adds[DOOR_VISITOR])
        check_key_file(d, s);
    else
        doctor_find(d, STATUS_FINE, "visitors", NULL, "the doors add none");
    door_settings_free(&s);
}

static bool count_alerts(const struct json_doc *rule, size_t i, void *arg)
{
    (void)i;
    *(uint64_t *)arg += json_doc_length(rule, "/alerts");
    return true;
}

/* Checks the ruler's file of alerts and silences. */
static void check_alerts(struct doctor *d)
{
    char *path = pipeline_daemon_dir(d->config, d->data_dir, "ruler", "/state.json");
    struct buf text = {0};
    uint64_t alerts = 0;
    int rc = io_read_file(path, ALERTS_MAX, &text), why = errno;
    struct json_doc *doc = rc == 0 ? json_doc_parse(buf_bytes(&text)) : NULL;
    uint64_t silences = json_doc_length(doc, "/silences");
    if (rc != 0 && why == ENOENT)
        doctor_find(d, STATUS_FINE, "alerts", NULL, "no ruler has kept any");
    else if (rc != 0)
        doctor_find(d, STATUS_DOWN, "alerts", doctor_unreadable, "%s: %s", path, strerror(why));
    else if (json_doc_at(doc, "/silences").type != JSON_ARRAY ||
             !json_doc_each(doc, "/rules", count_alerts, &alerts))
        doctor_find(d, STATUS_DOWN, "alerts",
            "restore the file from a backup, or delete it to start without alerts and silences",
            "%s: not the state of a ruler", path);
    else
        doctor_find(d, STATUS_FINE, "alerts", NULL, "%s: %" PRIu64 " %s, %" PRIu64 " %s", path, alerts,
            plural(alerts, "alert", "alerts"), silences, plural(silences, "silence", "silences"));
    json_doc_free(&doc);
    buf_free(&text);
    free(path);
}

static const struct {
    void (*run)(struct doctor *d);
    bool reads_all;
} checks[] = {
    {check_daemons, false},
    {check_versions, false},
    {check_disk, false},
    {check_permissions, false},
    {check_clock, false},
    {check_limits, false},
    {check_visitors, false},
    {check_marks, false},
    {check_alerts, true},
    {doctor_check_cells, false},
    {check_journals, true},
    {check_archive, true},
    {doctor_check_conservation, true},
};

static int doctor_with(const struct options *o)
{
    struct doctor d = {.config = options_config(o), .json = options_bool(o, "json")};
    pipeline_status_take(&d.status, d.config, options_string(o, "data_dir"));
    d.data_dir = d.status.pipeline.data_dir;
    d.config = d.status.config;
    fputs(d.json ? "{\"findings\":[\n" : "", stdout);
    bool is_fast = options_bool(o, "fast") || is_other_user(&d);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!checks[i].reads_all || !is_fast) {
            checks[i].run(&d);
            fflush(stdout);
        }
    if (d.json)
        printf("\n],\"status\":%d}\n", (int)d.level);
    pipeline_status_close(&d.status);
    return (int)d.level;
}

int tool_doctor(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "doctor",
        .summary = "checks a pipeline and names the command that corrects each finding",
        .more = "The exit status is 0 if all is well, 1 after a warning, and 2 after a failure.\n",
        .rows = {rows, NULL}};
    return tool_run(&spec, argc, argv, doctor_with);
}
