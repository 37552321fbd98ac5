/* config: reads the configuration file, which describes one pipeline.
 *
 * The file is INI: `[section]` or `[section NAME]`, `key = value` or `key: value`. Comments begin with `;` or `#` at the start of a
 * line, or with ` ;` after a value. Quotes are part of a value. This module does not interpret values. The settings
 * of daemons belong to options.h, the sections of counters to counters.h.
 *
 * 1. Sections and entries are in the order of the file, with their line numbers.
 * 2. config_read fails on a syntax error, a line over CONFIG_LINE_MAX, an indented setting, a repeated section or
 *    key, or an unknown kind of section. So no setting silently overrides another. */
#ifndef MILLRACE_CONFIG_H
#define MILLRACE_CONFIG_H

#include "base/bytes.h"
#include "base/error.h"

#define CONFIG_LINE_MAX 190 /* bytes */

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

/* 0, or -1 with the error. Free *out with config_free. */
int config_read(const char *path, struct config **out, struct error *error);
/* Parses text from memory, for config_read and tests; `path` names it in errors. */
int config_parse(const char *path, struct bytes text, struct config **out, struct error *error);
void config_free(struct config **c);

/* The file that a program reads without --config: that of MILLRACE_CONFIG, or else of the installation that the running program belongs to:
 * PREFIX/etc/millrace/millrace.conf, and /etc/millrace/millrace.conf if PREFIX is /usr or /usr/local. Returns false if MILLRACE_CONFIG is
 * empty, or if it is unset and the program is not installed (PREFIX/bin, PREFIX/libexec/millrace) or has no such file. */
bool config_default(char *path, size_t size);

/* NULL if the section does not exist; c may be NULL. `name` "" is the unnamed section. */
const struct config_section *config_section(const struct config *c, const char *kind, const char *name);
/* NULL if the entry or the section does not exist. A dash and an underscore in a key are the same. */
const struct config_entry *config_entry(const struct config_section *s, const char *key);
const char *config_value(const struct config_section *s, const char *key);
/* config_value from the unnamed section of that kind; c may be NULL. */
static inline const char *config_setting(const struct config *c, const char *kind, const char *key)
{
    return config_value(config_section(c, kind, ""), key);
}

/* Stores the error "FILE:LINE: message", or "FILE: message" if `line` is 0. Returns -1. */
int config_fail(struct error *error, const struct config *c, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
