/* archive_reload: answers /reload, as sortdb does. The reply is sent once the archive's current generation is open. */
#ifndef MILLRACE_ARCHIVE_RELOAD_H
#define MILLRACE_ARCHIVE_RELOAD_H

#include "api/http.h"

http_handler archive_reload;

#endif
