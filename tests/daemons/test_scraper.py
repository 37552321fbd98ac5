"""The scraper between targets that behave in many ways and a real pubsub; crash/test_kill_scraper.py kills both."""
# seconds: 60
# parts: 3
import collections
import json
import os
import shutil
import signal
import subprocess
import time

import harness
from clocks import Clocks
from harness import request, wait_until
from metrics_target import reply
from scraper_case import OWN, ScraperTest


class Lines(ScraperTest):
    def test_a_page_becomes_lines(self):
        page = "# HELP a text\n# TYPE a counter\na_total{code=\"200\",q=\"\\\"\"} 1027 \nb{instance=\"mine\"} NaN\nc 1e5\n"
        target = self.target({"/metrics": page})
        self.write_targets((target.address, {"job": "web", "rack": "4"}))
        self.pubsub()
        scraper = self.scraper()
        t, _ = self.wait_scrape(lambda v: v.get("up") == 1, "a scrape")
        own = {"instance": target.address, "job": "web", "rack": "4"}
        found = [(line["labels"], line["v"]) for line in self.lines() if line["t"] == t]
        self.assertEqual(found[:3], [({"__name__": "a_total", "code": "200", **own, "q": "\""}, 1027),
                                     ({"__name__": "b", "exported_instance": "mine", **own}, "NaN"), ({"__name__": "c", **own}, 1e5)])
        self.assertEqual([(labels, v) for labels, v in found[3:] if labels["__name__"] != "scrape_duration_seconds"],
                         [({"__name__": "up", **own}, 1), ({"__name__": "scrape_samples_scraped", **own}, 3)])
        self.assertEqual([list(labels) for labels, _ in found], [sorted(labels) for labels, _ in found])
        listed = self.look(scraper)
        self.assertEqual((listed["url"], listed["labels"], listed["up"], listed["samples"], listed["error"]),
                         ("http://%s/metrics" % target.address, own, True, 3, ""))

    def test_slots_are_an_interval_apart_and_do_not_depend_on_the_start(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}))
        self.pubsub()
        offsets = set()
        for _ in range(2):
            scraper = self.scraper()
            n = len(self.scrapes())
            wait_until(lambda: len(self.scrapes()) >= n + 3, "three scrapes")
            scraper.stop()
        times = sorted(self.scrapes())
        offsets = {round(t * 1000) % 1000 for t in times}
        self.assertEqual(len(offsets), 1, times)
        self.assert_once()

    def test_formats_and_their_names(self):
        openmetrics = "# TYPE a counter\na_total 1 # {t=\"x\"} 0.5\n# EOF\n"
        target = self.target({"/metrics": reply(openmetrics, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
                              "/none": reply("a 1\n", None), "/html": reply("a 1\n", "text/html"), "/open": reply("a 1\n", "application/openmetrics-text")})
        self.write_targets(*((target.address, {"__metrics_path__": path}) for path in target.pages))
        self.pubsub()
        scraper = self.scraper()
        wait_until(lambda: all(t["slot"] > 0 for t in scraper.get("/targets").json()), "scrapes")
        wait_until(lambda: self.look(scraper)["up"], "OpenMetrics")
        for path, error in (("/none", "unknown Content-Type \"\"; set fallback_format"), ("/html", "unknown Content-Type \"text/html\"; set fallback_format"),
                            ("/open", "line 2, column 1: the page ends without # EOF")):
            wait_until(lambda: self.look(scraper, path)["error"] == error, lambda: self.look(scraper, path))
        scraper.stop()
        scraper = self.scraper("--fallback-format=text")
        wait_until(lambda: self.look(scraper, "/none")["up"] and self.look(scraper, "/html")["up"], "the fallback")

    def test_settings_of_labels_and_times(self):
        target = self.target({"/metrics": "a{job=\"mine\"} 1 1500\n"})
        self.write_targets((target.address, {"job": "web"}))
        self.pubsub()
        scraper = self.scraper("--honor-labels")
        wait_until(lambda: (1.5, "a", 1) in self.samples(job="mine"), "a sample with its own time and label")
        scraper.stop()
        scraper = self.scraper("--no-honor-timestamps")
        wait_until(lambda: [s for s in self.samples(exported_job="mine") if s[0] > 1e9], "the time of the slot")

    def test_limits_fail_the_scrape(self):
        pages = {"/samples": "a 1\nb 1\nc 1\nd 1\n", "/labels": "a{x=\"1\",y=\"2\",z=\"3\"} 1\n", "/name": "a{longer_name=\"1\"} 1\n",
                 "/value": "a{x=\"%s\"} 1\n" % ("v" * 40), "/body": "a 1\n" * 1000, "/good": "a{x=\"1\",y=\"2\"} 1\nb 1\nc 1\n"}
        target = self.target(pages)
        self.write_targets(*((target.address, {"__metrics_path__": path, "path": path}) for path in pages))
        self.pubsub()
        scraper = self.scraper("--sample-limit=3", "--label-limit=6", "--label-name-length-limit=10", "--label-value-length-limit=30", "--body-size-limit=2000")
        for path, error in (("/samples", "line 4, column 1: the page has more samples than sample_limit"),
                            ("/labels", "line 1, column 1: the sample has more labels than label_limit"),
                            ("/name", "line 1, column 1: the name of a label is longer than label_name_length_limit"),
                            ("/value", "line 1, column 1: the value of a label is longer than label_value_length_limit"),
                            ("/body", "the page is longer than body_size_limit"), ("/good", "")):
            wait_until(lambda: self.look(scraper, path)["slot"] > 0 and self.look(scraper, path)["error"] == error,
                       lambda: self.look(scraper, path))
            self.wait_scrape(lambda v: v.get("up") == (path == "/good"), path, path=path)


class Targets(ScraperTest):
    def test_bad_targets_do_not_disturb_others(self):
        whole = reply("a 1\nb 2\n")
        target = self.target({"/metrics": "a 1\n", "/line": "a 1\nb two\n", "/early": whole[:-3], "/cut": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\na 1\nb 2",
                              "/error": reply("no", status="500 No"), "/endless": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n",
                              "/drip": whole[:-3], "/garbage": b"garbage\r\n\r\n"})
        target.ends |= {"/early", "/cut"}
        target.endless["/endless"] = 1 << 30
        self.write_targets(*((target.address, {"__metrics_path__": path, "path": path}) for path in [*target.pages, "/silent"]),
                           ("127.0.0.1:1", {"path": "/closed", "__metrics_path__": "/closed"}))
        self.pubsub()
        scraper = self.scraper("--body-size-limit=1M")
        errors = {"/line": "line 2, column 3: expected a number", "/early": "the connection ended before the reply", "/cut": "line 2, column 4: the page ends inside a line",
                  "/error": "answered 500", "/endless": "the page is longer than body_size_limit", "/drip": "no complete page in time",
                  "/silent": "no complete page in time", "/garbage": "the reply is malformed", "/closed": "no connection"}
        for path, error in errors.items():
            wait_until(lambda: self.look(scraper, path)["error"] == error, lambda: "%s: %s" % (error, self.look(scraper, path)))
            _, values = self.wait_scrape(lambda v: "up" in v, path, path=path)
            self.assertEqual((set(values), values["up"], values["scrape_samples_scraped"]), (OWN, 0, 0))
        self.wait_scrape(lambda v: v.get("up") == 1, "the good one", path="/metrics")
        self.assertEqual(self.look(scraper)["error"], "")
        self.assertLess(target.sent["/endless"], 1 << 29)
        wait_until(lambda: scraper.stats()["page_bytes"] <= 1 << 20, "the pages to be dropped")

    def test_memory_of_pages_in_progress(self):
        body = "a_rather_long_name 1\n" * 30000
        target = self.target({"/metrics": "a 1\n", "/large": reply(body)[:-1]})
        self.write_targets((target.address, {"path": "/metrics"}), (target.address, {"__metrics_path__": "/large", "path": "/large"}, 8))
        self.pubsub()
        scraper = self.scraper("--buffer-bytes=1M")
        wait_until(lambda: "the pages in progress need more than buffer_bytes" in [t["error"] for t in scraper.get("/targets").json()], "a page to be refused")
        self.wait_scrape(lambda v: v.get("up") == 1, "the good one", path="/metrics")

    def test_series_that_vanish_are_stale(self):
        pages = iter(["# TYPE a counter\na 1\nb 1\n", "# TYPE a histogram\na_bucket{le=\"+Inf\"} 2\na_sum 3\na_count 2\nb 1\n", "b x\n"])
        last = ["b 2\n"]
        target = self.target({"/metrics": lambda: next(pages, last[0])})
        self.write_targets((target.address, {}))
        self.pubsub()
        self.scraper()
        self.wait_scrape(lambda v: v.get("b") == 2, "the last page")
        found = [{name: v for name, v in values.items() if name not in OWN} for _, values in sorted(self.scrapes().items())]
        self.assertEqual(found[:4], [{"a": 1, "b": 1}, {"a": "stale", "a_bucket": 2, "a_sum": 3, "a_count": 2, "b": 1},
                                     {"a_bucket": "stale", "a_sum": "stale", "a_count": "stale", "b": "stale"}, {"b": 2}])
        self.assertEqual([values["up"] for _, values in sorted(self.scrapes().items())][:4], [1, 1, 0, 1])

    def test_metadata_of_a_type_that_changes(self):
        """The page has the same number of samples and of bytes."""
        page = ["# TYPE a counter\n# HELP a one\na 1\n"]
        target = self.target({"/metrics": lambda: page[0]})
        self.write_targets((target.address, {}))
        self.pubsub()
        scraper = self.scraper()

        def wait_texts(*texts):
            wait_until(lambda: scraper.get("/api/v1/metadata").json()["data"].get("a") == [dict(zip(("type", "help", "unit"), texts))], lambda: scraper.get("/api/v1/metadata").text)
        wait_texts("counter", "one", "")
        page[0] = "# TYPE a summary\n# HELP a two\na 1\n"
        wait_texts("summary", "two", "")

    def test_files_that_change(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {"job": "one"}))
        self.write_targets((target.address, {"job": "two"}), name="targets2.json")
        self.pubsub()
        scraper = self.scraper()
        for job in ("one", "two"):
            self.wait_scrape(lambda v: v.get("up") == 1, job, job=job)
        self.write("targets2.json", "[{\"targets\": [5]}]")
        wait_until(lambda: b"targets2.json: group 1: a target is not a text" in scraper.get("/stats?format=json").body, "the error to be named")
        self.assertEqual(len(scraper.get("/targets").json()), 2, "the earlier targets stay")
        scraper.process.send_signal(signal.SIGHUP)
        os.unlink(self.path("targets2.json"))
        self.write_targets((target.address, {"job": "one"}), (target.address, {"job": "three", "__scrape_interval__": "2s"}))
        _, gone = self.wait_scrape(lambda v: v.get("up") == "stale", "two to be gone", job="two")
        self.assertEqual(gone, dict.fromkeys([*OWN, "a"], "stale"))
        self.wait_scrape(lambda v: v.get("up") == 1, "three", job="three")
        wait_until(lambda: len(scraper.get("/targets").json()) == 2 and scraper.get("/health").text.strip() == "ready", "no warning")
        self.assertNotIn("stale", {v for _, _, v in self.samples(job="one")}, "a target that stays in the list")
        times = sorted(self.scrapes(job="two"))
        self.assertEqual(self.scrapes(job="two")[times[-1]], gone, "nothing follows the markers")
        self.assert_once()

    def test_a_pipe_among_the_files(self):
        """A pipe without a writer is named, and blocks neither the start nor the scrapes."""
        os.mkfifo(self.path("targets0.json"))
        self.write_targets((self.target({"/metrics": "a 1\n"}).address, {}))
        self.pubsub()
        scraper = self.scraper()
        self.wait_scrape(lambda v: v.get("up") == 1, "a scrape")
        self.assertIn("targets0.json: not a regular file", scraper.get("/health").text)

    def test_a_file_that_does_not_exist(self):
        """The file is named until it exists; then its targets are scraped."""
        self.pubsub()
        scraper = self.start("scraper", "--pubsub-url=" + self.url, "--files=" + self.path("none*.json"), "--interval=1s")
        self.assertIn("no file of targets: " + self.path("none*.json"), scraper.get("/health").text)
        self.assertIn("no file of targets", scraper.log)
        self.write_targets((self.target({"/metrics": "a 1\n"}).address, {}), name="none1.json")
        self.wait_scrape(lambda v: v.get("up") == 1, "a scrape")
        wait_until(lambda: scraper.get("/health").text.strip() == "ready", "no warning")

    def test_check_config_reads_the_files(self):
        self.write("targets.json", "[{\"targets\": [\"a:1\"], \"labels\": {\"a-b\": \"c\"}}]")
        for args, text in ((["--files=" + self.path("targets.json")], b"targets.json: group 1: a label has an invalid name"), (["--files="], b"required"),
                           (["--files=x", "--shard=3/2"], b"must be I/N"), (["--files=x", "--metrics-path=x"], b"does not begin with /")):
            run = self.run_program("scraper", "--check-config", *args)
            self.assertIn(run.returncode, (64, 78))
            self.assertIn(text, run.stderr)
        self.write("targets.json", "[]")
        self.assertIn(b"producer = scraper-2-3", self.run_program("scraper", "--check-config", "--shard=2/3", "--files=" + self.path("targets.json")).stdout)

    def test_a_thousand_targets_every_second(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}, 1000))
        self.pubsub()
        scraper = self.scraper()
        wait_until(lambda: scraper.stats()["scrapes_stored_total"] >= 4000, lambda: scraper.stats())
        scraper.stop()
        times = collections.defaultdict(list)
        for line in self.lines():
            if line["labels"]["__name__"] == "up":
                times[line["labels"]["i"]].append(round(line["t"] * 1000))
        self.assertEqual(len(times), 1000)
        for of_target in times.values():
            self.assertEqual({t % 1000 for t in of_target}, {of_target[0] % 1000})
            self.assertEqual(of_target, sorted(set(of_target)))
        quarters = collections.Counter(of_target[0] % 1000 // 250 for of_target in times.values())
        self.assertGreater(min(quarters[i] for i in range(4)), 180)

    def test_names_of_hosts(self):
        """The addresses of a name in `dns` are targets; a target with a name is asked at an address under its name."""
        target = self.target({"/metrics": "a 1\n"})
        port = target.address.partition(":")[2]
        self.write_targets(("localhost:" + port, {}), ("no-such-host.invalid:" + port, {}))
        self.pubsub()
        scraper = self.scraper("--dns=localhost:%s no-such-host.invalid:1" % port)
        for instance in ("localhost:" + port, target.address):
            self.wait_scrape(lambda v: v.get("up") == 1 and v.get("a") == 1, instance, instance=instance)
        self.assertEqual(target.hosts, {"localhost:" + port, target.address})
        self.wait_scrape(lambda v: v.get("up") == 0, "the unknown name", instance="no-such-host.invalid:" + port)
        wait_until(lambda: "the name of the host has no address" in [t["error"] for t in scraper.get("/targets").json()], "the error to be named")
        scraper.stop()

    def test_token_of_targets(self):
        token = self.write("token", "secret-of-the-targets")
        os.chmod(token, 0o600)
        aggregated = self.pubsub("--auth-token-file=" + token)
        self.write_targets((self.url, {}))
        scraper = self.scraper("--pubsub-token-file=" + token)
        wait_until(lambda: self.look(scraper)["error"] == "answered 401", "a refusal")
        scraper.stop()
        scraper = self.scraper("--pubsub-token-file=" + token, "--target-token-file=" + token)
        wait_until(lambda: self.look(scraper)["up"], lambda: self.look(scraper))
        aggregated.stop()


class Publishing(ScraperTest):
    def test_a_marker_in_a_dropped_scrape(self):
        """A series that vanishes while pubsub is away becomes stale afterwards, although the scrape with its marker was dropped."""
        body = "".join("m{i=\"%d\"} 1\n" % i for i in range(500))
        page = [body + "gone 1\n"]
        target = self.target({"/metrics": lambda: page[0]})
        self.write_targets((target.address, {}, 10))
        pubsub = self.pubsub()
        scraper = self.scraper("--buffer-bytes=1M")
        wait_until(lambda: {line["labels"]["i"] for line in self.lines() if line["labels"]["__name__"] == "gone"} == set(map(str, range(10))), "the series")
        pubsub.kill9()
        page[0] = body
        wait_until(lambda: scraper.stats()["scrapes_dropped_total"]["reason=\"memory\""] > 20, lambda: scraper.stats())
        self.pubsub()
        wait_until(lambda: {line["labels"]["i"] for line in self.lines() if line["labels"]["__name__"] == "gone" and line["v"] == "stale"} ==
                   set(map(str, range(10))), "the markers")

    def test_pubsub_away(self):
        """Scrapes wait in bounded memory, and the oldest are dropped. Nothing is blocked, and every stored scrape is whole."""
        target = self.target({"/metrics": "".join("m{i=\"%d\"} 1\n" % i for i in range(500))})
        self.write_targets((target.address, {}, 10))
        scraper = self.scraper("--buffer-bytes=1M", ready=False).wait_listening()
        wait_until(lambda: scraper.stats()["scrapes_dropped_total"]["reason=\"memory\""] > 0, lambda: scraper.stats())
        health = scraper.get("/health")
        self.assertEqual((health.status, "scrapes wait for pubsub: " in health.text), (503, True), health.text)
        self.assertLessEqual(scraper.stats()["waiting_bytes"], 1 << 20)
        self.pubsub()
        wait_until(lambda: scraper.stats()["scrapes_stored_total"] > 20 and scraper.get("/health").status == 200, lambda: scraper.stats())
        scraper.stop()
        sizes = collections.Counter((line["t"], line["labels"]["i"]) for line in self.lines() if line["labels"]["__name__"] != "m")
        self.assertEqual(set(sizes.values()), {3})
        self.assert_once_with_many_series()

    def assert_once_with_many_series(self):
        counts = collections.Counter((line["t"], json.dumps(line["labels"])) for line in self.lines())
        self.assertEqual(max(counts.values()), 1)

    def test_a_stop_publishes_what_has_ended(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}, 50))
        pubsub = self.pubsub()
        scraper = self.scraper()
        wait_until(lambda: scraper.stats()["scrapes_stored_total"] > 50, "scrapes")
        pubsub.process.send_signal(signal.SIGSTOP)
        ended = wait_until(lambda: scraper.stats()["waiting_scrapes"] > 20 and scraper.stats()["scrapes_total"], "scrapes that wait")
        scraper.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in scraper.log, "the stop to begin")
        with self.assertRaises(subprocess.TimeoutExpired):  # it waits for pubsub
            scraper.process.wait(2)
        sent = dict(target.sent)
        self.write_targets((target.address, {}, 60))
        scraper.process.send_signal(signal.SIGHUP)
        wait_until(lambda: scraper.log.count("targets read") == 2, "the new list to be read")
        with self.assertRaises(subprocess.TimeoutExpired):
            scraper.process.wait(2)
        self.assertEqual(target.sent, sent)
        pubsub.process.send_signal(signal.SIGCONT)
        self.assertEqual(scraper.process.wait(harness.PATIENCE), 0, scraper.log)
        self.assertGreaterEqual(sum(len(v) for v in self.by_target().values()), ended)
        self.assert_once()

    def by_target(self):
        found = collections.defaultdict(list)
        for line in self.lines():
            if line["labels"]["__name__"] == "up":
                found[line["labels"].get("i"), line["labels"]["instance"]].append(line["t"])
        return found

    def test_two_scrapers_with_one_name_store_nothing_twice(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}, 20))
        self.pubsub()
        scrapers = [self.scraper() for _ in range(2)]
        wait_until(lambda: sum(s.stats()["scrapes_dropped_total"]["reason=\"mark\""] for s in scrapers) > 20, "scrapes to be dropped")
        wait_until(lambda: sum(s.stats()["scrapes_stored_total"] for s in scrapers) > 60, "scrapes to be stored")
        for s in scrapers:
            s.stop()
        self.assert_once()

    def test_shards_divide_the_targets(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}, 60))
        self.pubsub()
        scrapers = [self.scraper("--shard=%d/3" % i) for i in (1, 2, 3)]
        urls = [sorted(t["labels"]["i"] for t in s.get("/targets").json()) for s in scrapers]
        self.assertEqual(sorted(sum(urls, [])), sorted(str(i) for i in range(60)))
        self.assertTrue(all(urls), urls)
        wait_until(lambda: len(self.by_target()) == 60, "each target to be scraped")
        producers = request(self.url, "GET", "/producers?stream=metrics").json()["producers"]
        self.assertEqual({p["producer"] for p in producers}, {"scraper-1-3", "scraper-2-3", "scraper-3-3"})

    def test_a_mark_ahead_of_the_clock(self):
        """Nothing at or below a mark of another process is published. /health names a mark that is far ahead."""
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}))
        self.pubsub()
        request(self.url, "POST", "/pub?stream=metrics&producer=scraper&mark=0&next=%d" % ((time.time() + 3600) * 1000000), b"")
        scraper = self.scraper()
        wait_until(lambda: scraper.stats()["scrapes_dropped_total"]["reason=\"mark\""] > 1, lambda: scraper.stats())
        self.assertIn(b"the mark of the producer", scraper.get("/stats?format=json").body)
        self.assertEqual(self.lines(), [])

    def test_a_late_publish_of_another_process(self):
        """The mark moves while the scraper runs, as by a request of a killed scraper that arrives late."""
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}, 5))
        self.pubsub()
        scraper = self.scraper()
        for _ in range(3):
            n = scraper.stats()["scrapes_stored_total"]
            wait_until(lambda: scraper.stats()["scrapes_stored_total"] > n + 10, "scrapes")
            def move():
                mark = int(request(self.url, "GET", "/producer?stream=metrics&producer=scraper").json()["mark"])
                return request(self.url, "POST", "/pub?stream=metrics&producer=scraper&mark=%d&next=%d" % (mark, mark + 100000), b"").status == 200
            wait_until(move, "the mark to be moved")
        n = scraper.stats()["scrapes_stored_total"]
        wait_until(lambda: scraper.stats()["scrapes_stored_total"] > n + 10, "further scrapes")
        self.assertIn("pubsub has another mark", scraper.log)
        self.assert_once()

    def test_an_older_copy_of_pubsub(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}, 5))
        pubsub = self.pubsub()
        scraper = self.scraper()
        wait_until(lambda: len(self.scrapes(i="1")) > 2, "scrapes")
        pubsub.stop()
        shutil.copytree(self.path("p"), self.path("copy"))
        pubsub = self.pubsub()
        n = len(self.scrapes(i="1"))
        wait_until(lambda: len(self.scrapes(i="1")) > n + 2, "scrapes that the copy does not have")
        pubsub.stop()
        pubsub = self.pubsub(data="copy")
        n = len(self.scrapes(i="1"))
        wait_until(lambda: len(self.scrapes(i="1")) > n + 2, lambda: scraper.log)
        self.assert_once()


