"""spamfilter as a daemon of `millrace up`: status, doctor, the page's data, and backups beside updates."""
import contextlib
import json
import os
import shutil
import threading

from harness import UNREACHABLE, MillraceTest, Pipeline, main, pipeline_config, request, wait_until


@contextlib.contextmanager
def feeding(send):
    """Calls send(0), send(1), ... in a thread, until the end of the block or of the pipeline. Gives the list of complete calls."""
    sent, over = [], threading.Event()

    def feed():
        with contextlib.suppress(*UNREACHABLE):
            while not over.is_set():
                send(len(sent))
                sent.append(len(sent))
    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()


class SpamfilterPipelineTest(MillraceTest):
    def up(self, data="data", **sections):
        self.config = self.write(data + ".conf", pipeline_config(self.path(data), **sections))
        return Pipeline(self, self.config, self.path(data)).wait_ready()

    def status(self):
        r = self.run_program("millrace", "status", "--json", "--sample=0", "--config", self.config)
        return json.loads(r.stdout)

    def lines(self, pipeline, target, *lines):
        reply = pipeline.ask("spamfilter", "POST", target, "\n".join(lines))
        self.assertEqual(reply.status, 200, reply)
        return [json.loads(line) for line in reply.text.splitlines()]


class TestUp(SpamfilterPipelineTest):
    def test_the_section_starts_it(self):
        pipeline = self.up(spamfilter={"port": 0})
        self.lines(pipeline, "/add", "bad.example\t1", "worse.example\t2")
        self.assertTrue(os.path.exists(self.path("data", "spamfilter", "marks")))
        daemon = self.status()["daemons"]["spamfilter"]
        self.assertEqual((daemon["state"], daemon["detail"]), ("ready", "2 marks"))
        self.assertIn("spamfilter", self.run_program("millrace", "status", "--sample=0", "--config", self.config).stdout.decode())
        pipeline.kill9_daemon("spamfilter")
        wait_until(lambda: self.status()["daemons"]["spamfilter"]["detail"] == "2 marks", self.status)
        found = self.run_program("millrace", "doctor", "--config", self.config).stdout.decode()
        self.assertRegex(found, r"ok +journals +\S+/spamfilter/journals/marks: \d frames")
        self.assertRegex(found, r"ok +marks +\S+/spamfilter/marks: \d marks in \d layers")
        def shown():
            daemons = {d["name"]: d for d in pipeline.ask("api", "GET", "/v1/pipeline").json()["daemons"]}
            return (daemons["spamfilter"]["stats"] or {}).get("elements") == 2 and daemons["spamfilter"]["state"] == "ready"
        wait_until(shown, lambda: pipeline.log)
        pipeline.stop()
        self.assertEqual(self.status()["daemons"]["spamfilter"]["state"], "stopped")

    def test_without_the_section_it_is_not_shown(self):
        pipeline = self.up()
        self.assertNotIn("spamfilter", pipeline.run_file()["daemons"])
        self.assertNotIn("spamfilter", self.status()["daemons"])
        self.assertNotIn("spamfilter", self.run_program("millrace", "status", "--sample=0", "--config", self.config).stdout.decode())
        self.assertNotIn("spamfilter", [d["name"] for d in pipeline.ask("api", "GET", "/v1/pipeline").json()["daemons"]])
        pipeline.stop()
        self.assertNotIn("spamfilter", self.status()["daemons"])

    def test_a_damaged_filter_is_found(self):
        pipeline = self.up(spamfilter={"port": 0})
        self.lines(pipeline, "/add", "bad.example\t1")
        pipeline.stop()
        with open(self.path("data", "spamfilter", "marks"), "r+b") as f:
            f.seek(100)
            f.write(b"damage")
        r = self.run_program("millrace", "doctor", "--config", self.config)
        self.assertRegex(r.stdout.decode(), r"(?m)^fail +marks +\S+/spamfilter/marks: .*\n   -> .*restore the directory of spamfilter")
        r = self.run_program("millrace", "backup", "--config", self.config, self.path("backup"))
        self.assertEqual(r.returncode, 65, r)
        self.assertIn(b"spamfilter/marks", r.stderr)


class TestDoor(SpamfilterPipelineTest):
    def marks(self):
        """The findings of doctor about marks: (result, text, remedy)."""
        r = self.run_program("millrace", "doctor", "--fast", "--json", "--config", self.config)
        return [(f["result"], f["finding"], f["remedy"]) for f in json.loads(r.stdout)["findings"] if f["check"] == "marks"]

    def test_doctor_checks_the_file_that_the_doors_read(self):
        path, remedy = self.path("data", "spamfilter", "marks"), "start spamfilter, or set marks_dir to the data_dir of spamfilter"
        pipeline = self.up(door={"add": "marked"})
        self.assertEqual(self.marks(), [("warn", path + ": cannot open the file: No such file or directory", remedy)])
        pipeline.stop()
        pipeline = self.up(door={"add": "marked"}, spamfilter={"port": 0})
        self.assertEqual(self.marks(), [("ok", path + ": 0 marks in 0 layers", "")])
        pipeline.stop()
        self.assertEqual([result for result, _, _ in self.marks()], ["ok"])
        pipeline = self.up(door={"add": "marked"})
        fine, (result, finding, advice) = self.marks()
        self.assertEqual((fine[0], result, advice), ("ok", "warn", remedy))
        self.assertRegex(finding, "spamfilter is off, and the doors use its last sync, .+ old$")
        with open(path, "r+b") as f:
            f.seek(8)
            f.write(b"\2")
        (result, finding, advice), = [f for f in self.marks() if f[0] == "fail"]
        self.assertEqual(finding, path + ": unknown format version")
        self.assertRegex(advice, "^install the millrace that wrote the file")
        pipeline.stop()
        self.up(door={"add": "marked", "marks_dir": "elsewhere"})
        self.assertIn(("warn", self.path("data", "elsewhere", "marks") + ": cannot open the file: No such file or directory", remedy), self.marks())


