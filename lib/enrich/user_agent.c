#include "enrich/user_agent.h"

#include "base/text_hash.h"
#include "enrich/agent_rules.h"
#include <stdlib.h>
#include <sys/param.h>
#include <uthash.h>

#define USES_MAX 3
#define ENTRY_COST (sizeof(struct entry) + 2 * sizeof(UT_hash_bucket) + 16) /* 16: malloc's own */

struct entry {
    UT_hash_handle hh; /* the table's order is the order of insertion */
    size_t bytes;
    unsigned uses; /* hits since the insertion, at most USES_MAX */
    struct user_agent agent;
    char texts[]; /* the text, the browser and the operating system */
};

struct user_agents {
    struct agent_rules *rules;
    struct entry *entries;
    size_t limit, bytes;
    uint64_t searches;
};

static bool has(struct bytes text, const char *word)
{
    return memmem(text.ptr, text.len, word, strlen(word)) != NULL;
}

/* The first row applies whose `os` is a prefix of the operating system's name and whose `word` is in the text.
 * Otherwise a device with a known maker and without "Mozilla/" is an old phone. */
static struct bytes device_of(struct bytes text, struct bytes os, bool has_maker)
{
    static const struct {
        const char *os, *word, *device;
    } rows[] = {
        {"", "iPad", "tablet"},
        {"iOS", "", "phone"},
        {"Windows Phone", "", "phone"},
        {"Windows Mobile", "", "phone"},
        {"Windows", "Windows CE", "phone"},
        {"Windows", "Xbox", "other"},
        {"Windows", "", "desktop"},
        {"", "MIDP", "phone"},
        {"", "TV", "tv"},
        {"", "BRAVIA", "tv"},
        {"", "Roku", "tv"},
        {"Android", "; AFT", "tv"}, /* Amazon's Fire TV */
        {"Chromecast", "", "tv"},
        {"Web0S", "", "tv"},
        {"ATV OS", "", "tv"},
        {"tvOS", "", "tv"},
        {"", "Tablet", "tablet"},
        {"", "PlayBook", "tablet"},
        {"", "Kindle", "tablet"},
        {"", "Mobi", "phone"},
        {"", "Opera Mini", "phone"},
        {"BlackBerry", "", "phone"},
        {"Symbian", "", "phone"},
        {"KaiOS", "", "phone"},
        {"Android", "Dalvik", "phone"},
        {"Android", "", "tablet"},
        {"Mac OS", "", "desktop"},
        {"Chrome OS", "", "desktop"},
        {"", "X11", "desktop"},
        {"Linux", "", "desktop"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (bytes_starts_with(os, bytes_str(rows[i].os)) && has(text, rows[i].word))
            return bytes_str(rows[i].device);
    }
    bool is_phone = has_maker && !bytes_starts_with(text, BYTES_LITERAL("Mozilla/"));
    return is_phone ? BYTES_LITERAL("phone") : BYTES_LITERAL("other");
}

static bool is_bot(struct bytes text, struct bytes os, struct bytes device, struct bytes device_family)
{
    static const char *const words[] = {
        "://", "bot/", "Bot/", "spider", "Spider", "crawl", "Crawl", "Headless", "PhantomJS", "Lighthouse"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (has(text, words[i]))
            return true;
    }
    bool is_browser = bytes_starts_with(text, BYTES_LITERAL("Mozilla/")) || !bytes_equal_str(os, "Other") ||
                      bytes_starts_with(text, BYTES_LITERAL("Opera/")) || !bytes_equal_str(device, "other");
    return bytes_equal_str(device_family, "Spider") || !is_browser;
}

/* Returns the place after the copy. */
static char *copy(char *place, struct bytes text, struct bytes *out)
{
    *out = bytes_of(place, text.len);
    return mempcpy(place, text.len ? text.ptr : "", text.len);
}

static struct entry *search(struct user_agents *agents, struct bytes text)
{
    struct bytes browser[AGENT_VALUES], os[AGENT_VALUES], device[AGENT_VALUES], key;
    struct buf names = {0};
    agents->searches++;
    agent_rules_find(agents->rules, AGENT_BROWSER, text, browser);
    size_t browser_len = browser[AGENT_FAMILY].len;
    buf_append_bytes(&names, browser[AGENT_FAMILY]);
    agent_rules_find(agents->rules, AGENT_OS, text, os);
    buf_append_bytes(&names, os[AGENT_FAMILY]);
    agent_rules_find(agents->rules, AGENT_DEVICE, text, device);
    struct entry *e = mem_zalloc(sizeof *e + text.len + names.len);
    char *end = copy(e->texts, text, &key);
    end = copy(end, bytes_of(names.ptr, browser_len), &e->agent.browser);
    copy(end, bytes_of(names.ptr + browser_len, names.len - browser_len), &e->agent.os);
    struct bytes brand = device[AGENT_BRAND];
    bool has_maker = brand.len > 0 && !bytes_starts_with(brand, BYTES_LITERAL("Generic")) &&
                     !bytes_equal_str(brand, "Spider");
    e->agent.device = device_of(key, e->agent.os, has_maker);
    e->agent.bot = is_bot(key, e->agent.os, e->agent.device, device[AGENT_FAMILY]);
    e->bytes = ENTRY_COST + text.len + names.len;
    buf_free(&names);
    return e;
}

/* Evicts the oldest entries first. An entry with hits is not evicted: it becomes the newest entry and loses one hit. */
static void make_room(struct user_agents *agents, size_t bytes)
{
    struct entry *e;
    while ((e = agents->entries) && agents->bytes + bytes > agents->limit) {
        HASH_DEL(agents->entries, e);
        if (e->uses > 0) {
            e->uses--;
            HASH_ADD_KEYPTR_BYHASHVALUE(hh, agents->entries, e->texts, e->hh.keylen, e->hh.hashv, e);
        } else {
            agents->bytes -= e->bytes;
            free(e);
        }
    }
}

struct user_agents *user_agents_open(const char *rules_path, size_t cache_bytes, struct error *error)
{
    struct agent_rules *rules = agent_rules_open(rules_path, error);
    if (!rules)
        return NULL;
    struct user_agents *agents = mem_zalloc(sizeof *agents);
    agents->rules = rules;
    agents->limit = cache_bytes;
    return agents;
}

void user_agents_free(struct user_agents **ap)
{
    struct user_agents *agents = *ap;
    *ap = NULL;
    if (!agents)
        return;
    for (struct entry *e; (e = agents->entries);) {
        HASH_DEL(agents->entries, e);
        free(e);
    }
    agent_rules_free(&agents->rules);
    free(agents);
}

void user_agents_find(struct user_agents *agents, struct bytes text, struct user_agent *out)
{
    struct entry *e;
    unsigned hash;
    text = text.len > 0 ? bytes_trim(text) : BYTES_LITERAL("");
    text.len = MIN(text.len, AGENT_TEXT_MAX);
    HASH_VALUE(text.ptr, text.len, hash);
    HASH_FIND_BYHASHVALUE(hh, agents->entries, text.ptr, text.len, hash, e);
    if (e) {
        e->uses += e->uses < USES_MAX;
    } else {
        e = search(agents, text);
        make_room(agents, e->bytes);
        HASH_ADD_KEYPTR_BYHASHVALUE(hh, agents->entries, e->texts, text.len, hash, e);
        agents->bytes += e->bytes;
    }
    *out = e->agent;
}

size_t user_agents_cached_bytes(const struct user_agents *agents)
{
    return agents->bytes;
}

uint64_t user_agents_searches(const struct user_agents *agents)
{
    return agents->searches;
}
