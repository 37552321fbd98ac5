/* target_names: all names are resolved in turn, also if each name is due again before the others were resolved. */
#include "support/cm.h"

#include "scraper/target_names.h"

#include <event2/event.h>
#include <netdb.h>
#include <stdio.h>

#define NAMES 200

static _Atomic int calls[NAMES];

/* Replaces libc's function. A name has no address. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    int i;
    (void)service, (void)hints, (void)found;
    if (sscanf(host, "name%d", &i) == 1)
        calls[i]++;
    return EAI_NONAME;
}

static void on_change(void *arg)
{
    (void)arg;
}

static void all_in_turn(void **state)
{
    (void)state;
    struct event_base *base = event_base_new();
    struct target_names *names = target_names_new(base, 0, on_change, NULL);
    assert_non_null(names);
    for (int i = 0; i < NAMES; i++) {
        char host[20];
        snprintf(host, sizeof host, "name%d", i);
        assert_null(target_names_find(names, host));
    }
    while (calls[0] < 4)
        event_base_loop(base, EVLOOP_ONCE);
    for (int i = 0; i < NAMES; i++)
        assert_true(calls[i] > 0);
    target_names_free(&names);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
