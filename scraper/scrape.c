#include "scraper/scrape.h"

#include <math.h>
#include <stdlib.h>

#define SERIES_MAX ((size_t)64 * 1024) /* bytes of a series' labels, far below pubsub's max_line */
#define LABELS_MAX                                                                                           \
    256 /* of a sample on the page; labels are compared with each other, so their number must be small */
#define LINE_FULL ((size_t)32 * 1024) /* bytes; a longer line gets no further sample */
#define MARKER_BYTES 64               /* a stale marker without the labels, or more */
#define RENAMES 4 /* a label of the page that a target has, too, gets at most this many prefixes */
#define PREFIX "exported_"

/* The series of the scraper itself. */
enum { OWN_UP, OWN_DURATION, OWN_SAMPLES, OWN };
static const char *const own_names[OWN] = {"up", "scrape_duration_seconds", "scrape_samples_scraped"};

struct page {
    const struct scrape_rules *rules;
    const struct target_labels *target;
    struct exposition_label *labels; /* of the sample, with those of the target */
    size_t n_labels, cap_labels;
    struct buf names; /* the renamed labels of the sample */
};

static const struct exposition_label *find(const struct exposition_label *labels, size_t n, struct bytes name)
{
    for (size_t i = 0; i < n; i++)
        if (bytes_equal(labels[i].name, name))
            return &labels[i];
    return NULL;
}

/* Finds a name with prefixes that neither the page nor the target uses. Returns the last name if all are used. */
static struct bytes rename_label(struct page *p, const struct exposition_sample *s, struct bytes name)
{
    size_t at = p->names.len;
    for (size_t i = 0; i < RENAMES; i++)
        buf_append_str(&p->names, PREFIX);
    buf_append_bytes(&p->names, name);
    struct bytes longest = bytes_of(p->names.ptr + at, p->names.len - at), renamed = name;
    for (size_t i = 1; i <= RENAMES; i++) {
        size_t skipped = (RENAMES - i) * strlen(PREFIX);
        renamed = bytes_of(longest.ptr + skipped, longest.len - skipped);
        if (!find(s->labels, s->n_labels, renamed) && !find(p->target->all, p->target->n, renamed))
            break;
    }
    return renamed;
}

/* Inserts a label in the order of names. Labels without a value do not exist. */
static void insert(struct page *p, struct bytes name, struct bytes value)
{
    if (value.len == 0)
        return;
    ARRAY_ROOM(p->labels, p->cap_labels, p->n_labels + 1);
    size_t i = p->n_labels++;
    for (; i > 0 && bytes_compare(p->labels[i - 1].name, name) > 0; i--)
        p->labels[i] = p->labels[i - 1];
    p->labels[i] = (struct exposition_label){name, value};
}

static void merge_labels(struct page *p, const struct exposition_sample *s)
{
    const struct target_labels *t = p->target;
    size_t room = 1; /* the names must not move while labels point to them */
    for (size_t i = 0; i < s->n_labels; i++)
        room += s->labels[i].name.len + RENAMES * strlen(PREFIX);
    p->n_labels = p->names.len = 0;
    buf_reserve(&p->names, room);
    insert(p, BYTES_LITERAL("__name__"), s->name);
    for (size_t i = 0; i < s->n_labels; i++) {
        struct bytes name = s->labels[i].name;
        bool is_conflict = !p->rules->honor_labels && find(t->all, t->n, name);
        insert(p, is_conflict ? rename_label(p, s, name) : name, s->labels[i].value);
    }
    for (size_t i = 0; i < t->n; i++)
        if (!p->rules->honor_labels || !find(s->labels, s->n_labels, t->all[i].name))
            insert(p, t->all[i].name, t->all[i].value);
}

