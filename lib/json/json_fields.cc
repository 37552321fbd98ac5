#include "json/json_fields.h"
#include "json/json_path.h"
#include <simdjson.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

using namespace simdjson;

namespace
{
/* simdjson counts a scalar as a level of its own, so at most MAX_DEPTH - 1 containers may be nested. */
constexpr size_t MAX_DEPTH = 1000;
constexpr size_t FIRST_CAPACITY = 4096;

/* A copy of a text with the padding that simdjson reads after the end of the text. */
class padded
{
  public:
    const char *copy(struct bytes text)
    {
        if (text.len > capacity_)
            grow(text.len);
        if (text.len)
            memcpy(space_.get(), text.ptr, text.len);
        memset(space_.get() + text.len, 0, BEHIND);
        return space_.get();
    }

  private:
    static constexpr size_t BEHIND = SIMDJSON_PADDING;
    void grow(size_t len)
    {
        capacity_ = len + len / 2;
        space_.reset(static_cast<char *>(mem_alloc(capacity_ + BEHIND)));
    }
    struct freer {
        void operator()(char *p) const
        {
            free(p);
        }
    };
    size_t capacity_ = FIRST_CAPACITY;
    std::unique_ptr<char, freer> space_{static_cast<char *>(mem_alloc(FIRST_CAPACITY + BEHIND))};
};

const char *refusal(error_code code)
{
    switch (code) {
    case UTF8_ERROR:
        return "not JSON: invalid UTF-8";
    case EMPTY:
        return "not JSON: empty";
    case DEPTH_ERROR:
        return "not JSON: nested too deep";
    case STRING_ERROR:
        return "not JSON: a string has a bad escape or a lone surrogate";
    case UNCLOSED_STRING:
        return "not JSON: a string is not closed";
    case UNESCAPED_CHARS:
        return "not JSON: a string contains a control character";
    case NUMBER_ERROR:
        return "not JSON: a number is malformed or out of range";
    case T_ATOM_ERROR:
    case F_ATOM_ERROR:
    case N_ATOM_ERROR:
        return "not JSON: an unknown literal; expected true, false or null";
    case CAPACITY:
        return "not JSON: over 4 GB";
    default:
        return "not JSON: wrong structure";
    }
}

/* A parser with its input. */
struct document {
    dom::parser parser;
    padded text;

    document()
    {
        if (parser.allocate(FIRST_CAPACITY, MAX_DEPTH) != SUCCESS)
            no_memory();
    }

    /* Returns NULL, or the reason why the text is refused. */
    const char *parse(struct bytes line, dom::element *root)
    {
        const char *p = text.copy(line);
        error_code code = parser.parse(p, line.len, false).get(*root);
        if (code == MEMALLOC)
            no_memory();
        if (code != SUCCESS)
            return refusal(code);
        return nullptr;
    }

    [[noreturn]] static void no_memory()
    {
        mem_alloc(SIZE_MAX / 2); /* aborts with the message of mem_alloc */
        abort();
    }
};

struct json_value value_of(dom::element e)
{
    struct json_value out = {};
    std::string_view s;
    switch (e.type()) {
    case dom::element_type::NULL_VALUE:
        out.type = JSON_NULL;
        break;
    case dom::element_type::BOOL:
        out.type = JSON_BOOL;
        out.v.boolean = e.get_bool().value_unsafe();
        break;
    case dom::element_type::INT64:
        out.type = JSON_I64;
        out.v.i64 = e.get_int64().value_unsafe();
        break;
    case dom::element_type::UINT64:
        out.type = JSON_U64;
        out.v.u64 = e.get_uint64().value_unsafe();
        break;
    case dom::element_type::DOUBLE:
        out.type = JSON_F64;
        out.v.f64 = e.get_double().value_unsafe();
        break;
    case dom::element_type::STRING:
        out.type = JSON_STRING;
        s = e.get_string().value_unsafe();
        out.v.string = {s.data(), s.size()};
        break;
    case dom::element_type::ARRAY:
        out.type = JSON_ARRAY;
        break;
    case dom::element_type::OBJECT:
        out.type = JSON_OBJECT;
        break;
    }
    return out;
}

/* A hash table of the requested member names of an object, each with an id. The hash uses the length, the first byte
 * and the last byte of a name. Most members of an event are not requested and hash to an empty slot, so no name is
 * compared. */
class name_table
{
  public:
    explicit name_table(size_t n)
    {
        size_t slots = 64;
        while (slots < 8 * n)
            slots *= 2;
        heads_.assign(slots, NONE);
    }
    void add(std::string_view name, size_t id)
    {
        size_t s = slot(name);
        names_.push_back({std::string(name), id, heads_[s]});
        heads_[s] = names_.size() - 1;
    }
    /* Calls `found` for each id of the name. */
    template <class Found> void find(std::string_view name, Found found) const
    {
        for (size_t i = heads_[slot(name)]; i != NONE; i = names_[i].next)
            if (names_[i].text == name)
                found(names_[i].id);
    }

