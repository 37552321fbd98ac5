"""The walkthroughs docs/guide/walk-*.md are true: their commands, executed in order in a copy of this machine, count events and end with an alert.
Intervals are shortened, and nothing else is changed."""
# label: surface
# seconds: 30
# parts: 3
import glob
import os
import re

import guide
import harness

WORDS_MAX = 700
# Prints a mail into a file.
SENDMAIL = "printf '#!/bin/sh\\ncat >> /tmp/mail\\n' > /usr/sbin/sendmail && chmod 755 /usr/sbin/sendmail"
# Writes the body of each request into a file, and answers 200.
HOOK = r"""cat > /tmp/hook.py <<'END'
import http.server
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with open("/tmp/mail", "ab") as f:
            f.write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Hook).serve_forever()
END
begin hook 'python3 /tmp/hook.py'"""
READY = "poll 'has /tmp/up.err \"pipeline ready\" || ! kill -0 $pid_up' && kill -0 $pid_up"


class Walkthroughs(harness.MillraceTest):
    def walk(self, name, counter, alert, reader, given=(), treat=(), skipped=(), before="true"):
        """`counter` is the first line of the counter that is added, `alert` the name of the alert that `reader` delivers. `before` runs before
        the second start."""
        def block(first):
            return "\n".join(next(b.lines for b in guide.blocks("docs", "guide", name) if b.lines[0].startswith(first)))
        rules = re.sub("interval: 1m|for: 10m", lambda slow: slow[0].split()[0] + " 1s", block("groups:"))
        sections = block("[ruler]") + "\ngroup_wait = 1s\n[scraper]\ninterval = 1s"
        counter_ns = counter.strip("[]").split()[1]
        append = "cat >> millrace.conf <<'END'\n\n%s\nEND\n"
        ran = guide.walk(self, ("docs", "guide", name), ["mkdir -p /root/work; cd /root/work && hash -r", *given], treat=[
            ("make", "true"),  # guide.installed() has done it
            ("sudo make install", "command -v millrace"),
            ("millrace up --check-config", append % block(counter) + "{raw} > /dev/null"),
            ("millrace up", "begin up {}; " + READY),
            ("millrace up", before + "; end $pid_up; " + append % sections + "cat > rules.yml <<'END'\n" + rules + "\nEND\nbegin up {}; " + READY),
            ("pkill", "{raw} && poll 'curl http://127.0.0.1:8088/v1/counters | grep %s' && poll 'has /tmp/up.err counters=changed'" % counter_ns),
            *treat,
            (reader, "until_ 'grep %s /tmp/mail' {}" % alert),
        ], skipped=(counter, "groups:", "[ruler]", *skipped))
        self.assertGreater(ran, 10)

    def test_website(self):
        """test_website.py runs the script, and the location of nginx."""
        self.walk("walk-website.md", "[subtotal plan.event]", "NoVisits", "millrace queue_exec", [SENDMAIL],
                  skipped=("location /p/", "<script", "<button"))

    def test_shop(self):
        self.walk("walk-shop.md", "[subtotal country.revenue]", "SaleNotCounted", "millrace queue_exec", [SENDMAIL], [
            ("curl -d '{\"event\":\"order\",\"product\":\"hat-7\",\"paid\":\"49,90\"", "poll 'curl \"http://127.0.0.1:8092/api/v1/query?query=millrace_aggregator_lines_rejected_total\" | grep value' && {raw}"),
            ("millrace rejects", "poll '{raw} | grep 49,90' && {raw}"),
        ])

    def test_api(self):
        script = "\n".join(next(b.lines for b in guide.blocks("docs", "guide", "walk-api.md") if b.lines[0].startswith("rows=")))
        failed = "curl -o /dev/null -d \"[$(yes '{\"route\":\"/orders\",\"status\":500}' | head -12 | paste -sd,)]\" http://127.0.0.1:8088/v1/events && millrace status --wait > /dev/null"
        self.walk("walk-api.md", "[subtotal ms.route]", "ErrorsIncrease", "millrace queue_to_http", [HOOK], [
            ("sh errors.sh", "cat > errors.sh <<'END'\n%s\nEND\npoll {} && poll 'curl \"http://127.0.0.1:8081/sub?stream=metrics&from=earliest&follow=0\" | grep \"api_errors.*:1[0-9]}\"'" % script),
        ], skipped=("rows=",), before=failed)


class Length(harness.MillraceTest):
    def test_a_walkthrough_has_at_most_700_words(self):
        names = glob.glob(os.path.join(harness.ROOT, "docs", "guide", "walk-*.md"))
        self.assertEqual(len(names), 3)
        for name in names:
            self.assertLessEqual(len(harness.read_file(name).split()), WORDS_MAX, name)


if __name__ == "__main__":
    harness.main()
