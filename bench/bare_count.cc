// bare_count: the bare loop of count_real and count_zipf. Counts events in memory and shares no code with millrace.
//
//     bare_count FILE EVENTS
//
// FILE has one event a line and is repeated until EVENTS are counted. Each event is parsed, its components are interned, and it is
// added to the fourteen counters of etc/clicks.conf in one flat table. At the end the counts are sorted once, by the texts of their
// components. Prints the processor time in seconds, and the numbers of events and of different counts. Nothing is written.
#include <simdjson.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace
{

constexpr uint32_t NONE = UINT32_MAX;

double processor_seconds()
{
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Numbers texts from 0 on.
class Texts
{
  public:
    uint64_t hash(std::string_view text) const
    {
        uint64_t h = XXH3_64bits(text.data(), text.size());
        __builtin_prefetch(&slots_[h & mask()]);
        return h;
    }

    uint32_t number(std::string_view text, uint64_t hash)
    {
        uint64_t i = hash & mask();
        for (; slots_[i]; i = (i + 1) & mask()) {
            uint32_t number = slots_[i] - 1;
            if (entries_[number].hash == hash && at(number) == text)
                return number;
        }
        entries_.push_back({hash, bytes_.size(), text.size()});
        bytes_.append(text);
        slots_[i] = static_cast<uint32_t>(entries_.size());
        if (entries_.size() * 2 > slots_.size())
            grow();
        return static_cast<uint32_t>(entries_.size() - 1);
    }

    // The place of each text in the order of bytes.
    std::vector<uint32_t> ranks() const
    {
        std::vector<uint32_t> order(entries_.size()), ranks(entries_.size());
        for (uint32_t i = 0; i < order.size(); i++)
            order[i] = i;
        std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) { return at(a) < at(b); });
        for (uint32_t i = 0; i < order.size(); i++)
            ranks[order[i]] = i + 1;
        return ranks;
    }

  private:
    struct Entry {
        uint64_t hash;
        size_t start, size;
    };
    std::vector<uint32_t> slots_ = std::vector<uint32_t>(1 << 16); // a text's number + 1, or 0
    std::vector<Entry> entries_;
    std::string bytes_;

    uint64_t mask() const
    {
        return slots_.size() - 1;
    }
    std::string_view at(uint32_t number) const
    {
        return std::string_view(bytes_).substr(entries_[number].start, entries_[number].size);
    }
    void grow()
    {
        slots_.assign(slots_.size() * 2, 0);
        for (uint32_t n = 0; n < entries_.size(); n++) {
            uint64_t i = entries_[n].hash & mask();
            while (slots_[i])
                i = (i + 1) & mask();
            slots_[i] = n + 1;
        }
    }
};

struct Count {
    uint32_t key, sub, hour, counter;
    uint64_t n;
};

uint64_t hash_of(const Count &c)
{
    uint64_t x = (uint64_t{c.key} << 32 | c.sub) * 0x9E3779B97F4A7C15u ^
                 (uint64_t{c.hour} << 8 | c.counter) * 0xC2B2AE3D27D4EB4Fu;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 32);
}

class Counts
{
  public:
    void prefetch(uint64_t hash) const
    {
        __builtin_prefetch(&cells_[hash & mask()], 1);
    }
    void add(const Count &c, uint64_t hash)
    {
        Count *cell = find(cells_, c, hash);
        if (cell->n++ > 0)
            return;
        *cell = c;
        if (++used_ * 2 > cells_.size())
            grow();
    }
    std::vector<Count> sorted(const std::vector<uint32_t> &ranks) const
    {
        std::vector<Count> out;
        out.reserve(used_);
        for (const Count &c : cells_)
            if (c.n)
                out.push_back({ranks[c.key], c.sub == NONE ? 0 : ranks[c.sub], c.hour, c.counter, c.n});
        std::sort(out.begin(), out.end(), [](const Count &a, const Count &b) {
            uint64_t x = uint64_t{a.counter} << 32 | a.key, y = uint64_t{b.counter} << 32 | b.key;
            return x != y ? x < y : (uint64_t{a.hour} << 32 | a.sub) < (uint64_t{b.hour} << 32 | b.sub);
        });
        return out;
    }

  private:
    std::vector<Count> cells_ = std::vector<Count>(1 << 16);
    size_t used_ = 0;

    uint64_t mask() const
    {
        return cells_.size() - 1;
    }
    static Count *find(std::vector<Count> &cells, const Count &c, uint64_t hash)
    {
        uint64_t mask = cells.size() - 1, i = hash & mask;
        while (cells[i].n && memcmp(&cells[i], &c, offsetof(Count, n)) != 0)
            i = (i + 1) & mask;
        return &cells[i];
    }
    void grow()
    {
        std::vector<Count> larger(cells_.size() * 2);
        for (const Count &c : cells_)
            if (c.n)
                *find(larger, c, hash_of(c)) = c;
        cells_.swap(larger);
    }
};

