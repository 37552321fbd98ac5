"""lists: each endpoint beside a model, also through kills, a full disk and many followers; the comparison of two instances."""
# full: MILLRACE_ROUNDS=200
import os
import signal
import socket
import threading

import harness
from harness import UNREACHABLE, MillraceTest, main, query, request, rounds, seeded, wait_until
from small_disk import SmallDisk


class ListsTest(MillraceTest):
    def serve(self, *args, data="lists", **kw):
        return self.start("lists", "--data-dir=" + self.path(data), *args, **kw)

    def ok(self, reply):
        self.assertEqual(reply.status, 200, reply)
        return reply.json()

    def add(self, d, item, *keys, time=None, author=None, data=""):
        params = [("id", item)] + [("key", k) for k in keys]
        params += [("author", author)] if author else []
        params += [("time", time)] if time is not None else []
        return self.ok(d.post("/add?" + "&".join(query(**{k: v}) for k, v in params), data))

    def edges(self, d, *pairs, remove=False):
        body = "".join("%s\t%s\n" % pair for pair in pairs)
        return self.ok(d.post("/edges" + ("?remove=1" if remove else ""), body))

    def ids(self, d, key, **kw):
        return [i["id"] for i in self.ok(d.get("/get?" + query(key=key, **kw)))["items"]]

    def saved(self, d):
        """Waits until all changes are in the store."""
        wait_until(lambda: not d.stats()["oldest_change_seconds"] and not d.stats()["waiting_bytes"], d.stats)

    def assertProblem(self, reply, status, code):
        self.assertEqual((reply.status, reply.json()["code"]), (status, code), reply)


