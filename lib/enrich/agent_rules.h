/* agent_rules: the rules of uap-core's regexes.yaml, and their answers for a user agent text.
 *
 * uap-core has three lists of rules: of browsers, of operating systems and of devices. Each rule is a regular expression and
 * replacements. The first rule of a list that matches determines the list's answer, as uap-core's specification
 * describes.
 *
 * 1. The text is untrusted: any length, any bytes. Only the first AGENT_TEXT_MAX bytes are read.
 * 2. Each rule has a limit of steps (AGENT_STEPS_MAX). If a rule exceeds the limit, the list has no answer, which is the
 *    same as if no rule had matched. Thus the time of a search is bounded.
 *
 * The rules file belongs to the system and is trusted. An agent_rules is used by one thread at a time. */
#ifndef MILLRACE_AGENT_RULES_H
#define MILLRACE_AGENT_RULES_H

#include "base/bytes.h"
#include "base/error.h"

#define AGENT_TEXT_MAX 512
#define AGENT_STEPS_MAX 100000

enum agent_list { AGENT_BROWSER, AGENT_OS, AGENT_DEVICE, AGENT_LISTS };

/* The values of an answer. A value that the rule does not set is empty. The family is "Other" if no rule matched. */
enum { AGENT_FAMILY = 0 };
enum { AGENT_MAJOR = 1, AGENT_MINOR, AGENT_PATCH, AGENT_PATCH_MINOR }; /* of browsers and operating systems */
enum { AGENT_BRAND = 1, AGENT_MODEL };                                 /* of devices */
#define AGENT_VALUES 5

struct agent_rules;

/* Reads and compiles the rules. Returns NULL with the error, which names the file and the line. */
struct agent_rules *agent_rules_open(const char *path, struct error *error);
void agent_rules_free(struct agent_rules **rules);

/* Sets the values, which are valid until the next call. */
void agent_rules_find(
    struct agent_rules *rules, enum agent_list list, struct bytes text, struct bytes values[AGENT_VALUES]);

#endif
