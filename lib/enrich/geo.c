#include "enrich/geo.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <maxminddb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_AT_ONCE ((size_t)1 << 30)
#define REGION_MAX 256

struct geo {
    char *path;
    MMDB_s db;
    struct stat seen; /* the file that was opened or refused last */
    usec_t next_check;
    bool is_refused;
    struct error problem;
    char region[REGION_MAX];
};

/* Returns a memory file with the bytes of the file, which nothing can change, or -1 with errno. */
static int copy_file(int file, off_t size)
{
    int copy = memfd_create("geo", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (copy < 0)
        return -1;
    ssize_t n = 1;
    for (off_t done = 0; n > 0 && done < size;) {
        n = sendfile(copy, file, &done, COPY_AT_ONCE);
    }
    if (n > 0 && fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0)
        return copy;
    int saved = n == 0 ? EIO : errno; /* the file has become shorter */
    close(copy);
    errno = saved;
    return -1;
}

/* Opens a copy of the file. Sets *seen to the file, even if the file is refused. */
static int open_copy(const char *path, MMDB_s *db, struct stat *seen, struct error *error)
{
    char name[64];
    memset(seen, 0, sizeof *seen);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), copy = -1, rc = -1;
    if (file < 0 || fstat(file, seen) != 0) {
        error_errno(error, -1, path);
    } else if (!S_ISREG(seen->st_mode) || seen->st_size == 0) {
        error_set(error, -1, "%s: not a MaxMind DB file", path);
    } else if ((copy = copy_file(file, seen->st_size)) < 0) {
        error_errno(error, -1, path);
    } else {
        snprintf(name, sizeof name, "/proc/self/fd/%d", copy);
        int status = MMDB_open(name, MMDB_MODE_MMAP, db);
        rc = status == MMDB_SUCCESS ? 0 : -1;
        if (rc != 0)
            error_set(error, -1, "%s: %s", path, MMDB_strerror(status));
    }
    if (copy >= 0)
        close(copy);
    if (file >= 0)
        close(file);
    return rc;
}

struct geo *geo_open(const char *path, struct error *error)
{
    struct geo *geo = mem_zalloc(sizeof *geo);
    geo->path = mem_strdup(path);
    if (open_copy(path, &geo->db, &geo->seen, error) == 0)
        return geo;
    free(geo->path);
    free(geo);
    return NULL;
}

void geo_free(struct geo **gp)
{
    struct geo *geo = *gp;
    *gp = NULL;
    if (!geo)
        return;
    MMDB_close(&geo->db);
    free(geo->path);
    free(geo);
}

static void check_file(struct geo *geo)
{
    struct stat now;
    MMDB_s db;
    usec_t time = clock_monotonic();
    if (time < geo->next_check)
        return;
    geo->next_check = time + GEO_CHECK_SECONDS * USEC_PER_SEC;
    if (stat(geo->path, &now) == 0 && io_is_same_version(&now, &geo->seen))
        return;
    geo->is_refused = open_copy(geo->path, &db, &geo->seen, &geo->problem) != 0;
    if (geo->is_refused)
        return;
    MMDB_close(&geo->db);
    geo->db = db;
}

/* Returns the text at a path of the record, or none. */
static struct bytes text_at(MMDB_entry_s *record, const char *const *path)
{
    MMDB_entry_data_s data;
    if (MMDB_aget_value(record, &data, path) != MMDB_SUCCESS || !data.has_data ||
        data.type != MMDB_DATA_TYPE_UTF8_STRING)
        return BYTES_NONE;
    return bytes_of(data.utf8_string, data.data_size);
}

#define TEXT_AT(record, ...) text_at(record, (const char *const[]){__VA_ARGS__, NULL})

static void set_place(struct geo *geo, MMDB_entry_s *record, struct geo_place *out)
{
    out->country = TEXT_AT(record, "country", "iso_code");
    if (out->country.len == 0)
        out->country = TEXT_AT(record, "country_code");
    out->city = TEXT_AT(record, "city", "names", "en");
    struct bytes code = TEXT_AT(record, "subdivisions", "0", "iso_code");
    out->region = TEXT_AT(record, "subdivisions", "0", "names", "en");
    if (code.len > 0 && out->country.len > 0 && out->country.len + 1 + code.len <= sizeof geo->region) {
        char *end = mempcpy(geo->region, out->country.ptr, out->country.len);
        *end++ = '-';
        end = mempcpy(end, code.ptr, code.len);
        out->region = bytes_of(geo->region, (size_t)(end - geo->region));
    }
}

void geo_find(struct geo *geo, const struct client_address *address, struct geo_place *out)
{
    bool is_v4 = client_address_is_v4(address);
    struct sockaddr_in ipv4 = {.sin_family = AF_INET};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};
    const struct sockaddr *any = is_v4 ? (const void *)&ipv4 : (const void *)&ipv6;
    int error;
    *out = (struct geo_place){.country = BYTES_NONE};
    check_file(geo);
    memcpy(
        &ipv4.sin_addr, address->bytes + sizeof ipv6.sin6_addr - sizeof ipv4.sin_addr, sizeof ipv4.sin_addr);
    memcpy(&ipv6.sin6_addr, address->bytes, sizeof ipv6.sin6_addr);
    MMDB_lookup_result_s found = MMDB_lookup_sockaddr(&geo->db, any, &error);
    if (error == MMDB_SUCCESS && found.found_entry)
        set_place(geo, &found.entry, out);
}

const char *geo_problem(struct geo *geo)
{
    check_file(geo);
    return geo->is_refused ? geo->problem.text : NULL;
}
