// Pipeline: each daemon's state and numbers, and above them what is wrong and what to do.

import { sparkline } from "./chart.js";
import { h } from "./dom.js";
import { bytes, clock, count, duration, moment } from "./format.js";
import { rateOf, statsOf, watchPipeline } from "./pipeline_data.js";
import { share } from "./share.js";

const LATE = 60; // seconds
const DISK_LOW = 0.05; // of its size

const ROLES = {
  simplequeue: "takes events from apps", queue_to_pubsub: "publishes the queue's events", pubsub: "stores the streams",
  aggregator: "counts the streams by hour", sortdb: "answers from the archive",
};

/** Each rule returns the words of a problem and the command that mends it, or null. */
const RULES = [
  (p) => p.daemons.filter((d) => d.state !== "ready" && d.state !== "unknown").map((d) =>
    [`${d.name} is ${d.state}${d.detail ? `: ${d.detail}` : ""}.`, d.state === "unreachable" ? "millrace status" : null]),
  (p) => p.daemons.filter((d) => d.state === "ready" && d.detail).map((d) => [`${d.name}: ${d.detail}`, null]),
  (p) => p.totals.rejected > 0 && [[`${count(p.totals.rejected)} lines were rejected since the aggregator's start.`, "millrace rejects"]],
  (p) => p.totals.buried > 0 && [[`${count(p.totals.buried)} messages are buried.`, "curl 'http://127.0.0.1:8080/dead?items=10'"]],
  (p) => p.daemons.filter((d) => d.stats?.disk_size_bytes && d.stats.disk_free_bytes < DISK_LOW * d.stats.disk_size_bytes).map((d) =>
    [`${d.name} has only ${bytes(d.stats.disk_free_bytes)} of disk left.`, "millrace doctor"]),
  (p) => {
    const age = statsOf(p, "aggregator")?.complete_age_seconds ?? 0;
    const by = statsOf(p, "aggregator")?.held_by;
    return age > LATE && [[`Counts are complete only until ${duration(age)} ago${by ? `, held back by ${by}` : ""}.`, "millrace status"]];
  },
];

function problems(p) {
  return RULES.flatMap((rule) => rule(p) || []);
}

function numbers(name, p) {
  const stats = statsOf(p, name);
  if (!stats) return [];
  return [...own(name, p, stats), ...(stats.disk_free_bytes ? [["Disk left", bytes(stats.disk_free_bytes)]] : [])];
}

function own(name, p, stats) {
  const perSecond = (total) => {
    const rate = rateOf(p, total);
    return rate === null ? "–" : `${count(Math.round(rate))} a second`;
  };
  switch (name) {
    case "simplequeue": return [["Puts", perSecond("put")], ["Waiting", count(p.totals.queued)], ["Buried", count(p.totals.buried)]];
    case "queue_to_pubsub": return [["Delivered", perSecond("delivered")]];
    case "pubsub": return [["Published", perSecond("published")], ["On disk", bytes(Object.values(stats.streams ?? {}).reduce((n, s) => n + s.disk_bytes, 0))]];
    case "aggregator": return [["Counted", perSecond("counted")], ["Behind", bytes(p.totals.lag)], ["Rejected", count(p.totals.rejected)],
      ["Complete until", clock(stats.complete_until)]];
    case "sortdb": return [["Reads", perSecond("reads")], ["Generation", String(stats.generation)], ["Records", count(stats.records)],
      ["Size", bytes(stats.bytes)], ["Made", moment(stats.db_mtime)]];
    default: return [];
  }
}

/** The totals of the history as rates between samples; a restart begins again at 0. */
function rates(history, name) {
  return history.slice(1).map((s, i) => Math.max(0, (s[name] - history[i][name]) / Math.max(1, s.t - history[i].t)));
}

const HISTORY_COLUMNS = ["t", "queued", "published", "counted", "rejected", "lag"];
const HISTORY = {
  simplequeue: ["Messages waiting", (h1) => h1.map((s) => s.queued)],
  pubsub: ["Lines published", (h1) => rates(h1, "published")],
  aggregator: ["Events counted", (h1) => rates(h1, "counted")],
};

function row(daemon, p) {
  const history = HISTORY[daemon.name];
  const ok = daemon.state === "ready";
  return h("section", { class: ok ? "panel daemon" : "panel daemon bad" },
    h("div", { class: "panel-head" }, h("h2", {}, daemon.name), h("p", { class: ok ? "state good" : "state bad" }, daemon.state)),
    h("p", { class: "muted" }, ROLES[daemon.name] ?? ""),
    h("dl", {}, numbers(daemon.name, p).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    history && p.history.length > 1 ? [sparkline(history[1](p.history), `${history[0]}, the last hour`),
      h("p", { class: "muted" }, `${history[0]}, the last hour`)] : null);
}

export function pipelineView() {
  const wrong = h("div", { role: "status" });
  const grid = h("div", { class: "grid" });
  const element = h("div", {}, h("h1", { class: "visually-hidden" }, "Pipeline"), h("div", { class: "panel-head" },
    share({ name: "pipeline", request: () => ({ path: "v1/pipeline", parameters: {} }), rows: () => history })), wrong, grid);
  let history = [];
  let last = "";
  const stop = watchPipeline((p) => {
    const found = problems(p);
    history = [HISTORY_COLUMNS, ...p.history.map((s) => HISTORY_COLUMNS.map((name) => s[name]))];
    const text = JSON.stringify(found);
    if (text !== last)
      wrong.replaceChildren(found.length ? h("ul", { class: "problems" }, found.map(([words, mend]) => h("li", {}, words, mend ? [" ", h("code", {}, mend)] : null)))
        : h("p", { class: "good" }, "Everything is ready."));
    last = text;
    grid.replaceChildren(...p.daemons.map((d) => row(d, p)));
  });
  return { element, stop };
}