class TestRequests(ListsTest):
    def test_add_get_remove(self):
        d = self.serve("--keep=3")
        self.assertEqual(self.add(d, "a", "k", "l", time=100.5, data="one"), {"result": "added", "id": "a", "time": 100.5})
        self.assertEqual(self.ok(d.get("/add?id=b&key=k&time=99&data=two%0Alines"))["result"], "added")
        self.assertEqual(self.ok(d.get("/get?key=k")), {"key": "k", "next": None, "items": [
            {"id": "a", "time": 100.5, "data": "one"}, {"id": "b", "time": 99, "data": "two\nlines"}]})
        self.assertEqual(d.get("/get?key=k&format=text").text, "100.500000\ta\tone\n99.000000\tb\ttwo\\x0alines\n")
        self.add(d, "c", "k", time=101)
        self.add(d, "d", "k", time=102)
        self.assertEqual(self.ids(d, "k"), ["d", "c", "a"])
        self.assertEqual(self.ok(d.post("/remove?id=c&key=k&key=none")), {"result": "removed", "id": "c"})
        self.assertEqual(self.ids(d, "k"), ["d", "a", "b"])
        self.ok(d.post("/remove?id=a"))
        self.assertEqual((self.ids(d, "k"), self.ids(d, "l"), self.ids(d, "unknown")), (["d", "b"], [], []))
        first, second = self.add(d, "e", "k")["time"], self.add(d, "f", "k")["time"]
        self.assertLess(first, second)
        self.assertEqual(self.ids(d, "k"), ["f", "e", "d"])

    def test_pages_stay_right_while_items_come(self):
        d = self.serve("--keep=50", "--delay=10ms")
        for i in range(20):
            self.add(d, "i:%02d" % i, "k", time=1000 + i // 2)
        shown, place = [], {}
        while True:
            page = self.ok(d.get("/get?" + query(key="k", limit=3, **place)))
            shown += [i["id"] for i in page["items"]]
            self.add(d, "new%d" % len(shown), "k", time=2000 + len(shown))
            if page["next"] is None:
                break
            place = {"before": page["next"]}
        self.assertEqual(shown, ["i:%02d" % i for i in reversed(range(20))])
        self.assertEqual(self.ids(d, "k", before=1001), ["i:01", "i:00"])
        self.saved(d)
        self.assertEqual(self.ids(d, "k", before=1001), ["i:01", "i:00"])

    def test_edges(self):
        d = self.serve("--delay=10ms")
        self.assertEqual(self.edges(d, ("bob", "ann"), ("cid", "ann"), ("bob", "dan the man")), {"result": "added", "edges": 3})
        self.ok(d.post("/edges", "eve ann\n\nfay ann"))
        self.add(d, "x", author="ann")
        self.add(d, "y", author="dan the man")
        self.add(d, "z", author="unknown")
        self.edges(d, ("cid", "ann"), ("none", "ann"), remove=True)
        self.add(d, "w", author="ann")
        self.assertEqual([self.ids(d, k) for k in ("bob", "cid", "eve", "fay", "ann")], [["w", "y", "x"], ["x"], ["w", "x"], ["w", "x"], []])
        self.saved(d)
        page = self.ok(d.get("/followers?author=ann&limit=2"))
        self.assertEqual(page, {"author": "ann", "followers": ["bob", "eve"], "next": "eve"})
        self.assertEqual(self.ok(d.get("/followers?author=ann&after=eve"))["followers"], ["fay"])
        self.assertEqual(d.get("/followers?author=ann&format=text").text, "bob\neve\nfay\n")

    def test_keys(self):
        d = self.serve("--delay=10ms")
        for i in range(5):
            self.add(d, "x", "k%d" % i, time=i)
        self.add(d, "gone", "k3x", time=1)
        self.saved(d)
        self.ok(d.post("/remove?id=gone"))
        found, after = [], ""
        while after is not None:
            page = self.ok(d.get("/keys?" + query(limit=2, after=after)))
            found += page["keys"]
            after = page["next"]
        self.assertEqual(found, ["k0", "k1", "k2", "k3", "k3x", "k4"])
        self.assertEqual(d.get("/keys?after=k3&format=text").text, "k3x\nk4\n")

    def test_bad_requests(self):
        d = self.serve()
        for method, target, body, status, code in [
                ("POST", "/add?key=k", "", 400, "missing-parameter"), ("POST", "/add?id=x", "", 400, "missing-parameter"),
                ("POST", "/add?id=&key=k", "", 400, "missing-parameter"), ("POST", "/add?id=x&key=", "", 400, "bad-parameter"),
                ("POST", "/add?id=x&author=", "", 400, "missing-parameter"), ("POST", "/add?id=x&key=%ff", "", 400, "bad-parameter"),
                ("POST", "/add?id=%s&key=k" % ("x" * 256), "", 400, "bad-parameter"), ("POST", "/add?id=x&key=%s" % ("x" * 256), "", 400, "bad-parameter"),
                ("POST", "/add?id=x&key=k&author=a", "", 400, "two-targets"), ("POST", "/add?id=x&key=k&data=d", "body", 400, "two-items"),
                ("POST", "/add?id=x&key=k&time=-1", "", 400, "bad-time"), ("POST", "/add?id=x&key=k&time=9999999999999", "", 400, "bad-time"),
                ("POST", "/add?id=x&key=k&wrong=1", "", 400, "unknown-parameter"), ("POST", "/add?id=x&key=k", "x" * ((1 << 20) + 1), 413, "too-large"),
                ("DELETE", "/add?id=x&key=k", "", 405, "method-not-allowed"), ("GET", "/remove?id=x", "", 405, "method-not-allowed"),
                ("POST", "/remove", "", 400, "missing-parameter"), ("POST", "/get?key=k", "", 405, "method-not-allowed"),
                ("GET", "/get", "", 400, "missing-parameter"), ("GET", "/get?key=k&limit=0", "", 400, "bad-parameter"),
                ("GET", "/get?key=k&before=x", "", 400, "bad-place"), ("GET", "/get?key=k&format=xml", "", 400, "bad-format"),
                ("GET", "/get?key=a&key=b", "", 400, "bad-parameter"), ("POST", "/edges", "", 400, "bad-line"),
                ("POST", "/edges", "a\tb\nwrong\n", 400, "bad-line"), ("POST", "/edges", "a b\n" * 10001, 413, "too-large"),
                ("POST", "/edges", "\tb\n", 400, "bad-line"), ("GET", "/edges", "", 405, "method-not-allowed"),
                ("POST", "/edges?remove=perhaps", "a b", 400, "bad-parameter"), ("GET", "/followers", "", 400, "missing-parameter"),
                ("GET", "/keys?limit=1001", "", 400, "bad-parameter"), ("GET", "/nothing", "", 404, "not-found")]:
            with self.subTest(method=method, target=target[:60]):
                self.assertProblem(request(d.url, method, target, body or None), status, code)
        self.assertEqual((d.stats()["operations_total"], d.get("/ping").status, d.get("/health").status), (0, 200, 200))
        self.assertEqual(self.ids(d, "k"), [])

    def test_settings(self):
        for option, name in [("--keep=0", b"keep"), ("--keep=10001", b"keep"), ("--stream=a/b", b"stream"), ("--stream=s --keys-field=[", b"keys_field")]:
            r = self.run_program("lists", "--data-dir=x", "--check-config", *option.split())
            self.assertNotEqual(r.returncode, 0, r)
            self.assertIn(name, r.stderr.replace(b"-", b"_"))
        self.assertIn(b"data_dir is missing", self.run_program("lists", "--check-config").stderr)
        path = self.write("c.conf", "[millrace]\ndata_dir = all\n[lists]\nkeep = 5\n")
        self.assertRegex(self.run_program("lists", "--config", path, "--check-config").stdout.decode(), r"data_dir = all/lists *; \[millrace\]")

    def test_scopes_of_tokens(self):
        tokens = self.write("tokens", "r read RR\nw write WW\n")
        os.chmod(tokens, 0o600)
        d = self.serve("--tokens-file=" + tokens)
        r, w = ({"Authorization": "Bearer " + t} for t in ("RR", "WW"))
        self.assertEqual(d.get("/get?key=k").status, 401)
        for target, body in (("/add?id=x&key=k", ""), ("/remove?id=x", ""), ("/edges", "a b")):
            self.assertEqual((d.post(target, body, headers=r).status, d.post(target, body, headers=w).status), (403, 200), target)
        for target in ("/get?key=k", "/followers?author=a", "/keys"):
            self.assertEqual((d.get(target, headers=r).status, d.get(target, headers=w).status), (200, 403), target)


class TestEdgeFile(ListsTest):
    def test_the_start_and_each_hangup_add_lines(self):
        path = self.write("edges", "bob\tann\nwrong\ncid ann\n")
        d = self.serve("--edges=" + path, "--delay=10ms")
        wait_until(lambda: d.stats()["saved_edges"] == 2, d.stats)
        self.assertEqual((d.stats()["edge_lines_total"], d.stats()["edge_lines_skipped_total"]), (3, 1))
        self.assertRegex(d.log, 'skipped path=\\S+ line=2 error="the line has no tab')
        self.write("edges", "eve ann\n")
        self.hangup(d)
        wait_until(lambda: d.stats()["saved_edges"] == 3, d.stats)
        self.add(d, "x", author="ann")
        self.assertEqual([self.ids(d, k) for k in ("bob", "cid", "eve")], [["x"]] * 3)

    def hangup(self, d):
        os.kill(d.pid, signal.SIGHUP)

    def test_a_missing_file_is_a_notice_until_a_reload(self):
        d = self.serve("--edges=" + self.path("later"), "--delay=10ms")
        notices = lambda: [n["text"] for n in d.stats()["health"]["notices"]]
        self.assertIn("later", wait_until(notices, d.stats)[0])
        self.write("later", "".join("f%d\ta\n" % i for i in range(30000)))
        self.hangup(d)
        wait_until(lambda: d.stats()["saved_edges"] == 30000, d.stats)
        self.assertEqual(notices(), [])


class TestManyFollowers(ListsTest):
    def test_others_get_answers_meanwhile(self):
        """An item for 100,000 followers: requests are answered before all lists have the item, and at last all have it."""
        self.write("edges", "".join("f%d\tstar\n" % i for i in range(100000)))
        d = self.serve("--edges=" + self.path("edges"), "--delay=50ms")
        wait_until(lambda: d.stats()["saved_edges"] == 100000, d.stats)
        before, between = d.stats()["entries_changed_total"], []
        adder = threading.Thread(target=self.add, args=(d, "x"), kwargs={"author": "star"})
        adder.start()
        while adder.is_alive() and len(between) < 100000:
            self.assertEqual(d.get("/ping").status, 200)
            between.append(d.stats()["entries_changed_total"] - before)
        adder.join()
        self.assertTrue(any(0 < n < 100000 for n in between), between[:100])
        self.assertEqual(d.stats()["entries_changed_total"] - before, 100000)
        self.assertEqual([self.ids(d, "f%d" % i) for i in range(0, 100000, 9999)], [["x"]] * 11)


class TestManyClients(ListsTest):
    def connect(self, d, *requests, received=None):
        s = socket.socket()
        self.addCleanup(s.close)
        if received:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
        s.settimeout(harness.PATIENCE)
        s.connect(("127.0.0.1", int(d.url.rsplit(":", 1)[1])))
        s.sendall(b"".join(b"%s HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n" % r for r in requests))
        return s

    def test_clients_that_read_nothing(self):
        """Their large pages stay in the limit of memory, and others get answers."""
        limit = 16 << 20
        d = self.serve("--max-buffered=%d" % limit, "--max-body=1M")
        for n in range(8):
            self.add(d, "i%d" % n, "k", time=n, data="x" * 900000)
        page = len(d.get("/get?key=k").body)
        held = []
        for _ in range(40):
            self.connect(d, *[b"GET /get?key=k"] * 20, received=4096)
            held.append(d.stats()["http_buffered_bytes"])
        self.assertTrue(limit // 2 < max(held) < limit + 2 * page, held)
        wait_until(lambda: d.get("/get?key=k&limit=1").status == 200, d.stats)
        self.add(d, "last", "k", time=9)
        self.assertEqual(self.ids(d, "k", limit=1), ["last"])

    def test_many_clients_at_once(self):
        """Each has its own list and adds to a common one. A third leaves without reading the answer. A kill loses nothing."""
        n = 300
        d = self.serve("--keep=1000", "--delay=20ms")
        clients = [self.connect(d, b"POST /add?id=i%d&key=k%d&key=all&time=%d" % (i, i, i), b"GET /get?key=k%d" % i) for i in range(n)]
        for s in clients[::3]:
            s.close()
        for i, s in enumerate(clients):
            if i % 3 == 0:
                continue
            text = b""
            while b'"next":null' not in text:
                part = s.recv(1 << 16)
                self.assertTrue(part, text)
                text += part
            self.assertEqual((text.count(b"HTTP/1.1 200"), text.count(b'"id":"i%d"' % i)), (2, 2), text)
        acked = {"i%d" % i for i in range(n) if i % 3}
        self.assertLessEqual(acked, set(self.ids(d, "all", limit=1000)))
        d.kill9()
        d = self.serve("--keep=1000")
        self.assertLessEqual(acked, set(self.ids(d, "all", limit=1000)))


class Model:
    def __init__(self):
        self.lists, self.edges, self.data = {}, set(), {}

    def add(self, item, time, data, keys):
        self.data[item] = data
        for key in keys:
            entries = self.lists.setdefault(key, {})
            entries[item] = max(time, entries.get(item, 0))

    def remove(self, item, keys):
        for key in self.lists if keys is None else keys:
            self.lists.get(key, {}).pop(item, None)

    def shown(self, key):
        entries = sorted(((t, i) for i, t in self.lists.get(key, {}).items()), reverse=True)
        return [(i, t, self.data[i]) for t, i in entries]


class TestKills(ListsTest):
    KEYS = ["k%d" % i for i in range(8)]
    AUTHORS = ["a%d" % i for i in range(3)]

    def one(self, rng, d, model, number):
        """An acknowledged operation, in the model and in the daemon."""
        kind = rng.random()
        if kind < 0.4:
            keys = rng.sample(self.KEYS, rng.randrange(1, 4))
            self.add(d, "i%d" % number, *keys, time=number, data="d%d" % number)
            model.add("i%d" % number, number, "d%d" % number, keys)
        elif kind < 0.7:
            author = rng.choice(self.AUTHORS)
            self.add(d, "i%d" % number, author=author, time=number, data="d%d" % number)
            model.add("i%d" % number, number, "d%d" % number, [f for f, a in model.edges if a == author])
        elif kind < 0.8:
            pair, remove = (rng.choice(self.KEYS), rng.choice(self.AUTHORS)), rng.random() < 0.4
            self.edges(d, pair, remove=remove)
            (model.edges.discard if remove else model.edges.add)(pair)
        else:
            shown = [i for k in self.KEYS for i, _, _ in model.shown(k)[:2]]
            item, keys = rng.choice(shown) if shown else "none", rng.choice([None, rng.sample(self.KEYS, 2)])
            self.ok(d.post("/remove?id=%s%s" % (item, "".join("&key=" + k for k in keys or []))))
            model.remove(item, keys)

    def check(self, d, model):
        for key in self.KEYS:
            items = self.ok(d.get("/get?" + query(key=key, limit=10000)))["items"]
            self.assertEqual([(i["id"], i["time"], i["data"]) for i in items], model.shown(key), key)

    def test_kills_equal_a_model(self):
        """After each kill -9, the lists have all that was acknowledged. No list is cut, because a cut entry does not return after removals
        (unit_lists has the model of that)."""
        rng, model, number = seeded(), Model(), 0
        options = "--keep=10000", "--delay=%dms" % rng.choice([0, 20, 3600000])
        d = self.serve(*options)
        for round in range(rounds(4)):
            for _ in range(rng.randrange(1, 40)):
                number += 1
                self.one(rng, d, model, number)
            if rng.random() < 0.3:
                self.check(d, model)
            d.kill9()
            options = "--keep=10000", "--delay=%dms" % rng.choice([0, 20, 3600000])
            d = self.serve(*options)
            self.check(d, model)

    def test_a_kill_in_the_middle_of_requests(self):
        """Threads add while the daemon is killed. All acknowledged items are there; an item without an answer may be."""
        d = self.serve("--keep=10000", "--delay=5ms")
        for _ in range(rounds(4) // 4):
            acked = [[] for _ in range(3)]

            def feed(n, d=d):
                try:
                    while True:
                        item = "%d-%d-%d" % (d.pid, n, len(acked[n]))
                        self.add(d, item, "t%d" % n, data="x")
                        acked[n].append(item)
                except (*UNREACHABLE, AssertionError):
                    pass
            threads = [threading.Thread(target=feed, args=(n,)) for n in range(3)]
            for t in threads:
                t.start()
            wait_until(lambda: sum(map(len, acked)) > 100, lambda: d.log)
            d.kill9()
            for t in threads:
                t.join()
            d = self.serve("--keep=10000", "--delay=5ms")
            for n in range(3):
                self.assertLessEqual(set(acked[n]), set(self.ids(d, "t%d" % n, limit=10000)))


class TestFullDisk(ListsTest):
    def test_changes_are_refused_and_return(self):
        disk = SmallDisk(self, "24m")
        d = self.serve("--delay=20ms", "--min-free=0", data=disk.path("lists"))
        self.add(d, "first", "k", data="x")
        disk.take_the_rest()
        acked = ["first"]

        def refused():
            reply = d.post("/add?id=i%d&key=k" % len(acked), "x" * 20000)
            if reply.status == 200:
                acked.append("i%d" % len(acked))
            return reply.status != 200 and reply
        self.assertProblem(wait_until(refused, lambda: d.log), 503, "storage-full")
        self.assertEqual(set(self.ids(d, "k")) >= set(acked[-50:]), True)
        d.kill9()
        d = self.serve("--delay=20ms", "--min-free=0", data=disk.path("lists"))
        self.assertLessEqual(set(acked[-50:]), set(self.ids(d, "k")))
        disk.give_back()
        wait_until(lambda: d.post("/add?id=later&key=k", "y").status == 200, lambda: d.log)
        self.saved(d)
        self.assertEqual(self.ids(d, "k")[0], "later")
        self.assertLessEqual(set(acked[-50:]), set(self.ids(d, "k")))


class TestCompare(ListsTest):
    def compare(self, a, b, *args):
        return self.run_program("millrace", "compare_lists", *args, a.url, b.url)

    def test_one_missing_entry_is_found(self):
        """The first system lost every other entry of a flush. Here, two instances are equal until one loses one entry."""
        a, b = (self.serve("--delay=20ms", data=name) for name in "ab")
        for d in (a, b):
            self.edges(d, *(("f%d" % i, "ann") for i in range(150)))
            for n in range(10):
                self.add(d, "i%d" % n, author="ann", time=n, data="d%d" % n)
            self.saved(d)
        r = self.compare(a, b)
        self.assertEqual((r.returncode, r.stdout), (0, b"150 lists, equal\n"), r)
        self.ok(b.post("/remove?id=i4&key=f77"))
        r = self.compare(a, b, "--settle=0")
        self.assertEqual((r.returncode, r.stdout), (1, b'"f77": item 6 is "i4" and "i3"\n'), r)
        self.add(b, "i4", "f77", time=4, data="other")
        self.assertEqual(self.compare(a, b, "--settle=0").returncode, 1)

    def test_a_list_of_one_and_unsaved_changes(self):
        a, b = self.serve("--delay=10ms", data="a"), self.serve("--delay=1h", data="b")
        for d in (a, b):
            self.add(d, "x", "k", time=1)
        self.saved(a)
        self.assertEqual(self.compare(a, b, "--settle=0").returncode, 0)
        for n in range(20):
            self.add(a, "y", "only%02d" % n, time=2)
        self.saved(a)
        r = self.compare(a, b, "--settle=0", "--limit=3")
        self.assertEqual((r.returncode, r.stdout.count(b"\n"), r.stdout.split(b":")[0]), (1, 3, b'"only00"'), r)

    def test_lists_of_several_pages(self):
        a, b = (self.serve("--delay=10ms", data=name) for name in "ab")
        for d in (a, b):
            for n in range(7):
                self.add(d, "i%d" % n, "k", time=n, data="x" * 1000000)
            self.saved(d)
        self.assertIsNotNone(a.get("/get?key=k").json()["next"])
        self.assertEqual(self.compare(a, b).stdout, b"1 list, equal\n")
        self.ok(b.post("/remove?id=i0"))
        r = self.compare(a, b, "--settle=0")
        self.assertEqual((r.returncode, r.stdout), (1, b'"k": item 7 is "i0" and absent\n'), r)

    def test_errors(self):
        a = self.serve()
        self.assertEqual(self.run_program("millrace", "compare_lists", a.url).returncode, 64)
        r = self.run_program("millrace", "compare_lists", a.url, "http://127.0.0.1:1")
        self.assertEqual(r.returncode, 75, r)
        self.assertIn(b"127.0.0.1:1", r.stderr)


if __name__ == "__main__":
    main()
