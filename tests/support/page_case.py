"""A pipeline whose API serves the page."""
import os

import harness
from harness import wait_until

PAGE = os.path.join(harness.BUILD, "share", "millrace", "page")


class PageCase(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        if not os.path.isdir(PAGE):
            harness.not_installed(self, "the page is not built (make page)")

    def start_pipeline(self, counters=None, sections=None, **api):
        config = self.write("pipeline.conf", harness.pipeline_config(self.path("data"), counters, compactor={"every": "1d"}, api=api, **(sections or {})))
        self.pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        self.base = self.pipeline.daemon_url("api")

    def put(self, lines):
        before = self.counted()
        for at in range(0, len(lines), 5000):
            reply = self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines[at:at + 5000]))
            self.assertEqual(reply.status, 200, reply)
        wait_until(lambda: self.counted() == before + len(lines), "all events to be counted")

    def counted(self):
        stats = self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()
        return stats["events"] + stats["skipped"] + stats["rejected"]
