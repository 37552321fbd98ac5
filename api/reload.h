/* reload: answers /reload once the archive's current generation is open, as sortdb does. */
#ifndef MILLRACE_API_RELOAD_H
#define MILLRACE_API_RELOAD_H

#include "api/http.h"

http_handler reload_archive;

#endif
