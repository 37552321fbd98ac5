/* log: one line per event on standard error, as `time level part message key=value ...` or as JSON.
 *
 *     log_info("queue recovered", LOG_S("queue", name), LOG_U("messages", n));
 *     2012-03-25T01:00:00.123Z info simplequeue queue recovered queue=default messages=12
 *
 * 1. Each call writes its line with one write(2), so lines of different threads and processes do not mix. Only a line
 *    over 4 KiB may take several writes, unless the log is a file.
 * 2. Values are escaped, so a line never contains a control byte. A value with a space, a quote or '=' is quoted.
 * 3. The log never writes to standard output, which is for data.
 * 4. After log_init, no call waits for the reader of the log. A line that does not fit into the reader's pipe is dropped and counted. The
 *    next line that fits is preceded by a line with the number of dropped lines. The program must ignore SIGPIPE.
 *
 * After log_init, any thread may log. */
#ifndef MILLRACE_LOG_H
#define MILLRACE_LOG_H

#include "base/bytes.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log_field {
    const char *key; /* NULL ends a list */
    enum { LOG_FIELD_BYTES, LOG_FIELD_U64, LOG_FIELD_I64, LOG_FIELD_F64 } type;
    union {
        struct bytes bytes;
        uint64_t u64;
        int64_t i64;
        double f64;
    } v;
};

#define LOG_S(k, s) ((struct log_field){(k), LOG_FIELD_BYTES, {.bytes = bytes_str(s)}})
#define LOG_B(k, b) ((struct log_field){(k), LOG_FIELD_BYTES, {.bytes = (b)}})
#define LOG_U(k, n) ((struct log_field){(k), LOG_FIELD_U64, {.u64 = (n)}})
#define LOG_I(k, n) ((struct log_field){(k), LOG_FIELD_I64, {.i64 = (n)}})
#define LOG_F(k, x) ((struct log_field){(k), LOG_FIELD_F64, {.f64 = (x)}})

/* From log_init on, the log goes to the file or pipe that standard error was at the call. `part` is the daemon's name,
 * which each line contains; the string must stay valid. Before log_init is called, the level is info, the format is
 * text and the part is "millrace". */
void log_init(const char *part, enum log_level least, enum log_format format);
bool log_wants(enum log_level level);
/* The number of log_ calls with this level, for a metric. Calls below the level of log_init count, too. */
uint64_t log_count(enum log_level level);

/* Writes a line of another program, with its LF. */
void log_forward(struct bytes line);
uint64_t log_dropped(void); /* lines, since the start */

void log_emit(enum log_level level, const char *message, const struct log_field *fields);

#define LOG_FIELDS_(...) ((const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){.key = NULL}})
#define log_debug(message, ...)                                                                              \
    (log_wants(LOG_LEVEL_DEBUG) ? log_emit(LOG_LEVEL_DEBUG, (message), LOG_FIELDS_(__VA_ARGS__)) : (void)0)
#define log_info(message, ...) log_emit(LOG_LEVEL_INFO, (message), LOG_FIELDS_(__VA_ARGS__))
#define log_warn(message, ...) log_emit(LOG_LEVEL_WARN, (message), LOG_FIELDS_(__VA_ARGS__))
#define log_error(message, ...) log_emit(LOG_LEVEL_ERROR, (message), LOG_FIELDS_(__VA_ARGS__))

#endif
