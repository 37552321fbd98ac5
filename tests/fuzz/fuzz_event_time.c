/* Any text as the time of an event, RFC 3339 or a number: what the aggregator accepts is the hour that the C library says, and a
 * line of ps_to_file has the time that it has for the aggregator. */
#include "counts/counters.h"
#include "counts/records.h"
#include "streams/archive/event_time.h"

#include <assert.h>
#include <stdlib.h>
#include <stdio.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config_text[] = "[input]\ntime = t\n[total n]\nkey = \"n\"\n";

/* Of "2012-03-16T18:40:47" and "Z" or an offset: the hour, else -1. */
static int64_t expected_hour(const char *text)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int hours = 0, minutes = 0, n = 0;
    char sign = '+';
    if (!end || end != text + 19)
        return -1;
    if (strcmp(end, "Z") != 0 &&
        (sscanf(end, "%c%2d:%2d%n", &sign, &hours, &minutes, &n) != 3 || end[n] || n != 6))
        return -1;
    tm.tm_sec -= tm.tm_sec == 60; /* a leap second; timegm would normalize it into the next minute */
    int64_t t = timegm(&tm);
    t -= (sign == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
    return t - (t % 3600 + 3600) % 3600;
}

static void check(struct counters_reader *r, struct event_time *e, struct bytes line, const char *text)
{
    struct counters_event event;
    int64_t seconds = -1;
    bool has_time = event_time_of(e, line, &seconds);
    enum counters_verdict verdict = counters_extract(r, line, &event);
    assert(verdict != COUNTERS_SKIPPED);
    if (verdict == COUNTERS_REJECTED) {
        assert(event.reason && *event.reason);
        return;
    }
    assert(event.hour % 3600 == 0 && event.hour >= HOUR_FIRST && event.hour < HOUR_END);
    assert(has_time && seconds == event.time);
    if (!text)
        return;
    int64_t expected = expected_hour(text);
    assert(expected < 0 || expected == event.hour);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct counters_reader *reader;
    static struct event_time *time_of;
    struct buf line = {0};
    if (!reader) {
        static struct config *config; /* never freed, like the counters */
        struct counters *counters;
        struct error error;
        if (config_parse("c", bytes_str(config_text), &config, &error) != 0 ||
            counters_read(config, &counters, &error) != 0)
            abort();
        reader = counters_reader_new(counters);
        time_of = event_time_new("t", 1);
    }
    if (memchr(data, '\0', size) || memchr(data, '\n', size))
        return 0;
    char *text = bytes_dup(bytes_of(data, size));
    buf_append_str(&line, "{\"t\":");
    buf_append_json(&line, bytes_of(data, size));
    buf_append_char(&line, '}');
    check(reader, time_of, buf_bytes(&line), text);
    buf_clear(&line);
    buf_printf(&line, "{\"t\":%lld}", strtoll(text, NULL, 10));
    check(reader, time_of, buf_bytes(&line), NULL);
    buf_clear(&line);
    buf_append(&line, data, size);
    event_time_of(time_of, buf_bytes(&line), &(int64_t){0});
    free(text);
    buf_free(&line);
    return 0;
}
