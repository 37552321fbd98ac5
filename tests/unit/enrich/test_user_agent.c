/* user_agent: agents of people and of programs, and the cache. */
#include "support/cm.h"

#include "enrich/agent_rules.h"
#include "enrich/user_agent.h"
#include <stdio.h>

static struct user_agents *open_agents(size_t cache_bytes)
{
    struct error error;
    struct user_agents *agents = user_agents_open(USER_AGENT_RULES, cache_bytes, &error);
    if (!agents)
        fail_msg("%s", error.text);
    return agents;
}

static const struct {
    const char *text, *browser, *os, *device;
} rows[] = {
    {"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
     "Safari/537.36",
        "Chrome", "Windows", "desktop"},
    {"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:121.0) Gecko/20100101 Firefox/121.0", "Firefox", "Windows",
        "desktop"},
    {"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
     "Version/17.1 Safari/605.1.15",
        "Safari", "Mac OS X", "desktop"},
    {"Mozilla/5.0 (iPhone; CPU iPhone OS 17_1_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
     "Version/17.1.2 Mobile/15E148 Safari/604.1",
        "Mobile Safari", "iOS", "phone"},
    {"Mozilla/5.0 (iPad; CPU OS 16_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
     "Version/16.6 Mobile/15E148 Safari/604.1",
        "Mobile Safari", "iOS", "tablet"},
    {"Mozilla/5.0 (Linux; Android 13; SM-S918B) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
     "Mobile Safari/537.36",
        "Chrome Mobile", "Android", "phone"},
    {"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
     "Safari/537.36",
        "Chrome", "Android", "tablet"},
    {"Mozilla/5.0 (Linux; Android 13; SM-X706B) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
     "Safari/537.36",
        "Chrome", "Android", "tablet"},
    {"Mozilla/5.0 (Android 13; Mobile; rv:121.0) Gecko/121.0 Firefox/121.0", "Firefox Mobile", "Android",
        "phone"},
    {"Mozilla/5.0 (Android 13; Tablet; rv:121.0) Gecko/121.0 Firefox/121.0", "Firefox Mobile", "Android",
        "tablet"},
    {"Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0", "Firefox", "Linux", "desktop"},
    {"Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0", "Firefox", "Ubuntu",
        "desktop"},
    {"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
     "Safari/537.36",
        "Chrome", "Chrome OS", "desktop"},
    {"Mozilla/5.0 (X11; FreeBSD amd64; rv:109.0) Gecko/20100101 Firefox/115.0", "Firefox", "FreeBSD",
        "desktop"},
    {"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
     "Safari/537.36 Edg/120.0.2210.61",
        "Edge", "Windows", "desktop"},
    {"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0.0.0 "
     "Safari/537.36 OPR/105.0.0.0",
        "Opera", "Windows", "desktop"},
    {"Mozilla/5.0 (Linux; Android 13; SAMSUNG SM-A536B) AppleWebKit/537.36 (KHTML, like Gecko) "
     "SamsungBrowser/23.0 Chrome/115.0.0.0 Mobile Safari/537.36",
        "Samsung Internet", "Android", "phone"},
    {"Opera/9.80 (Android; Opera Mini/7.5.33361/31.1543; U; en) Presto/2.8.119 Version/11.1010", "Opera Mini",
        "Android", "phone"},
    {"Mozilla/5.0 (Mobile; Nokia_8110_4G; rv:48.0) Gecko/48.0 Firefox/48.0 KAIOS/2.5", "Firefox Mobile",
        "KaiOS", "phone"},
    {"Mozilla/5.0 (Windows Phone 10.0; Android 6.0.1; Microsoft; Lumia 950) AppleWebKit/537.36 (KHTML, "
     "like Gecko) Chrome/52.0.2743.116 Mobile Safari/537.36 Edge/15.15063",
        "Edge Mobile", "Windows Phone", "phone"},
    {"Mozilla/5.0 (SMART-TV; Linux; Tizen 6.0) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/2.1 "
     "Chrome/76.0.3809.146 TV Safari/537.36",
        "Samsung Internet", "Tizen", "tv"},
    {"Mozilla/5.0 (Web0S; Linux/SmartTV) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/79.0.3945.79 "
     "Safari/537.36 WebAppManager",
        "Chrome", "Web0S", "tv"},
    {"Mozilla/5.0 (Linux; Android 9; AFTMM Build/PS7633; wv) AppleWebKit/537.36 (KHTML, like Gecko) "
     "Version/4.0 Chrome/70.0.3538.110 Mobile Safari/537.36",
        "Chrome Mobile WebView", "Android", "tv"},
    {"Mozilla/5.0 (X11; Linux armv7l) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/90.0.4430.225 "
     "Safari/537.36 CrKey/1.56.500000",
        "Chrome", "Chromecast", "tv"},
    {"AppleTV11,1/11.1", "Other", "ATV OS X", "tv"},
    {"Mozilla/5.0 (Linux; Android 9; KFMAWI) AppleWebKit/537.36 (KHTML, like Gecko) Silk/108.4.6 like "
     "Chrome/108.0.5359.220 Safari/537.36",
        "Amazon Silk", "Android", "tablet"},
    {"Mozilla/5.0 (X11; U; Linux armv7l like Android; en-us) AppleWebKit/531.2+ (KHTML, like Gecko) "
     "Version/5.0 Safari/533.2+ Kindle/3.0+",
        "Kindle", "Kindle", "tablet"},
    {"Mozilla/5.0 (PlayStation 5 3.21) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.0 "
     "Safari/605.1.15",
        "Safari", "Other", "other"},
    {"Mozilla/5.0 (Windows NT 10.0; Win64; x64; Xbox; Xbox One) AppleWebKit/537.36 (KHTML, like Gecko) "
     "Chrome/48.0.2564.82 Safari/537.36 Edge/20.02",
        "Edge", "Windows", "other"},
    {"Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.1; Trident/5.0; Tablet PC 2.0)", "IE", "Windows",
        "desktop"},
    {"Mozilla/5.0 (iPhone; CPU iPhone OS 16_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
     "Mobile/15E148 Instagram 309.1.1.28.108",
        "Instagram", "iOS", "phone"},
    {"Mozilla/5.0 (Linux; Android 12; CUBOT NOTE 20 Build/SP1A) AppleWebKit/537.36 (KHTML, like Gecko) "
     "Chrome/110.0.0.0 Mobile Safari/537.36",
        "Chrome Mobile", "Android", "phone"},
    {"SAMSUNG-SGH-E250/1.0 UP.Browser/6.2.3.3 (GUI) MMP/2.0", "UP.Browser", "Other", "phone"},
    {"DoCoMo/2.0 N905i(c100;TB;W24H16)", "Other", "Other", "phone"},
    {"Mozilla/4.0 (compatible; MSIE 6.0; Windows CE; IEMobile 6.12) ASUSM530w/1.0", "IE Mobile", "Windows",
        "phone"},
    {"HbbTV/1.1.1 (; ST; FLTk3D; 1.0; 1.0;) NetFront/3.5", "HbbTV", "Other", "tv"},
    {"Dalvik/2.1.0 (Linux; U; Android 11; SM-A125F Build/RP1A.200720.012)", "Android", "Android", "phone"},
    {"MyApp/1.0 CFNetwork/1410.0.3 Darwin/22.6.0", "MyApp", "iOS", "phone"},
    {"Mozilla/5.0 (BB10; Touch) AppleWebKit/537.10+ (KHTML, like Gecko) Version/10.0.9.2372 Mobile "
     "Safari/537.10+",
        "BlackBerry WebKit", "BlackBerry OS", "phone"},
    {"Mozilla/5.0 (Nintendo Switch; WebApplet) AppleWebKit/609.4 (KHTML, like Gecko) NF/6.0.2.21.3 "
     "NintendoBrowser/5.1.0.22474",
        "Other", "Other", "other"},
};

