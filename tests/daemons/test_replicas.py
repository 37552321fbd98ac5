"""An API that reads one archive from several hosts: each answer is of the newest generation that a host has shown, hosts that are away, silent
or behind are not asked, and answers stay exact through compactions, copies and kills."""
# seconds: 60
# parts: 4
# full: MILLRACE_ROUNDS=60
# processors: 2
import json
import os
import signal
import threading
import time

import harness
from harness import query, seeded, wait_until
from sortdb_case import point_at, write_generation
from test_api import MARCH, Source, hour_text
from test_api_sources import Archive
from test_cells import settled

SPAN = {"from_": MARCH, "to": MARCH + 7200, "unit": "hour"}
TARGET = "/v1/series?" + query(user="k", **SPAN)


def warnings(api):
    """The warnings about hosts; None while the API cannot answer questions."""
    reply = api.get("/health")
    return [line for line in reply.text.splitlines() if line.startswith("warning: http://")] if reply.status == 200 else None


class PlayedHosts(harness.MillraceTest):
    """Two sortdbs and an aggregator that this test plays. The count of the archive is the host's generation."""

    def setUp(self):
        super().setUp()
        self.live = Source(self)
        self.live.records["u|k"] = hour_text(MARCH) + ":1000"
        self.hosts = [Archive(self), Archive(self)]
        for host in self.hosts:
            self.serve(host, 5)

    def serve(self, host, generation):
        host.generation = generation
        host.records["u|k"] = "%s:%d" % (hour_text(MARCH), generation)

    def begin(self, *args):
        self.api = self.start("api", "--config", self.write("test.conf", harness.sample_counters()), "--sortdb-url",
                              ",".join(h.url for h in self.hosts), "--aggregator-url", self.live.url, *args)
        self.wait_hosts(*[h.generation for h in self.hosts])

    def wait_hosts(self, *generations):
        """The notice names the hosts that are behind."""
        newest = max(generations)
        behind = ["%s has generation %d, not %d" % (h.url, g, newest) for h, g in zip(self.hosts, generations) if g < newest]
        expected = ["warning: " + ", ".join(behind)] if behind else []
        wait_until(lambda: warnings(self.api) == expected, lambda: "%s, not %s" % (expected, warnings(self.api)))

    def total(self, status=200, **params):
        reply = self.api.get(TARGET + "".join("&%s=%s" % p for p in params.items()))
        self.assertEqual(reply.status, status, reply)
        return reply.json().get("total") if status == 200 else reply.json()

    def asked(self):
        """Questions of each host since the last call."""
        counts = [len(h.asked) for h in self.hosts]
        for h in self.hosts:
            h.asked.clear()
        return counts

    def test_hosts_take_turns(self):
        self.begin()
        self.asked()
        for _ in range(6):
            self.assertEqual(self.total(), 1005)
        self.assertEqual(self.asked(), [3, 3])

    def test_a_host_that_is_behind_is_not_asked(self):
        self.begin()
        self.serve(self.hosts[0], 6)
        self.wait_hosts(6, 5)
        self.asked()
        for _ in range(4):
            self.assertEqual(self.total(), 1006)
        self.assertEqual(self.asked(), [4, 0])
        self.serve(self.hosts[1], 6)
        self.wait_hosts(6, 6)
        for _ in range(4):
            self.assertEqual(self.total(), 1006)
        self.assertEqual(self.asked(), [2, 2])

    def test_no_answer_is_older_than_an_earlier_answer(self):
        """An import changes counts without a slice, so only the generation shows that a host is behind."""
        self.begin()
        self.serve(self.hosts[0], 6)
        seen = [self.total() for _ in range(6)]
        self.assertEqual(seen, sorted(seen))
        self.assertEqual(seen[-1], 1006)
        self.hosts[0].check = 503
        self.hosts[0].act = lambda h: h.answer(503, b"") or True
        away = self.total(503)
        self.assertEqual(away["code"], "upstream-unavailable")
        self.assertIn(self.hosts[0].url + ": answered with status 503", away["detail"])
        self.assertIn(self.hosts[1].url + " has generation 5, not 6", away["detail"])
        self.assertEqual([m["source"] for m in self.total(503)["missing"]], ["sortdb"])
        self.assertEqual(self.total(partial="allow"), 1000)

    def test_after_a_return_to_an_older_generation_the_newer_copies_are_read_until_they_are_older_too(self):
        self.begin()
        for host in self.hosts:
            self.serve(host, 7)
        self.wait_hosts(7, 7)
        self.serve(self.hosts[0], 6)
        self.wait_hosts(6, 7)
        self.assertEqual({self.total() for _ in range(4)}, {1007})
        self.serve(self.hosts[1], 6)
        self.wait_hosts(6, 6)
        self.assertEqual({self.total() for _ in range(4)}, {1006})

    def test_a_cleared_slice_is_asked_of_another_host(self):
        """The host has the newest generation that the API knows, but the aggregator has cleared more."""
        self.begin()
        self.serve(self.hosts[1], 9)
        self.hosts[1].through = 4

        def cleared(h):
            if "after=3" not in h.path:
                return False
            h.answer(410, b"", {"X-Millrace-Cleared": 4})
            return True
        self.live.act = cleared
        for _ in range(4):
            self.assertEqual(self.total(), 1009)

    def test_a_reply_that_ends_early_is_asked_of_another_host(self):
        self.begin()

        def breaks(h):
            if h.path.startswith(("/health", "/stats")):
                return False
            h.send_response(200)
            for name, value in {"Content-Length": 1000, "X-Millrace-Generation": 5, "X-Millrace-Through": 3, "X-Millrace-Rollups": 1}.items():
                h.send_header(name, str(value))
            h.end_headers()
            h.wfile.write(("u|k,%s:99 " % hour_text(MARCH)).encode())
            h.close_connection = True
            return True
        self.hosts[0].act = breaks
        self.assertEqual([self.total() for _ in range(6)], [1005] * 6)

    def test_a_silent_host_delays_only_the_first_questions(self):
        harness.slower_and_slower(4, self.silent, tries=3)

    def silent(self, timeout):
        self.begin("--upstream-timeout=%ds" % timeout)
        released = threading.Event()
        self.hosts[0].check = 0
        self.hosts[0].released = released
        self.hosts[0].act = lambda h: not h.path.startswith(("/health", "/stats")) and (released.wait(harness.PATIENCE), True)[1]
        try:
            got = []
            threads = [threading.Thread(target=lambda: got.append(self.api.get(TARGET).status)) for _ in range(20)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(set(got), {200})
            begin = time.monotonic()
            for _ in range(6):
                self.assertEqual(self.total(), 1005)
            self.assertLess(time.monotonic() - begin, timeout / 2)
        finally:
            released.set()
        self.hosts[0].check, self.hosts[0].act = 200, self.hosts[0].reply
        self.wait_hosts(5, 5)

    def test_wrong_lists_of_hosts_are_refused(self):
        config = self.write("test.conf", harness.sample_counters())
        for urls, why in (("http://a:1,b:port", "\"b:port\" is not an address"), ("http://a:1 http://a:1", "names http://a:1 twice"),
                          (",", "is not an address"), (",".join("http://a:%d" % i for i in range(1, 10)), "names more than 8 hosts")):
            done = self.run_program("api", "--check-config", "--config", config, "--sortdb-url", urls)
            self.assertEqual(done.returncode, 78, (urls, done))
            self.assertIn(why, done.stderr.decode().replace("\\", ""))
        cells = "".join("[cell %s]\naggregator_url = http://%s:8082\nsortdb_url = http://%s:8083, http://shared:8083\n" % (n, n, n) for n in "ab")
        done = self.run_program("api", "--check-config", "--config", self.write("cells.conf", cells + harness.sample_counters()))
        self.assertEqual(done.returncode, 78, done)
        self.assertIn("6: sortdb_url is also set in [cell a]", done.stderr.decode())


class OtherArchives(harness.MillraceTest):
    """Two sortdbs with different archives that have the same generation number."""

    def test_no_answer_is_of_either_archive_until_they_are_equal(self):
        live = Source(self)
        live.records["u|k"] = hour_text(MARCH) + ":1000"
        urls, sortdbs = [], []
        for number in (1, 2):
            archive = self.path("archive%d" % number)
            os.mkdir(archive)
            write_generation(archive, 5, 3, [(b"u|k", ("%s:%d" % (hour_text(MARCH), number)).encode())])
            point_at(archive, 5)
            sortdbs.append(self.start("sortdb", "--archive", archive))
            urls.append(sortdbs[-1].url)
        api = self.start("api", "--config", self.write("test.conf", harness.sample_counters()), "--sortdb-url", ",".join(urls),
                         "--aggregator-url", live.url)
        wait_until(lambda: "has another generation 5" in str(warnings(api)), lambda: warnings(api))
        for _ in range(4):
            reply = api.get(TARGET)
            self.assertEqual((reply.status, reply.json().get("code")), (503, "upstream-unavailable"), reply)
        sortdbs[1].stop()
        self.start("sortdb", "--archive", self.path("archive1"), "--port", urls[1].rpartition(":")[2], port=False)
        wait_until(lambda: warnings(api) == [], lambda: warnings(api))
        self.assertEqual([api.get(TARGET).json().get("total") for _ in range(4)], [1001] * 4)


    def test_a_host_with_the_archive_of_another_pipeline_is_not_asked(self):
        """Although its generation is newer. The host that is named first decides."""
        live = Source(self)
        live.records["u|k"] = hour_text(MARCH) + ":1000"
        urls = []
        for number, generation in ((1, 5), (2, 9)):
            archive = self.path("archive%d" % number)
            os.mkdir(archive)
            write_generation(archive, generation, 3, [(b"u|k", ("%s:%d" % (hour_text(MARCH), number)).encode())],
                             streams={"clicks": {"id": "pipeline%d" % number, "end": "10"}})
            point_at(archive, generation)
            urls.append(self.start("sortdb", "--archive", archive).url)
        api = self.start("api", "--config", self.write("test.conf", harness.sample_counters()), "--sortdb-url", ",".join(urls),
                         "--aggregator-url", live.url)
        wait_until(lambda: warnings(api) == ["warning: %s serves the archive of another pipeline" % urls[1]], lambda: warnings(api))
        self.assertEqual([api.get(TARGET).json().get("total") for _ in range(4)], [1001] * 4)


class RealHosts(harness.MillraceTest):
    """A pipeline, a copy of its archive on another host, and an API that reads both."""
    QUESTIONS = ({"path": "series", "user": "k", "unit": "day"}, {"path": "breakdown", "user": "k", "by": "country"},
                 {"path": "series", "user": ["k", "l", "m"], "unit": "week"}, {"path": "uniques", "user": "k", "unit": "week", "count": "visitor"})
    COUNTERS = harness.USERS_BY_COUNTRY + "[unique v.u]\nmember = v\nlabel = visitor\n"

    def setUp(self):
        super().setUp()
        self.random, self.events = seeded(), 0
        self.copy = self.path("copy")
        ports = {name: {"port": self.keep_port()} for name in ("aggregator", "sortdb")}
        self.urls = ["http://127.0.0.1:%s" % ports["sortdb"]["port"], "http://127.0.0.1:%s" % self.keep_port()]
        self.pipeline = harness.Pipeline(self, self.write("up.conf", harness.pipeline_config(self.path("up"), self.COUNTERS, **ports)),
                                         self.path("up")).wait_ready()
        self.put(300)
        self.compact()
        self.distribute("none")
        self.start_copy()
        section = "[cell one]\naggregator_url = %s\nsortdb_url = %s\n" % (
            "http://127.0.0.1:%s" % ports["aggregator"]["port"], ", ".join(self.urls))
        self.api = self.start("api", "--config", self.write("api.conf", section + self.COUNTERS), "--upstream-timeout=10s")

    def start_copy(self):
        self.replica = self.start("sortdb", "--archive", self.copy, "--port", self.urls[1].rpartition(":")[2], port=False)

    def distribute(self, url):
        done = self.run_program("millrace", "distribute", "--config", self.path("up.conf"), "--sortdb-url=" + url, self.copy)
        self.assertEqual(done.returncode, 0, done)

    def compact(self):
        done = self.run_program("millrace", "compact", "--config", self.path("up.conf"))
        self.assertEqual(done.returncode, 0, done)

    def put(self, n):
        lines = [json.dumps({"t": MARCH + self.random.randrange(40 * 86400), "l": self.random.choice("klmn"), "c": self.random.choice(("JP", "US")),
                             "v": "visitor %d" % self.random.randrange(50)}) for _ in range(n)]
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", "\n".join(lines).encode()).status, 200)
        self.events += n
        wait_until(lambda: self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["events_total"] == self.events, "the counts")

    def ask(self, url, path, **params):
        return harness.request(url, "GET", "/v1/%s?%s" % (path, query(from_=MARCH - 3600, to=MARCH - 3600 + 50 * 86400, **params)))

    def test_answers_are_right_while_the_archive_is_compacted_copied_and_its_hosts_are_killed(self):
        self.put(200)
        own = self.pipeline.daemon_url("api")
        expected = [settled(self.ask(own, **q).json()) for q in self.QUESTIONS]
        self.assertEqual([e.get("code") for e in expected], [None] * len(expected), expected)
        ended, wrong, refused, answers = threading.Event(), [], [], [0]

        def watch():
            while not ended.is_set():
                for q, answer in zip(self.QUESTIONS, expected):
                    reply = self.ask(self.api.url, **q)
                    answers[0] += 1
                    if reply.status == 503 and "one/" in reply.json()["detail"]:
                        refused.append(reply.json()["detail"])
                    elif reply.status != 200 or settled(reply.json()) != answer:
                        wrong.append((q, answer, reply.body))
        watchers = [threading.Thread(target=watch) for _ in range(3)]
        for w in watchers:
            w.start()
        try:
            for i in range(harness.rounds(3)):
                self.round(i, wrong, answers)
        finally:
            ended.set()
            for w in watchers:
                w.join()
        self.assertEqual((wrong[:1], refused[:1]), ([], []))  # a host with the newest generation was always there

    def round(self, i, wrong, answers):
        self.compact()  # slices are cleared, and the copy is behind
        self.distribute(self.urls[1])
        newest = int(os.readlink(self.path("up", "archive", "current")))
        shown = ["millrace_api_archive_host_%s{host=\"%s\"} %d\n" % row for url in self.urls for row in (("generation", url, newest), ("up", url, 1))]
        wait_until(lambda: all(line in self.api.get("/metrics").text for line in shown), "both hosts to be known")
        self.assertEqual(harness.request(self.urls[1], "GET", "/stats?format=json").json()["generation"], newest)
        if i % 2 == 0:
            self.replica.kill9()
        else:
            self.pipeline.kill9_daemon("sortdb")
        wait_until(lambda n=answers[0]: answers[0] > n + 30 or wrong, "more answers")
        if i % 2 == 0:
            self.start_copy()
        self.pipeline.wait_ready()


if __name__ == "__main__":
    harness.main()
