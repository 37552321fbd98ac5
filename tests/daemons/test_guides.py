"""The guides are true: the commands of docs/guide, executed in order as they stand in a copy of this machine, succeed and print what the guide
says. test_service.py runs service.md, test_dynamodb.py the commands of dynamodb.md, test_example_readers.py the programs of docs/write-a-reader.md, test_nginx_log.py the recipe of nginx.md, test_openapi.py
the programs of docs/api-clients.md, test_walkthroughs.py the walkthroughs."""
# label: surface
# seconds: 60
# parts: 3
import os
import re
import shutil

import guide
import harness

DOCS = ("docs", "guide")
# Guides whose blocks are no commands of millrace, and the one with a test of its own.
ELSEWHERE = ("dynamodb.md", "security.md", "nng.md", "nginx.md", "operations.md", "jetstream.md", "from-nsq.md", "service.md", "sql.md")
LEASE = "lease=$(sed -n 's/X-Millrace-Lease: //p' /tmp/reply | tr -d '\\r'); eval \"$(echo {} | sed s/lease=[0-9A-Z]*/lease=$lease/)\""
STREAMS = [*guide.INSTALL, "begin pubsub 'millrace pubsub --data-dir=/var/lib/pubsub' && poll 'curl http://127.0.0.1:8081/health'",
           "begin queue 'millrace simplequeue --data-dir=/var/lib/queue' && poll 'curl http://127.0.0.1:8080/health'"]
# Answers every request with 200, and counts the lines and the requests in /tmp/sink.
SINK = r"""cat > /tmp/sink.py <<'END'
import http.server
class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with open("/tmp/sink", "ab") as f:
            f.write(b"%s %d\n" % (self.path.encode(), body.count(b"\n") + (not body.endswith(b"\n"))))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    do_GET = do_POST = do_OPTIONS = answer
http.server.ThreadingHTTPServer(("", 9000), Sink).serve_forever()
END
begin sink 'python3 /tmp/sink.py'; touch /tmp/sink; poll 'curl http://127.0.0.1:9000/'; : > /tmp/sink"""


