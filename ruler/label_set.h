/* label_set: the labels of a series or an alert, and the texts of a rule's labels.
 *
 * 1. Labels are in the byte order of their names. No name repeats.
 * 2. So two sets are equal if their texts (label_set_print) are equal. Labels of a series have no empty values.
 *
 * A zeroed set is empty. A set owns its texts. */
#ifndef MILLRACE_LABEL_SET_H
#define MILLRACE_LABEL_SET_H

#include "base/error.h"
#include "json/json_fields.h"

struct label {
    struct bytes name, value;
    char *memory; /* of both texts */
};

struct label_set {
    struct label *all;
    size_t n, cap;
};

/* Copies both texts. Replaces an earlier value; an empty value removes the label. */
void label_set_put(struct label_set *s, struct bytes name, struct bytes value);
/* Like label_set_put, but keeps an empty value. Returns false if the set already has the label. */
bool label_set_add(struct label_set *s, struct bytes name, struct bytes value);
/* Returns the value, or an empty text if the set does not have the label. */
struct bytes label_set_get(const struct label_set *s, struct bytes name);
struct label_set label_set_copy(const struct label_set *s);
void label_set_free(struct label_set *s); /* the set is empty afterwards */
/* Appends the labels as a JSON object. */
void label_set_print(const struct label_set *s, struct buf *out);
/* Adds the members of a JSON object. Returns false if the value at `pointer` is not an object of texts. */
bool label_set_read(struct label_set *s, const struct json_doc *d, const char *pointer);

#endif
