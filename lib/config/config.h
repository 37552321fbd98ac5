/* config: the one file that describes one pipeline, read with inih and kept with its line numbers.
 *
 * The file is INI: `[section]` or `[section NAME]`, `key = value`, comments from `;` or `#` at the start of
 * a line and from ` ;` behind a value. A value may be in double quotes where that means something to its
 * reader; config keeps the quotes. Nothing is interpreted here: options.h reads the daemons' sections,
 * counters.h the [input], [total ...] and [subtotal ...] sections.
 *
 * 1. Entries and sections keep the order of the file.
 * 2. Every entry and section knows its line, so that whoever refuses it can name file and line.
 * 3. A syntax error, a line over CONFIG_LINE_MAX, a section that is there twice, or a key twice in one
 *    section is an error of config_read: nothing is silently merged or overridden.
 * 4. A section whose kind (first word) is no daemon's, no tool's and no counter's is an error of config_read.
 * 5. A line that begins with white space is an error: other readers of INI take it for the rest of the value
 *    before it.
 */
#ifndef MILLRACE_CONFIG_H
#define MILLRACE_CONFIG_H

#include "base/bytes.h"

#define CONFIG_LINE_MAX 190 /* bytes; inih's own bound is 200 */

struct config_entry {
    const char *key;
    const char *value;
    int line;
};

struct config_section {
    const char *kind; /* "simplequeue", "total", ... */
    const char *name; /* the second word, or "" */
    int line;
    size_t n_entries;
    const struct config_entry *entries;
};

struct config {
    const char *path; /* as given */
    size_t n_sections;
    const struct config_section *sections;
    size_t n_entries; /* of all sections together */
    const struct config_entry *entries;
};

struct config_error {
    char text[512]; /* "FILE:LINE: what is wrong" */
};

/* 0, or -1 with *error filled. *out is freed with config_free. */
int config_read(const char *path, struct config **out, struct config_error *error);
/* The same from memory (tests, fuzzing); `path` only names it. */
int config_parse(const char *path, struct bytes text, struct config **out, struct config_error *error);
void config_free(struct config **c);

/* NULL when there is none. `name` "" is the unnamed one. */
const struct config_section *config_section(const struct config *c, const char *kind, const char *name);
/* The entry's value; NULL if it or the section is missing. */
const char *config_value(const struct config_section *s, const char *key);
/* The same from the unnamed section of that kind; c may be NULL. */
static inline const char *config_setting(const struct config *c, const char *kind, const char *key)
{
    return config_value(config_section(c, kind, ""), key);
}

/* "FILE:LINE: " and the message, into *error; returns -1, for `return config_fail(...)`. */
int config_fail(struct config_error *error, const struct config *c, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
