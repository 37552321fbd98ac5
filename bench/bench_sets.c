/* Different users of 1, 7 and 30 days, from a mapped file of sets. bench_sets.py runs it beside a bare loop and Redis.
 *   bench_sets FILE USERS_MILLION PERCENT ROUNDS [hashes]
 * makes FILE, then prints "DAYS MEMBERS MICROSECONDS BYTES_A_MEMBER" (median; opening the sets included). With `hashes`,
 * the members are texts. */
#include "sets/set_algebra.h"
#include "sets/sets_file.h"

#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAYS 30

static uint64_t next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (*state ^ *state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 31;
}

static int append(void *arg, struct bytes piece)
{
    FILE *f = arg;
    return fwrite(piece.ptr, 1, piece.len, f) == piece.len ? 0 : -1;
}

static uint64_t code_of(size_t user, bool is_text)
{
    char text[32];
    if (!is_text)
        return user;
    return set_code(bytes_of(text, (size_t)snprintf(text, sizeof text, "u%zu", user)));
}

static void write_day(struct sets_writer *w, size_t day, size_t users, uint64_t percent, bool is_text)
{
    struct set *s = set_new();
    char key[32];
    uint64_t state = day, position;
    for (size_t u = 0; u < users; u++)
        if (next(&state) % 100 < percent)
            set_add(s, code_of(u, is_text));
    struct set_view v = set_view_of(s);
    struct bytes k = bytes_of(
        key, (size_t)snprintf(key, sizeof key, "v.u|all.c4%c", "123456789abcdefghijklmnopqrstuv"[day]));
    if (sets_writer_add(w, k, &v, &position) != 0)
        abort();
    sets_writer_index(w, position);
    set_free(&s);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t ask(struct sets_file *f, size_t days)
{
    struct set_opened o[DAYS];
    struct set_view v[DAYS] = {{0}};
    struct error error;
    for (size_t d = 0; d < days; d++) {
        if (sets_file_view(f, d, &o[d], &error) != SETS_OK) {
            fprintf(stderr, "%s\n", error.text);
            exit(1);
        }
        v[d] = o[d].view;
    }
    uint64_t n = set_union_size(v, days);
    for (size_t d = 0; d < days; d++)
        set_opened_close(&o[d]);
    return n;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 64;
    size_t users = (size_t)atoi(argv[2]) * 1000000;
    uint64_t percent = (uint64_t)atoi(argv[3]);
    int rounds = atoi(argv[4]);
    bool is_text = argc > 5;
    FILE *out = fopen(argv[1], "w");
    if (!out)
        return 1;
    struct sets_writer *w = sets_writer_new(append, out);
    for (size_t d = 0; d < DAYS; d++)
        write_day(w, d, users, percent, is_text);
    if (sets_writer_finish(w) != 0 || fclose(out) != 0)
        return 1;
    sets_writer_free(&w);
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return 1;
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    struct sets_file *f;
    struct error error;
    if (map == MAP_FAILED ||
        sets_file_open(bytes_of(map, (size_t)st.st_size), argv[1], &f, &error) != SETS_OK)
        return 1;
    int64_t *took = mem_alloc((size_t)rounds * sizeof *took);
    static const size_t spans[] = {1, 7, 30};
    usec_t start = clock_monotonic();
    ask(f, DAYS);
    printf("first %lld\n", (long long)(clock_monotonic() - start));
    for (size_t s = 0; s < 3; s++) {
        uint64_t n = 0;
        for (int r = 0; r < rounds; r++) {
            start = clock_monotonic();
            n = ask(f, spans[s]);
            took[r] = clock_monotonic() - start;
        }
        qsort(took, (size_t)rounds, sizeof *took, compare);
        printf("%zu %llu %lld %.2f\n", spans[s], (unsigned long long)n, (long long)took[rounds / 2],
            (double)st.st_size / ((double)users * (double)percent / 100 * DAYS));
    }
    free(took);
    sets_file_free(&f);
    return 0;
}
