#include "compactor/import_options.h"

#include "archive/archive_options.h"
#include "base/line_source.h"
#include "base/rfc3339.h"

#include <string.h>
#include <sysexits.h>

static int refuse(struct error *error, int status, const char *text)
{
    error_set(error, status, "%s", text);
    return -1;
}

int import_options_check(const struct options *o, struct error *error)
{
    bool is_csv = strcmp(options_string(o, "format"), "csv") == 0;
    for (const struct option_row *row = import_options; row->name && !is_csv; row++)
        if (options_is_set(o, row->name)) {
            error_set(error, EX_USAGE, "--%s needs --import --format=csv", row->name);
            return -1;
        }
    if (is_csv && !options_bool(o, "import"))
        return refuse(error, EX_USAGE, "--format=csv needs --import");
    if (options_text(o, "period") && options_text(o, "date"))
        return refuse(error, EX_USAGE, "--period and --date cannot be combined");
    if (options_bool(o, "count_rows") && options_text(o, "count"))
        return refuse(error, EX_USAGE, "--count-rows and --count cannot be combined");
    return 0;
}

int import_options_read(const struct options *o, struct import_csv_spec *out, struct error *error)
{
    struct counters *counters;
    const char *delimiter = options_text(o, "delimiter"), *zone = options_string(o, "time_zone");
    *out = (struct import_csv_spec){.counters = NULL};
    if (strcmp(options_string(o, "format"), "csv") != 0)
        return 0;
    if (delimiter && !csv_read_delimiter(delimiter, &out->delimiter))
        return refuse(error, EX_USAGE, "--delimiter: expected one character, or tab");
    if (strlen(zone) >= COARSE_ZONE_TEXT || !rfc3339_use_zone(zone))
        return refuse(error, EX_USAGE, "--time-zone: unknown zone; expected a name such as Europe/Berlin");
    if (options_text(o, "encoding") && !line_source_has_encoding(options_text(o, "encoding")))
        return refuse(
            error, EX_USAGE, "--encoding: unknown encoding; `iconv --list` prints those that exist");
    if (!options_config(o))
        return refuse(error, EX_CONFIG, "--format=csv needs the counters: name their file with --config");
    if (counters_read(options_config(o), &counters, error) != 0) {
        error->code = EX_CONFIG;
        return -1;
    }
    out->counters = counters;
    out->counter = options_text(o, "counter");
    out->date = options_text(o, "date");
    out->period = options_text(o, "period");
    out->key = options_text(o, "key");
    out->sub = options_text(o, "sub");
    out->count = options_text(o, "count");
    out->counts_rows = options_bool(o, "count_rows");
    out->unit = options_text(o, "unit");
    out->zone = zone;
    out->encoding = options_text(o, "encoding");
    out->skips_bad = options_bool(o, "skip_bad");
    return 0;
}

void import_options_free(struct import_csv_spec *spec)
{
    struct counters *counters = (struct counters *)(uintptr_t)spec->counters;
    if (counters)
        counters_free(&counters);
    spec->counters = NULL;
}
