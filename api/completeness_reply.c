#include "api/completeness_reply.h"

#include "api/render.h"

void completeness_add_headers(struct http_request *req, const struct completeness *complete)
{
    http_add_header(req, "X-Millrace-Complete-Until", "%lld", (long long)complete->until);
    if (complete->held_by[0])
        http_add_header(req, "X-Millrace-Held-By", "%s", complete->held_by);
    for (size_t i = 0; i < complete->n_missing; i++)
        http_add_header(req, "X-Millrace-Missing", "%s since %lld", complete->missing[i].name,
            (long long)complete->missing[i].since);
}

void completeness_refuse(
    struct http_request *req, const struct completeness *complete, bool allows_partial, const char *why)
{
    struct buf members = {0};
    buf_append_str(&members, "\"hint\":");
    buf_append_json(&members,
        bytes_str(complete->remedy ? complete->remedy
                  : allows_partial
                      ? "try again"
                      : "try again, or use partial=allow for an answer without the missing sources"));
    if (complete->n_missing > 0) {
        buf_append_str(&members, ",\"missing\":");
        render_missing(complete, &members);
    }
    buf_append_char(&members, '\0');
    http_problem_with(req, 503, "upstream-unavailable", members.ptr, "%s", why);
    buf_free(&members);
}