static void test_people(void **state)
{
    (void)state;
    struct user_agents *agents = open_agents(0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct user_agent a;
        user_agents_find(agents, bytes_str(rows[i].text), &a);
        if (!bytes_equal_str(a.browser, rows[i].browser) || !bytes_equal_str(a.os, rows[i].os) ||
            !bytes_equal_str(a.device, rows[i].device) || a.bot)
            fail_msg("%s: %.*s, %.*s, %.*s, %d", rows[i].text, (int)a.browser.len, a.browser.ptr,
                (int)a.os.len, a.os.ptr, (int)a.device.len, a.device.ptr, a.bot);
    }
    user_agents_free(&agents);
}

static const char *const texts[] = {
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/120.0.6099.109 Mobile Safari/537.36 (compatible; Googlebot/2.1; "
    "+http://www.google.com/bot.html)",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; "
    "+http://www.bing.com/bingbot.htm) Chrome/116.0.1938.76 Safari/537.36",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; "
    "+https://openai.com/gptbot)",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; "
    "+https://openai.com/bot",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; "
    "+claudebot@anthropic.com)",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; PerplexityBot/1.0; "
    "+https://perplexity.ai/perplexitybot)",
    "Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko) Mobile Safari/537.36 "
    "(compatible; Bytespider; spider-feedback@bytedance.com)",
    "CCBot/2.0 (https://commoncrawl.org/faq/)",
    "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)",
    "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)",
    "DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)",
    "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)",
    "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)",
    "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)",
    "Mozilla/5.0 (compatible; DotBot/1.2; +https://opensiteexplorer.org/dotbot; help@moz.com)",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/13.1.1 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)",
    "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
    "meta-externalagent/1.1 (+https://developers.facebook.com/docs/sharing/webmasters/crawler)",
    "Twitterbot/1.0",
    "LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)",
    "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
    "TelegramBot (like TwitterBot)",
    "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)",
    "WhatsApp/2.23.20.0",
    "Mozilla/5.0 (compatible; PetalBot;+https://webmaster.petalsearch.com/site/petalbot)",
    "Mozilla/5.0 (compatible; archive.org_bot +http://archive.org/details/archive.org_bot)",
    "Mozilla/5.0 (compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)",
    "Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "HeadlessChrome/120.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Unknown; Linux x86_64) AppleWebKit/538.1 (KHTML, like Gecko) PhantomJS/2.1.1 "
    "Safari/538.1",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/104.0.5112.79 "
    "Safari/537.36 Chrome-Lighthouse",
    "curl/7.88.1",
    "Wget/1.21.3",
    "python-requests/2.31.0",
    "Python-urllib/3.11",
    "Python/3.10 aiohttp/3.8.4",
    "python-httpx/0.25.0",
    "Go-http-client/1.1",
    "Java/17.0.1",
    "Apache-HttpClient/4.5.14 (Java/17.0.6)",
    "okhttp/4.9.3",
    "libwww-perl/6.67",
    "PHP/8.1",
    "GuzzleHttp/7",
    "axios/1.6.2",
    "node-fetch/1.0 (+https://github.com/bitinn/node-fetch)",
    "got (https://github.com/sindresorhus/got)",
    "undici",
    "Ruby",
    "Faraday v2.7.4",
    "Scrapy/2.11.0 (+https://scrapy.org)",
    "PostmanRuntime/7.36.0",
    "insomnia/8.4.5",
    "HTTPie/3.2.2",
    "Wget",
    "ApacheBench/2.3",
    "masscan/1.3 (https://github.com/robertdavidgraham/masscan)",
    "Nmap Scripting Engine",
    "Expanse, a Palo Alto Networks company, searches across the global IPv4 space",
    "Mozilla/5.0 (compatible; CensysInspect/1.1; +https://about.censys.io/)",
    "Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)",
    "FeedFetcher-Google; (+http://www.google.com/feedfetcher.html)",
    "Google-InspectionTool/1.0",
    "AdsBot-Google (+http://www.google.com/adsbot.html)",
    "Mediapartners-Google",
    "APIs-Google (+https://developers.google.com/webmasters/APIs-Google.html)",
    "Mozilla/5.0 (compatible; Amazonbot/0.1; +https://developer.amazon.com/support/amazonbot)",
    "ia_archiver",
    "Sogou web spider/4.0(+http://www.sogou.com/docs/help/webmasters.htm#07)",
    "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)",
    "Screaming Frog SEO Spider/19.0",
    "W3C_Validator/1.3 http://validator.w3.org/services",
    "check_http/v2.3.3 (nagios-plugins 2.3.3)",
    "Prometheus/2.45.0",
    "kube-probe/1.27",
    "ELB-HealthChecker/2.0",
    "Zabbix",
    "",
    " \t",
    "-",
};

