"""A stream of marks: spamfilter makes each update once, through kills of both daemons, and names what it cannot use."""
# full: MILLRACE_ROUNDS=8
import json
import os
import shutil

from harness import UNREACHABLE, main, query, request, rounds, seeded, wait_until
from pubsub_case import PubsubTest


def line(op, url, number=None):
    return json.dumps({"op": op, "url": url, **({"id": number} if number else {})})


class StreamTest(PubsubTest):
    def serve(self, *args, data="marks"):
        self.filter = self.start("spamfilter", "--data-dir=" + data, "--stream=s", "--pubsub-url=" + self.url, "--sync-every=50ms", *args)
        return self.filter

    def publish(self, *lines):
        reply = self.pub("".join(line + "\n" for line in lines).encode())
        self.assertEqual(reply.status, 200, reply)

    def end(self):
        return int(request(self.url, "GET", "/streams").json()["streams"][0]["end"])

    def caught_up(self):
        """Waits until the updates of all lines are made."""
        end = self.end()
        wait_until(lambda: self.filter.stats()["stream_offset"] == str(end), lambda: "%s\n%s" % (end, self.filter.log))

    def marked(self, *urls):
        answers = self.filter.post("/check", "\n".join(urls)).text.splitlines()
        return [json.loads(answer)["marked"] for answer in answers]

    def notices(self):
        return " ".join(n["text"] for n in self.filter.stats()["health"]["notices"])


class TestLines(StreamTest):
    def test_lines_update_the_marks(self):
        self.pubsub()
        self.serve()
        self.publish(line("add", "HTTP://A.example/x/../"), line("add", "b.example/p", 7), line("add", "c.example", 8), line("allow", "ok.c.example"))
        self.caught_up()
        self.assertEqual(self.marked("x.a.example", "b.example/p/q", "b.example", "c.example", "ok.c.example"), [True, True, False, True, False])
        self.publish(line("remove", "b.example/p", 7), line("disallow", "ok.c.example"), line("remove", "a.example"))
        self.caught_up()
        self.assertEqual(self.marked("x.a.example", "b.example/p/q", "ok.c.example"), [False, False, True])
        self.assertEqual(self.filter.stats()["elements"], 1)
        for _ in range(2):  # the second time after a start
            self.assertEqual((self.filter.stats()["lag_bytes"], self.notices()), (0, ""))
            self.filter.kill9()
            self.serve()
            self.caught_up()
            self.assertEqual(self.filter.stats()["elements"], 1)

    def test_lines_without_an_id_are_decided_in_their_order(self):
        """An add is known to the lines behind it in the same piece of the stream."""
        self.pubsub()
        self.publish(*[line(op, "a%d.example" % i) for i in range(100) for op in ("add", "add", "remove", "add", "remove", "add")])
        self.serve()
        self.caught_up()
        stats = self.filter.stats()
        self.assertEqual((stats["elements"], stats["stream_lines_skipped_total"]), (100, 0))

    def test_a_line_without_an_effect_is_counted_and_named(self):
        self.pubsub()
        self.serve("--capacity=10")
        bad = [("no json", "not a JSON object"), ('["add"]', "not a JSON object"), ('{"op":"add"}', "not a JSON object"),
               ('{"url":"c.example","country":"JP"}', "op is not add"), (line("load", "list"), "op is not add"),
               ('{"op":"add","url":"d.example","id":"7"}', "the id is not"), ('{"op":"add","url":"d.example","id":0}', "the id is not"),
               (line("add", "e.example", 1 << 53), "the id is not"), (line("add", "ftp://f.example"), "scheme"),
               (line("remove", "g.example"), "exact table does not have"), (line("remove", "g.example", 3), "does not exist"),
               (line("disallow", "h.example"), "does not exist"), (line("add", "x" * (1 << 18)), "long")]
        for text, _ in bad:
            self.publish(text)
        self.publish("{}     ", line("add", "good.example", 5))
        self.caught_up()
        stats = self.filter.stats()
        self.assertEqual((stats["stream_lines_skipped_total"], stats["stream_lines_total"], stats["elements"]), (len(bad), len(bad) + 2, 1))
        self.assertEqual(self.marked("good.example", "c.example", "d.example"), [True, False, False])
        wait_until(lambda: "is skipped" in self.filter.log, lambda: self.filter.log)
        self.assertRegex(self.filter.log, 'is skipped error="not a JSON object.*" line="no json" ')

    def test_a_full_layer_refuses_only_its_line(self):
        self.pubsub()
        self.publish(*[line("add", "f%d.example" % i, 1) for i in range(12)], line("add", "g.example", 2))
        self.serve("--capacity=10")
        self.caught_up()
        self.assertEqual((self.filter.stats()["elements"], self.filter.stats()["stream_lines_skipped_total"]), (11, 2))
        self.assertIn("too many adds had this id", self.filter.log)


