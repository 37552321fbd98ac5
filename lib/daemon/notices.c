#include "daemon/notices.h"

#include "base/io.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DENIED ": Permission denied"
#define N_ALL (sizeof((struct notices *)0)->all / sizeof(struct notice))

static const struct {
    const char *name, *level, *after_owner; /* the last part of a remedy that changes an owner */
} states[NOTICE_STATES] = {
    [NOTICE_WARNING] = {"ready", "needs attention", ""},
    [NOTICE_ALARM] = {"ready", "down", ""},
    [NOTICE_RECOVERING] = {"recovering", "needs attention", ""},
    [NOTICE_REFUSING] = {"refusing", "down", ""},
    [NOTICE_DAMAGED] = {"damaged", "needs attention", ", then " NOTICE_RELOAD},
    [NOTICE_FAILING] = {"failing", "down", ", then restart the daemon"},
    [NOTICE_STOPPING] = {"stopping", "down", ""},
};

/* Returns the remedy of a damaged journal, or NULL. The error of journal_open names the command that checks it. */
static char *journal_remedy(const char *text)
{
    static const char check[] = "`millrace journal check ";
    const char *at = strstr(text, check);
    if (!at)
        return NULL;
    at += sizeof check - 1;
    return mem_printf("millrace journal repair %.*s (millrace help damage)", (int)strcspn(at, "`"), at);
}

char *notice_remedy(enum notice_state state, const char *remedy, const char *text)
{
    char owner[IO_USER_NAME], own[IO_USER_NAME];
    const char *end = strstr(text, DENIED), *at = end;
    struct stat st;
    char *repair = journal_remedy(text);
    if (repair)
        return repair;
    if (!end)
        return mem_strdup(remedy);
    while (at > text && !strchr(" \"", at[-1]))
        at--;
    char *path = bytes_dup(bytes_of(at, (size_t)(end - at)));
    io_user_name(geteuid(), own);
    bool is_other = stat(path, &st) == 0 && st.st_uid != geteuid();
    if (is_other)
        io_user_name(st.st_uid, owner);
    char *out = is_other ? mem_printf("%s belongs to user %s, but the daemons run as user %s: `millrace "
                                      "doctor` names the command%s",
                               path, owner, own, states[state].after_owner)
                         : mem_printf("let user %s read and write %s: `millrace doctor` names the command%s",
                               own, *path == '/' ? path : "the file", states[state].after_owner);
    free(path);
    return out;
}

static void fill(
    struct notice *n, const char *of, enum notice_state state, const char *remedy, const char *text)
{
    free(n->text);
    free(n->remedy);
    *n = (struct notice){
        of, state, text ? mem_strdup(text) : NULL, text ? notice_remedy(state, remedy, text) : NULL};
}

void notices_set(
    struct notices *n, const char *of, enum notice_state state, const char *remedy, const char *text)
{
    struct notice *to = n->all;
    while (to->of && strcmp(to->of, of) != 0)
        to++;
    assert(to < n->all + NOTICES_MAX);
    fill(to, of, state, remedy, text);
}

void notices_add(struct notices *n, const char *remedy, const char *text)
{
    size_t i = n->n_unnamed++;
    if (i < NOTICES_UNNAMED_MAX)
        fill(&n->all[NOTICES_MAX + i], NULL, NOTICE_WARNING, remedy, text);
    else if (i == NOTICES_UNNAMED_MAX)
        fill(&n->all[NOTICES_MAX + i], NULL, NOTICE_WARNING, "", "there are more, see the log");
}

void notices_free(struct notices *n)
{
    for (size_t i = 0; i < N_ALL; i++)
        fill(&n->all[i], NULL, NOTICE_WARNING, NULL, NULL);
}

const struct notice *notices_first(const struct notices *n)
{
    const struct notice *first = NULL;
    for (size_t i = 0; i < N_ALL && !n->all[0].text; i++)
        if (n->all[i].text && (!first || n->all[i].state > first->state))
            first = &n->all[i];
    return n->all[0].text ? &n->all[0] : first;
}

size_t notices_warnings(const struct notices *n)
{
    size_t count = n->n_unnamed;
    for (size_t i = 0; i < NOTICES_MAX; i++)
        count += n->all[i].text && n->all[i].state < NOTICE_RECOVERING;
    return count;
}

void notices_print(const struct notices *n, struct buf *out)
{
    for (size_t i = 0; i < N_ALL; i++) {
        if (n->all[i].text)
            buf_printf(out, "warning: %s\n", n->all[i].text);
        if (n->all[i].text && *n->all[i].remedy)
            buf_printf(out, "remedy: %s\n", n->all[i].remedy);
    }
}

void notice_print(
    enum notice_state state, const char *text, const char *remedy, const char *before, struct buf *out)
{
    buf_printf(out, "%s{\"level\":\"%s\",\"text\":", before, states[state].level);
    buf_append_json(out, bytes_str(text));
    buf_append_str(out, ",\"remedy\":");
    buf_append_json(out, bytes_str(remedy));
    buf_append_char(out, '}');
}

void notices_print_json(const struct notices *n, struct buf *out)
{
    const struct notice *first = notices_first(n), *at;
    buf_printf(out, "{\"state\":\"%s\",\"notices\":[", states[first ? first->state : NOTICE_WARNING].name);
    for (size_t i = 0; first && i <= N_ALL; i++) {
        at = i ? &n->all[i - 1] : first;
        if (at->text && (i == 0 || at != first))
            notice_print(at->state, at->text, at->remedy, i ? "," : "", out);
    }
    buf_append_str(out, "]}");
}
