#include "tools/pipeline.h"

#include "counts/json_fields.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define RUN_FILE_MAX (1 << 20)

/* NULL: missing or unreadable. */
static struct json_doc *read_run_file(const char *dir)
{
    struct buf path = {0}, text = {0};
    struct json_doc *doc = NULL;
    buf_printf(&path, "%s/run.json", dir);
    FILE *f = fopen(path.ptr, "re");
    if (f) {
        buf_reserve(&text, RUN_FILE_MAX);
        text.len = fread(text.ptr, 1, RUN_FILE_MAX, f);
        fclose(f);
        doc = json_doc_parse(buf_bytes(&text));
    }
    buf_free(&path);
    buf_free(&text);
    return doc;
}

static char *text_at(const struct json_doc *run, const char *daemon, const char *member)
{
    char pointer[128];
    snprintf(pointer, sizeof pointer, "/daemons/%s/%s", daemon, member);
    struct json_value v = json_doc_at(run, pointer);
    return v.type == JSON_STRING ? bytes_dup(v.v.string) : NULL;
}

void pipeline_open(struct pipeline *p, const struct config *config, const char *data_dir)
{
    const char *configured = config_setting(config, "millrace", "data_dir");
    struct json_doc *run = read_run_file(data_dir ? data_dir : configured ? configured : "millrace-data");
    *p = (struct pipeline){.has_ended = false};
    for (size_t i = 0; i < PEERS; i++) {
        struct pipeline_daemon *d = &p->daemons[i];
        if (run)
            *d = (struct pipeline_daemon){text_at(run, peers[i].name, "url"),
                text_at(run, peers[i].name, "state"), text_at(run, peers[i].name, "said")};
        if (!d->url) {
            struct buf url = {0};
            peer_configured_url(&peers[i], config, &url);
            d->url = bytes_dup(buf_bytes(&url));
            buf_free(&url);
        }
    }
    if (!run)
        return;
    struct json_value pid = json_doc_at(run, "/pid"), ended = json_doc_at(run, "/ended");
    bool is_dead = pid.type == JSON_I64 && pid.v.i64 > 0 && kill((pid_t)pid.v.i64, 0) != 0 && errno != EPERM;
    p->has_ended = is_dead || (ended.type == JSON_BOOL && ended.v.boolean);
    json_doc_free(&run);
}

void pipeline_close(struct pipeline *p)
{
    for (size_t i = 0; i < PEERS; i++) {
        free(p->daemons[i].url);
        free(p->daemons[i].state);
        free(p->daemons[i].status_text);
    }
    *p = (struct pipeline){.has_ended = false};
}

const char *pipeline_url(const struct pipeline *p, const char *daemon)
{
    return p->daemons[peer_named(daemon) - peers].url;
}
