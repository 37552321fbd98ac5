"""The documents' links, maps, routes, settings and manual pages, beside what is there."""
# label: surface
# full: MILLRACE_ROUNDS=2
import functools
import glob
import os
import re
import subprocess

import harness
from harness import ROOT, MillraceTest, Pipeline, pipeline_config, program, read_file

DAEMONS = ("simplequeue", "pubsub", "aggregator", "sortdb", "api")
TOOLS = ("init", "up", "put", "queue", "query", "status", "doctor", "compact", "distribute", "recount", "journal", "producers", "rejects", "forget", "grep", "slice", "sql", "tail", "top",
         "backup", "restore", "cell", "dynamo", "compare_lists")
ROOMS = ("simplequeue", "pubsub", "readers", "streams", "aggregator", "compactor", "sortdb", "spamfilter", "lists", "metricdb", "scraper", "ruler", "api", "backup", "tools")
# The aggregator's and sortdb's routes are those of the read protocol, and their own.
SECTIONS = {"aggregator": ("The read protocol: ", "Counts by minute", "Sealing and clearing"), "sortdb": ("The read protocol: ", "sortdb")}
# Options of other programs, and of `millrace query`, which passes on what it does not know itself.
NOT_OURS = {"data-binary", "data-urlencode", "ascii", "req", "dial", "data", "system", "now", "bench", "table", "no-x", "cflags",
            "libs", "create", "purge", "channel", "lookupd-http-address", "max-in-flight", "mem-queue-size", "msg-timeout", "post", "topic", "filter-require", "filter-exclude",
            "expected-key", "expected-value", "expected-value-regex", "preset", "target", "build", "test-dir", "output-on-failure"}
PARAMETERS = ("unit", "units", "by", "limit", "user", "feed", "site", "path", "name", "event", "route", "customer", "product", "revenue")
REFERENCE_WORDS_MAX = 40000
BUILT_IN_ROUTES = {"/ping", "/health", "/stats", "/metrics", "/"}


def text_of(*path):
    return read_file(os.path.join(ROOT, *path)).decode()


def documents():
    return [os.path.relpath(path, ROOT) for path in sorted(
        glob.glob(os.path.join(ROOT, "*.md")) + glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True))]


def section(text, title):
    """A document's text from the heading that begins with `title` to the next of its level."""
    return re.search(r"^(#+) %s.*?(?=^\1 |\Z)" % re.escape(title), text, re.M | re.S).group(0)