class TestExactly(StreamTest):
    def test_kills_equal_a_model(self):
        """Lines are published while both daemons are killed. Each add counts once, so each removal ends its mark."""
        rng = seeded()
        stream = self.pubsub()
        self.serve("--capacity=100", "--recent=64K")
        marks, number, requested = {}, 0, set()
        for _ in range(30 * rounds(1)):
            lines = []
            for _ in range(rng.randrange(1, 200)):
                known = sorted(marks) if rng.random() < 0.4 else []
                if known:
                    url = rng.choice(known)
                    lines.append(line("remove", url, marks[url].pop()))
                    marks = {u: ids for u, ids in marks.items() if ids}
                else:
                    number += 1
                    url = "h%d.example/%d" % (rng.randrange(40), rng.randrange(5))
                    marks.setdefault(url, []).append(number)
                    lines.append(line("add", url, number))
            self.publish(*lines)
            if rng.random() < 0.3:
                host = "r%d.example" % len(requested)
                try:
                    self.assertEqual(self.filter.post("/allow?" + query(url=host)).status, 200)
                    requested.add(host)
                except UNREACHABLE:
                    pass
            if rng.random() < 0.4:
                self.filter.kill9()
                self.serve("--capacity=100", "--recent=64K")
            if rng.random() < 0.2:
                stream.kill9()
                stream = self.pubsub()
        self.caught_up()
        stats = self.filter.stats()
        self.assertEqual(stats["elements"], sum(map(len, marks.values())))
        self.assertEqual(set(self.filter.get("/allowed").text.split()), requested)
        self.assertTrue(all(self.marked(*sorted(marks))) if marks else True)
        self.publish(*[line("remove", url, n) for url, ids in sorted(marks.items()) for n in ids])
        self.caught_up()
        self.assertEqual(self.filter.stats()["elements"], 0)

    def test_lines_wait_while_a_list_is_loaded(self):
        self.pubsub()
        self.serve()
        os.mkfifo(self.path("marks", "load", "pipe"))
        self.assertEqual(self.filter.post("/load?file=pipe").status, 200)
        wait_until(lambda: self.filter.stats()["load"]["state"] == "running", self.filter.stats)
        self.publish(line("add", "late.example", 9))
        with open(self.path("marks", "load", "pipe"), "w") as pipe:
            pipe.write("listed.example\t5\n")
            pipe.flush()
            wait_until(lambda: self.filter.stats()["lag_bytes"] > 0, self.filter.stats)
            self.assertEqual(self.filter.stats()["load"]["state"], "running")
        self.caught_up()
        self.assertEqual(self.marked("late.example", "listed.example"), [True, True])


class TestOtherStreams(StreamTest):
    """Checks and requests work while the stream is not that of the cursor."""
    def refused(self, *words):
        wait_until(lambda: all(word in self.notices() for word in words), lambda: self.notices() + self.filter.log)
        self.assertEqual((self.filter.get("/health").status, self.marked("first.example")), (200, [True]))
        self.assertEqual(self.filter.post("/add?url=own.example").status, 200)

    def begin(self, *args):
        self.stream = self.pubsub(*args)
        self.serve()
        self.publish(line("add", "first.example", 1))
        self.caught_up()

    def test_a_stream_that_was_made_again(self):
        self.begin()
        self.stream.kill9()
        shutil.rmtree(self.path("p"))
        self.stream = self.pubsub()
        self.publish(line("add", "other.example", 2))
        self.refused("another stream with this name")
        self.assertEqual(self.marked("other.example"), [False])

    def test_a_restored_copy(self):
        self.begin()
        self.stream.stop()
        shutil.copytree(self.path("p"), self.path("old"))
        self.stream = self.pubsub()
        self.publish(line("add", "lost.example", 2))
        self.caught_up()
        self.stream.stop()
        shutil.rmtree(self.path("p"))
        os.rename(self.path("old"), self.path("p"))
        self.stream = self.pubsub()
        self.publish(*[line("add", "new%d.example" % i, 3 + i) for i in range(9)])
        self.refused("restored copy", "--accept-loss")
        self.filter.stop()
        self.serve()
        self.refused("restored copy")
        option = "--accept-loss" + self.notices().split("once with --accept-loss")[1].split()[0] if "--accept-loss-from" in self.notices() else "--accept-loss"
        self.filter.stop()
        self.serve(option)
        self.caught_up()
        self.assertEqual(self.marked("new0.example", "new8.example", "lost.example"), [True] * 3)
        self.assertEqual(self.filter.stats()["elements"], 12)
        self.filter.stop()
        self.serve()
        self.caught_up()
        self.assertEqual((self.filter.stats()["elements"], self.notices()), (12, ""))

    def test_expired_lines(self):
        options = ("--segment-bytes=64K", "--retain-bytes=512K")
        self.begin(*options)
        self.filter.stop()
        self.publish(*[line("add", "e%d.example" % i, 2 + i) for i in range(500)])
        wait_until(lambda: self.publish(*[line("allow", "%s.example" % ("a" * 60))] * 2000) or
                   int(request(self.url, "GET", "/streams").json()["streams"][0]["earliest"]) > 0, "expiry")
        self.serve()
        self.refused("have expired", "--accept-loss")
        self.filter.stop()
        self.serve("--accept-loss")
        self.caught_up()
        self.assertEqual(self.marked("first.example"), [True])

    def test_pubsub_is_down(self):
        self.begin()
        self.stream.kill9()
        self.refused("pubsub")
        self.stream = self.pubsub()
        self.publish(line("add", "later.example", 2))
        self.caught_up()
        self.assertEqual(self.marked("later.example"), [True])
        wait_until(lambda: self.notices() == "", self.notices)


if __name__ == "__main__":
    main()
