/* reject_options: the settings of a file of refused lines (base/reject_file.h). Each program defines the row of its
 * setting `rejects` itself. */
#ifndef MILLRACE_REJECT_OPTIONS_H
#define MILLRACE_REJECT_OPTIONS_H

#include "base/reject_file.h"
#include "config/options.h"

/* clang-format off */
#define REJECT_LIMIT_ROWS(bytes_help, age_help)                                                              \
    {.name = "rejects_max_bytes", .type = OPTION_SIZE, .fallback = "256M", .max = INT64_C(1) << 40, .unit = "bytes", \
        .help = bytes_help},                                                                                 \
    {.name = "rejects_max_age", .type = OPTION_DURATION, .fallback = "30d", .max = INT64_C(3660) * 24 * 3600 * 1000, \
        .unit = "s", .help = age_help}
/* clang-format on */
#define REJECT_LIMIT_OPTIONS                                                                                 \
    REJECT_LIMIT_ROWS(                                                                                       \
        "delete the oldest lines of rejects once FILE and FILE.1 exceed this size; 0: unlimited",            \
        "delete lines of rejects after this time; 0: keep them")

/* Returns the reject file of the settings. The path of the file is borrowed from the options, and NULL if `rejects` is
 * unset. */
static inline struct reject_file reject_options_file(const struct options *o)
{
    return (struct reject_file){options_text(o, "rejects"), (uint64_t)options_int(o, "rejects_max_bytes"),
        options_int(o, "rejects_max_age") * USEC_PER_MSEC};
}

#endif
