#include "spamfilter/mark_line.h"

struct mark_line_error mark_line_error(int error)
{
    static const struct mark_line_error errors[] = {
        [MARK_LINE_FORM] = {400, "bad-url", "a line of the body is a URL without url="},
        [MARK_LINE_JSON] = {400, "bad-line", "not a JSON object with url, op and possibly id"},
        [MARK_LINE_OP] = {400, "bad-line", "op is not add, remove, allow or disallow"},
        [MARK_LINE_BAD_ID] = {400, "bad-id", "the id is not a number from 1 to 4503599627370496 (2^52)"},
        [MARK_LINE_NO_ID] = {409, "id-required",
            "the exact table does not have this mark; give the id of its add"},
        [MARK_LINE_ABSENT] = {404, "absent", "this mark with this id, or this exception, does not exist"},
        [MARK_LINE_LAYER_FULL] = {409, "layer-full",
            "too many adds had this id or earlier ones; add with a higher id"},
        [MARK_LINE_FULL] = {409, "full", "the exceptions take 64 MiB of memory; remove exceptions first"},
    };
    if (error < MARK_LINE_FORM)
        return (struct mark_line_error){400, "bad-url", url_strerror((enum url_error)error)};
    return errors[error];
}

int mark_line_error_of(enum mark_result r)
{
    static const int errors[] = {[MARK_ABSENT] = MARK_LINE_ABSENT,
        [MARK_NO_ID] = MARK_LINE_NO_ID,
        [MARK_FULL] = MARK_LINE_LAYER_FULL,
        [MARK_FAILED] = URL_OK};
    return errors[r];
}

uint64_t mark_line_id_max(enum mark_action action)
{
    return action == MARK_ADD ? MARK_NEW_ID_MAX : MARK_ID_MAX;
}

bool mark_line_cut_id(struct bytes *line, uint64_t max, uint64_t *id)
{
    const char *tab = line->len > 0 ? memrchr(line->ptr, '\t', line->len) : NULL;
    if (!tab)
        return true;
    struct bytes text = bytes_of(tab + 1, (size_t)(line->ptr + line->len - tab - 1));
    line->len = (size_t)(tab - line->ptr);
    return bytes_to_u64(text, id) && *id > 0 && *id <= max;
}

int mark_line_append(struct marks *m, enum mark_action action, struct bytes url, uint64_t id,
    struct url_form *form, struct buf *lines)
{
    struct bytes parents[URL_PARENTS_MAX];
    enum url_error error = url_normalize(url, form);
    if (error != URL_OK)
        return (int)error;
    if (action == MARK_ALLOW && m->exceptions.bytes >= MARKS_EXCEPTIONS_MAX)
        return MARK_LINE_FULL;
    url_parents(form, parents);
    if (action == MARK_ADD && id == 0)
        id = marks_new_id(m);
    mark_update_append(&(struct mark_update){action, id, parents[0]}, lines);
    return URL_OK;
}
