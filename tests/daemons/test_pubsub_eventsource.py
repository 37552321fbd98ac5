"""EventSource of Chromium: receives, reconnects and resumes."""
import harness
from eventsource_case import SCRIPT, EventSourceTest


class Chromium(EventSourceTest):
    def test_chromium(self):
        program = harness.chromium()
        if not program:
            harness.not_installed(self, "Chromium is not installed (scripts/setup --test): no browser to test with")
        self.begin()
        self.server.page = (b"<!doctype html><title>millrace</title><script>" + SCRIPT % {
            b"pubsub": self.wire.port, b"reports": b"/report"} + b"</script>")
        self.run_client([program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                         "--disable-background-networking", "--user-data-dir=" + self.path("profile"),
                         "http://127.0.0.1:%d/" % self.server.server_port], "chromium.log")
        self.live_through("chromium.log")


if __name__ == "__main__":
    harness.main()
