/* user_agent: browser, operating system and kind of device of a user agent text, and whether a program sent it.
 *
 * The names are the families of uap-core's rules (agent_rules.h). A search of the rules costs thousands of times more
 * than a hit in the cache of earlier texts.
 *
 * 1. The text is untrusted. Only the first AGENT_TEXT_MAX bytes count, and each search has a limit of steps.
 * 2. The cache is bounded by `cache_bytes`, which includes keys, answers and the table. Only one answer may exceed the
 *    bound. Texts that were seen once are evicted before texts that were seen repeatedly. So a client that always
 *    sends new texts does not evict the texts of other clients.
 * 3. The cache never changes an answer.
 * 4. `device` is "phone", "tablet", "desktop", "tv" or "other". An iPad whose browser asks for desktop sites calls itself
 *    a Mac, and is a desktop.
 * 5. `bot` is true if the text is blank, if uap-core calls the device a spider, or if the text has the address of a page
 *    ("://") or a word such as "crawl" or "Headless". `bot` is also true if the text does not begin like a browser's
 *    text and names neither an operating system nor a phone. Therefore curl and HTTP libraries are bots. Programs that
 *    send the text of a browser are missed. Text browsers (Lynx, w3m) are taken for programs.
 *
 * A user_agents is used by one thread. */
#ifndef MILLRACE_USER_AGENT_H
#define MILLRACE_USER_AGENT_H

#include "base/bytes.h"
#include "base/error.h"

#define USER_AGENT_RULES "/usr/share/uap-core/regexes.yaml" /* of Debian's package uap-core */
#define USER_AGENT_CACHE_BYTES ((size_t)8 << 20)            /* some 28,000 texts */

struct user_agents;

struct user_agent {
    struct bytes browser, os; /* "Other" if unknown; may contain any bytes of the text */
    struct bytes device;
    bool bot;
};

/* Reads the rules. Returns NULL with the error, which names the file. */
struct user_agents *user_agents_open(const char *rules_path, size_t cache_bytes, struct error *error);
void user_agents_free(struct user_agents **agents);

/* Sets *out, which is valid until the next call. */
void user_agents_find(struct user_agents *agents, struct bytes text, struct user_agent *out);

/* For statistics and tests. */
size_t user_agents_cached_bytes(const struct user_agents *agents);
uint64_t user_agents_searches(const struct user_agents *agents); /* calls that the cache did not answer */

#endif
