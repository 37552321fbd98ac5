#include "base/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DRAW_EVERY (100 * USEC_PER_MSEC)
#define WIDTH 30
#define ERASE_REST "\033[K"

/* a progress line is open; one flag for the process, because standard error is shared */
static bool open_line;

void progress_begin(struct progress *p, const char *unit, bool quiet, usec_t now)
{
    *p = (struct progress){
        .shown = !quiet && isatty(STDERR_FILENO) == 1, .unit = unit, .step = "", .began = now};
}

void progress_show(
    struct progress *p, const char *step, uint64_t done, uint64_t all, uint64_t items, bool last, usec_t now)
{
    static const char full[WIDTH + 1] = "##############################";
    bool is_new = step && strcmp(step, p->step) != 0;
    if (is_new) {
        p->step = step;
        p->began = now;
    }
    if (!p->shown || (!last && !is_new && now - p->drawn_at < DRAW_EVERY))
        return;
    p->drawn_at = now;
    double seconds = (double)(now - p->began) / USEC_PER_SEC + 1e-6;
    double speed = done > p->resumed ? (double)(done - p->resumed) / seconds : 0;
    fprintf(stderr, "\r%s%s", p->step, *p->step ? "  " : "");
    if (all > 0) {
        uint64_t reached = done < all ? done : all;
        int n = (int)(reached * WIDTH / all);
        fprintf(stderr, "[%.*s%*s] %3d %%  ", n, full, WIDTH - n, "", (int)(reached * 100 / all));
    }
    if (all > 0 || items > 0)
        fprintf(stderr, "%" PRIu64 " %s  %.0f %s/s", items, p->unit, (double)items / seconds, p->unit);
    if (all > done && speed > 0)
        fprintf(stderr, "  ETA %.0f s", (double)(all - done) / speed);
    fputs(last ? ERASE_REST "\n" : ERASE_REST, stderr);
    open_line = !last;
}

void progress_leave(void)
{
    if (open_line)
        fputc('\n', stderr);
    open_line = false;
}

void progress_erase(void)
{
    if (open_line)
        fputs("\r" ERASE_REST, stderr);
    open_line = false;
}
