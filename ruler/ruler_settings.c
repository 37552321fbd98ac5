/* ruler_settings: the settings of the ruler. */
#include "ruler/ruler_server.h"

#include "config/peers.h"
#include "config/pipeline_dirs.h"

#include <stdlib.h>

#define DAY_MS (INT64_C(86400) * 1000)

#define DURATION(NAME, FALLBACK, MIN, HELP)                                                                  \
    SETTING_DURATION((NAME), (FALLBACK), (MIN), 365 * DAY_MS, "ms", (HELP))

const struct option_row ruler_settings[] = {
    SETTING_STRING("files", "rule files in Prometheus' form (YAML); paths with * ? [], separated by spaces",
        .flags = OPTION_LIST),
    SETTING_STRING("data_dir",
        "directory of the state of alerts and silences; default: ruler below [millrace] data_dir"),
    PEER_OPTIONS("metricdb", "metricdb", ", or of another server with Prometheus' /api/v1/query"),
    DURATION("query_timeout", "10s", 10, "timeout of a query"),
    DURATION("interval", "1m", 100, "interval of groups that set none"),
    DURATION("failure_for", "1m", 0, "time for which a rule must fail before RuleEvaluationFailed fires"),
    PEER_OPTIONS("pubsub", "pubsub", ""),
    SETTING_STRING("stream",
        "stream of pubsub for recorded samples and the series ALERTS; unset: they are not published"),
    SETTING_STRING("producer", "producer name at pubsub, one for each ruler", .fallback = "ruler"),
    SETTING_SIZE("buffer_bytes", "64M", 1 << 20, INT64_C(1) << 40,
        "memory for lines that wait for pubsub; then the oldest evaluation is dropped"),
    PEER_OPTIONS("queue", "simplequeue", ""),
    SETTING_STRING(
        "alertmanager_queue", "queue for messages to Alertmanager, one for each alert; unset: none"),
    SETTING_STRING(
        "notice_queue", "queue for notices to other receivers, one for each group of alerts; unset: none"),
    DURATION("resend_delay", "1m", 100, "interval at which a firing alert is sent to Alertmanager again"),
    SETTING_STRING("group_by", "labels whose values make a group of alerts, which shares a notice",
        .fallback = "alertname"),
    DURATION("group_wait", "30s", 0, "delay of the first notice of a group, for further alerts"),
    DURATION("group_interval", "5m", 0, "shortest time between two notices of a group"),
    DURATION("repeat_interval", "4h", 100, "interval of notices about alerts that continue to fire"),
    DURATION("heartbeat", "0", 0,
        "interval of the notice Watchdog, whose absence shows the receiver that notices do not arrive (0: "
        "none)"),
    DURATION("request_timeout", "5s", 10, "timeout of requests to the queue and to pubsub"),
    DURATION("backoff_min", "50ms", 1, "wait after the first failed request"),
    DURATION("backoff_max", "2s", 1, "longest wait after failed requests"),
    {.name = NULL},
};

const char *const ruler_queue_settings[ALERT_WAYS] = {"alertmanager_queue", "notice_queue"};

int ruler_check_settings(struct options *o, struct error *error)
{
    struct rule_groups groups = {0};
    if (!options_text(o, "files"))
        return options_refuse(o, "files", error, "required: rule files");
    if (pipeline_inherit_dir(o, "ruler", error) != 0 || peer_check(o, "metricdb", error) != 0 ||
        peer_check(o, "pubsub", error) != 0 || peer_check(o, "simplequeue", error) != 0)
        return -1;
    if (options_check_name(o, "stream", error) != 0 || options_check_name(o, "producer", error) != 0)
        return -1;
    for (size_t w = 0; w < ALERT_WAYS; w++)
        if (options_check_name(o, ruler_queue_settings[w], error) != 0)
            return -1;
    if (options_int(o, "backoff_min") > options_int(o, "backoff_max"))
        return options_refuse(o, "backoff_min", error, "exceeds backoff_max");
    if (!options_check_only(o))
        return 0;
    int rc = rules_read(options_text(o, "files"), options_int(o, "interval"), &groups, error);
    rules_free(&groups);
    return rc;
}
