/* fuzz_main: runs a fuzz target without libFuzzer, in any build: each input of a directory as it is, then changed here
 * and there, for so many seconds. It finds less than libFuzzer does, but runs in every `make test`.
 *
 * usage: PROGRAM CORPUS [SECONDS]; MILLRACE_SEED (default 1) */
#include "base/bytes.h"
#include "base/clock.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUTS 64

static struct buf inputs[INPUTS];
static size_t n_inputs;
static unsigned seed;

static size_t below(size_t n)
{
    return n ? (size_t)rand_r(&seed) % n : 0;
}

static void load(const char *dir)
{
    char path[512], bytes[4096];
    DIR *d = opendir(dir);
    if (!d)
        abort();
    for (struct dirent *e; (e = readdir(d)) != NULL && n_inputs < INPUTS;) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *file = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file)
            continue;
        for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
            buf_append(&inputs[n_inputs], bytes, n);
        fclose(file);
        n_inputs++;
    }
    closedir(d);
}

static void change(struct buf *b)
{
    size_t at = below(b->len), n = 1 + below(below(4) ? 8 : 300);
    if (b->len == 0)
        return;
    if (n > b->len - at)
        n = b->len - at;
    switch (below(6)) {
    case 0:
        b->ptr[at] = (char)(b->ptr[at] ^ 1 << below(8));
        break;
    case 1:
        memset(b->ptr + at, below(2) ? 0 : 255, n);
        break;
    case 2:
        memmove(b->ptr + at, b->ptr + below(b->len - n + 1), n);
        break;
    case 3:
        b->len = at;
        break;
    case 4:
        memmove(b->ptr + at, b->ptr + at + n, b->len - at - n);
        b->len -= n;
        break;
    default:
        for (size_t i = 0; i < n; i++)
            b->ptr[at + i] = (char)below(256);
    }
}

static void run(const struct buf *b)
{
    uint8_t *exact = mem_alloc(b->len + 1);
    memcpy(exact, b->ptr, b->len);
    LLVMFuzzerTestOneInput(exact, b->len);
    free(exact);
}

int main(int argc, char **argv)
{
    const char *given = getenv("MILLRACE_SEED");
    seed = given ? (unsigned)atoi(given) : 1;
    printf("MILLRACE_SEED=%u\n", seed);
    if (argc < 2)
        return 64;
    load(argv[1]);
    for (size_t i = 0; i < n_inputs; i++)
        run(&inputs[i]);
    usec_t end = clock_monotonic() + (argc > 2 ? atoi(argv[2]) : 2) * USEC_PER_SEC;
    unsigned long runs = 0;
    for (; n_inputs && clock_monotonic() < end; runs++) {
        struct buf b = {0};
        buf_append_bytes(&b, buf_bytes(&inputs[below(n_inputs)]));
        for (size_t changes = 1 + below(6); changes > 0; changes--)
            change(&b);
        run(&b);
        buf_free(&b);
    }
    printf("%lu changed inputs\n", runs);
    return 0;
}
