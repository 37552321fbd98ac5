/* openapi: the description of the API's endpoints (OpenAPI 3.1), from api/openapi.json. */
#ifndef MILLRACE_OPENAPI_H
#define MILLRACE_OPENAPI_H

#include "base/bytes.h"

struct bytes openapi_document(void); /* valid until the process ends */

#endif
