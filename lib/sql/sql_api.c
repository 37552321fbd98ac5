/* The functions of the SQLite that loads the extension; the extension sets the pointer when it is loaded. */
#include <sqlite3ext.h>

SQLITE_EXTENSION_INIT1
