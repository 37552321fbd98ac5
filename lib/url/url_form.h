/* url_form: one text for all URLs that lead a browser to the same page, and the texts of a URL's parents.
 *
 *     #include <millrace/filter.h>
 *     #include <millrace/url_form.h>
 *     #include <stdio.h>
 *
 *     // Prints the mark of a URL: FILE is the file `marks` of spamfilter.
 *     int main(int argc, char **argv)
 *     {
 *         struct url_form form = {0};
 *         struct bytes parents[URL_PARENTS_MAX];
 *         struct error error;
 *         struct filter *marks;
 *         size_t i = 0, n;
 *         if (argc != 3 || url_normalize(bytes_str(argv[2]), &form) != URL_OK)
 *             return 2;
 *         if (filter_open_reader(argv[1], &marks, &error) != FILTER_OK)
 *             return 1;
 *         n = url_parents(&form, parents);
 *         while (i < n && !filter_check(marks, parents[i]))
 *             i++;
 *         if (i < n)
 *             printf("%.*s\n", (int)parents[i].len, parents[i].ptr);
 *         url_form_free(&form);
 *         filter_close(&marks);
 *     }
 *
 * A mark is a URL, a host or a path; it applies to everything below. The form of a mark and the form of a link are texts
 * without scheme, user info, port and fragment:
 *
 *     http://user@EXAMPLE.com:8080/a/../b%7e?q#f      example.com/b~?q
 *     example.com                                     example.com/
 *     https://0x7f.1\a                                127.0.0.1/a
 *
 * Scheme, user info and port have no part in a form, because the same server usually answers all of them. Otherwise, the
 * form is that of the URL Standard (https://url.spec.whatwg.org) for http and https:
 *
 *     4.4 URL parsing          blanks at the ends, tabs and line ends, `\`, slashes before the host, user info, port
 *     3.5 Host parsing         percent-decoding, forbidden code points, IPv4, IPv6, IDNA (3.3)
 *     3.6 Host serializing     IPv4 and compressed IPv6
 *     1.3 Percent-encoding     the sets of path and special query
 *     4.4 path state           `.` and `..`, also as %2e
 *
 * docs/internals/url-forms.md lists the differences.
 *
 * 1. The form of a form is the same form.
 * 2. The first parent of a link's parent is the same parent. So a mark stored under its first parent is found through
 *    every link below it, up to the bounds of URL_PARENT_PATHS and URL_PARENT_HOSTS.
 * 3. A form consists of printable ASCII without spaces, and begins with a host that is not empty.
 * 4. Time and memory are linear in the text, and the number of parents is bounded. */
#ifndef MILLRACE_URL_FORM_H
#define MILLRACE_URL_FORM_H

#include "base/bytes.h"

#ifdef __cplusplus
extern "C" {
#endif

#define URL_TEXT_MAX 65536

enum url_error {
    URL_OK,
    URL_LENGTH, /* more than URL_TEXT_MAX bytes */
    URL_SCHEME, /* a scheme other than http and https, or a path without a host */
    URL_HOST,   /* the host is empty, forbidden, too long, or an invalid address */
    URL_PORT    /* not a number up to 65535 */
};
const char *url_strerror(enum url_error error); /* a static text */

/* A zeroed form is empty and ready. */
struct url_form {
    struct buf text; /* host, path, and the query with its `?`; the query is absent if empty */
    size_t host;     /* length of the host */
    size_t path;     /* length of the path, at least 1 */
    bool is_address; /* the host is an IPv4 or IPv6 address */
};

/* Replaces the form by that of `text`, which may contain any bytes, and keeps the form's memory. Without a scheme, the
 * text begins with the host: `example.com/a`, `example.com:80`, `//example.com`. After an error, the form is empty.
 * Free the form with url_form_free. */
enum url_error url_normalize(struct bytes text, struct url_form *form);
void url_form_free(struct url_form *form);

/* Bounds of the shortened paths and of the hosts of one URL. The parents nearest to the root and to the domain remain, so
 * that a long path or host does not evade a mark of the domain. */
#define URL_PARENT_PATHS 16
#define URL_PARENT_HOSTS 16
#define URL_PARENTS_MAX (2 + URL_PARENT_PATHS + URL_PARENT_HOSTS)

/* Stores the URL and its parents, the most specific first, and returns their number, at least 1. For
 * `a.b.example.com/x/y/?q`:
 *
 *     a.b.example.com/x/y/?q      the whole URL, if it has a query
 *     a.b.example.com/x/y         the path; a slash at its end does not count
 *     a.b.example.com/x           each parent of the path
 *     a.b.example.com             the host
 *     b.example.com, example.com  each parent of a name with two labels or more; an address has none
 *
 * Public suffixes such as co.uk are parents like others. The spans point into the form and are valid until it
 * changes. `form` must not be empty. */
size_t url_parents(const struct url_form *form, struct bytes parents[URL_PARENTS_MAX]);

#ifdef __cplusplus
}
#endif

#endif
