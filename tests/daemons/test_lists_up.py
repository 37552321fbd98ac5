"""lists as a daemon of `millrace up`: status, doctor, the page's data, and backups beside changes."""
import json
import shutil
import threading

from harness import UNREACHABLE, MillraceTest, Pipeline, main, pipeline_config, query, request, wait_until


class ListsPipelineTest(MillraceTest):
    def up(self, **lists):
        self.config = self.write("p.conf", pipeline_config(self.path("data"), lists={"port": 0, **lists}))
        return Pipeline(self, self.config, self.path("data")).wait_ready()

    def shown(self):
        r = self.run_program("millrace", "status", "--json", "--sample=0", "--config", self.config)
        return json.loads(r.stdout)["daemons"]["lists"]

    def add(self, pipeline, item, **params):
        reply = pipeline.ask("lists", "POST", "/add?" + query(id=item, **params), "x")
        self.assertEqual(reply.status, 200, reply)


class TestUp(ListsPipelineTest):
    def test_the_section_starts_it(self):
        pipeline = self.up(delay="1h")
        self.add(pipeline, "a", key="k")
        self.assertEqual((self.shown()["state"], self.shown()["detail"]), ("ready", "1 lists not saved yet"))
        pipeline.kill9_daemon("lists")
        wait_until(lambda: self.shown()["detail"] == "1 lists not saved yet", self.shown)
        found = self.run_program("millrace", "doctor", "--config", self.config).stdout.decode()
        self.assertRegex(found, r"ok +journals +\S+/lists/journals/lists: \d frames?")

        def seen():
            daemons = {d["name"]: d for d in pipeline.ask("api", "GET", "/v1/pipeline").json()["daemons"]}
            return daemons["lists"]["state"] == "ready" and daemons["lists"]["stats"]["unsaved_keys"] == 1
        wait_until(seen, lambda: pipeline.log)
        pipeline.stop()
        self.assertEqual(self.shown()["state"], "stopped")


class TestBackup(ListsPipelineTest):
    def test_a_backup_beside_changes_has_all_before_it(self):
        """Items come by request and from a stream, and lists are saved all the time. The restored lists have every item that was
        acknowledged before the backup, and go on in the restored stream with each line once."""
        pipeline = self.up(delay="20ms", keep=10000, stream="posts")
        sent, over = [], threading.Event()

        def feed():
            try:
                while not over.is_set():
                    n = len(sent)
                    self.add(pipeline, "r%d" % n, key="requests", time=n)
                    line = json.dumps({"id": "s%d" % n, "keys": ["stream"], "time": n})
                    self.assertEqual(pipeline.ask("pubsub", "POST", "/pub?stream=posts", line + "\n").status, 200)
                    sent.append(n)
            except UNREACHABLE:
                pass
        thread = threading.Thread(target=feed)
        thread.start()
        counts = []
        try:
            for number in range(2):
                wait_until(lambda: len(sent) > 100 * (number + 1) and pipeline.ask("lists", "GET", "/stats?format=json").json()["saves_total"] > number,
                           lambda: pipeline.log)
                counts.append(len(sent))
                r = self.run_program("millrace", "backup", "--config", self.config, self.path("backup%d" % number))
                self.assertEqual(r.returncode, 0, r)
        finally:
            over.set()
            thread.join()
        pipeline.stop()
        for number, before in enumerate(counts):
            self.check_copy(self.path("backup%d" % number), before)

    def check_copy(self, backup, before):
        r = self.run_program("millrace", "restore", backup, "--to", self.path("restored"))
        self.assertEqual(r.returncode, 0, r)
        url = "unix:" + self.path("p.sock")
        pubsub = self.start("pubsub", "--data-dir=restored/pubsub", listen=url)
        lines = request(url, "GET", "/sub?stream=posts&from=earliest&follow=0").text.splitlines()
        end = next(s["end"] for s in request(url, "GET", "/streams").json()["streams"] if s["name"] == "posts")
        d = self.start("lists", "--data-dir=restored/lists", "--keep=10000", "--stream=posts", "--pubsub-url=" + url)
        wait_until(lambda: d.stats()["stream_offset"] == str(end), lambda: d.log)
        ids = lambda key: [i["id"] for i in d.get("/get?limit=10000&key=" + key).json()["items"]]
        requested = ids("requests")
        self.assertEqual(requested, ["r%d" % n for n in reversed(range(len(requested)))])
        self.assertGreaterEqual(len(requested), before)
        self.assertEqual(ids("stream"), [json.loads(line)["id"] for line in reversed(lines)])
        self.assertEqual(d.stats()["health"]["notices"], [])
        d.stop()
        pubsub.stop()
        shutil.rmtree(self.path("restored"))


if __name__ == "__main__":
    main()