class TestStream(SpamfilterPipelineTest):
    def publish(self, pipeline, *lines):
        body = "".join(json.dumps(line) + "\n" for line in lines)
        self.assertEqual(pipeline.ask("pubsub", "POST", "/pub?stream=marks", body).status, 200)

    def test_the_stream_of_marks(self):
        """Status shows the lag; a backup beside updates has the cursor of its marks."""
        pipeline = self.up(spamfilter={"port": 0, "stream": "marks", "sync_every": "20ms", "recent": "64K"})
        self.publish(pipeline, {"op": "add", "url": "first.example", "id": 1})
        shown = lambda: self.status()["daemons"]["spamfilter"]
        wait_until(lambda: shown()["detail"] == "1 marks; lag 0 bytes" and shown()["lag_seconds"] >= 0, shown)

        def send(n):
            self.publish(pipeline, *({"op": "add", "url": "m%d-%d.example" % (n, i), "id": n * 100 + i + 2} for i in range(100)))
        with feeding(send) as sent:
            for number in range(3):
                wait_until(lambda: len(sent) > 30 * (number + 1), lambda: pipeline.log)
                r = self.run_program("millrace", "backup", "--config", self.config, self.path("backup%d" % number))
                self.assertEqual(r.returncode, 0, r)
        pipeline.stop()
        for number in range(3):
            self.check_copy(self.path("backup%d" % number))

    def check_copy(self, backup):
        """The restored spamfilter goes on in the restored stream, and each line counts once."""
        r = self.run_program("millrace", "restore", backup, "--to", self.path("restored"))
        self.assertEqual(r.returncode, 0, r)
        url = "unix:" + self.path("p.sock")
        pubsub = self.start("pubsub", "--data-dir=restored/pubsub", listen=url)
        lines = request(url, "GET", "/sub?stream=marks&from=earliest&follow=0").text.count("\n")
        end = next(s["end"] for s in request(url, "GET", "/streams").json()["streams"] if s["name"] == "marks")
        d = self.start("spamfilter", "--data-dir=restored/spamfilter", "--stream=marks", "--pubsub-url=" + url)
        self.assertGreater(int(d.stats()["stream_offset"]), 0)
        wait_until(lambda: d.stats()["stream_offset"] == str(end), lambda: d.log)
        self.assertEqual((d.stats()["elements"], d.stats()["health"]["notices"]), (lines, []))
        d.stop()
        pubsub.stop()
        shutil.rmtree(self.path("restored"))


class TestBackup(SpamfilterPipelineTest):
    def test_a_backup_beside_updates_has_all_before_it(self):
        """Marks are added, removed and synced all the time. The restored marks have every update acknowledged before the backup."""
        settings = {"port": 0, "sync_every": "20ms", "recent": "64K", "capacity": 2000}
        pipeline = self.up(spamfilter=settings)

        def send(n):
            texts = ["m%d-%d.example\t%d" % (n, i, n * 100 + i + 1) for i in range(100)]
            self.lines(pipeline, "/add", *texts)
            self.lines(pipeline, "/remove", texts[0])
            if n % 10 == 0:
                self.lines(pipeline, "/allow", "a.m%d-1.example" % n)
        with feeding(send) as sent:
            for number in range(3):
                wait_until(lambda: len(sent) > 100 * (number + 1), lambda: pipeline.log)
                before = len(sent)
                to = self.path("backup%d" % number)
                r = self.run_program("millrace", "backup", "--config", self.config, to)
                self.assertEqual(r.returncode, 0, r)
                journal = os.listdir(os.path.join(to, "spamfilter", "journals", "marks"))
                self.assertNotIn("0000000000000001.seg", journal, "the files have updates that the journal does not have")
                self.check_copy(to, before, settings)

    def check_copy(self, backup, before, settings):
        r = self.run_program("millrace", "restore", backup, "--to", self.path("restored"))
        self.assertEqual(r.returncode, 0, r)
        d = self.start("spamfilter", "--data-dir=restored/spamfilter", *("--%s=%s" % (k.replace("_", "-"), v) for k, v in settings.items() if k != "port"))
        for n in range(before):
            answers = [json.loads(line) for line in d.post("/check", "\n".join(
                ["m%d-%d.example" % (n, i) for i in range(100)] + ["a.m%d-1.example" % n])).text.splitlines()]
            self.assertEqual([a["marked"] for a in answers[1:100]], [True] * 99, n)
            self.assertEqual("allowed" in answers[100], n % 10 == 0, (n, answers[100]))
        elements = d.stats()["elements"]
        self.assertGreaterEqual(elements, before * 99)
        d.stop()
        shutil.rmtree(self.path("restored"))


if __name__ == "__main__":
    main()
