#include "sortdb/sortdb_health.h"

#include "sortdb/sortdb_app.h"

#include <stdio.h>

void health_update(struct app *app)
{
    char text[GENERATION_ERROR_TEXT] = "", error[GENERATION_ERROR_TEXT];
    if (!app->generation)
        return;
    if (app->reload_error[0])
        snprintf(text, sizeof(text), "reload failed: %.900s", app->reload_error);
    else if (!generation_is_whole(app->generation, error) || !generation_is_untouched(app->generation, error))
        snprintf(text, sizeof(text), "%s", error);
    if (daemon_is_ready(app->daemon) == (text[0] == '\0') && strcmp(text, app->health) == 0)
        return;
    memcpy(app->health, text, sizeof(text));
    if (text[0])
        daemon_set_not_ready(app->daemon, "%s", text);
    else
        daemon_set_ready(app->daemon);
}
