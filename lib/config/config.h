/* config: reads the configuration file, which describes one pipeline.
 *
 * The configuration file is an INI file with lines `[section]` or `[section NAME]`, and `key = value` or `key: value`.
 * A comment begins with `;` or `#` at the start of a line, or with ` ;` after a value. Quotes are part of a value. This
 * module does not interpret values: options.h reads the settings of daemons, and counters.h the sections of counters.
 *
 * 1. Sections and entries are in the order of the file, with their line numbers.
 * 2. config_read fails on a syntax error, a line over CONFIG_LINE_MAX, an indented setting, a repeated section or key,
 *    or an unknown kind of section. Therefore no setting silently overrides another setting. */
#ifndef MILLRACE_CONFIG_H
#define MILLRACE_CONFIG_H

#include "base/bytes.h"
#include "base/error.h"

#define CONFIG_LINE_MAX 1000 /* bytes */

struct config_entry {
    const char *key;
    const char *value;
    int line;
};

struct config_section {
    const char *kind; /* first word of the section: "simplequeue", "total", ... */
    const char *name; /* second word of the section, or "" */
    int line;
    size_t n_entries;
    const struct config_entry *entries;
};

struct config {
    const char *path; /* path of the file, as given to config_read */
    size_t n_sections;
    const struct config_section *sections;
    size_t n_entries; /* number of entries in all sections together */
    const struct config_entry *entries;
};

/* Returns 0, or -1 with the error. The caller frees *out with config_free. */
int config_read(const char *path, struct config **out, struct error *error);
/* Parses a configuration from memory, for config_read and tests. Errors name the text `path`. */
int config_parse(const char *path, struct bytes text, struct config **out, struct error *error);
void config_free(struct config **c);

/* Finds the file that a program without --config reads: the file that MILLRACE_CONFIG names, or the installation's file
 * if MILLRACE_CONFIG is unset. The installation's file is PREFIX/etc/millrace/millrace.conf, or
 * /etc/millrace/millrace.conf if PREFIX is /usr or /usr/local. PREFIX is known if the program is in PREFIX/bin or
 * PREFIX/libexec/millrace. Returns false if MILLRACE_CONFIG is empty, or if MILLRACE_CONFIG is unset and the
 * installation has no such file. */
bool config_default(char *path, size_t size);

/* Returns NULL if the section does not exist. `c` may be NULL. `name` "" finds the section without a name. */
const struct config_section *config_section(const struct config *c, const char *kind, const char *name);
/* Returns NULL if the entry does not exist. `s` may be NULL. In a key, a dash equals an underscore. */
const struct config_entry *config_entry(const struct config_section *s, const char *key);
const char *config_value(const struct config_section *s, const char *key);
/* Returns a value from the section `[kind]` without a name, or NULL. `c` may be NULL. */
static inline const char *config_setting(const struct config *c, const char *kind, const char *key)
{
    return config_value(config_section(c, kind, ""), key);
}

/* Returns the line of an entry, or that of the section if the entry does not exist. */
int config_line(const struct config_section *s, const char *key);
/* Returns the place of a setting that is often in a wrong section, such as "[input]" for skip_if; NULL: unknown. */
const char *config_place(const char *key);
/* Checks that each key of a section is one of `known`, which ends with NULL. Returns 0, or -1 with the error. */
int config_check_keys(
    const struct config *c, const struct config_section *s, const char *const *known, struct error *error);

/* Stores the error "FILE:LINE: message", or "FILE: message" if `line` is 0. Returns -1. */
int config_fail(struct error *error, const struct config *c, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