def anchors(text):
    """The names that headings have for links."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}


def programs():
    """Every program in libexec, and every subcommand that is built into `millrace`."""
    return sorted(os.listdir(os.path.dirname(program("simplequeue")))) + list(TOOLS)


@functools.cache
def help_of(name):
    argv = [program("millrace"), name] if name in TOOLS else [program(name)]
    return subprocess.run([*argv, "--help"], capture_output=True, check=True, timeout=harness.PATIENCE).stdout.decode()


def options_of(name):
    return set(re.findall(r"--([a-z][a-z0-9-]*)", help_of(name)))


class LengthTest(MillraceTest):
    def test_the_reference_has_at_most_40000_words(self):
        """The pages under "Reference" in docs/README.md."""
        pages = re.findall(r"\]\((guide/[\w-]+\.md)\)", section(text_of("docs/README.md"), "Reference"))
        self.assertGreater(len(pages), 15)
        words = {page: len(text_of("docs", page).split()) for page in pages}
        self.assertLessEqual(sum(words.values()), REFERENCE_WORDS_MAX, words)


class UnitsTest(MillraceTest):
    def refusal(self, name, **values):
        argv = [program("millrace"), name] if name in TOOLS else [program(name)]
        return subprocess.run([*argv, "--check-config", *("--%s=%s" % given for given in values.items())], capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=harness.LONG).stderr.decode()

    def test_a_bare_number_is_what_the_help_says(self):
        """The largest that is allowed is taken as a bare number of that unit, and one more is not."""
        ms = {"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "d": 86400000}
        checked, untold = 0, []
        for name in programs():
            text = re.sub(r"\n {20,}", " ", help_of(name))
            bare, with_unit = {}, {}
            for option, rest in re.findall(r"^ .*?--([a-z-]+)\[?=TIME\]? (.*)$", text, re.M):
                told = re.search(r"\.\.(\d+)([a-z]+); a bare number is (milli|)seconds\)", rest)
                if not told:
                    untold.append((name, option, rest))
                    continue
                bare[option] = int(told[1]) * ms[told[2]] // (1 if told[3] else 1000)
                with_unit[option] = told[1] + told[2]
                for value in (bare[option] + 1, "%d%s" % (int(told[1]) + 1, told[2]))[:1 if harness.rounds(1) == 1 else 2]:
                    said = self.refusal(name, **{option: value})
                    self.assertRegex(said, r"%s.*is out of bounds" % option.replace("-", "[-_]"), (name, option, value))
                checked += 1
            for values in (bare, with_unit) if bare else ():  # a refusal would name one of them
                self.assertNotIn("is out of bounds", self.refusal(name, **values), (name, values))
        self.assertEqual(untold, [])
        self.assertGreater(checked, 40)


class WidthTest(MillraceTest):
    def test_descriptions_of_options_fit_100_columns(self):
        for name in programs():
            for line in help_of(name).partition("\nEvery option")[0].splitlines():
                self.assertLessEqual(len(line) if line.startswith(" " * 30) else 0, 100, (name, line))


class LinksTest(MillraceTest):
    def test_every_link_leads_somewhere(self):
        wrong = []
        for document in documents():
            for link in re.findall(r"\]\(([^)\s]+)\)", text_of(document)):
                path, _, anchor = link.partition("#")
                target = os.path.normpath(os.path.join(os.path.dirname(document), path)) if path else document
                if re.match(r"https?:", link):
                    continue
                if not os.path.exists(os.path.join(ROOT, target)):
                    wrong.append((document, link))
                elif anchor and anchor not in anchors(text_of(target)):
                    wrong.append((document, link))
        self.assertEqual(wrong, [])

    def test_the_indexes_name_every_document(self):
        """docs/README.md links all of them, docs/internals/README.md those beside it; README.md leads to both."""
        named = {os.path.normpath(os.path.join(os.path.dirname(index), link))
                 for index in ("README.md", "docs/README.md", "docs/internals/README.md")
                 for link in re.findall(r"\]\(([^)#]+\.md)\)", text_of(index))}
        self.assertEqual(set(documents()) - named, {"SECURITY.md"})
        self.assertIn("](docs/README.md)", text_of("README.md"))

    def test_files_and_tests_that_documents_name_are_there(self):
        """tests/daemons/test_x.py, scripts/x, docs/x.md ...; and `test_what_it_shows`, the name of one test."""
        tests = "".join(text_of(path) for path in glob.glob(os.path.join(ROOT, "tests", "**", "test_*"), recursive=True) if path.endswith((".c", ".py")))
        gone = []
        for document in documents():
            text = text_of(document)
            for path in re.findall(r"(?<![\w./])((?:tests|scripts|docs|lib|etc)/[\w./-]*\w)", text):
                if not glob.glob(os.path.join(ROOT, path + "*" if path.endswith("_") else path)):
                    gone.append((document, path))
            gone += [(document, name) for name in re.findall(r"`(test_\w+)`", text)
                     if not re.search(r"(def|void) %s\(" % name, tests)]
        self.assertEqual(gone, [])


class NamesTest(MillraceTest):
    def test_functions_that_the_internals_name_exist(self):
        """Also those in the columns of drawn walks: a name with an underscore is the code's."""
        sources = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, check=True).stdout.decode().splitlines()
        code = " ".join(text_of(f) for f in sources if re.search(r"\.(c|h|cc|py|cmake|txt|sh)$|^scripts/", f))
        known = set(re.findall(r"\w+", code)) | {os.path.splitext(os.path.basename(f))[0] for f in sources}
        for path in [f for f in sources if f.startswith("docs/internals/")]:
            named = re.findall(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b", text_of(path))
            gone = [name for name in set(named) - known if not re.search(r"\b" + name, code)]
            self.assertEqual(gone, [], path)


class MapTest(MillraceTest):
    """ARCHITECTURE.md is a map: what it shows is there, and what is there it shows."""

    def test_every_folder_of_sources_is_a_room(self):
        folders = {os.path.relpath(os.path.dirname(path), ROOT) for part in ("lib", "bench", *ROOMS)
                   for path in glob.glob(os.path.join(ROOT, part, "**", "*.[ch]"), recursive=True)}
        rows = dict(re.findall(r"^\| `([\w/]+)` \|.*\| `(\w+\.h)` \|$", section(text_of("ARCHITECTURE.md"), "The rooms"), re.M))
        rooms = set(re.findall(r"^\| `([\w/]+)` \|", section(text_of("ARCHITECTURE.md"), "The rooms"), re.M))
        self.assertEqual(folders, rooms - {"tests"})
        self.assertEqual([(room, header) for room, header in rows.items()
                          if not os.path.exists(os.path.join(ROOT, room, header))], [])


class RoutesTest(MillraceTest):
    def test_protocol_md_says_every_route_and_no_other(self):
        """The tables of docs/guide/protocol.md and docs/formats/read-protocol.md, beside what `GET /` of each running daemon lists."""
        config = self.write("pipeline.conf", pipeline_config(self.path("data")))
        pipeline = Pipeline(self, config, self.path("data")).wait_ready()
        alone = self.start("spamfilter", "--data-dir=marks")
        scraper = self.start("scraper", "--files=none", "--pubsub-url=" + pipeline.daemon_url("pubsub"))
        metricdb = self.start("metricdb", "--data-dir=metrics", "--pubsub-url=" + pipeline.daemon_url("pubsub"))
        ruler = self.start("ruler", "--files=" + self.write("rules.yml", "groups: []"), "--data-dir=ruler")
        lists = self.start("lists", "--data-dir=lists")
        apart = {"spamfilter": alone, "lists": lists, "scraper": scraper, "metricdb": metricdb, "ruler": ruler}
        for daemon in (*DAEMONS, *apart):
            both = text_of("docs/guide/protocol.md") + text_of("docs/formats/read-protocol.md")
            text = "".join(section(both, title) for title in SECTIONS.get(daemon, (daemon,)))
            told = set(re.findall(r"`(?:GET|POST|DELETE) (/[\w/.*]*)", text)) - BUILT_IN_ROUTES
            listed = set(re.findall(r"^(/\S*)", (apart[daemon].get("/") if daemon in apart else pipeline.ask(daemon, "GET", "/")).text, re.M)) - BUILT_IN_ROUTES
            self.assertEqual(told, listed, daemon)


class SettingsTest(MillraceTest):
    def test_ports_in_protocol_md(self):
        for name in (*DAEMONS, "spamfilter", "scraper", "metricdb", "ruler"):
            port = re.search(r"--port=.*\(default (\d+);", help_of(name)).group(1)
            self.assertRegex(text_of("docs/guide/protocol.md") + text_of("docs/formats/read-protocol.md"), r"(?m)^## .*\b%s \(%s\)" % (name, port))

    def test_options_in_documents_exist(self):
        """A renamed option must not live on in a document."""
        known = set().union(*(options_of(name) for name in programs())) | NOT_OURS | set(PARAMETERS)
        wrong = []
        for document in (*documents(), "docs/man/millrace.1", "etc/systemd/millrace.service.in",
                         "etc/systemd/millrace-compact.service.in"):
            text = text_of(document).replace("\\-", "-")
            named = {option.replace("_", "-") for option in re.findall(r"(?<![\w-])--([a-z][a-z0-9_-]+)", text)}
            wrong += [(document, option) for option in sorted(named - known)]
        self.assertEqual(wrong, [])

    def test_every_program_has_a_manual_page_with_every_option(self):
        for name in programs():
            page = text_of(harness.BUILD, "share/man/man1/millrace-%s.1" % name).replace("\\-", "-")
            self.assertEqual(options_of(name) - set(re.findall(r"--([a-z][a-z0-9-]*)", page)), set(), name)
            self.assertIn("millrace-%s - " % name, page)

    def test_the_other_name_of_put_has_its_page(self):
        self.assertEqual(text_of(harness.BUILD, "share/man/man1/millrace-file_to_queue.1"), ".so man1/millrace-put.1\n")
        self.assertIn(".BR millrace\\-file_to_queue (1)", text_of("docs/man/millrace.1"))

    def test_the_command_knows_every_program(self):
        """`millrace help` and millrace(1) list what there is to run."""
        listed = subprocess.run([program("millrace"), "help"], capture_output=True, check=True).stdout.decode()
        for name in programs():
            self.assertIn(name, listed)
            self.assertIn(name, text_of("docs/man/millrace.1"))

    def test_help_that_messages_name_exists(self):
        """Sources, samples and the page name `millrace help TOPIC, "SECTION"`: the topic exists, and its guide has the section."""
        paths = [path for room in (*ROOMS, "lib", "etc", "web/src") for path in glob.glob(os.path.join(ROOT, room, "**", "*"), recursive=True)
                 if path.endswith((".c", ".h", ".js", ".conf", ".in"))]
        named = set()
        for path in paths:
            text = re.sub(r'\n; ?|\n# ?|"\s*(?:\\\n)?\s*"', lambda gap: "" if gap[0][0] == '"' else " ", text_of(path))
            named |= set(re.findall(r'millrace help ([a-z][a-z-]*)(?:`?, \\"([^"\\]+))?', text))
        self.assertGreater(len(named), 10)
        for topic, title in sorted(named):
            done = subprocess.run([program("millrace"), "help", topic], capture_output=True, timeout=harness.PATIENCE)
            self.assertEqual(done.returncode, 0, topic)
            if title:
                self.assertIn("# %s\n" % title, done.stdout.decode(), (topic, title))


if __name__ == "__main__":
    harness.main()