static void test_programs(void **state)
{
    (void)state;
    struct user_agents *agents = open_agents(0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct user_agent a;
        user_agents_find(agents, bytes_str(texts[i]), &a);
        if (!a.bot)
            fail_msg("taken for a person: %s", texts[i]);
    }
    struct user_agent a;
    user_agents_find(agents, BYTES_NONE, &a);
    assert_true(a.bot && bytes_equal_str(a.browser, "Other") && bytes_equal_str(a.os, "Other"));
    user_agents_free(&agents);
}

/* The n-th of texts that differ only in their version. */
static struct user_agent find_numbered(struct user_agents *agents, unsigned n)
{
    struct user_agent a;
    char text[100];
    int len = snprintf(text, sizeof text, "Mozilla/5.0 (X11; Linux x86_64; rv:1.0) Firefox/%u.0", n);
    user_agents_find(agents, bytes_of(text, (size_t)len), &a);
    return a;
}

static void check_numbered(struct user_agents *agents, unsigned n)
{
    struct user_agent a = find_numbered(agents, n);
    assert_true(bytes_equal_str(a.browser, "Firefox") && bytes_equal_str(a.os, "Linux"));
    assert_true(bytes_equal_str(a.device, "desktop") && !a.bot);
}

static void test_the_cache_is_bounded(void **state)
{
    (void)state;
    const size_t limit = 16384;
    struct user_agents *agents = open_agents(limit);
    for (unsigned n = 0; n < 3000; n++) {
        check_numbered(agents, n);
        assert_true(user_agents_cached_bytes(agents) <= limit);
    }
    assert_true(user_agents_cached_bytes(agents) > limit * 9 / 10);
    assert_int_equal(user_agents_searches(agents), 3000);
    check_numbered(agents, 2999);
    assert_int_equal(user_agents_searches(agents), 3000);
    check_numbered(agents, 0);
    assert_int_equal(user_agents_searches(agents), 3001);
    user_agents_free(&agents);
}

