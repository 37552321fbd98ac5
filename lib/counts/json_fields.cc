#include "counts/json_fields.h"
#include <simdjson.h>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

using namespace simdjson;

namespace
{
/* simdjson counts a scalar as a level, so containers may nest to one level less. */
constexpr size_t MAX_DEPTH = 1000;
constexpr size_t FIRST_CAPACITY = 4096;

/* A copy of the text with the padding that simdjson reads beyond its end. */
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
        return "not JSON: a string holds a control character";
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
        mem_alloc(SIZE_MAX / 2); /* ends the process with its message */
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

/* The requested names in a hash table over length, first and last byte. Most members of an event are not requested; an
 * empty slot shows that without a comparison. */
class name_table
{
  public:
    name_table(const char *const *names, size_t n)
    {
        size_t slots = 64;
        while (slots < 8 * n)
            slots *= 2;
        heads_.assign(slots, NONE);
        for (size_t i = 0; i < n; i++) {
            names_.emplace_back(names[i]);
            size_t s = slot(names_[i]);
            next_.push_back(heads_[s]);
            heads_[s] = i;
        }
    }
    size_t count() const
    {
        return names_.size();
    }
    /* A name may be requested twice. */
    template <class Found> void find(std::string_view name, Found found) const
    {
        for (size_t i = heads_[slot(name)]; i != NONE; i = next_[i])
            if (names_[i] == name)
                found(i);
    }

  private:
    static constexpr size_t NONE = SIZE_MAX;
    size_t slot(std::string_view s) const
    {
        size_t h = s.size();
        if (!s.empty())
            h += 5 * static_cast<unsigned char>(s.front()) + 23 * static_cast<unsigned char>(s.back());
        return h & (heads_.size() - 1);
    }
    std::vector<std::string> names_;
    std::vector<size_t> heads_, next_;
};
} // namespace

struct json_fields {
    document doc;
    name_table names;
    json_fields(const char *const *list, size_t n) : names(list, n)
    {
    }
};

struct json_doc {
    document doc;
    dom::element root;
};

struct json_fields *json_fields_new(const char *const *names, size_t n)
{
    return new json_fields(names, n);
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
    dom::object object;
    *reason = f->doc.parse(line, &root);
    if (!*reason && root.get(object) != SUCCESS)
        *reason = "not an object";
    if (*reason)
        return -1;
    if (f->names.count() == 0)
        return 0;
    for (size_t i = 0; i < f->names.count(); i++)
        values[i].type = JSON_MISSING;
    for (dom::key_value_pair member : object)
        f->names.find(member.key, [&](size_t i) { values[i] = value_of(member.value); });
    return 0;
}

struct json_doc *json_doc_parse(struct bytes text)
{
    std::unique_ptr<json_doc> d(new json_doc());
    return d->doc.parse(text, &d->root) ? nullptr : d.release();
}

void json_doc_free(struct json_doc **d)
{
    delete *d;
    *d = nullptr;
}

struct json_value json_doc_at(const struct json_doc *d, const char *pointer)
{
    dom::element e;
    if (d->root.at_pointer(pointer).get(e) != SUCCESS)
        return {};
    return value_of(e);
}

size_t json_doc_length(const struct json_doc *d, const char *pointer)
{
    dom::element e;
    dom::array items;
    dom::object members;
    if (d->root.at_pointer(pointer).get(e) != SUCCESS)
        return 0;
    if (e.get(items) == SUCCESS)
        return items.size();
    return e.get(members) == SUCCESS ? members.size() : 0;
}

struct bytes json_doc_name(const struct json_doc *d, const char *pointer, size_t i)
{
    dom::object members;
    if (d->root.at_pointer(pointer).get(members) != SUCCESS)
        return {};
    for (dom::key_value_pair member : members)
        if (i-- == 0)
            return {member.key.data(), member.key.size()};
    return {};
}