static void append_labels(const struct page *p, struct buf *out)
{
    for (size_t i = 0; i < p->n_labels; i++) {
        buf_append_char(out, i == 0 ? '{' : ',');
        buf_append_json(out, p->labels[i].name);
        buf_append_char(out, ':');
        buf_append_json(out, p->labels[i].value);
    }
    buf_append_char(out, '}');
}

/* True for a text that is a number of JSON and that each parser reads: at most 18 digits, or a fraction or exponent. */
static bool is_json_number(struct bytes t)
{
    size_t i = t.len > 0 && t.ptr[0] == '-';
    const char *digits = "0123456789";
    size_t n = 0;
    while (i + n < t.len && memchr(digits, t.ptr[i + n], 10))
        n++;
    bool is_whole = i + n == t.len, has_zero = n > 1 && t.ptr[i] == '0';
    if (n == 0 || n > 18 || has_zero)
        return false;
    return is_whole ||
           (t.ptr[t.len - 1] != '.' && !memmem(t.ptr, t.len, ".e", 2) && !memmem(t.ptr, t.len, ".E", 2));
}

static void append_value(struct buf *out, double value, struct bytes text)
{
    if (isnan(value))
        buf_append_str(out, "\"NaN\"");
    else if (isinf(value))
        buf_append_str(out, value > 0 ? "\"+Inf\"" : "\"-Inf\"");
    else if (is_json_number(text))
        buf_append_bytes(out, text);
    else
        buf_printf(out, "%.17g", value);
}

static void append_head(struct buf *out, int64_t time)
{
    uint64_t ms = time < 0 ? -(uint64_t)time : (uint64_t)time;
    const char part[] = {
        '.', (char)('0' + ms % 1000 / 100), (char)('0' + ms % 100 / 10), (char)('0' + ms % 10)};
    buf_append_str(out, time < 0 ? "{\"t\":-" : "{\"t\":");
    buf_append_u64(out, ms / 1000);
    buf_append(out, part, sizeof part);
    buf_append_str(out, ",\"labels\":");
}

/* Returns the place after a text in quotes, which begins at `at`. */
static size_t end_of_text(struct bytes s, size_t at)
{
    for (at++; s.ptr[at] != '"'; at++)
        at += s.ptr[at] == '\\';
    return at + 1;
}

/* True if two series differ at most in the value that begins at `value` and ends, in `a`, at `end`. */
static bool differ_at(struct bytes a, struct bytes b, size_t value, size_t end, size_t *end_b)
{
    if (b.len <= value || memcmp(a.ptr, b.ptr, value + 1) != 0)
        return false;
    *end_b = end_of_text(b, value);
    return a.len - end == b.len - *end_b && memcmp(a.ptr + end, b.ptr + *end_b, a.len - end) == 0;
}

/* Returns true if the series of the only sample of a line and another differ in the value of one label, which becomes `by`. */
static bool choose_label(struct scrape_line *l, struct bytes series, size_t *end)
{
    struct bytes last = buf_bytes(&l->series);
    for (l->name = 1; l->name < last.len; l->name = l->end + 1) {
        l->value = end_of_text(last, l->name) + 1;
        l->end = end_of_text(last, l->value);
        if (series.len < l->end || memcmp(last.ptr + l->name, series.ptr + l->name, l->end - l->name) != 0)
            return differ_at(last, series, l->value, l->end, end);
    }
    return false;
}

/* Turns a line with one sample into one whose samples differ in the label `by`. */
static void divide_labels(struct buf *out, const struct scrape_line *l)
{
    const char *series = l->series.ptr;
    struct bytes number = bytes_of(
                     bytes_dup(bytes_of(out->ptr + l->number, out->len - l->number)), out->len - l->number),
                 value = bytes_of(series + l->value, l->end - l->value);
    bool is_first = l->name == 1, is_last = l->end + 1 == l->series.len;
    out->len = l->begin;
    append_head(out, l->time);
    buf_append(out, series, l->name - !is_first);
    buf_append(
        out, series + l->end + (is_first && !is_last), l->series.len - l->end - (is_first && !is_last));
    buf_append_str(out, ",\"by\":");
    buf_append(out, series + l->name, l->value - 1 - l->name);
    buf_append_str(out, ",\"v\":{");
    buf_append_bytes(out, value);
    buf_append_char(out, ':');
    buf_append_bytes(out, number);
    free((char *)(uintptr_t)number.ptr);
}