class Clock(ScraperTest):
    def test_jumps(self):
        """A clock ahead moves no sample. After a clock is set back, no time comes again."""
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}))
        self.pubsub()
        clocks = Clocks(self)
        scraper = self.scraper(env=clocks.env)
        wait_until(lambda: len(self.scrapes()) > 2, "scrapes")
        clocks.set(wall=1000)
        wait_until(lambda: scraper.stats()["clock_jumps_total"] == 1, "the jump to be noticed")
        n = len(self.scrapes())
        wait_until(lambda: len(self.scrapes()) > n + 2, "scrapes after the jump")
        self.assertLess(max(self.scrapes()), time.time() + 500)
        clocks.set(wall=0)
        wait_until(lambda: scraper.stats()["clock_jumps_total"] == 2, "the jump back to be noticed")
        n = len(self.scrapes())
        wait_until(lambda: len(self.scrapes()) > n + 2, "scrapes after the jump back")
        clocks.set(wall=-4)
        n = len(self.scrapes())
        wait_until(lambda: len(self.scrapes()) > n + 2, "scrapes once the times are over")
        times = list(self.scrapes())
        self.assertEqual(times, sorted(set(times)))
        self.assert_once()

    def test_a_target_that_leaves_before_the_clock_is_set_back(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets((target.address, {}))
        self.pubsub()
        clocks = Clocks(self)
        scraper = self.scraper(env=clocks.env)
        wait_until(lambda: len(self.scrapes()) > 5, "scrapes")
        self.write_targets()
        self.wait_scrape(lambda v: v.get("a") == "stale", "the target to leave")
        n = len(self.scrapes())
        clocks.set(wall=-5)
        wait_until(lambda: scraper.stats()["clock_jumps_total"] == 1, "the jump to be noticed")
        self.write_targets((target.address, {}))
        wait_until(lambda: len(self.lines()) > 5 * n + 10, "further scrapes")
        self.assert_once()

    def test_names_are_resolved_for_days(self):
        target = self.target({"/metrics": "a 1\n"})
        self.write_targets()
        self.pubsub()
        clocks = Clocks(self)
        scraper = self.scraper("--dns=localhost:" + target.address.partition(":")[2], env=clocks.env)
        wait_until(lambda: scraper.stats()["targets_up"] > 0, "a scrape")
        n = scraper.stats()["targets"]
        for days in (1, 2, 3):
            clocks.set(wall=days * 86400, boot=days * 86400)
            before = len(self.scrapes())
            wait_until(lambda: len(self.scrapes()) > before + 4, "scrapes days later")
        read = scraper.log.count("targets read")
        self.write_targets((target.address, {"x": "1"}))
        wait_until(lambda: scraper.log.count("targets read") > read, "the file to be read")
        self.assertIn("targets=%d" % (n + 1), scraper.log.split("targets read")[read + 1])


if __name__ == "__main__":
    harness.main()
