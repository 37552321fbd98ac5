#include "dynamo/write_rate.h"

#define LATE (USEC_PER_SEC / 2) /* writes that were late by up to this time are made up for */
#define WINDOW (5 * USEC_PER_SEC)
#define SHORT (USEC_PER_SEC / 10) /* least time over which the first limit is computed */
#define SHARE 0.1                 /* of throttled units to accepted ones, at which the limit stays */
#define GAIN 0.2                  /* part of the limit that a full request of throttled units takes away */
#define FULL 25                   /* units of a full request of small items */
#define STREAK 100                /* units accepted in a row after which the limit rises twice as fast */
#define BASE_FOR (30 * USEC_PER_SEC)
#define HURT                                                                                                 \
    0.7 /* of the accepted rate that remains after the limit has halved: below it, the limit is not the reason */
#define LIMIT_MIN 1
#define LIMIT_MAX 1e7

usec_t write_rate_reserve(struct write_rate *r, double units, usec_t now)
{
    if (r->since == 0)
        r->since = now;
    if (r->limit == 0)
        return now;
    usec_t at = r->next < now - LATE ? now - LATE : r->next;
    r->next = at + (usec_t)(units / r->limit * USEC_PER_SEC);
    return at < now ? now : at;
}

double write_rate_room(const struct write_rate *r)
{
    return r->limit == 0 ? LIMIT_MAX : r->limit;
}

/* Notices at the end of a window whether a lower limit only lowers the accepted rate. */
static void compare(struct write_rate *r, usec_t now)
{
    double rate = r->accepted * USEC_PER_SEC / (double)(now - r->since);
    double share = r->throttled / (r->accepted + r->throttled + 1);
    if (r->base > 0 && now - r->base_at >= BASE_FOR)
        r->base = r->ref_limit = 0;
    r->base = share < r->base ? share : r->base;
    if (r->ref_limit > 0 && r->limit < r->ref_limit && r->limit > r->ref_limit / 2)
        return;
    if (r->ref_limit > 0 && r->limit <= r->ref_limit / 2 && rate < HURT * r->ref_rate) {
        r->base = share;
        r->base_at = now;
        r->limit = r->ref_limit;
        return;
    }
    r->ref_limit = r->limit;
    r->ref_rate = rate;
}

/* Counts accepted units, and returns their rate over one to two windows. */
static double measure(struct write_rate *r, double accepted, double throttled, usec_t now)
{
    if (now - r->since >= WINDOW) {
        if (r->limit > 0 && now - r->since < 2 * WINDOW)
            compare(r, now);
        r->before = now - r->since >= 2 * WINDOW ? 0 : r->accepted;
        r->before_for = now - r->since;
        r->accepted = r->throttled = 0;
        r->since = now;
    }
    r->accepted += accepted;
    r->throttled += throttled;
    return (r->accepted + r->before) * USEC_PER_SEC / (double)(now - r->since + r->before_for + 1);
}

void write_rate_answer(struct write_rate *r, double accepted, double throttled, usec_t now)
{
    double measured = measure(r, accepted, throttled, now), units = accepted + throttled;
    r->streak = throttled > 0 ? 0 : r->streak + accepted;
    if (r->limit == 0 && throttled == 0)
        return;
    if (r->limit == 0) {
        usec_t elapsed = now - r->since + r->before_for;
        r->limit =
            (r->accepted + r->before + units) * USEC_PER_SEC / (double)(elapsed < SHORT ? SHORT : elapsed);
        r->next = now;
    }
    double full = r->limit < FULL ? r->limit : FULL;
    double share = SHARE + r->base / (1 - r->base); /* throttled units to accepted ones */
    double change = (share * accepted - throttled) / (units < full ? full : units);
    if (change < 0 || r->next > now - LATE)
        r->limit *= 1 + GAIN * change * (1 + r->streak / STREAK);
    double least = measured < LIMIT_MIN ? LIMIT_MIN : measured;
    r->limit = r->limit < least ? least : r->limit;
    r->limit = r->limit > LIMIT_MAX ? LIMIT_MAX : r->limit;
}
