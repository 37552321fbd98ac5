#include "compactor/merge_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SHOW_EVERY (200 * USEC_PER_MSEC)
#define WIPE "\r\033[K"

void progress_begin(struct progress *p)
{
    *p = (struct progress){.on = isatty(STDERR_FILENO) == 1, .step = ""};
}

void progress_line(const struct run_progress *at, usec_t elapsed, struct buf *out)
{
    buf_printf(out, "%s", at->step);
    if (at->total == 0 || elapsed <= 0)
        return;
    uint64_t done = at->done < at->total ? at->done : at->total;
    double seconds = (double)elapsed / USEC_PER_SEC, rate = (double)at->done / seconds;
    buf_printf(out, "  %d%%  %.0f MB/s", (int)(100.0 * (double)done / (double)at->total), rate / 1e6);
    if (done == 0)
        return;
    uint64_t left = (uint64_t)((double)(at->total - done) / rate);
    buf_printf(out, "  %" PRIu64 ":%02" PRIu64 " left", left / 60, left % 60);
}

void progress_show(const struct run_progress *at, void *arg)
{
    struct progress *p = arg;
    usec_t now = clock_monotonic();
    bool is_new = strcmp(p->step, at->step) != 0;
    if (is_new)
        p->began = now;
    if (!p->on || (!is_new && now - p->shown < SHOW_EVERY))
        return;
    struct buf line = {0};
    progress_line(at, now - p->began, &line);
    fprintf(stderr, WIPE "%.*s", (int)line.len, line.ptr);
    p->shown = now;
    p->step = at->step;
    buf_free(&line);
}

void progress_end(struct progress *p)
{
    if (p->on)
        fputs(WIPE, stderr);
}
