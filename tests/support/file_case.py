"""What the tests of ps_to_file share: a pubsub, events, a writer, and what it has written."""
import glob
import json

import harness
from harness import wait_until

DAY = 86400
T0 = 1360281600  # 2013-02-08 00:00:00 UTC


def event(i, t=None):
    return b'{"n":%d%s}\n' % (i, b"" if t is None else b',"t":%d' % t)


class FileCase(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s")
        self.n = 0

    def publish(self, *lines):
        reply = self.pubsub.post("/pub?stream=s", b"".join(lines))
        self.assertEqual(reply.status, 200, reply)

    def stream(self):
        return self.pubsub.get("/sub?stream=s&from=earliest&follow=0").body

    def writer(self, *args, name="out/s-%Y%m%d.ndjson", **kw):
        return self.daemon("ps_to_file", "--pubsub_url", self.pubsub.url, "--stream=s", "--commit_every=20ms",
                           "--filename_format", self.path(name), *args, **kw)

    def committed(self, stem="out/.ps_to_file-s.json"):
        try:
            with open(self.path(stem)) as f:
                return json.load(f)
        except OSError:
            return {"offset": "-1", "files": []}

    def wait_committed(self, stem="out/.ps_to_file-s.json"):
        end = len(self.stream())
        wait_until(lambda: int(self.committed(stem)["offset"]) == end,
                   lambda: "%d bytes to be committed: %s" % (end, self.committed(stem)))

    def files(self, pattern="out/*"):
        return sorted(p for p in glob.glob(self.path(pattern)) if ".manifest.json" not in p)

    def staged(self):
        return sorted(glob.glob(self.path("*", ".ps_to_file-names-*.staging", "*.part")))

    def content(self, pattern="out/*"):
        """The bytes of the published files, and of the other files up to their committed lengths."""
        whole = {path: harness.read_file(path) for path in self.files(pattern)}
        for f in self.committed()["files"]:
            whole[f["name"]] = harness.read_file(f["staged"])[:int(f["length"])]
        return b"".join(whole[name] for name in sorted(whole))
