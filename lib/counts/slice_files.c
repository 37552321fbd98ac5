#include "counts/slice_files.h"

#include "base/io.h"
#include "counts/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_DIGITS 10

char *slice_path(const char *directory, uint64_t number)
{
    return mem_printf("%s/%0*" PRIu64 ".db", directory, FILE_DIGITS, number);
}

bool slice_file_number(const char *name, uint64_t *number)
{
    const char *dot = strchr(name, '.');
    size_t digits = dot ? (size_t)(dot - name) : 0;
    return digits >= FILE_DIGITS && (digits == FILE_DIGITS || *name != '0') && strcmp(dot, ".db") == 0 &&
           bytes_to_u64(bytes_of(name, digits), number) && *number > 0;
}

bool slice_has_log(const char *path)
{
    struct stat st;
    char *log = mem_printf("%s-wal", path);
    bool has = stat(log, &st) == 0 && st.st_size > 0;
    free(log);
    return has;
}

int slice_unlink(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char *file = mem_printf("%s%s", path, suffixes[i]);
        bool failed = io->unlink(file) != 0 && errno != ENOENT;
        free(file);
        /* Without the sync, the file could be restored by a power cut without its log. */
        if (failed || (i == 0 && io_sync_parent(path) != 0))
            return -1;
    }
    return 0;
}

int slice_files_find(const char *directory, uint64_t after, struct slice_range *out)
{
    uint64_t number;
    DIR *d = opendir(directory);
    *out = (struct slice_range){0};
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));)
        if (slice_file_number(e->d_name, &number) && number > after) {
            out->first = out->first == 0 || number < out->first ? number : out->first;
            out->last = number > out->last ? number : out->last;
        }
    return closedir(d);
}

uint64_t slice_files_missing(const char *directory, uint64_t first, uint64_t last)
{
    for (uint64_t n = first; n <= last; n++) {
        char *path = slice_path(directory, n);
        bool is_there = access(path, F_OK) == 0;
        free(path);
        if (!is_there)
            return n;
    }
    return 0;
}

int slice_files_check_archive(const char *directory, const char *archive, struct error *error)
{
    struct slice_range found;
    uint64_t generation;
    if (slice_files_find(directory, 0, &found) != 0 || found.last == 0 ||
        manifest_current(archive, &generation, error) != MANIFEST_ABSENT)
        return 0;
    return error_set(error, -1,
        "the archive %.300s is missing: restore the archive, or move it back. To begin with a new, empty "
        "archive: millrace compactor --archive=%.300s --init",
        archive, archive);
}