static void end_line(struct scrape *s)
{
    if (s->line.n > 0)
        buf_append_str(&s->out, s->line.n > 1 ? "}}\n" : "}\n");
    s->lines += s->line.n > 0;
    s->line.n = 0;
}

/* Begins a sample, whose value the caller appends to s->out, in the line in progress or in a new one. */
static void begin_sample(struct scrape *s, int64_t time, struct bytes series)
{
    struct scrape_line *l = &s->line;
    size_t end;
    bool is_next = l->n > 0 && l->time == time && s->out.len - l->begin < LINE_FULL &&
                   (l->n > 1 ? differ_at(buf_bytes(&l->series), series, l->value, l->end, &end)
                             : choose_label(l, series, &end));
    if (is_next) {
        if (l->n == 1)
            divide_labels(&s->out, l);
        l->end = end;
        buf_append_char(&s->out, ',');
        buf_append(&s->out, series.ptr + l->value, end - l->value);
        buf_append_char(&s->out, ':');
    } else {
        end_line(s);
        l->begin = s->out.len;
        l->time = time;
        append_head(&s->out, time);
        buf_append_bytes(&s->out, series);
        buf_append_str(&s->out, ",\"v\":");
        l->number = s->out.len;
    }
    l->n++;
    buf_clear(&l->series);
    buf_append_bytes(&l->series, series);
}

static void append_stale(struct scrape *s, struct bytes series)
{
    end_line(s);
    begin_sample(s, s->slot, series);
    buf_append_str(&s->out, "\"stale\"");
    end_line(s);
}

/* Returns NULL, or the reason why the labels of a sample are refused. */
static const char *find_fault(const struct page *p)
{
    const struct scrape_rules *r = p->rules;
    if (r->label_limit > 0 && p->n_labels > r->label_limit)
        return "the sample has more labels than label_limit";
    for (size_t i = 0; i < p->n_labels; i++) {
        if (r->label_name_limit > 0 && p->labels[i].name.len > r->label_name_limit)
            return "the name of a label is longer than label_name_length_limit";
        if (r->label_value_limit > 0 && p->labels[i].value.len > r->label_value_limit)
            return "the value of a label is longer than label_value_length_limit";
        if (i > 0 && bytes_equal(p->labels[i].name, p->labels[i - 1].name))
            return "a label occurs twice";
    }
    return NULL;
}

/* Appends a sample's line. Returns NULL, or the reason why the sample is refused. */
static const char *add_sample(struct scrape *s, struct page *p, const struct exposition_sample *sample)
{
    const struct scrape_rules *r = p->rules;
    struct known_series *series = &s->series;
    size_t at = series->texts.len;
    bool has_time = sample->has_time && r->honor_timestamps;
    if (r->sample_limit > 0 && s->samples >= r->sample_limit)
        return "the page has more samples than sample_limit";
    if (s->out.len > r->max_lines || series->texts.len + series->n * MARKER_BYTES > r->max_lines)
        return "the lines of the page are longer than two fifths of publish_max";
    if (sample->n_labels > LABELS_MAX)
        return "the sample has more than 256 labels";
    merge_labels(p, sample);
    const char *fault = find_fault(p);
    if (fault)
        return fault;
    append_labels(p, &series->texts);
    if (series->texts.len - at > SERIES_MAX)
        return "the labels of a sample are longer than 64 KiB";
    s->samples++;
    struct bytes text = bytes_of(series->texts.ptr + at, series->texts.len - at);
    if (!has_time && !known_series_add(series, at)) {
        s->duplicates++;
        return NULL;
    }
    begin_sample(s, has_time ? sample->time : s->slot, text);
    append_value(&s->out, sample->value, sample->value_text);
    if (has_time)
        series->texts.len = at;
    return NULL;
}

