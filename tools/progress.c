#include "tools/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define EVERY (100 * USEC_PER_MSEC)
#define WIDTH 30

static bool drawn; /* a line that is not ended: there is one standard error, whoever writes to it */

void progress_begin(struct progress *p, bool quiet, usec_t now)
{
    *p = (struct progress){.shown = !quiet && isatty(STDERR_FILENO), .began = now};
}

static void show_bar(uint64_t done, uint64_t all)
{
    static const char full[WIDTH + 1] = "##############################";
    int n = (int)((done < all ? done : all) * WIDTH / all);
    fprintf(
        stderr, "[%.*s%*s] %3d %%  ", n, full, WIDTH - n, "", (int)((done < all ? done : all) * 100 / all));
}

void progress_show(struct progress *p, uint64_t done, uint64_t all, uint64_t events, bool last, usec_t now)
{
    if (!p->shown || (!last && now - p->last < EVERY))
        return;
    double seconds = (double)(now - p->began) / USEC_PER_SEC + 1e-6;
    double bytes = done > p->before ? (double)(done - p->before) : 0;
    p->last = now;
    fputc('\r', stderr);
    if (all > 0)
        show_bar(done, all);
    fprintf(stderr, "%" PRIu64 " events  %.1f MB  %.0f events/s", events, (double)done / 1e6,
        (double)events / seconds);
    if (all > done && bytes > 0)
        fprintf(stderr, "  ETA %.0f s", (double)(all - done) * seconds / bytes);
    fputs(last ? "\033[K\n" : "\033[K", stderr);
    drawn = !last;
}

void progress_leave(void)
{
    if (drawn)
        fputc('\n', stderr);
    drawn = false;
}
