// Pipeline: each daemon's state and numbers, and above them what is wrong and what to do.

import { cellsPanel } from "./cells.js";
import { sparkline } from "./chart.js";
import { h } from "./dom.js";
import { bytes, clock, count, duration, moment } from "./format.js";
import { watchOld } from "./live_update.js";
import { historySpan, nameOf, rateOf, ratesOf, statsOf, sum, watchPipeline } from "./pipeline_data.js";
import { diskOf, problems } from "./problems.js";
import { share } from "./share.js";
import { dataTable } from "./table.js";

const FRESH = 2000; // ms

const ROLES = {
  simplequeue: "takes events from apps", queue_to_pubsub: "publishes the queue's events",
  queue_to_nats: "publishes the queue's events to JetStream", nats_to_pubsub: "copies the events of queues from JetStream", pubsub: "stores the streams",
  aggregator: "counts the streams", compactor: "merges the counts into the archive", sortdb: "serves the archive", spamfilter: "marks bad links", lists: "keeps the latest items",
  metricdb: "stores the samples of metrics", scraper: "scrapes the metrics of targets", ruler: "evaluates rules, and sends alerts", api: "answers queries and this page",
};

const NUMBERS = {
  simplequeue: (p, s, rate, isOne) => [isOne && ["Puts", rate("put")], ["Waiting", count(isOne ? p.totals.queued : sum(s.queues, "depth"))],
    ["Buried", count(sum(s.queues, "buried"))], disk(p, s)],
  queue_to_pubsub: (p, s, rate) => [["Delivered", rate("delivered")], ["In all", count(s.messages_delivered_total)], ["Failed", count(s.deliveries_failed_total ?? 0)]],
  queue_to_nats: (p, s, rate) => [["Published", rate("delivered")], ["In all", count(s.messages_delivered_total)],
    ["Not yet settled", count(s.unsettled_messages)], ["Failed", count(s.deliveries_failed_total ?? 0)]],
  nats_to_pubsub: (p, s) => [["Stored in all", count(s.lines_stored_total)], ["Behind", count(s.lag_messages)], ["Lag", duration(s.lag_seconds)],
    ["Queues that wait", count(s.waiting_queues)]],
  pubsub: (p, s, rate) => [["Published", rate("published")], ["Subscribers", count(Object.values(s.streams ?? {}).reduce((n, t) => n + t.subscribers, 0))],
    ["On disk", bytes(Object.values(s.streams ?? {}).reduce((n, t) => n + t.disk_bytes, 0))], disk(p, s)],
  aggregator: (p, s, rate) => [["Counted", rate("counted")], ["Behind", bytes(s.lag_bytes)], ["Rejected", count(s.lines_rejected_total)],
    ["Complete until", clock(s.complete_until)], ["Resolution", s.resolution ?? "1h"], disk(p, s)],
  sortdb: (p, s, rate) => [["Reads", rate("reads")], ["Records", count(s.records)], ["Size", bytes(s.bytes)]],
  spamfilter: (p, s, rate) => [["Checks", rate("checks")], ["Marked", count(s.marked_total)], ["Marks", count(s.elements)],
    s.lag_bytes === undefined ? null : ["Behind", bytes(s.lag_bytes)], disk(p, s)],
  metricdb: (p, s) => [["Samples in all", count(s.samples_total)], ["Series in memory", count(s.series)], ["Behind", duration(s.lag_seconds)], disk(p, s)],
  scraper: (p, s) => [["Targets up", `${count(s.targets_up)} of ${count(s.targets)}`], ["Scrapes in all", count(s.scrapes_total)], ["Failed", count(s.scrapes_failed_total)]],
  ruler: (p, s) => [["Rules", count(s.rules)], ["Failing", count(s.rules_failing)], ["Alerts that fire", count(s.alerts_firing)], ["Pending", count(s.alerts_pending)]],
  lists: (p, s) => [["Lists", count(s.saved_keys)], ["Not saved yet", count(s.unsaved_keys)], s.lag_bytes === undefined ? null : ["Behind", bytes(s.lag_bytes)], disk(p, s)],
  api: (p, s, rate) => [["Queries", rate("queries")], ["In all", count(p.totals.queries)], ["Memory", bytes(s.resident_memory_bytes)]],
};

function disk(p, stats) {
  if (!stats.disk_free_bytes) return null;
  const { left, days } = diskOf(p, stats);
  return ["Disk left", `${bytes(left)}${days === null ? "" : `, full in ${duration(days * 86400)}`}`];
}

/** What the sparkline of a daemon shows, and its values. */
const HISTORY = {
  simplequeue: ["Messages waiting", (p) => p.history.map((s) => Math.max(0, s.queued - (s.unsettled ?? 0))), count],
  queue_to_pubsub: ["Delivered", (p) => ratesOf(p, "delivered")],
  queue_to_nats: ["Published", (p) => ratesOf(p, "delivered")],
  pubsub: ["Published", (p) => ratesOf(p, "published")],
  aggregator: ["Counted", (p) => ratesOf(p, "counted")],
  sortdb: ["Reads", (p) => ratesOf(p, "reads")],
  api: ["Queries", (p) => ratesOf(p, "queries")],
  compactor: ["Age of the archive", (p) => p.history.filter((s) => s.archive_made).map((s) => Math.max(0, s.t - s.archive_made)), duration],
};
const perSecond = (n) => `${count(Math.round(n))}/s`;

function spark(name, p) {
  if (!HISTORY[name]) return null;
  const [what, valuesOf, words = perSecond] = HISTORY[name];
  const values = p.history.length < 3 ? [] : valuesOf(p); // the line has its place from the beginning
  const text = values.length ? `${what}, the last ${duration(historySpan(p))}: at most ${words(Math.max(...values))}` : `${what}: the history begins now`;
  return [sparkline(values, text), h("p", { class: "muted", "aria-hidden": "true" }, text)];
}