/* Begins the set with the scraper's own series, so that a page cannot have them. */
static void begin_series(struct scrape *s, const struct target_labels *labels)
{
    static const struct scrape_rules none = {0};
    struct page p = {.rules = &none, .target = labels};
    known_series_free(&s->series);
    for (size_t i = 0; i < OWN; i++) {
        merge_labels(&p, &(struct exposition_sample){.name = bytes_str(own_names[i])});
        size_t at = s->series.texts.len;
        append_labels(&p, &s->series.texts);
        known_series_add(&s->series, at);
    }
    free(p.labels);
    buf_free(&p.names);
}

int scrape_read(struct scrape *s, enum exposition_format format, struct bytes page,
    const struct scrape_rules *rules, const struct target_labels *labels, struct error *error)
{
    struct exposition e;
    struct page p = {.rules = rules, .target = labels};
    enum exposition_result r;
    begin_series(s, labels);
    exposition_init(&e, format, page);
    while ((r = exposition_next(&e)) == EXPOSITION_SAMPLE) {
        const char *fault = add_sample(s, &p, &e.sample);
        if (fault) {
            r = exposition_refuse(&e, fault);
            break;
        }
    }
    s->is_up = r == EXPOSITION_END;
    s->comments = e.comments;
    if (!s->is_up) {
        *error = e.error;
        known_series_free(&s->series);
        buf_free(&s->out);
        s->lines = s->line.n = s->samples = s->duplicates = 0;
    }
    exposition_free(&e);
    free(p.labels);
    buf_free(&p.names);
    return s->is_up ? 0 : -1;
}

void scrape_end(struct scrape *s, const struct target_labels *labels, struct known_series *known)
{
    if (!s->is_up)
        begin_series(s, labels);
    for (size_t i = 0; i < known->n; i++)
        if (!known_series_has(&s->series, known_series_text(known, i)))
            append_stale(s, known_series_text(known, i));
    for (size_t i = 0; i < OWN; i++) {
        begin_sample(s, s->slot, known_series_text(&s->series, i));
        if (i == OWN_UP)
            buf_append_str(&s->out, s->is_up ? "1" : "0");
        else if (i == OWN_DURATION)
            buf_printf(&s->out, "%.6f", s->seconds);
        else
            buf_append_u64(&s->out, s->samples);
    }
    end_line(s);
    known_series_free(known);
    *known = s->series;
    s->series = (struct known_series){0};
}

void scrape_vanish(struct scrape *s, struct known_series *known)
{
    for (size_t i = 0; i < known->n; i++)
        append_stale(s, known_series_text(known, i));
    known_series_free(known);
}

void scrape_take_back(struct bytes lines, struct known_series *known)
{
    static const char begin[] = "\"labels\":",
                      end[] = ",\"v\":\"stale\"}"; /* in a label, quotes are escaped */
    while (lines.len > 0) {
        const char *lf = memchr(lines.ptr, '\n', lines.len), *labels;
        struct bytes line = bytes_of(lines.ptr, (size_t)(lf - lines.ptr));
        lines = bytes_of(lf + 1, lines.len - line.len - 1);
        if (line.len < strlen(end) || memcmp(lf - strlen(end), end, strlen(end)) != 0)
            continue;
        size_t at = known->texts.len;
        labels = (const char *)memmem(line.ptr, line.len, begin, strlen(begin)) + strlen(begin);
        buf_append(&known->texts, labels, (size_t)(lf - strlen(end) - labels));
        known_series_add(known, at);
    }
}

void scrape_free(struct scrape *s)
{
    buf_free(&s->out);
    buf_free(&s->line.series);
    known_series_free(&s->series);
}