  private:
    static constexpr size_t NONE = SIZE_MAX;
    struct named {
        std::string text;
        size_t id, next;
    };
    size_t slot(std::string_view s) const
    {
        size_t h = s.size();
        if (!s.empty())
            h += 5 * static_cast<unsigned char>(s.front()) + 23 * static_cast<unsigned char>(s.back());
        return h & (heads_.size() - 1);
    }
    std::vector<named> names_;
    std::vector<size_t> heads_;
};

/* An object or array in which paths select members or elements. An id below json_fields.n is the index of a value.
 * Any other id is json_fields.n plus the index of a place. */
struct place {
    name_table members;
    std::vector<std::pair<uint32_t, size_t>> elements; /* index of an element, and id of its value or place */
    std::vector<size_t> values; /* indexes of the values of all paths through this place */
    explicit place(size_t n) : members(n)
    {
    }
};
} // namespace

struct json_fields {
    document doc;
    /* number of paths; n also counts the values of members that have a path's text as their name */
    size_t n_paths, n;
    std::vector<place> places;      /* all places; the first is the line's object */
    std::vector<size_t> named_like; /* index of the path for each value from n_paths on */
    std::vector<json_value> all;    /* room for n values, if n > n_paths */
    bool is_valid = true;

    json_fields(const char *const *paths, size_t count)
        : n_paths(count), n(count), places(1, place(2 * count))
    {
        for (size_t i = 0; i < n_paths; i++)
            if (strpbrk(paths[i], ".["))
                named_like.push_back(i);
        n += named_like.size();
        for (size_t i = 0; i < n_paths; i++)
            add(bytes_str(paths[i]), i);
        for (size_t i = n_paths; i < n; i++) {
            places[0].values.push_back(i);
            enter(0, json_step{false, 0, bytes_str(paths[named_like[i - n_paths]])}, i);
        }
        if (n > n_paths)
            all.resize(n);
    }

    void add(struct bytes path, size_t value)
    {
        struct json_path p = {path, false};
        struct json_step step, next;
        size_t at = 0;
        for (bool more = json_path_next(&p, &step); more; step = next) {
            places[at].values.push_back(value);
            more = json_path_next(&p, &next);
            at = enter(at, step, more ? SIZE_MAX : value);
        }
        is_valid = is_valid && path.len > 0 && p.rest.len == 0;
    }

    /* If `value` is not SIZE_MAX, makes the step from place `at` select the value with this index. If `value` is
     * SIZE_MAX, returns the place to which the step leads, and adds the place if it is new. */
    size_t enter(size_t at, const struct json_step &step, size_t value)
    {
        std::string_view name(step.name.ptr, step.name.len);
        size_t found = SIZE_MAX;
        auto is_place = [&](size_t id) { found = id >= n ? id - n : found; };
        if (value == SIZE_MAX && !step.is_index)
            places[at].members.find(name, is_place);
        for (const auto &e : places[at].elements)
            if (value == SIZE_MAX && step.is_index && e.first == step.index)
                is_place(e.second);
        if (found != SIZE_MAX)
            return found;
        if (value == SIZE_MAX) {
            found = places.size();
            value = n + found;
            places.emplace_back(1);
        }
        if (step.is_index)
            places[at].elements.emplace_back(step.index, value);
        else
            places[at].members.add(name, value);
        return found;
    }

    /* Reads the values of all paths through the place `from`. Resets the values first, because a repeated member
     * replaces the earlier member. */
    void read(const place &from, dom::element container, struct json_value *values) const
    {
        for (size_t i : from.values)
            values[i].type = JSON_MISSING;
        auto found = [&](size_t id, dom::element e) {
            if (id < n)
                values[id] = value_of(e);
            else
                read(places[id - n], e, values);
        };
        dom::object object;
        dom::array array;
        dom::element element;
        if (container.get(object) == SUCCESS) {
            for (dom::key_value_pair member : object)
                from.members.find(member.key, [&](size_t id) { found(id, member.value); });
        } else if (!from.elements.empty() && container.get(array) == SUCCESS) {
            for (const auto &e : from.elements)
                if (array.at(e.first).get(element) == SUCCESS)
                    found(e.second, element);
        }
    }
};

struct json_doc {
    std::unique_ptr<document> doc; /* NULL: part of another document */
    dom::element root;
};

struct json_fields *json_fields_new(const char *const *paths, size_t n)
{
    std::unique_ptr<json_fields> f(new json_fields(paths, n));
    return f->is_valid ? f.release() : nullptr;
}

void json_fields_free(struct json_fields **f)
{
    delete *f;
    *f = nullptr;
}

