/* geo: country, region and city of an address, from a file in the MaxMind DB format (GeoLite2, GeoIP2, DB-IP).
 *
 * 1. The file is copied into memory when it is opened. Afterwards the file may be truncated, overwritten or removed: a
 *    copy cannot raise SIGBUS, and answers never mix two versions of the file. The copy takes as much memory as the file,
 *    and twice as much while a new file replaces it.
 * 2. geo_find and geo_problem look at the file's name at most once in GEO_CHECK_SECONDS, and open a changed file. If the new file cannot
 *    be used, the old copy stays in use, geo_problem names the reason, and the next change is tried again.
 * 3. The file's bytes are not trusted: a damaged file yields an error or no place, never a read outside of the copy.
 * 4. An IPv4-mapped IPv6 address is the IPv4 address. An address without a record, such as a private one, has no place.
 *
 * A geo is used by one thread. */
#ifndef MILLRACE_GEO_H
#define MILLRACE_GEO_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "enrich/client_address.h"

#define GEO_CHECK_SECONDS 1

struct geo;

/* Values that the file does not have are empty. */
struct geo_place {
    struct bytes country; /* ISO 3166-1: "US" */
    struct bytes region;  /* ISO 3166-2: "US-CA"; the English name if the file has no code */
    struct bytes city;    /* the English name */
};

/* Returns NULL with the error, which names the file. */
struct geo *geo_open(const char *path, struct error *error);
void geo_free(struct geo **geo);

/* Sets *out, which is valid until the next call of a function of this header. */
void geo_find(struct geo *geo, const struct client_address *address, struct geo_place *out);

/* Returns the reason why the present file is not in use, or NULL. The text is valid until the next call. */
const char *geo_problem(struct geo *geo);

#endif
