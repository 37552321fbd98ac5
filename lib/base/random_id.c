#include "base/random_id.h"

#include <assert.h>
#include <stdio.h>
#include <sys/random.h>

void random_id(char text[RANDOM_ID_SIZE])
{
    unsigned char raw[RANDOM_ID_SIZE / 2];
    ssize_t got = getrandom(raw, sizeof raw, 0);
    assert(got == (ssize_t)sizeof raw);
    (void)got;
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(text + 2 * i, 3, "%02x", raw[i]);
}
