/* archive_reload: answers /reload, as sortdb does. The reply is sent once the current generation of each mapped archive is open. If
 * the archives of several cells are mapped, the reply lists them, and a failure is that of one archive. */
#ifndef MILLRACE_ARCHIVE_RELOAD_H
#define MILLRACE_ARCHIVE_RELOAD_H

#include "api/http.h"

http_handler archive_reload;

#endif