class Guides(harness.MillraceTest):
    def walk(self, name, given, **how):
        self.assertGreater(guide.walk(self, (*DOCS, name), given, **how), 0)

    def need(self, *programs):
        for name in programs:
            if not shutil.which(name):
                harness.not_installed(self, name + " is not installed (scripts/setup --test)")

    def test_every_guide_with_commands_is_walked(self):
        walked = set(re.findall(r'self\.walk\("([\w-]+\.md)"', harness.read_file(__file__).decode()))
        with_blocks = {name for name in os.listdir(os.path.join(harness.ROOT, *DOCS)) if guide.blocks(*DOCS, name)}
        self.assertEqual({name for name in with_blocks - walked if not name.startswith("walk-")}, set(ELSEWHERE))

    def test_website(self):
        """test_website.py runs the script, and the location of nginx."""
        self.walk("website.md", [*guide.INSTALL, "export MILLRACE_CONFIG=millrace.conf; agent='Mozilla/5.0 (X11; Linux x86_64) Firefox/128.0'"], treat=[
            ("millrace up", "begin up {}; poll 'has /tmp/up.err \"pipeline ready\"'; "
             "for e in view outbound; do curl -A \"$agent\" -d '{\"event\":\"'$e'\",\"site\":\"example.org\",\"path\":\"/\",\"target\":\"http://a.example/\"}' http://127.0.0.1:8089/p/events; done; "
             "millrace status --wait > /dev/null"),
        ], skipped=("<script defer src=\"http", "location /p/", "<script defer src=\"/p/m.js\"></script>", "<button", "[subtotal plan.event]", "<script>window", "<script defer src=\"/p/m.js\" data",
                    "location = /p/events", "<noscript>"))

    def test_simplequeue(self):
        self.need("nngcat")
        self.walk("simplequeue.md", [*guide.INSTALL, "mkdir -p /var/log /run/queue"], treat=[
            ("millrace simplequeue --data-dir=/var/lib/queue --nng", "rm -r /var/lib/queue && serve {}"),
            ("millrace simplequeue", "serve {}"),
            ("curl -i", "serve 'millrace simplequeue' && curl -d first http://127.0.0.1:8080/put && curl -d second http://127.0.0.1:8080/put && "
                        "{raw} | sed s/1795250082525037/1/ | tee /tmp/reply"),
            ("curl -X POST 'http://127.0.0.1:8080/ack", LEASE),
            ("curl -X POST 'http://127.0.0.1:8080/follow", "{raw} | tee /tmp/follow"),
            ("curl 'http://127.0.0.1:8080/reserve?follow", "F=$(grep -o 'follow\":\"[0-9]*' /tmp/follow | grep -o '[0-9]*$'); eval \"$(echo {} | sed s/1795250082525038/$F/)\""),
            ("millrace queue show", "for i in 3 4 5 6 7 8 9; do curl -d $i http://127.0.0.1:8080/put; done; "
             "L=$(curl -i 'http://127.0.0.1:8080/reserve?items=7' | grep -a -o 'Lease: [0-9]*' | tr -dc 0-9); "
             "curl -X POST \"http://127.0.0.1:8080/bury?lease=$L&id=3-9\"; {raw}"),
            ("millrace queue edit", "echo better | {raw}"),
            ("millrace queue settle", "serve 'millrace simplequeue' && curl --data-binary \"$(seq 120)\" http://127.0.0.1:8080/mput && "
                                      "curl -X POST 'http://127.0.0.1:8080/follow?reader=relay' && {raw} | grep 'the messages before id 121 are deleted'"),
            ("curl -X POST http://127.0.0.1:8080/erase", "serve 'millrace simplequeue --data-dir=/var/lib/erased' && curl -d a http://127.0.0.1:8080/put && {raw}"),
            ("curl http://127.0.0.1:8080/erase", "poll {}' | grep done'"),
        ], vary=("1795250082525037", "1795250082525038", "07f899744881ab7d04583373e361323f"))

    def test_streams(self):
        self.walk("streams.md", STREAMS, treat=[
            ("curl --data-binary @batch", "printf '{\"a\":3}\\n' > batch; curl --data-binary @batch 'http://127.0.0.1:8081/pub?stream=clicks&producer=loader&mark=0&next=1000' && {raw}"),
            ("curl -N 'http://127.0.0.1:8081/sub?stream=clicks'", "until_ 'curl -d {\\\"late\\\":1} http://127.0.0.1:8081/pub?stream=clicks; grep -q late /tmp/follow.out' {}"),
            ("curl -N 'http://127.0.0.1:8081/sub?stream=clicks&from=123456", "id=$(curl -d '{\"b\":1}' 'http://127.0.0.1:8081/pub?stream=clicks' | grep -o '[0-9a-f]\\{32\\}'); "
             "until_ 'grep -q b /tmp/follow.out' \"$(echo {} | sed \"s/from=123456/from=16/; s/62528bf0.../$id/\")\""),
            ("curl -N", "until_ 'grep -q a /tmp/follow.out' {}"),
            ("curl -i 'http://127.0.0.1:8080/reserve?queue=work", "{raw} | tee /tmp/reply; grep -q '\"a\":1' /tmp/reply"),
            ("curl -X POST 'http://127.0.0.1:8080/ack", LEASE.replace("s/lease=", "s/FIRST-LAST/1-2/\\;s/lease=")),
            ("millrace ps_to_http", "begin http {} && poll 'curl http://127.0.0.1:8080/dump?queue=work | grep late'"),
            ("touch clicks.log", "until_ 'cmp clicks.log <(curl http://127.0.0.1:8081/sub?stream=clicks\\&from=earliest\\&follow=0)' {}"),
            ("curl -X POST   'http://127.0.0.1:8081/cursors?stream=clicks&name=billing&from=123456'", "eval \"$(echo {} | sed s/123456/16/)\""),
        ], skipped=("[pubsub]", "new EventSource", "data: "))

    def test_stream_tools(self):
        """Each program runs until it has done its work on the stream, and stops cleanly."""
        self.need("zstd")
        self.walk("stream-tools.md", [
            *guide.pipeline(), SINK, "ip addr add 10.0.0.5/32 dev lo; ip addr add 10.0.0.6/32 dev lo; echo 10.0.0.6 backup >> /etc/hosts",
            "mkdir -p /var/clicks && head -c 32 /dev/urandom > /etc/millrace/hash.key && chmod 600 /etc/millrace/hash.key",
            "begin backup 'millrace pubsub --config= --data-dir=/var/lib/backup --address=10.0.0.6' && poll 'curl http://backup:8081/health'",
            "lines=$(curl 'http://127.0.0.1:8081/sub?stream=clicks&from=earliest&follow=0' | wc -l)"], treat=[
            ("millrace ps_to_file", "until_ 'ls /var/clicks/.ps_to_file-names-*.staging/* && ls -A /var/clicks | grep -q json' {} && find /var/clicks | head -30"),
            ("python3 -c", "cd /tmp && mkdir files && cd files && millrace ps_to_file --stream=clicks --filename-format=/tmp/files/%S.ndjson --compress=zstd & poll 'ls /tmp/files/*.manifest.json'; "
             "kill $! && wait $!; cd /tmp/files && eval {} > ../printed && head -c \"$(stat -c %s ../printed)\" <(curl 'http://127.0.0.1:8081/sub?stream=clicks&from=earliest&follow=0') | cmp - ../printed && test -s ../printed; status=$?; cd /root/work; (exit $status)"),
            ("millrace pubsub_filtered", "until_ '[ \"$(curl http://127.0.0.1:8081/sub?stream=clicks_public\\&from=earliest\\&follow=0 | grep -c h:)\" -gt 1000 ]' {}"),
            ("millrace ps_to_http --stream=clicks --to-queue", "until_ '[ \"$(curl http://127.0.0.1:8080/dump?queue=work | grep -c .)\" = $lines ]' {}"),
            ("millrace ps_to_http --stream=clicks --to-stream", "until_ '[ \"$(curl http://backup:8081/sub?stream=clicks\\&from=earliest\\&follow=0 | wc -l)\" = $lines ]' {}"),
            ("millrace ps_to_http", ": > /tmp/sink; until_ '[ $(awk \"{n += \\$2} END {print n + 0}\" /tmp/sink) -ge $lines ]' {}"),
        ], skipped=("/var/clicks/2013",))

    def test_readers(self):
        """test_queue_to_nats.py runs queue_to_nats, test_nats_to_pubsub.py nats_to_pubsub."""
        delivered = "curl -o /dev/null --data-binary $'%s\\n' http://127.0.0.1:8080/mput && : > /tmp/sink && until_ '[ $(wc -l < /tmp/sink) -ge %d ]' {}"
        ten = r"\n".join('{"user":{"id":%d}}' % i for i in range(10)).replace('"', r'\x22')
        self.walk("readers.md", [
            *STREAMS, SINK, "ip addr add 10.0.0.1/32 dev lo; ip addr add 10.0.0.2/32 dev lo; sed s/9000/80/ /tmp/sink.py > /tmp/sink80.py; begin sink80 'python3 /tmp/sink80.py'",
            "begin relay 'millrace queue_to_pubsub --stream=clicks'; curl -o /dev/null -d '{}' http://127.0.0.1:8080/put; "
            "poll 'curl http://127.0.0.1:8081/producers?stream=clicks | grep -q mark'; end $pid_relay; QUEUE_ID=$(curl http://127.0.0.1:8080/stats?format=json | grep -o '\"queue_id\":\"[0-9a-f]*' | cut -d'\"' -f4)"], treat=[
            ("curl 'http://127.0.0.1:8081/producer?stream=clicks&producer=2e6da103", "eval \"$(echo {} | sed s/2e6da103f5b70dc38cf9ef95c70ffc5b/$QUEUE_ID/)\""),
            ("millrace queue_to_http --destination='http://127.0.0.1:9000/collect' --batch=500", delivered % (ten, 1)),
            ("millrace queue_to_http --destination=http://sns", "printf 'aws_access_key_id = a\\naws_secret_access_key = b\\n' > keys; chmod 600 keys; "
             "echo 10.0.0.1 sns.eu-west-1.amazonaws.com >> /etc/hosts; curl -o /dev/null -d x http://127.0.0.1:8080/put && : > /tmp/sink && until_ '[ -s /tmp/sink ]' {}"),
            ("millrace queue_to_http", delivered % (ten, 10)),
            ("millrace queue --hand-over", "echo '[pubsub]' > my.conf; eval {} | grep -q 'no follower'"),
            ("millrace queue_exec --queue=mail", "printf '#!/bin/sh\\necho \"$1\" >> /tmp/mails\\n' > send; chmod 755 send; curl -o /dev/null --data-binary $'a\\nb c\\n' 'http://127.0.0.1:8080/mput?queue=mail'; until_ 'grep -qx \"b c\" /tmp/mails && grep -qx a /tmp/mails' {}"),
            ("millrace queue_exec --batch", "printf '#!/bin/sh\\ncat >> /tmp/loaded\\n' > /usr/local/bin/load; chmod 755 /usr/local/bin/load; curl -o /dev/null -d x http://127.0.0.1:8080/put; until_ 'grep -q x /tmp/loaded' {}"),
        ], vary=("500",))

    def test_logs(self):
        self.need("zstd")
        given = [*guide.pipeline(events=0), "for d in 01 02; do millrace gen --events=100 | gzip > clicks-2013-02-$d.ndjson.gz; done; millrace gen --events=100 > clicks.ndjson; gzip -c clicks.ndjson > old.gz",
                 "mkdir -p /var/log/nginx && cp clicks.ndjson /var/log/nginx/clicks.log",
                 "echo '192.0.2.7 - ann [24/Mar/2012:00:00:00 +0000] \"GET /a?b=c HTTP/1.1\" 200 512 \"http://example.org/\" \"curl/7.88\"' > /var/log/nginx/access.log",
                 "printf '192.0.2.7 - - [24/Mar/2012:00:00:00 +0000 \"GET / HTTP/1.1\" 200 512\\n' > refused.log; millrace put --format=combined --rejects=FILE refused.log; [ $? = 65 ] && [ -s FILE ]",
                 "grep -o 'log_format timed .*' %s/docs/guide/logs.md > timed.format" % harness.ROOT,
                 "echo \"192.0.2.7 - - [$(date '+%d/%b/%Y:%H:%M:%S %z')] \\\"GET /a HTTP/1.1\\\" 200 512 \\\"-\\\" \\\"curl/7.88\\\" 0.012\" > /var/log/nginx/timed.log",
                 "printf 't,user,note\\n1332547200,ann,\"a, b\"\\n' > clicks-2013-01.csv; cp clicks-2013-01.csv x.csv; gzip -c x.csv > clicks-2013-02.csv.gz"]
        self.walk("logs.md", given, treat=[
            ("millrace put --follow", "until_ 'curl \"http://127.0.0.1:8080/producer?producer=web1\" | grep -q \"known.:true\"' {}"),
            ("less ", "cat corrected.reasons"),
            ("vi ", "sed -i 's/0000 /0000] /' corrected"),
            ("millrace put --format=combined corrected", "MILLRACE_CONFIG= MILLRACE_PUT_QUEUE_URL=http://127.0.0.1:8080 {raw}"),  # the counters here take other fields
            ("millrace put --format=combined", "until_ 'curl \"http://127.0.0.1:8081/sub?stream=requests&from=earliest&follow=0\" | tee /tmp/follow.out | grep -q time' {}"),
            ("millrace up --config=etc/access.conf", "end $pid_up; begin access {}; poll 'grep -q \"pipeline ready\" /tmp/access.err'; export MILLRACE_CONFIG=etc/access.conf"),
            ("millrace put --log-format", "until_ 'curl \"http://127.0.0.1:8081/sub?stream=requests&from=earliest&follow=0\" | tee /tmp/follow.out | grep duration' {}"),
            ("millrace query quantile", "poll '{raw} | grep -q 0.012' && {raw}"),
        ], skipped=("t,user,note", "log_format"))

    def test_sortdb(self):
        self.walk("sortdb.md", [*guide.pipeline(), "millrace compact 2> /dev/null; end $pid_up; mkdir millrace-data; ln -s /var/lib/millrace/archive millrace-data/archive; printf 'a\\tb\\n' > names.tab"], treat=[
            ("millrace sortdb --archive", "serve {}"),
            ("millrace sortdb --db-file=names.tab", "serve {}"),
            ("millrace sortdb --db-file=names.tab", "end $pid_serve; {raw} poll 'curl localhost:8083/health'"),
        ])

    def test_filter(self):
        self.walk("filter.md", guide.INSTALL, treat=[
            ("millrace spamfilter", "serve {}"),
            ("millrace pubsub", "begin pubsub {}; poll 'curl localhost:8081/health'"),
            ("printf '{\"op\"", "{raw} && poll 'curl localhost:8087/check?url=spam.example | grep true'"),
        ], skipped=("[spamfilter]",))

    def test_lists(self):
        self.walk("lists.md", [*guide.INSTALL, "printf 'eve\\tann\\n' | tee edges.txt > gone.txt"], treat=[
            ("millrace lists", "serve {}' --delay=50ms'"),
            ("millrace compare_lists", "poll 'curl localhost:8094/keys | grep bob'; begin other 'millrace lists --data-dir=other --port=8095'; "
             "poll 'curl localhost:8095/health'; ! {raw}"),
        ], skipped=("[lists]", '{"id":"post3"'))

    def test_metrics(self):
        self.walk("metrics.md", STREAMS, treat=[
            ("millrace scraper --files=targets.json --interval", "serve {}"),
            ("curl -N 'http://127.0.0.1:8081/sub?stream=metrics", "poll 'curl \"http://127.0.0.1:8081/sub?stream=metrics&from=earliest&follow=0\"'; until_ 'grep -q __name__ /tmp/follow.out' {} > /dev/null"),
            ("millrace metricdb", "begin metricdb {}; poll 'curl localhost:8092/health'"),
            ("curl 'http://127.0.0.1:8092/api/v1/query?query=up'", "poll '{raw} | grep __name__'"),
            ("promtool query", "{raw} | grep pubsub"),
        ], skipped=('{"t":1732977600.125', "[scraper]"))

    def test_scrapers(self):
        targets = """echo '[{"targets": ["127.0.0.1:8081"], "labels": {"job": "pubsub"}}]' > targets.json"""
        self.walk("scrapers.md", [*STREAMS, targets], treat=[
            ("millrace scraper --zookeeper=localhost:2181", "if [ -e /usr/share/java/zookeeper.jar ]; then printf '[]' > web.json; cp web.json db.json; begin zookeeper "
             "'exec java -cp /usr/share/java/zookeeper.jar org.apache.zookeeper.server.ZooKeeperServerMain 2181 /tmp/zookeeper'; poll {} && ! end $pid_zookeeper; fi"),
            ("millrace scraper --files=targets.json --shard", "serve {}"),
        ], skipped=("[scraper]",))

    def test_alerts(self):
        rules, mail = (next(b.lines for b in guide.blocks("docs/guide", "alerts.md") if b.lines[0].startswith(first)) for first in ("groups:", "import json"))
        self.walk("alerts.md", [*STREAMS, *("cat > %s <<'END'\n%s\nEND" % (name, "\n".join(lines)) for name, lines in (("rules.yml", rules), ("mail.py", mail)))], treat=[
            ("millrace ruler --files=rules.yml --data-dir=ruler --metricdb-url", "begin ruler {} && poll 'curl http://127.0.0.1:8093/health'"),
            ("millrace ruler --files=rules.yml --data-dir=ruler-am", "serve {}"),
            ("millrace queue_to_http --queue=alertmanager", "serve {}"),
            ("millrace queue_to_http --queue=notices", "serve {}"),
            ("millrace queue_exec --queue=notices", "serve {}"),
        ], skipped=("groups:", "import json", "[ruler]"))

    def test_protocol(self):
        self.walk("protocol.md", guide.pipeline(), skipped=('{"state":', '{"type":'))

    def test_compactor(self):
        """Before 2024-01-01 there are counts of 2012, of one key."""
        self.need("zstd")
        self.walk("compactor.md", [
            *guide.pipeline(), "millrace gen --events=500 --start=1331942400 > 2012.ndjson; sed 's/\"l\": \"[^\"]*\"/\"l\": \"jehiah\"/' 2012.ndjson | millrace put --quiet; millrace status --wait > /dev/null",
            "millrace compact --quiet 2> /dev/null || millrace compact",
            "printf 'u|ann,c3p1:1\\n' > clicks-2011.csv; printf 'u|bob,c3p1:2\\n' | zstd -q > clicks-2012.csv.zst; printf 'u|eve,c3p1:3\\n' | gzip > old.gz",
            "ln -s /var/lib/millrace/archive archive && cp archive/current/shard-0-of-1.csv /tmp/all.csv"], treat=[
            ("millrace compactor --archive=archive --aggregator-url=none", "(mkdir new && cd new && cp ../clicks-2011.csv . && {raw} && grep -q ann archive/current/*.csv)"),
            ("millrace compact --config clicks.conf --forget-sub='v.u", "printf 'v.u|ann.c3p,=1\\n' | millrace compact --config clicks.conf --import - && {raw}"),
            ("millrace compact --config clicks.conf --replace=DIR", "millrace compact && millrace recount && eval \"$(echo {} | sed s,DIR,/var/lib/millrace/recount,)\"; [ $? = 78 ]"),
            ("grep ", "cp /tmp/all.csv archive/current/shard-0-of-1.csv; {raw}"),
        ], skipped=("[compactor]", "15 3 ", "systemctl"))

    def imported(self):
        """A pipeline with the counters of both guides."""
        counters = r"[millrace]\ndata_dir = x\n[pubsub]\nstreams = clicks\n[input]\ntime = t\n[total site]\nkey = host(url)\n[total page]\nkey = path(url)\n" \
                   r"[subtotal p.site]\nkey = path(url)\nlabel = page\n"
        return [*guide.pipeline("<(printf '%s')" % counters, events=0), "cp clicks.conf views.conf"]

    def test_import(self):
        self.walk("import.md", [*self.imported(), r"printf 'date,key,count\n2024-01-30,example.org,17\n2024-01-31,example.org,23\n' > counts.csv"], treat=[
            ("curl 'http://127.0.0.1:8088/v1/series?site=example.org", "poll 'curl http://127.0.0.1:8088/v1/freshness | grep complete_until.:[0-9]' && {raw}"),
        ], skipped=("date,key,count", "[total site]"))

    def test_from_analytics(self):
        self.walk("from-analytics.md", [
            *self.imported(),
            r"printf '2Path,Title,Date\n/,Home,2024-01-31T01:05:07Z\n' | gzip > goatcounter-export.csv.gz",
            r"""printf '"date","hostname","page","visits","visitors","pageviews"\n"2023-02-09","example.org","/a",8,8,9\n' > imported_pages_20230209_20240123.csv""",
            r"printf '# ---\n\nDate,Page path and screen class,Views\n,,16,Grand total\n20240131,/cart,7\n' > download.csv"], treat=[
            ("curl 'https://matomo.example", r"printf 'date,label,nb_visits,nb_hits\n2024-01-30,/a,8,9\n' > pages.csv"),
            ("millrace compact --config views.conf --import --format=csv --counter=page --skip-bad", "{raw} 2> skipped; cat skipped; grep rows=1 skipped"),
        ], skipped=("[total site]", "2Path,", '"date","hostname"', "# ---", "Date,Page"))

    def test_privacy(self):
        """A queue of another host is the pipeline's own here."""
        self.walk("privacy.md", [
            *guide.pipeline(), "millrace gen --events=500 --seed=7 --start=$(($(date +%s) - 90000)) --span=1d > more.ndjson; sed 's/\"l\": *\"[^\"]*\"/\"l\":\"jehiah\"/' more.ndjson | millrace put --quiet; "
            "millrace status --wait > /dev/null; millrace compact 2> /dev/null; grep -rq jehiah /var/lib/millrace"], treat=[
            ("millrace forget --config clicks.conf --field l --value jehiah", "{raw}"),
            ("millrace forget --config clicks.conf --field l --value jehiah", "{raw} && ! grep -r jehiah /var/lib/millrace"),
        ], skipped=("[door]",), loose=True)

    def test_api(self):
        """Answers have the members of the guide's; numbers depend on the time. While the archive is away the compactor stands still: it would
        make another one in place of the empty generation 0."""
        event = '{\\"t\\":%s,\\"l\\":\\"%s\\",\\"c\\":\\"%s\\",\\"u\\":\\"http://%s/\\",\\"v\\":\\"v%d\\"}'
        values = ("[total revenue]\\nkey = product\\nvalue = price\\nscale = 2\\nunit = EUR\\n[subtotal country.revenue]\\nkey = c\\n"
                  "[total paid]\\nkey = product\\nhaving = price\\n[subtotal country.paid]\\nkey = c\\n"
                  "[total page]\\nkey = path(p)\\n[subtotal ms.page]\\nkey = bucket(ms)\\n"
                  "[total buys]\\nkey = l\\nhaving = price\\n[subtotal ms.buys]\\nkey = bucket(ms)\\n")
        counters = "<(cat etc/clicks.conf; printf '[unique v.%%s]\\nmember = v\\nlabel = visitor\\n' u d; printf '%s')" % values
        kinds = [("bitly", "US", "www.facebook.com")] * 12 + [("bitly", "US", "www.nasa.gov")] * 2 + [("bitly", "JP", "www.nasa.gov")] * 3 + [
            ("bitly", c, "www.noaa.gov") for c in ("DE", "ES", "FR", "GB")] + [("nasa", "US", "www.nasa.gov")] * 2 + [("nasa", "JP", "example.org")] * 10
        post = ["for t in 1332637200 $(date +%s); do printf '%s\\n' " + " ".join('"%s"' % (event % ("$t", *k, i)) for i, k in enumerate(kinds)) + "; done > clicks.ndjson",
                "now=$(date +%s); for price in 12.50 1000; do for ms in 125 1050; do echo '{\"t\":'$now',\"l\":\"bitly\",\"c\":\"JP\",\"product\":\"hat\",\"price\":\"'$price'\",\"p\":\"/cart\",\"ms\":'$ms'}'; done; done >> clicks.ndjson",
                "millrace put --quiet clicks.ndjson; millrace status --wait > /dev/null; poll 'curl http://127.0.0.1:8088/v1/freshness | grep complete_age.:[0-9]'"]
        self.walk("api.md", [*guide.pipeline(counters, events=0), *post], treat=[
            ("curl --data-binary @clicks.ndjson", "head -2 clicks.ndjson > two && mv two clicks.ndjson && {raw}"),
            ("curl 'http://127.0.0.1:8088/v1/series?user=bitly&period=7d&partial=allow'",
             "poll 'kill -STOP $(pidof compactor)'; mv /var/lib/millrace/archive/current /tmp/current; poll 'kill -9 $(pidof api)'; poll 'curl http://127.0.0.1:8088/health | grep \"open the archive\"'; "
             "poll {}' | grep missing'; "
             "{raw}; mv /tmp/current /var/lib/millrace/archive/current; kill -CONT $(pidof compactor); poll '! curl http://127.0.0.1:8088/health | grep warning'"),
            ("curl -N 'http://127.0.0.1:8088/v1/live/rate", "until_ 'grep -c ^data: /tmp/follow.out | grep -q [2-9]' {}"),
            ("curl -N 'http://127.0.0.1:8088/v1/changes", "until_ 'grep -c ^data: /tmp/follow.out | grep -q [2-9]' {}"),
            ("curl 'http://127.0.0.1:8088/v1/breakdown?feed=&by=page&where=country:JP", "{raw}; [ $? = 22 ]"),
        ], skipped=("<img", "[unique v.u]", "add to the configuration"), loose=True, vary=('"274d98352cef0ac2"', '"f7375bb49b7c0e9a"', '"3-4a50"', '"clicks/web2"', '"web2"', "/data/archive", "it is being opened"))

    def test_millrace(self):
        self.need("rsync")
        stop = "end $pid_up; "
        self.walk("millrace.md", [*guide.pipeline(events=0), stop + "millrace gen --events=2000 --start=$(($(date +%s) - 90000)) --span=1d > clicks.ndjson; "
                                  "sed -i 's,millrace-data,/var/lib/millrace,' etc/clicks.conf; "
                                  "printf '[unique v.u]\\nmember = a\\nlabel = visitor\\n' >> etc/clicks.conf"], treat=[
            ("millrace up", "begin up {}; poll 'grep -q \"pipeline ready\" /tmp/up.err'"),
            ("millrace tail --config etc/clicks.conf --if 'c = US'", "until_ 'millrace put --quiet clicks.ndjson; grep -q US /tmp/follow.out' {} > /dev/null"),
            ("millrace top", "millrace top --config etc/clicks.conf --once --window 2s --by l & {raw} --once --window 2s & sleep 0.3; millrace put --quiet clicks.ndjson; wait $!"),
            ("millrace distribute", "eval \"$(echo {} | sed 's,east west.*,--config etc/clicks.conf --sortdb-url=none /tmp/copy,')\""),
            ("millrace bench", "eval \"$(echo {} | sed s/100000/10000/)\""),
            ("millrace journal check DIR", "eval \"$(echo {} | sed s,DIR,/var/lib/millrace/pubsub/streams/clicks,)\""),
            ("millrace journal dump DIR", "eval \"$(echo {} | sed s,DIR,/var/lib/millrace/pubsub/streams/clicks,)\" | head -100"),
            ("millrace journal repair DIR", "end $pid_up; eval \"$(echo {} | sed s,DIR,/var/lib/millrace/pubsub/streams/clicks,)\""),
        ], skipped=("millrace: down", "daemon  "), loose=True)

    def test_counting(self):
        """test_recount.py runs the steps of a recount."""
        self.need("zstd")
        files = "millrace ps_to_file --stream=clicks --filename-format=/var/clicks/%Y/%m/%S.ndjson --compress=zstd"
        self.walk("counting.md", [
            *guide.pipeline(), "mkdir /var/clicks; mount -t tmpfs tmpfs /var/clicks; begin files '%s'; poll 'ls /var/clicks/*/*/*.zst'; end $pid_files" % files,
            "printf '%s\\n' '{\"t\":\"noon\",\"l\":\"bitly\"}' | millrace put --quiet; millrace status --wait > /dev/null",
            "for d in 01 02; do millrace gen --events=100 --seed=$d | gzip > 2012-03-$d.ndjson.gz; done"], treat=[
            ("millrace rejects --config clicks.conf --reason", "poll {}' | grep noon'; {raw}"),
            ("millrace producers", "eval \"$(echo {} | sed s/NAME/$(uname -n).default/)\""),
            ("millrace aggregator", "end $pid_up; {raw} && up"),
            ("millrace recount", "millrace compact && {raw} 2> /tmp/err; status=$?; cat /tmp/err; [ $status = 0 ]"),
        ], skipped=("[input]", "[total page]", "[total revenue]"))

    def test_backup(self):
        self.need("rsync")
        queue = "$(curl http://127.0.0.1:8080/stats?format=json | grep -o '\"queue_id\":\"[0-9a-f]*' | cut -d'\"' -f4)"
        self.walk("backup.md", [*guide.pipeline(), "mkdir -p /backup /newhost/backup"], treat=[
            ("millrace restore /backup/2012-11-19", "end $pid_up; rm -r /var/lib/millrace; {raw}"),
            ("millrace up", "up && [ \"$(curl 'http://127.0.0.1:8081/sub?stream=clicks&from=earliest&follow=0' | wc -l)\" = 2000 ]"),
            ("systemctl stop millrace", "end $pid_up"),
            ("rsync", "eval \"$(echo {} | sed s/NEWHOST:/\\\\/newhost/)\""),
            ("millrace restore /backup/last", "rm -r /var/lib/millrace; {raw} && up"),
            ("millrace producers --stream=clicks --set=QUEUEID --mark=ID", "QUEUEID=%s; eval \"$(echo {} | sed \"s/QUEUEID/$QUEUEID/; s/=ID/=3000/\")\"" % queue),
            ("millrace producers --queue=default --set=NAME", "curl -d x 'http://127.0.0.1:8080/put?producer=app7&mark=0&next=100'; eval \"$(echo {} | sed 's/NAME/app7/; s/=ID/=150/')\""),
            ("millrace producers --stream=clicks --set=QUEUEID", "eval \"$(echo {} | sed \"s/QUEUEID/$QUEUEID/\")\""),
            ("millrace simplequeue --restored", "end $pid_up; cp -a /var/lib/millrace/simplequeue COPY; {raw}"),
            ("millrace simplequeue --data-dir=COPY", "serve {}; end $pid_serve; unset pid_serve; up"),
        ])

    def test_damage(self):
        self.walk("damage.md", [*guide.pipeline(), "millrace compact && millrace put --quiet clicks.ndjson && millrace status --wait > /dev/null",
                                    "curl -o /dev/null -X POST http://127.0.0.1:8082/seal?slice=2; mkdir BACKUP; cp -a /var/lib/millrace/aggregator BACKUP/; end $pid_up; ls -R BACKUP",
                                    "serve 'millrace simplequeue --data-dir=DIR --segment-bytes=64K'; for i in $(seq 30); do head -c 9000 /dev/zero | tr '\\0' $((i % 10)) | "
                                    "curl -o /dev/null --data-binary @- http://127.0.0.1:8080/put?queue=NAME; done; end $pid_serve; unset pid_serve; ls -R DIR",
                                    "first=$(ls DIR/queues/NAME/*.seg | sed -n 2p); printf X | dd of=$first bs=1 seek=30000 conv=notrunc status=none"], treat=[
            ("millrace journal check", "{raw}; [ $? = 65 ] && [ $(millrace simplequeue --data-dir=DIR --port=0; echo $?) = 78 ]"),
            ("cp DIR/queues", "eval \"$(echo {} | sed s/NAME~damaged-TIME/NAME~damaged-*/)\""),
            ("rm OTHER", "rm OTHER/queues/rescued/$(basename $first)"),
            ("millrace simplequeue --port=8090", "serve {} && curl http://127.0.0.1:8090/stats?queue=rescued && end $pid_serve"),
            ("cp BACKUP", "DIR=/var/lib/millrace; eval \"$(echo {} | sed \"s,0000000042,0000000002,; s,DIR,$DIR,\")\" && up && curl http://127.0.0.1:8082/health"),
        ])

    def test_scaling(self):
        """Each host has an address, a configuration, data and services of its own. All cells lose their disks and are restored."""
        self.need("nats-server", "haproxy")
        hosts = "nats1=1 nats2=2 nats3=3 app1=11 app2=12 cell1=21 cell2=22 cell3=23 cell4=24 api1=31 api2=32 balancer=41"
        # on HOST COMMAND
        on = r"""on() {
            local d=/tmp/hosts/$1
            ip netns exec $1 bash -c "for at in $d/dirs/*; do mount --bind \$at /\$(basename \$at | tr + /); done; cd $PWD; $2"
        }; export -f on"""
        network = r"""(ip link add bridge type bridge && ip address add 10.0.0.250/24 dev bridge && ip link set bridge up && for host in %s; do
            name=${host%%=*} d=/tmp/hosts/${host%%=*}/dirs
            ip netns add $name && ip link add to-$name type veth peer name eth0 netns $name && ip link set to-$name master bridge up &&
            ip -n $name address add 10.0.0.${host#*=}/24 dev eth0 && ip -n $name link set eth0 up && ip -n $name link set lo up &&
            mkdir -p $d/{run,backup,etc+millrace,var+lib/{millrace,nats,haproxy}} && chown millrace: $d/{backup,var+lib/millrace} || exit
        done)""" % hosts
        nats = "begin nats%d 'on nats%d \"exec nats-server -c /etc/nats-server.conf\"'; poll 'curl http://10.0.0.%d:8222/varz'"
        as_first = "on %s 'cp -a /tmp/hosts/%s/dirs/etc+millrace/. /etc/millrace/ && '{}' && sudo systemctl restart millrace'"
        each_cell = "(for cell in cell1 cell2 cell3; do on $cell %s || exit; done)"
        post, total = " && on app1 \"$post\" && on app2 \"$post\"", " && poll \"curl 'http://10.0.0.41:8088/v1/breakdown?feed=all&by=country&period=24h' | grep total.:%d,\""
        self.walk("scaling.md", [
            *guide.INSTALL, "useradd --system --no-create-home millrace; mkdir -p /var/lib/millrace /var/lib/nats /var/log/millrace /backup", on, network], treat=[
            ("sed -i 's/10", "sed -i 's/10\\.0\\.0\\./10.0.0./g' *"),
            ("sudo apt install", "true"),
            ("sudo systemctl restart nats-server", nats % (1, 1, 1)),
            ("sudo sed -i '/this host/{s/10\\.0\\.0\\.1/", "{raw} && " + nats % (2, 2, 2) +
             " && sed -i '/this host/{s/10\\.0\\.0\\.2/10.0.0.3/; s/nats2/nats3/}' /etc/nats-server.conf && " + nats % (3, 3, 3)),
            ("curl http://10.0.0.1:8222", "poll {} && {raw}"),
            ("sudo install -g millrace -m 640 nats.password /etc", "on app1 {}"),
            ("sudo install -m 644 queue.conf", "on app1 {}"),
            ("sudo systemctl restart millrace", "on app1 {}"),
            ("sudo sed -i '/this host/s/10\\.0\\.0\\.11", as_first % ("app2", "app1")),
            ("curl -d", "post={}" + post),
            ("sudo -u millrace millrace status --wait", "on app1 {} && on app2 {}"),
            ("sudo install -g millrace -m 640 nats.password cells", "on cell1 {}"),
            ("cat cell.conf", "on cell1 {}"),
            ("sudo systemctl restart millrace", "on cell1 {}"),
            ("sudo sed -i '/this host/{s/10\\.0\\.0\\.21", as_first % ("cell2", "cell1") + " && on cell3 'cp -a /tmp/hosts/cell1/dirs/etc+millrace/. /etc/millrace/ && "
             "sed -i \"/this host/{s/10[.]0[.]0[.]21/10.0.0.23/; s/0-20/43-63/}\" /etc/millrace/millrace.conf && sudo systemctl restart millrace'"),
            ("sudo -u millrace millrace status --wait", each_cell % "{}"),
            ("sudo install -g millrace -m 640 cells.token", "on api1 {}"),
            ("cat api.conf", "on api1 {}"),
            ("sudo systemctl restart millrace", "on api1 {}"),
            ("sudo sed -i '/this host/s/10\\.0\\.0\\.31", as_first % ("api2", "api1")),
            ("sudo systemctl restart haproxy", "begin haproxy 'on balancer \"mkdir /run/haproxy; exec haproxy -db -f /etc/haproxy/haproxy.cfg\"'"),
            ("curl 'http://10.0.0.41:8088/v1/breakdown", "true" + total % 2 + " && {raw}"),
            ("sudo -u millrace millrace backup", each_cell % "{}" + post + total % 4),
            ("sudo millrace restore", each_cell % "'sudo systemctl stop millrace && rm -r /var/lib/millrace/* && '{}"),
            ("sudo chown", each_cell % "{}"),
            ("sudo systemctl start millrace", each_cell % "{}" + post + total % 6),
            ("sudo -u millrace millrace cell list", "on api1 {}"),
            ("sudo -u millrace millrace cell move", "on api1 '{raw} --free-after=1s'" + post + total % 8),
            ("sudo sed -i '/this host/{s/10\\.0\\.0\\.21", as_first % ("cell4", "cell1")),
            ("sed -n '/^\\[cell", "on api1 {} && on api2 {}"),
            ("sudo systemctl reload millrace", "on api1 {} && on api2 {}"),
            ("sudo -u millrace millrace cell move", "on api1 '{raw} --free-after=1s'" + post + total % 10),
        ])

    def test_from_simplehttp(self):
        """Each program of the command lines works on the stream of the first."""
        self.walk("from-simplehttp.md", [*guide.INSTALL, "export MILLRACE_CONFIG=; printf 'a\\tb\\n' > users.tab; mkdir -p /var/log"], treat=[
            ("millrace pubsub --port=8080", "begin pubsub {}; poll 'curl http://127.0.0.1:8080/health'; curl -d '{\"a\":1,\"ip\":\"192.0.2.1\"}' http://127.0.0.1:8080/pub"),
            ("millrace simplequeue", "begin queue {}; poll 'curl http://127.0.0.1:8081/health'"),
            ("millrace ps_to_file", "until_ 'ls -A /var/log | grep clicks || ls -A /var/log | grep ps_to_file' {}"),
            ("millrace ps_to_http", "until_ 'curl http://127.0.0.1:8081/dump | grep 192.0.2.1' {}"),
            ("millrace pubsub_filtered", "until_ 'timeout 2 curl -N \"http://127.0.0.1:8082/sub?multipart=0&from=earliest\" | grep h:' {}"),
            ("millrace sortdb", "until_ 'curl http://127.0.0.1:8083/get?key=a | grep b' {}"),
        ])


if __name__ == "__main__":
    harness.main()