/** The rejected lines of the last minute by their reasons. */
function reasons(stats) {
  const found = stats.last_minute?.reasons ?? [];
  return found.length ? h("ul", { class: "reasons", "aria-label": "Rejected in the last minute" },
    found.map((r) => h("li", {}, `${count(r.lines)} × ${r.reason}`))) : null;
}

/** `isOld`: the API does not answer, so the state of now is not known. */
function card(name, title, state, isGood, isOld, ...parts) {
  return h("section", { class: isGood || isOld ? "panel daemon" : "panel daemon bad" },
    h("div", { class: "panel-head" }, h("h2", {}, title), h("p", { class: isOld ? "state" : isGood ? "state good" : "state bad" }, isOld ? `was ${state}` : state)),
    h("p", { class: "muted" }, ROLES[name] ?? ""), parts);
}

const numbers = (rows) => h("dl", {}, rows.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

function daemonCard(d, p, isOld) {
  const rate = (total) => {
    const n = d.cell ? null : rateOf(p, total); // the rate is that of all cells
    return n === null ? "–" : perSecond(n);
  };
  return card(d.name, nameOf(d), d.state, d.state === "ready", isOld,
    d.stats ? numbers(NUMBERS[d.name]?.(p, d.stats, rate, !d.at) ?? []) : h("p", {}, d.detail),
    d.name === "aggregator" && d.stats ? reasons(d.stats) : null, d.cell || d.at ? null : spark(d.name, p)); // the history is that of all
}

let archive = null; // its state in the latest answer that has one

/** The archive that answers: the API reads it itself, or sortdb does. */
function archiveOf(p) {
  const own = statsOf(p, "api");
  const sortdb = statsOf(p, "sortdb");
  if (p.daemons.some((d) => d.cell)) return null; // each cell has its own
  if (own?.archive_generation) return { generation: own.archive_generation, made: own.archive_made };
  return sortdb && { generation: sortdb.generation, made: sortdb.db_mtime };
}

/** The compactor has no address: `millrace up` reports its last message. */
function compactorCard(p, isOld) {
  const process = p.run?.daemons.compactor;
  archive = archiveOf(p) ?? archive;
  if (!process && !archive) return null;
  const next = process?.said?.match(/next run at (\S+)/)?.[1];
  const rows = [
    archive && ["Archive", `${duration(p.time - archive.made)} old`], archive && ["Generation", count(archive.generation)],
    ["Next compaction", next ? moment(Date.parse(next) / 1000) : "–"],
  ];
  const state = process?.state === "ready" || process?.state === "running" ? "ready" : process?.state ?? "not run by millrace up";
  return card("compactor", "compactor", state, !process || (state === "ready" && !/failed/.test(process.said)), isOld, numbers(rows), spark("compactor", p));
}

function cards(p, isOld) {
  const all = p.daemons.map((d) => daemonCard(d, p, isOld));
  const sortdb = p.daemons.findIndex((d) => d.name === "sortdb");
  all.splice(sortdb < 0 ? all.length - 1 : sortdb, 0, compactorCard(p, isOld));
  return all.filter(Boolean);
}

export function pipelineView() {
  const wrong = h("div", { class: "verdict", role: "status" });
  const cells = h("div");
  const grid = h("div", { class: "grid" });
  const data = dataTable("The last hour");
  const element = h("div", {}, h("div", { class: "panel-head" }, h("h1", {}, "Pipeline"),
    share({ name: "pipeline", request: () => ({ path: "v1/pipeline", parameters: {} }), table: data, rows: () => history })), wrong, cells, grid);
  let history = [];
  let shown = null; // the latest answer
  let since = null; // it is old since then

  const state = (p) => {
    if (since) return h("p", { class: "problems" }, `The API has not answered since ${clock(since)}. The page shows the state at that time.`);
    const found = problems(p);
    return found.length ? h("ul", { class: "problems" }, found.map(([words, mend, folded]) =>
      h("li", {}, words, h("code", {}, mend), folded?.length > 0 && h("ul", {}, folded.map((each) => h("li", {}, each))))))
      : h("p", { class: "fine" }, "Everything is ready.");
  };

  function draw(p) {
    shown = p;
    const columns = Object.keys(p.history[0] ?? { t: 0 });
    history = [columns, ...p.history.map((s) => columns.map((name) => s[name]))];
    data.show(() => [["Time", ...columns.slice(1)], ...p.history.map((s) => [clock(s.t), ...columns.slice(1).map((name) => (name === "archive_made" ? clock(s[name]) : count(s[name])))])]);
    const words = state(p);
    if (!wrong.firstChild?.isEqualNode(words)) wrong.replaceChildren(words);
    for (const each of [cells, grid]) each.classList.toggle("old", Boolean(since));
    const panel = cellsPanel(p);
    if (panel && !cells.firstChild?.isEqualNode(panel)) cells.replaceChildren(panel);
    const now = cards(p, Boolean(since));
    // A card that says the same stays, so that its text can be selected.
    if (now.length !== grid.childElementCount) grid.replaceChildren(...now);
    else now.forEach((next, i) => { if (!grid.children[i].isEqualNode(next)) grid.children[i].replaceWith(next); });
    if (!data.element.parentNode) element.append(data.element); // below the cards
  }

  const stopPipeline = watchPipeline(draw, (error) => wrong.replaceChildren(h("p", { class: "error" }, error.message)), { atMost: FRESH });
  const stopOld = watchOld("pipeline", (t) => {
    since = t;
    if (shown) draw(shown);
  });
  return { element, stop() { stopPipeline(); stopOld(); } };
}
