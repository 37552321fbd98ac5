#include "streams/archive/archive_shortage.h"

#include "base/log.h"

#include <stdio.h>

#define LOG_INTERVAL (60 * USEC_PER_SEC)

const char *archive_shortages_text(const struct archive_shortages *s)
{
    for (int i = 0; i < SHORTAGE_KINDS; i++)
        if (s->on[i])
            return s->text[i];
    return NULL;
}

void archive_shortages_log(struct archive_shortages *s, usec_t now)
{
    const char *text = archive_shortages_text(s);
    if (text != NULL && now >= s->log_at) {
        log_error("waiting for space, descriptors or memory", LOG_S("error", text));
        s->log_at = now + LOG_INTERVAL;
        s->logged = true;
    }
    if (text == NULL && s->logged) {
        log_info("the shortage is over");
        s->logged = false;
    }
}

void archive_shortages_set(
    struct archive_shortages *s, enum archive_shortage_kind kind, const char *text, usec_t now)
{
    snprintf(s->text[kind], sizeof s->text[kind], "%s", text);
    s->begun += !s->on[kind];
    s->on[kind] = true;
    archive_shortages_log(s, now);
}

void archive_shortages_clear(struct archive_shortages *s, enum archive_shortage_kind kind, usec_t now)
{
    s->on[kind] = false;
    archive_shortages_log(s, now);
}
