#include "tools/pipeline.h"

#include "counts/json_fields.h"
#include "config/peers.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define RUN_FILE_MAX (1 << 20)

struct pipeline {
    const struct config *config;
    struct json_doc *run; /* NULL: no run.json */
    char *texts[3 * PEERS];
    size_t n_texts;
};

static struct json_doc *read_run_file(const char *dir)
{
    struct buf path = {0}, text = {0};
    buf_printf(&path, "%s/run.json", dir);
    FILE *f = fopen(path.ptr, "re");
    buf_free(&path);
    if (!f)
        return NULL;
    buf_reserve(&text, RUN_FILE_MAX);
    text.len = fread(text.ptr, 1, RUN_FILE_MAX, f);
    fclose(f);
    struct json_doc *doc = json_doc_parse(buf_bytes(&text));
    buf_free(&text);
    return doc;
}

struct pipeline *pipeline_open(const struct config *config, const char *data_dir)
{
    struct pipeline *p = mem_zalloc(sizeof *p);
    const char *configured = config_setting(config, "millrace", "data_dir");
    p->config = config;
    p->run = read_run_file(data_dir ? data_dir : configured ? configured : "millrace-data");
    return p;
}

void pipeline_close(struct pipeline **pp)
{
    struct pipeline *p = *pp;
    if (!p)
        return;
    json_doc_free(&p->run);
    for (size_t i = 0; i < p->n_texts; i++)
        free(p->texts[i]);
    free(p);
    *pp = NULL;
}

/* Interns a text until the pipeline is closed. */
static const char *keep(struct pipeline *p, struct bytes text)
{
    for (size_t i = 0; i < p->n_texts; i++)
        if (bytes_equal_str(text, p->texts[i]))
            return p->texts[i];
    if (p->n_texts == sizeof p->texts / sizeof *p->texts)
        return NULL;
    return p->texts[p->n_texts++] = bytes_dup(text);
}

static const char *run_member(struct pipeline *p, const char *daemon, const char *member)
{
    char pointer[128];
    if (!p->run)
        return NULL;
    snprintf(pointer, sizeof pointer, "/daemons/%s/%s", daemon, member);
    struct json_value v = json_doc_at(p->run, pointer);
    return v.type == JSON_STRING ? keep(p, v.v.string) : NULL;
}

static const char *configured_url(struct pipeline *p, const struct peer *peer)
{
    struct buf url = {0};
    peer_configured_url(peer, p->config, &url);
    const char *kept = keep(p, buf_bytes(&url));
    buf_free(&url);
    return kept;
}

bool pipeline_may_run(const struct pipeline *p)
{
    struct json_value pid = p->run ? json_doc_at(p->run, "/pid") : (struct json_value){.type = JSON_MISSING};
    struct json_value ended = p->run ? json_doc_at(p->run, "/ended") : pid;
    if (ended.type == JSON_BOOL && ended.v.boolean)
        return false;
    return pid.type != JSON_I64 || pid.v.i64 <= 0 || kill((pid_t)pid.v.i64, 0) == 0 || errno == EPERM;
}

const char *pipeline_url(struct pipeline *p, const char *daemon)
{
    const char *url = run_member(p, daemon, "url");
    const struct peer *peer = peer_named(daemon);
    if (url)
        return url;
    return peer ? configured_url(p, peer) : NULL;
}

const char *pipeline_state(struct pipeline *p, const char *daemon)
{
    return run_member(p, daemon, "state");
}

const char *pipeline_status_text(struct pipeline *p, const char *daemon)
{
    return run_member(p, daemon, "said");
}
