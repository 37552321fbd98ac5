#include "base/remote_moment.h"

#include <inttypes.h>
#include <stdio.h>

bool remote_moment_read(struct remote_moment *m, struct bytes text, usec_t here)
{
    const size_t life = RANDOM_ID_SIZE - 1;
    uint64_t there;
    if (text.len <= life || text.ptr[life] != '.' || !bytes_is_name(bytes_of(text.ptr, life)) ||
        !bytes_to_u64(bytes_of(text.ptr + life + 1, text.len - life - 1), &there) || there > INT64_MAX / 2)
        return false;
    memcpy(m->life, text.ptr, life);
    m->life[life] = '\0';
    m->there = (usec_t)there;
    m->here = here;
    return true;
}

void remote_moment_append(const struct remote_moment *m, usec_t here, char *target, size_t size)
{
    usec_t there = m->there + (here - m->here);
    size_t len = strlen(target);
    if (m->life[0])
        snprintf(target + len, size - len, "&until_moment=%s.%" PRId64, m->life, there > 0 ? there : 0);
}