int json_fields_extract(
    struct json_fields *f, struct bytes line, struct json_value *values, const char **reason)
{
    dom::element root;
    *reason = f->doc.parse(line, &root);
    if (!*reason && !root.is_object())
        *reason = "not an object";
    if (*reason)
        return -1;
    if (f->n == f->n_paths) {
        if (f->n > 0)
            f->read(f->places[0], root, values);
        return 0;
    }
    f->read(f->places[0], root, f->all.data());
    std::copy_n(f->all.begin(), f->n_paths, values);
    for (size_t i = f->n_paths; i < f->n; i++)
        if (f->all[i].type != JSON_MISSING)
            values[f->named_like[i - f->n_paths]] = f->all[i];
    return 0;
}

struct json_doc *json_doc_parse(struct bytes text)
{
    std::unique_ptr<json_doc> d(new json_doc());
    d->doc.reset(new document());
    return d->doc->parse(text, &d->root) ? nullptr : d.release();
}

void json_doc_free(struct json_doc **d)
{
    delete *d;
    *d = nullptr;
}

static bool find(const struct json_doc *d, const char *pointer, dom::element *out)
{
    return d && d->root.at_pointer(pointer).get(*out) == SUCCESS;
}

struct json_value json_doc_at(const struct json_doc *d, const char *pointer)
{
    dom::element e;
    return find(d, pointer, &e) ? value_of(e) : (struct json_value){};
}

void json_pointer_append(struct buf *pointer, struct bytes name)
{
    buf_append_char(pointer, '/');
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] == '/' || name.ptr[i] == '~')
            buf_append_str(pointer, name.ptr[i] == '/' ? "~1" : "~0");
        else
            buf_append_char(pointer, name.ptr[i]);
}

#define POINTER_MAX 256

__attribute__((format(printf, 2, 0))) static struct json_value value_at(
    const struct json_doc *d, const char *pointer, va_list ap)
{
    char text[POINTER_MAX];
    vsnprintf(text, sizeof text, pointer, ap);
    return json_doc_at(d, text);
}

struct bytes json_doc_text(const struct json_doc *d, const char *pointer, ...)
{
    va_list ap;
    va_start(ap, pointer);
    struct json_value v = value_at(d, pointer, ap);
    va_end(ap);
    return v.type == JSON_STRING ? v.v.string : BYTES_NONE;
}

bool json_doc_copy(const struct json_doc *d, char *out, size_t room, const char *pointer, ...)
{
    va_list ap;
    va_start(ap, pointer);
    struct json_value v = value_at(d, pointer, ap);
    va_end(ap);
    struct bytes text = v.type == JSON_STRING ? v.v.string : BYTES_NONE;
    if (v.type != JSON_STRING || text.len >= room || memchr(text.ptr, '\0', text.len))
        return false;
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return true;
}

uint64_t json_doc_number(const struct json_doc *d, const char *pointer, ...)
{
    char text[POINTER_MAX];
    uint64_t n = 0;
    va_list ap;
    va_start(ap, pointer);
    vsnprintf(text, sizeof text, pointer, ap);
    va_end(ap);
    return json_doc_u64(d, text, &n) ? n : 0;
}

size_t json_doc_length(const struct json_doc *d, const char *pointer)
{
    dom::element e;
    dom::array items;
    dom::object members;
    if (!find(d, pointer, &e))
        return 0;
    if (e.get(items) == SUCCESS)
        return items.size();
    return e.get(members) == SUCCESS ? members.size() : 0;
}

struct bytes json_doc_name(const struct json_doc *d, const char *pointer, size_t i)
{
    dom::element e;
    dom::object members;
    if (!find(d, pointer, &e) || e.get(members) != SUCCESS)
        return {};
    for (dom::key_value_pair member : members)
        if (i-- == 0)
            return {member.key.data(), member.key.size()};
    return {};
}

bool json_doc_each(const struct json_doc *d, const char *pointer,
    bool (*item)(const struct json_doc *item, size_t i, void *arg), void *arg)
{
    dom::element e;
    dom::array items;
    size_t i = 0;
    json_doc one;
    if (!find(d, pointer, &e))
        return true;
    if (e.get(items) != SUCCESS)
        return false;
    for (dom::element element : items) {
        one.root = element;
        if (!item(&one, i++, arg))
            return false;
    }
    return true;
}

bool json_doc_each_member(const struct json_doc *d, const char *pointer,
    bool (*member)(struct bytes name, const struct json_doc *value, void *arg), void *arg)
{
    dom::element e;
    dom::object members;
    std::unordered_set<std::string_view> seen;
    json_doc one;
    if (!find(d, pointer, &e) || e.get(members) != SUCCESS)
        return false;
    for (dom::key_value_pair m : members) {
        one.root = m.value;
        if (seen.insert(m.key).second && !member({m.key.data(), m.key.size()}, &one, arg))
            return false;
    }
    return true;
}

void json_doc_print(const struct json_doc *d, const char *pointer, struct buf *out)
{
    dom::element e;
    if (!find(d, pointer, &e))
        return;
    std::string text = simdjson::minify(e);
    buf_append(out, text.data(), text.size());
}
