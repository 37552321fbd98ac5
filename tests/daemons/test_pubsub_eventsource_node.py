"""EventSource of Node: receives, reconnects and resumes."""
# label: surface
import os
import shutil

import harness
from eventsource_case import SCRIPT, EventSourceTest


class Node(EventSourceTest):
    def test_node(self):
        program = shutil.which("node")
        if not program or not os.path.isdir("/usr/share/nodejs/eventsource"):
            harness.not_installed(self, "Node's EventSource is not installed (apt-get install node-eventsource)")
        self.begin()
        script = b'const EventSource = require("/usr/share/nodejs/eventsource");' + SCRIPT % {
            b"pubsub": self.wire.port, b"reports": b"http://127.0.0.1:%d/report" % self.server.server_port}
        self.run_client([program, self.write("client.js", script)], "node.log")
        self.live_through("node.log")


if __name__ == "__main__":
    harness.main()
