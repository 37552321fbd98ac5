/* archive_reload: answers /reload once the archive's current generation is open, as sortdb does. */
#ifndef MILLRACE_ARCHIVE_RELOAD_H
#define MILLRACE_ARCHIVE_RELOAD_H

#include "api/http.h"

http_handler archive_reload;

#endif
