"""A stream of items: lists makes each change once, through kills of both daemons, and names the lines that it cannot use."""
# full: MILLRACE_ROUNDS=8
import json

from harness import main, query, request, rounds, seeded, wait_until
from pubsub_case import PubsubTest


class StreamTest(PubsubTest):
    def serve(self, *args):
        self.lists = self.start("lists", "--data-dir=lists", "--stream=s", "--pubsub-url=" + self.url, "--delay=50ms", *args)

    def publish(self, *lines):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        self.assertEqual(self.pub(text.encode()).status, 200)

    def caught_up(self):
        end = request(self.url, "GET", "/streams").json()["streams"][0]["end"]
        wait_until(lambda: self.lists.stats()["stream_offset"] == str(end), lambda: "%s\n%s" % (end, self.lists.log))

    def items(self, key):
        return [(i["id"], i["time"], i["data"]) for i in self.lists.get("/get?" + query(key=key, limit=10000)).json()["items"]]

    def ids(self, key):
        return [i for i, _, _ in self.items(key)]


class TestLines(StreamTest):
    def test_lines_change_the_lists(self):
        self.pubsub()
        self.serve()
        first = {"id": "a", "keys": ["k", "l"], "time": 1.5}
        self.publish(first, {"op": "follow", "follower": "bob", "author": "ann"}, {"op": "add", "id": 7, "author": "ann", "time": 2},
                     {"id": "c", "keys": "k", "time": "3.25"}, {"op": "follow", "follower": 12, "author": "ann"}, {"id": "d", "author": "ann", "time": 4})
        self.caught_up()
        self.assertEqual((self.ids("k"), self.ids("bob"), self.ids("12")), (["c", "a"], ["d", "7"], ["d"]))
        self.assertEqual(self.items("l"), [("a", 1.5, json.dumps(first))])
        self.publish({"op": "remove", "id": "a", "keys": ["k"]}, {"op": "remove", "id": "d"}, {"op": "unfollow", "follower": "bob", "author": "ann"},
                     {"id": "e", "author": "ann", "time": 5})
        self.caught_up()
        self.assertEqual([self.ids(k) for k in ("k", "l", "bob", "12")], [["c"], ["a"], ["7"], ["e"]])
        self.assertEqual((self.lists.stats()["lag_bytes"], self.lists.stats()["health"]["notices"]), (0, []))

    def test_fields_of_the_configuration(self):
        self.pubsub()
        self.serve("--id-field=post.id", "--keys-field=post.to", "--time-field=at", "--data-field=post.text", "--op-field=do")
        self.publish({"post": {"id": "x", "to": ["k", "k2"], "text": "hello"}, "at": 9}, {"do": "remove", "post": {"id": "x", "to": "k2"}})
        self.caught_up()
        self.assertEqual((self.items("k"), self.items("k2")), ([("x", 9, "hello")], []))

    def test_a_line_that_is_not_valid_is_counted_and_named(self):
        self.pubsub("--max-line=4M")
        self.serve()
        bad = ["no json", '["a"]', {"op": "put", "id": "a", "keys": "k"}, {"op": 1, "id": "a", "keys": "k"}, {"id": "a"}, {"keys": "k"},
               {"id": "", "keys": "k"}, {"id": "a", "keys": []}, {"id": "a", "keys": [""]}, {"id": "a", "keys": [["k"]]}, {"id": "a", "keys": {"k": 1}},
               {"id": "a", "keys": "k", "time": -1}, {"id": "a", "keys": "k", "time": "soon"}, {"id": "a", "keys": "k", "time": 1e300},
               {"op": "follow", "author": "ann"}, {"op": "follow", "follower": "bob"}, {"op": "remove"}, {"id": "x" * 256, "keys": "k"},
               {"id": "a", "keys": "k", "data": "x" * (2 << 20)}]
        for line in bad:
            self.publish(line)
        self.publish("{}     ", {"id": "good", "keys": "k"})
        self.caught_up()
        stats = self.lists.stats()
        self.assertEqual((stats["stream_lines_skipped_total"], stats["stream_lines_total"], self.ids("k")), (len(bad), len(bad) + 2, ["good"]))
        self.assertIn("no json", self.lists.log)


class TestExactly(StreamTest):
    def test_kills_equal_a_model(self):
        """Lines are published while both daemons are killed. The order of the operations decides, so a repeated line would show."""
        rng, number = seeded(), 0
        stream = self.pubsub()
        self.serve("--keep=10000")
        model, edges = {"k%d" % i: {} for i in range(6)}, set()
        for _ in range(20 * rounds(1)):
            lines = []
            for _ in range(rng.randrange(1, 100)):
                number += 1
                kind, item = rng.random(), "i%d" % rng.randrange(60)
                if kind < 0.4:
                    keys = rng.sample(sorted(model), 2)
                    lines.append({"id": item, "keys": keys, "time": number})
                elif kind < 0.6:
                    author = "a%d" % rng.randrange(2)
                    keys = [f for f, a in edges if a == author]
                    lines.append({"id": item, "author": author, "time": number})
                elif kind < 0.7:
                    pair, op = (rng.choice(sorted(model)), "a%d" % rng.randrange(2)), rng.choice(["follow", "unfollow"])
                    lines.append({"op": op, "follower": pair[0], "author": pair[1]})
                    (edges.add if op == "follow" else edges.discard)(pair)
                    continue
                else:
                    keys = rng.choice([None, rng.sample(sorted(model), 2)])
                    lines.append({"op": "remove", "id": item, **({"keys": keys} if keys else {})})
                    for key in keys or model:
                        model[key].pop(item, None)
                    continue
                for key in keys:
                    model[key][item] = number
            self.publish(*lines)
            if rng.random() < 0.4:
                self.lists.kill9()
                self.serve("--keep=10000")
            if rng.random() < 0.2:
                stream.kill9()
                stream = self.pubsub()
        self.caught_up()
        for key, entries in model.items():
            self.assertEqual([(i, t) for i, t, _ in self.items(key)], sorted(entries.items(), key=lambda e: -e[1]), key)
        wait_until(lambda: self.lists.stats()["health"]["notices"] == [], lambda: self.lists.log)


if __name__ == "__main__":
    main()
