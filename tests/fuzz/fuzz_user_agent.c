/* Any bytes as a user agent: the answer is the same from a small cache, that other answers pass through, and from none. */
#include "enrich/user_agent.h"
#include "support/fuzz_copy.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct user_agents *cached, *uncached;
    struct user_agent one, other;
    struct error error;
    if (!cached) {
        cached = user_agents_open(USER_AGENT_RULES, 4000, &error);
        uncached = user_agents_open(USER_AGENT_RULES, 0, &error);
    }
    if (!cached || !uncached)
        abort();
    char *copy = fuzz_copy(bytes_of(data, size));
    struct bytes text = bytes_of(copy, size);
    user_agents_find(uncached, text, &one);
    user_agents_find(cached, text, &other);
    assert(bytes_equal(one.browser, other.browser) && bytes_equal(one.os, other.os));
    assert(bytes_equal(one.device, other.device) && one.bot == other.bot);
    assert(one.browser.len > 0 && one.os.len > 0 && one.device.len > 0);
    assert(user_agents_cached_bytes(cached) <= 4000);
    free(copy);
    return 0;
}
