/* alert_messages: the messages about alerts, as lines for a queue. There are two ways out:
 *
 *     WAY_ALERTMANAGER  a message for each alert, in the form of POST /api/v2/alerts. A firing alert is repeated every
 *                       resend_delay, because Alertmanager resolves an alert that it has not heard of for a while.
 *     WAY_NOTICES       a message for each group of alerts, in the form of Alertmanager's webhooks (version 4).
 *
 * 1. A message is due until alert_messages_end reports that the queue has it. So each change of an alert is sent at least
 *    once, also after a kill. The ids of alerts are stable.
 * 2. A notice has the firing alerts of a group and those that have resolved since the last notice. A new group waits for
 *    group_wait, later changes for group_interval. Without changes the notice is repeated every repeat_interval. A large
 *    group has several notices of about 128 KiB. If they exceed a request, the changes come first and the rest later.
 * 3. A silenced alert is in no notice. Its resolution is not sent, either. Alertmanager has silences of its own.
 * 4. If an alert fires and resolves before any message about it was stored, none is sent. */
#ifndef MILLRACE_ALERT_MESSAGES_H
#define MILLRACE_ALERT_MESSAGES_H

#include "ruler/alerts.h"
#include "ruler/silences.h"

/* Times are in milliseconds. */
struct message_rules {
    int64_t resend_delay, valid_for; /* Alertmanager resolves an alert after valid_for without a message */
    int64_t group_wait, group_interval, repeat_interval;
    const char *group_by; /* names of labels, separated by spaces or commas */
    int64_t heartbeat;    /* a notice `Watchdog` at this interval; 0: none */
};

struct message_batch {
    struct alert **all; /* all alerts; borrowed until alert_messages_end */
    size_t n, cap;
    struct buf lines;
    bool has_heartbeat;
};

/* Appends the messages that are due, up to about max_bytes, to b->lines. Sets the alerts' members `in_flight`. */
void alert_messages_begin(struct message_batch *b, enum alert_way way, const struct message_rules *rules,
    const struct silences *silences, int64_t now, size_t max_bytes);
/* Appends the heartbeat. */
void alert_messages_heartbeat(struct message_batch *b, int64_t now);
/* Ends a batch: with is_stored, the queue has the messages. Empties the batch. */
void alert_messages_end(struct message_batch *b, enum alert_way way, bool is_stored, int64_t now);

#endif