static void test_new_texts_do_not_evict_the_others(void **state)
{
    (void)state;
    struct user_agents *agents = open_agents(16384);
    for (unsigned n = 0; n < 20; n++)
        check_numbered(agents, n);
    for (unsigned n = 0; n < 2000; n++) {
        check_numbered(agents, n % 20);
        check_numbered(agents, 100 + n);
    }
    assert_int_equal(user_agents_searches(agents), 20 + 2000);
    user_agents_free(&agents);
}

static void test_without_a_cache(void **state)
{
    (void)state;
    struct user_agents *agents = open_agents(0);
    check_numbered(agents, 1);
    check_numbered(agents, 2);
    check_numbered(agents, 1);
    assert_int_equal(user_agents_searches(agents), 3);
    user_agents_free(&agents);
}

/* Bytes after AGENT_TEXT_MAX do not make another entry; other bytes do, NUL too. */
static void test_what_is_the_same_text(void **state)
{
    struct user_agent a;
    char text[4 * AGENT_TEXT_MAX];
    (void)state;
    struct user_agents *agents = open_agents(1 << 20);
    memset(text, 'x', sizeof text);
    user_agents_find(agents, bytes_of(text, sizeof text), &a);
    user_agents_find(agents, bytes_of(text, sizeof text / 2), &a);
    assert_int_equal(user_agents_searches(agents), 1);
    user_agents_find(agents, BYTES_LITERAL("Mozilla/5.0 (iPhone)"), &a);
    user_agents_find(agents, BYTES_LITERAL(" Mozilla/5.0 (iPhone) "), &a);
    assert_int_equal(user_agents_searches(agents), 2);
    user_agents_find(agents, BYTES_LITERAL("Mozilla/5.0 (iPhone\0)"), &a);
    user_agents_find(agents, BYTES_LITERAL("Mozilla/5.0 (iPhone\0\xff"), &a);
    assert_int_equal(user_agents_searches(agents), 4);
    assert_true(bytes_equal_str(a.device, "phone"));
    user_agents_free(&agents);
}

static void test_a_missing_file(void **state)
{
    struct error error;
    (void)state;
    assert_null(user_agents_open("/none/regexes.yaml", 0, &error));
    assert_string_equal(error.text, "/none/regexes.yaml: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_people),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_the_cache_is_bounded),
        cmocka_unit_test(test_new_texts_do_not_evict_the_others),
        cmocka_unit_test(test_without_a_cache),
        cmocka_unit_test(test_what_is_the_same_text),
        cmocka_unit_test(test_a_missing_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
