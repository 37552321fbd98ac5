#include "promql/promql_evaluation.h"

#include <stdio.h>

#define POLL_INTERVAL ((size_t)1 << 20)
#define WARNINGS_MAX 20

struct matrix evaluation_fail(struct evaluation *e, enum promql_result_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (e->code == PROMQL_OK)
        error_vset(e->error, (int)(e->code = code), fmt, ap);
    va_end(ap);
    return (struct matrix){0};
}

bool evaluation_work(struct evaluation *e, size_t work)
{
    e->work += work;
    if (e->work > POLL_INTERVAL && e->code == PROMQL_OK) {
        e->work = 0;
        if (e->request.stop && e->request.stop(e->request.context))
            evaluation_fail(e, PROMQL_STOPPED, "the query was stopped before its end");
    }
    return e->code == PROMQL_OK;
}

bool evaluation_fits(struct evaluation *e, size_t n, size_t size)
{
    size_t limit = e->request.max_bytes;
    if (e->memory->used > limit || (size > 0 && n > (limit - e->memory->used) / size))
        evaluation_fail(e, PROMQL_TOO_MANY, "the query needs more than %zu bytes of memory", limit);
    return e->code == PROMQL_OK;
}

struct matrix evaluation_rows(struct evaluation *e, size_t n)
{
    struct matrix m = {0};
    if (!evaluation_fits(e, n, sizeof *m.rows + 16) ||
        !evaluation_fits(e, n, sizeof *m.rows + 16 + e->grid.n * sizeof(double)))
        return m;
    m.rows = arena_alloc(e->memory, n * sizeof *m.rows);
    for (; m.n < n && evaluation_work(e, e->grid.n); m.n++) {
        double *values = arena_alloc(e->memory, e->grid.n * sizeof *values);
        for (size_t k = 0; k < e->grid.n; k++)
            values[k] = absent();
        m.rows[m.n].values = values;
    }
    return m;
}

void evaluation_warn(struct evaluation *e, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < e->n_warnings; i++)
        if (strcmp(e->warnings[i], text) == 0)
            return;
    if (e->n_warnings == WARNINGS_MAX)
        return;
    if (!e->warnings)
        e->warnings = arena_alloc(e->memory, WARNINGS_MAX * sizeof *e->warnings);
    e->warnings[e->n_warnings++] = arena_copy(e->memory, bytes_str(text)).ptr;
}
