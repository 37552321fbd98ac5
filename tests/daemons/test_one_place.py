"""What several daemons need stands once, under [millrace]; sections that disagree are refused by name before anything starts."""
import json
import os

import harness
from harness import USERS_BY_COUNTRY, wait_until

HOUR = 1332637200


class OnePlace(harness.MillraceTest):
    def token(self, name, text):
        path = self.write(name, text)
        os.chmod(path, 0o600)
        return path

    def config(self, **sections):
        sections.setdefault("pubsub", {}).setdefault("streams", None)
        return self.write("pipeline.conf", harness.pipeline_config(self.path("data"), USERS_BY_COUNTRY, **sections))

    def refused(self, *args, **sections):
        done = self.run_program("millrace", "up", "--config", self.config(**sections), *args)
        self.assertEqual(done.returncode, 78, done)
        self.assertFalse(os.path.exists(self.path("data", "pubsub")), "nothing was started")
        return done.stderr.decode()

    def accepted(self, *args, **sections):
        done = self.run_program("millrace", "up", "--check-config", "--config", self.config(**sections), *args)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode()

    def test_streams_and_token_of_millrace_reach_every_daemon(self):
        token = self.token("token", "s3cret\n")
        config = self.config(millrace={"streams": "views, other", "auth_token_file": token})
        pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        bearer = {"Authorization": "Bearer s3cret"}
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", b"x").status, 401)
        event = json.dumps({"t": HOUR, "l": "bitly", "c": "JP"}).encode()
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", event, headers=bearer).status, 200)
        target = "/v1/series?" + harness.query(user="bitly", unit="hour", from_=HOUR, to=HOUR + 3600)
        wait_until(lambda: pipeline.ask("api", "GET", target, headers=bearer).json().get("total") == 1, lambda: pipeline.log)
        streams = pipeline.ask("pubsub", "GET", "/streams", headers=bearer).json()["streams"]
        self.assertEqual({s["name"] for s in streams}, {"views", "other"})
        for tool in (["status"], ["tail", "--from=earliest", "--follow=false"], ["compact"], ["producers"],
                     ["query", "series", "--user=bitly", "--period=7d"]):
            done = self.run_program("millrace", *tool, "--config", config, "--data-dir", self.path("data"))
            self.assertEqual(done.returncode, 0, (tool, done))
        os.rename(token, token + ".away")
        done = self.run_program("millrace", "status", "--config", config)
        self.assertIn(done.returncode, (0, 1), "status also works for a user who may not read the token")
        wait_until(lambda: all(d["stats"] for d in pipeline.ask("api", "GET", "/v1/pipeline", headers=bearer).json()["daemons"]), "the page's numbers")
        pipeline.interrupt()

    def test_a_token_is_not_sent_to_another_address(self):
        token = self.token("token", "s3cret")
        elsewhere = "http://10.0.0.1:8081"
        for program, url, args, has_token in ((["aggregator", "--data-dir", self.path("a")], None, [], True),
                                              (["aggregator", "--data-dir", self.path("a")], elsewhere, [], False),
                                              (["millrace", "tail"], None, [], True),
                                              (["millrace", "tail"], None, ["--pubsub-url", elsewhere], False)):
            section = {"aggregator": {"pubsub_url": url}} if url else {}
            config = self.config(millrace={"auth_token_file": token}, **section)
            done = self.run_program(*program, "--config", config, "--check-config", *args)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual("pubsub_token_file = " + token in done.stdout.decode(), has_token, done.stdout)

    def test_a_section_overrides_and_check_config_names_the_place(self):
        shown = self.accepted(millrace={"streams": "a, b"}, aggregator={"streams": "b"})
        self.assertRegex(shown, r"(?m)^stream = a +; .*pipeline.conf:\d+$")
        self.assertRegex(shown, r"(?m)^streams = b +; .*pipeline.conf:\d+$")

    def test_a_stream_that_only_one_section_names_is_refused(self):
        said = self.refused(pubsub={"streams": "views"})
        self.assertRegex(said, r"pipeline.conf:\d+: \[queue_to_pubsub\] stream: stream clicks is not in \[pubsub\] streams = views \(line \d+\)")
        said = self.refused(queue_to_pubsub={"stream": "views"})
        self.assertRegex(said, r"\[queue_to_pubsub\] stream: stream views is not in \[aggregator\] streams = clicks \(the default\)")
        said = self.refused(millrace={"streams": "views"}, aggregator={"streams": "view"})
        self.assertRegex(said, r"\[aggregator\] streams: stream view is not in \[millrace\] streams = views")
        self.assertIn("name the streams once, under [millrace] streams", said)

    def test_a_filter_between_two_listed_streams_is_accepted(self):
        self.accepted(millrace={"streams": "raw, clean"}, aggregator={"streams": "clean"})

    def test_daemons_that_do_not_run_here_are_not_compared(self):
        self.accepted(queue_to_pubsub={"stream": "views"}, millrace={"run": "simplequeue queue_to_pubsub"})

    def test_two_tokens_for_one_daemon_are_refused(self):
        one, same, two = self.token("one", "1"), self.token("same", "1\n"), self.token("two", "2")
        said = self.refused(pubsub={"streams": "clicks", "auth_token_file": one}, api={"pubsub_token_file": two})
        self.assertRegex(said, r"\[api\] pubsub_token_file = \S+/two is not the token of \[pubsub\] auth_token_file = \S+/one \(line \d+\)")
        shown = self.accepted(pubsub={"streams": "clicks", "auth_token_file": one}, api={"pubsub_token_file": same})
        self.assertRegex(shown, r"(?m)^pubsub_token_file = \S+/one +; ", "the others have the token of [pubsub]")


if __name__ == "__main__":
    harness.main()
