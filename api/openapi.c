#include "api/openapi.h"

#include "base/embed.h"

/* OPENAPI_PATH is the path of api/openapi.json. */
EMBED(openapi, OPENAPI_PATH);

struct bytes openapi_document(void)
{
    return EMBEDDED(openapi);
}
