/* http_parse: libhttp-parser's header, private to the http_* files.
 * Its enum http_method would clash with http_server.h's, so it goes by another name here. */
#ifndef MILLRACE_HTTP_PARSE_H
#define MILLRACE_HTTP_PARSE_H

#define http_method http_parser_method
#include <http_parser.h>
#undef http_method

#endif
