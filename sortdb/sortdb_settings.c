#include "sortdb/sortdb_settings.h"

#include "read/read_protocol.h"

#include <unistd.h>

#define THREADS_MAX 256

const struct option_row settings_rows[] = {
    SETTING_STRING(
        "archive", "directory of the archive; sortdb serves its current generation", .min = 1, .max = 4096),
    SETTING_STRING("db_file", "file to serve, sorted by LC_ALL=C sort", .min = 1, .max = 4096),
    SETTING_STRING("field_separator", "separator in db_file: one character, or tab, comma, pipe or space",
        .fallback = "tab", .min = 1, .max = 5),
    SETTING_BOOL("memory_lock", "lock the files in memory (mlock)"),
    SETTING_INT("threads", "1", 1, THREADS_MAX, "threads that serve requests; unset: one for each processor"),
    READ_PROTOCOL_SETTING("32M"),
    {0},
};

int settings_read_source(const struct options *o, struct generation_source *s, struct error *error)
{
    static const struct {
        const char *name;
        char separator;
    } names[] = {{"tab", '\t'}, {"\\t", '\t'}, {"comma", ','}, {"space", ' '}, {"pipe", '|'}};
    const char *separator = options_string(o, "field_separator");
    *s = (struct generation_source){.archive = options_string(o, "archive"),
        .db_file = options_string(o, "db_file"),
        .lock_memory = options_bool(o, "memory_lock")};
    if (!s->archive == !s->db_file)
        return error_set(error, -1, "%s; set exactly one of them",
            s->archive ? "both archive and db_file are set" : "neither archive nor db_file is set");
    bool is_good = separator[0] != '\0' && separator[1] == '\0' && separator[0] != '\n';
    s->separator = separator[0];
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !is_good; i++) {
        is_good = strcmp(separator, names[i].name) == 0;
        s->separator = names[i].separator;
    }
    if (!is_good)
        return options_refuse(o, "field_separator", error, "%s is not one character", separator);
    if (s->archive && options_is_set(o, "field_separator") && s->separator != ',')
        return options_refuse(o, "field_separator", error, "an archive always uses a comma");
    return 0;
}

static int64_t processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
}

int settings_check(struct options *o, struct error *error)
{
    struct generation_source source;
    if (!options_is_set(o, "threads") && options_set_default(o, "threads", processors(), error) != 0)
        return -1;
    return settings_read_source(o, &source, error);
}
