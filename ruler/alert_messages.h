/* alert_messages: the messages about alerts, as lines for a queue. There are two ways out, with one rule for both: a message
 * is due for a group of alerts.
 *
 *     WAY_ALERTMANAGER  in the form of POST /api/v2/alerts. Each alert is a group of its own. A firing alert is repeated often,
 *                       because Alertmanager resolves an alert without a recent message.
 *     WAY_NOTICES       in the form of Alertmanager's webhooks (version 4). A group has the same values of `group_by`.
 *
 * 1. A message is due until alert_messages_end reports that the queue has it. So each change of an alert is sent at least
 *    once, also after a kill. The ids of alerts are stable.
 * 2. A message has the firing alerts of a group and those that have resolved since the last message. A new group waits for
 *    `wait`, later changes for `interval`. Without changes the message is repeated every `repeat`. A large
 *    group has several notices of about 128 KiB. If the notices exceed a request, those with changes are sent first.
 * 3. A silenced alert is in no notice. Its resolution is not sent, either. Alertmanager has silences of its own.
 * 4. If an alert fires and resolves before any message about it was stored, none is sent. */
#ifndef MILLRACE_ALERT_MESSAGES_H
#define MILLRACE_ALERT_MESSAGES_H

#include "ruler/alerts.h"
#include "ruler/silences.h"

/* Times are in milliseconds. */
struct message_rules {
    enum alert_way way;
    int64_t wait, interval, repeat;
    int64_t valid_for;    /* Alertmanager resolves an alert after valid_for without a message */
    const char *group_by; /* names of labels, separated by spaces or commas */
};

struct message_batch {
    struct alert **
        all; /* all alerts; after alert_messages_begin those in the messages, which stay until alert_messages_end */
    size_t n, cap;
    struct buf lines;
};

void alert_messages_add(struct message_batch *b, const struct alert_list *list);
/* Appends the messages that are due, up to about max_bytes, to b->lines. Sets the alerts' members `in_flight`. Before
 * notices, matches a bounded number of alerts with the changed silences. Returns false if alerts are left for the
 * next batch; this batch then has no messages. */
bool alert_messages_begin(struct message_batch *b, const struct message_rules *rules,
    struct silences *silences, int64_t now, size_t max_bytes);
/* Appends the notice `Watchdog`. */
void alert_messages_heartbeat(struct message_batch *b, int64_t now);
/* Ends a batch: with is_stored, the queue has the messages. Empties the batch. */
void alert_messages_end(struct message_batch *b, enum alert_way way, bool is_stored, int64_t now);

#endif
