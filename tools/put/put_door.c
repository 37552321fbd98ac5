#include "tools/put/put_door.h"

#include "base/amount.h"
#include "tools/tool.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct put_door {
    struct config
        *own_config; /* configuration of the running pipeline; NULL: the given configuration is used */
    struct door_settings *settings;
    struct enrich *enrich;
    struct log_format *format; /* owns the names of the removed members */
    char *header;              /* member with the content of client_address; NULL: none */
    struct buf peer, forwarded, agent, host, out;
    bool has_problem; /* a problem was printed */
};

static const struct enrich_input input = {.time_field = "time", .units_a_second = 1};

/* Reads the configuration of the pipeline in the data directory. An unreadable configuration may have a door. */
static enum put_door_result running_config(
    const struct put_door_place *place, struct config **out, struct error *error)
{
    struct error why;
    struct pipeline pipeline;
    enum put_door_result r = PUT_DOOR_OPEN;
    pipeline_open(&pipeline, place->config, place->data_dir);
    const char *denied = place->is_remote ? NULL : pipeline.denied;
    if (denied)
        snprintf(why.text, sizeof why.text, "run.json: Permission denied%s", denied);
    if (denied || (pipeline.config_path && config_read(pipeline.config_path, out, &why) != 0)) {
        error_set(error, -1, "cannot read the [door] of the pipeline, use --config: %s", why.text);
        r = PUT_DOOR_WRONG;
    } else if (!pipeline.is_known) {
        r = PUT_DOOR_UNKNOWN;
    }
    pipeline_close(&pipeline);
    return r;
}

/* Returns the name of the member in which log_format stores a header. */
static char *member_of(const char *header)
{
    if (bytes_equal_nocase(bytes_str(header), BYTES_LITERAL("X-Forwarded-For")))
        return mem_strdup("forwarded_for");
    char *member = mem_strdup(header);
    for (char *c = member; *c; c++)
        *c = *c == '-' ? '_' : (char)tolower((unsigned char)*c);
    return member;
}

static int open_enrich(struct put_door *d, const char *log_format, struct error *error)
{
    const char *member;
    d->format = log_format_new(log_format, error);
    d->enrich = d->format ? enrich_new(d->settings, &input, NULL, clock_wall(), clock_boot(), error) : NULL;
    if (!d->enrich)
        return -1;
    for (size_t i = 0; log_format_address(d->format, i, &member); i++)
        if (member)
            enrich_drop(d->enrich, member);
    if (d->settings->address_header) {
        d->header = member_of(d->settings->address_header);
        enrich_drop(d->enrich, d->header);
    }
    return 0;
}

enum put_door_result put_door_open(
    const struct put_door_place *place, const char *log_format, struct put_door **out, struct error *error)
{
    struct put_door *d = *out = mem_zalloc(sizeof *d);
    const struct config *config = place->config;
    bool is_given = config_section(config, "door", "") || config_section(config, "input", "");
    enum put_door_result r = is_given ? PUT_DOOR_OPEN : running_config(place, &d->own_config, error);
    if (r == PUT_DOOR_OPEN && (door_settings_read(d->own_config ? d->own_config : config,
                                   pipeline_dir(config, place->data_dir), &d->settings, error) != 0 ||
                                  (d->settings && open_enrich(d, log_format, error) != 0)))
        r = PUT_DOOR_WRONG;
    if (r != PUT_DOOR_OPEN || !d->settings)
        put_door_close(out);
    return r;
}

void put_door_close(struct put_door **dp)
{
    struct put_door *d = *dp;
    if (!d)
        return;
    enrich_free(&d->enrich);
    door_settings_free(&d->settings);
    log_format_free(&d->format);
    config_free(&d->own_config);
    free(d->header);
    struct buf *const bufs[] = {&d->peer, &d->forwarded, &d->agent, &d->host, &d->out};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_free(bufs[i]);
    free(d);
    *dp = NULL;
}

void put_door_pass(struct put_door *d, const struct log_format *line, struct buf *event)
{
    if (!d)
        return;
    log_format_copy(line, "host", &d->peer);
    log_format_copy(line, d->header, &d->forwarded);
    bool has_agent = log_format_copy(line, "agent", &d->agent);
    log_format_copy(line, "vhost", &d->host);
    /* A log may contain the header, but not the address of the connection. The header's last address then replaces
     * it. */
    bool has_peer = d->peer.len > 0;
    struct enrich_client client = {.peer = buf_bytes(has_peer ? &d->peer : &d->forwarded),
        .forwarded = has_peer ? buf_bytes(&d->forwarded) : BYTES_NONE,
        .agent = buf_bytes(&d->agent),
        .has_no_agent = !has_agent,
        .host = buf_bytes(&d->host)};
    enrich_begin(d->enrich, &client, clock_wall(), clock_boot());
    buf_clear(&d->out);
    enrich_event(d->enrich, buf_bytes(event), &d->out);
    buf_clear(event);
    buf_append_bytes(event, buf_bytes(&d->out));
}

const char *put_door_hide(struct put_door *d, const char *why)
{
    const char *from = d && !d->settings->adds[DOOR_IP] ? strchr(why, '`') : NULL;
    if (!from)
        return why;
    buf_clear(&d->out);
    buf_printf(&d->out, "%.*s(hidden)%s", (int)(from - why), why, strrchr(why, '`') + 1);
    return d->out.ptr;
}

void put_door_tend(struct put_door *d)
{
    const char *problem = d ? enrich_tend(d->enrich, clock_wall(), clock_boot()) : NULL;
    if (problem && !d->has_problem)
        tool_fail(0, "warning: %s", problem);
    if (d)
        d->has_problem = problem != NULL;
}

uint64_t put_door_missed(const struct put_door *d)
{
    uint64_t n = 0;
    for (size_t i = 0; d && i < ENRICH_MISSED; i++)
        n += enrich_missed(d->enrich, (enum enrich_missed)i);
    return n;
}

void put_door_report(struct put_door *d)
{
    struct buf reasons = {0};
    put_door_tend(d);
    if (put_door_missed(d) == 0)
        return;
    for (size_t i = 0; i < ENRICH_MISSED; i++) {
        uint64_t n = enrich_missed(d->enrich, (enum enrich_missed)i);
        if (n > 0)
            buf_printf(&reasons, "%s%" PRIu64 " %s", reasons.len > 0 ? ", " : "", n,
                enrich_missed_name((enum enrich_missed)i));
    }
    tool_fail(0, "warning: %" PRIu64 " %s no visitor (%s); see millrace help privacy", put_door_missed(d),
        plural(put_door_missed(d), "event has", "events have"), reasons.ptr);
    buf_free(&reasons);
}
