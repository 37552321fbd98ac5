// redis_count: counts a stream of redis; a peer in `scripts/bench whole`. Shares no code with millrace.
//
//     redis_count PORT
//
// Reads the stream `events` of redis at 127.0.0.1:PORT, and counts by the fourteen counters of etc/clicks.conf. For each batch of up to
// 5,000 events one transaction adds what the batch counted and stores the id of its last event, from which the next start reads on: each
// event is counted once. Hashes: NS|KEY has a field for each hour, NS|KEY|HOUR a field for each sub key. Runs until it is killed.
#include <simdjson.h>

#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/tcp.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace
{

class Connection
{
  public:
    explicit Connection(int port)
    {
        sockaddr_in to = {};
        int on = 1;
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<uint16_t>(port));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd_, reinterpret_cast<sockaddr *>(&to), sizeof to) != 0)
            throw std::runtime_error("cannot connect");
        setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    ~Connection()
    {
        close(fd_);
    }
    void add(std::initializer_list<std::string_view> words)
    {
        begin(words.size());
        for (std::string_view w : words)
            word(w);
    }
    void begin(size_t words)
    {
        out_ += '*' + std::to_string(words) + "\r\n";
    }
    void word(std::string_view w)
    {
        out_ += '$' + std::to_string(w.size()) + "\r\n";
        out_.append(w) += "\r\n";
    }
    void send_all()
    {
        for (size_t at = 0; at < out_.size();) {
            ssize_t n = send(fd_, out_.data() + at, out_.size() - at, MSG_NOSIGNAL);
            if (n <= 0)
                throw std::runtime_error("cannot send");
            at += static_cast<size_t>(n);
        }
        out_.clear();
    }
    // One answer. Its texts are appended to `texts`.
    void read(std::vector<std::string> &texts)
    {
        std::string head = line();
        long n = atol(head.c_str() + 1);
        if (head[0] == '-')
            throw std::runtime_error(head);
        if (head[0] == '*')
            for (long i = 0; i < n; i++)
                read(texts);
        if (head[0] == '$' && n >= 0) {
            need(static_cast<size_t>(n) + 2);
            texts.emplace_back(in_, at_, static_cast<size_t>(n));
            at_ += static_cast<size_t>(n) + 2;
        }
    }

  private:
    int fd_;
    std::string out_, in_;
    size_t at_ = 0;

    void fill()
    {
        char piece[1 << 16];
        ssize_t n = recv(fd_, piece, sizeof piece, 0);
        if (n <= 0)
            throw std::runtime_error("redis closed the connection");
        if (at_ > (1 << 20)) {
            in_.erase(0, at_);
            at_ = 0;
        }
        in_.append(piece, static_cast<size_t>(n));
    }
    void need(size_t n)
    {
        while (in_.size() - at_ < n)
            fill();
    }
    std::string line()
    {
        size_t end;
        while ((end = in_.find("\r\n", at_)) == in_.npos)
            fill();
        std::string text = in_.substr(at_, end - at_);
        at_ = end + 2;
        return text;
    }
};

std::string host(std::string_view url)
{
    size_t scheme = url.find("://");
    if (scheme == url.npos)
        return std::string(url);
    std::string_view rest = url.substr(scheme + 3);
    rest = rest.substr(0, rest.find_first_of("/?#"));
    rest = rest.substr(rest.rfind('@') + 1);
    std::string name(rest.substr(0, rest.find(':')));
    for (char &c : name)
        c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
    return name;
}

using Counts = std::unordered_map<std::string, std::unordered_map<std::string, long>>;

class Counter
{
  public:
    void count(std::string_view event)
    {
        simdjson::dom::object object;
        if (parser_.parse(event.data(), event.size()).get(object))
            return;
        long time = -1;
        std::string values[FIELDS];
        for (auto [key, value] : object) {
            int64_t number;
            std::string_view text;
            const char *at = key.size() == 1 ? strchr(LETTERS, key[0]) : nullptr;
            if (key == "_heartbeat_")
                return;
            if (key == "t" && !value.get(number))
                time = number / 3600;
            else if (at && !value.get(text))
                values[at - LETTERS] = text;
        }
        if (time < 0)
            return;
        add(std::to_string(time), values[0], values[1], values[2], host(values[3]), host(values[4]),
            values[4]);
    }
    Counts counts;

  private:
    static constexpr const char *LETTERS = "lhcur";
    static constexpr size_t FIELDS = 5;
    simdjson::dom::parser parser_;

    static const std::string &named(const std::string &text)
    {
        static const std::string none = "None";
        return text.empty() ? none : text;
    }
    void total(const char *ns, const std::string &key, const std::string &hour)
    {
        counts[ns + ('|' + named(key))][hour]++;
    }
    void subtotal(const char *ns, const std::string &key, const std::string &hour, const std::string &sub)
    {
        counts[ns + ('|' + named(key)) + '|' + hour][named(sub)]++;
    }
    void add(const std::string &hour, const std::string &user, const std::string &link,
        const std::string &country, const std::string &domain, const std::string &referring_host,
        const std::string &referrer)
    {
        total("all", "all", hour);
        total("u", user, hour);
        total("h", link, hour);
        total("d", domain, hour);
        subtotal("c.all", "all", hour, country);
        subtotal("r.all", "all", hour, referring_host);
        subtotal("u.all", "all", hour, user);
        subtotal("h.all", "all", hour, link);
        subtotal("c.u", user, hour, country);
        subtotal("r.u", user, hour, referrer);
        subtotal("h.u", user, hour, link);
        subtotal("c.h", link, hour, country);
        subtotal("r.h", link, hour, referrer);
        subtotal("c.d", domain, hour, country);
    }
};

// Events come as stream name, then id, "e", text of each. Returns the last id.
std::string take_batch(Connection &redis, std::vector<std::string> &texts)
{
    Counter counter;
    size_t answers = 3; // MULTI, SET, EXEC
    std::string last;
    for (size_t i = 1; i + 2 < texts.size(); i += 3) {
        counter.count(texts[i + 2]);
        last = texts[i];
    }
    redis.add({"MULTI"});
    for (const auto &[hash, fields] : counter.counts)
        for (const auto &[field, n] : fields) {
            redis.add({"HINCRBY", hash, field, std::to_string(n)});
            answers++;
        }
    redis.add({"SET", "counted", last});
    redis.add({"EXEC"});
    redis.send_all();
    while (answers-- > 0)
        redis.read(texts);
    return last;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: redis_count PORT\n");
        return 64;
    }
    try {
        Connection redis(atoi(argv[1]));
        std::vector<std::string> texts;
        redis.add({"GET", "counted"});
        redis.send_all();
        redis.read(texts);
        std::string last = texts.empty() ? "0" : texts[0];
        for (;;) {
            texts.clear();
            redis.add({"XREAD", "COUNT", "5000", "BLOCK", "1000", "STREAMS", "events", last});
            redis.send_all();
            redis.read(texts);
            if (!texts.empty())
                last = take_batch(redis, texts);
        }
    } catch (const std::exception &e) {
        fprintf(stderr, "redis_count: %s\n", e.what());
        return 1;
    }
}