// The authority without user and port, in lower case; the text itself if it has no scheme.
std::string_view host(std::string_view url, std::string &buffer)
{
    size_t scheme = url.find("://");
    if (scheme == url.npos)
        return url;
    const char *start = url.data() + scheme + 3, *all = url.data() + url.size(), *end = start,
               *port = nullptr;
    bool is_lower = true;
    for (; end < all && *end != '/' && *end != '?' && *end != '#'; end++) {
        if (*end == '@')
            start = end + 1, port = nullptr;
        else if (*end == ':')
            port = end;
        is_lower = is_lower && !(*end >= 'A' && *end <= 'Z');
    }
    std::string_view name(start, static_cast<size_t>((port ? port : end) - start));
    if (is_lower)
        return name;
    buffer.assign(name);
    for (char &c : buffer)
        c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
    return buffer;
}

struct Event {
    int64_t time;
    bool has_time, is_skipped;
    std::string_view user, link, url, country, referrer;
};

bool read_event(simdjson::dom::parser &parser, const char *line, size_t size, Event &e)
{
    simdjson::dom::object object;
    if (parser.parse(line, size, false).get(object))
        return false;
    e = {};
    for (auto [key, value] : object) {
        std::string_view *text = nullptr;
        switch (key.size() == 1 ? key[0] : 0) {
        case 'l':
            text = &e.user;
            break;
        case 'h':
            text = &e.link;
            break;
        case 'u':
            text = &e.url;
            break;
        case 'c':
            text = &e.country;
            break;
        case 'r':
            text = &e.referrer;
            break;
        case 't':
            e.has_time = !value.get(e.time);
            break;
        default:
            e.is_skipped = e.is_skipped || key == "_heartbeat_";
        }
        if (text && value.get(*text))
            *text = {};
    }
    return e.has_time && !e.is_skipped;
}

enum Component { ALL, USER, LINK, HOST, COUNTRY, REFERRER, REFERRING_HOST, COMPONENTS };
struct Counter {
    int key, sub;
};
constexpr Counter COUNTERS[] = {{ALL, -1}, {USER, -1}, {LINK, -1}, {HOST, -1}, {ALL, COUNTRY},
    {ALL, REFERRING_HOST}, {ALL, USER}, {ALL, LINK}, {USER, COUNTRY}, {USER, REFERRER}, {USER, LINK},
    {LINK, COUNTRY}, {LINK, REFERRER}, {HOST, COUNTRY}};
constexpr uint32_t N_COUNTERS = sizeof COUNTERS / sizeof *COUNTERS;

void count(const Event &e, Texts &texts, Counts &counts)
{
    static std::string buffers[2];
    std::string_view texts_of[COMPONENTS] = {
        "all", e.user, e.link, host(e.url, buffers[0]), e.country, e.referrer, host(e.referrer, buffers[1])};
    uint64_t hashes[N_COUNTERS];
    uint32_t numbers[COMPONENTS];
    Count counted[N_COUNTERS];
    for (int i = 0; i < COMPONENTS; i++) {
        texts_of[i] = texts_of[i].empty() ? "None" : texts_of[i];
        hashes[i] = texts.hash(texts_of[i]);
    }
    for (int i = 0; i < COMPONENTS; i++)
        numbers[i] = texts.number(texts_of[i], hashes[i]);
    for (uint32_t i = 0; i < N_COUNTERS; i++) {
        const Counter &c = COUNTERS[i];
        counted[i] = {
            numbers[c.key], c.sub < 0 ? NONE : numbers[c.sub], static_cast<uint32_t>(e.time / 3600), i, 1};
        hashes[i] = hash_of(counted[i]);
        counts.prefetch(hashes[i]);
    }
    for (uint32_t i = 0; i < N_COUNTERS; i++)
        counts.add(counted[i], hashes[i]);
}

} // namespace

int main(int argc, char **argv)
{
    simdjson::padded_string data;
    uint64_t events = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;
    if (events == 0 || simdjson::padded_string::load(argv[1]).get(data) || data.size() == 0 ||
        data.data()[data.size() - 1] != '\n') {
        fprintf(stderr, "usage: bare_count FILE EVENTS; FILE ends with a newline\n");
        return 64;
    }
    double began = processor_seconds();
    simdjson::dom::parser parser;
    Texts texts;
    Counts counts;
    Event event;
    uint64_t counted = 0;
    const char *at = data.data(), *end = at + data.size();
    for (uint64_t lines = 0; lines < events; lines++) {
        const char *lf = static_cast<const char *>(memchr(at, '\n', static_cast<size_t>(end - at)));
        if (read_event(parser, at, static_cast<size_t>(lf - at), event)) {
            count(event, texts, counts);
            counted++;
        }
        at = lf + 1 < end ? lf + 1 : data.data();
    }
    size_t different = counts.sorted(texts.ranks()).size();
    printf(
        "%.6f %llu %zu\n", processor_seconds() - began, static_cast<unsigned long long>(counted), different);
    return 0;
}
