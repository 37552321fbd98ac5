#include "aggregator/aggregator_health.h"

#include "aggregator/aggregator_app.h"

#include <stdio.h>

bool health_check_open(const struct app *app, struct http_request *req)
{
    if (!app->watermark)
        http_problem(req, 503, "not-ready", NULL, "opening the slices");
    return app->watermark != NULL;
}

bool health_check_caught_up(const struct app *app, struct http_request *req)
{
    if (!health_check_open(app, req))
        return false;
    if (!app->answers)
        http_problem(req, 503, "not-ready", NULL, "catching up with the streams");
    return app->answers;
}

void health_set_not_ready(struct app *app, const char *text)
{
    if (strcmp(app->health, text) == 0)
        return;
    snprintf(app->health, sizeof(app->health), "%s", text);
    daemon_set_not_ready(app->daemon, "%s", app->health);
}

static void set_ready(struct app *app)
{
    if (app->health[0] || !daemon_is_ready(app->daemon))
        daemon_set_ready(app->daemon);
    app->health[0] = '\0';
}

/* Describes the first stream that is refused or, before all have caught up once, still behind. */
static bool describe_streams(const struct app *app, char *out, size_t size)
{
    for (size_t i = 0; i < app->streams.n; i++) {
        bool refused;
        const char *trouble = follower_trouble(app->followers[i], &refused);
        bool is_behind = !app->answers && !follower_is_caught_up(app->followers[i]);
        if (!refused && !is_behind)
            continue;
        snprintf(out, size, "%s stream %s%s%s", refused ? "refusing" : "catching up with",
            app->streams.names[i], trouble ? ": " : "", trouble ? trouble : "");
        return true;
    }
    return false;
}

void health_update(struct app *app)
{
    char text[512];
    bool caught_up = true, latched;
    for (size_t i = 0; i < app->streams.n; i++)
        caught_up = caught_up && follower_is_caught_up(app->followers[i]);
    app->answers = app->answers || caught_up;
    const char *failure = aggregate_failure(app->aggregate, &latched);
    if (failure)
        health_set_not_ready(app, failure);
    else if (describe_streams(app, text, sizeof(text)))
        health_set_not_ready(app, text);
    else
        set_ready(app);
    /* With --daemon, the start does not wait for a stream in trouble, which is retried in the background. */
    for (size_t i = 0; i < app->streams.n; i++)
        if (follower_trouble(app->followers[i], NULL) != NULL)
            daemon_notify_parent();
}
