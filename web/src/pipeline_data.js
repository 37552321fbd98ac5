// The state of the pipeline, shared by the views.

import { get } from "./api.js";
import { keepFresh } from "./live_update.js";

const EVERY = 1000; // ms
const AT_MOST = 12000; // ms between polls; the history has a sample every 10 seconds
const RATE_OVER = 6; // seconds

export const sum = (objects, name) => (objects ? Object.values(objects).reduce((total, o) => total + Number(o[name] ?? 0), 0) : null);
const QUERIES = /"\/v1\/(?!pipeline|live)/;

/** The sum of a number over the daemons with a name, one in each cell or several queues; null if one has no statistics. */
function sumOf(daemons, name, numberOf) {
  const own = daemons.filter((d) => d.name === name);
  return own.length && own.every((d) => d.stats) ? own.reduce((total, d) => total + numberOf(d.stats), 0) : null;
}

/** The totals since the daemons' start, from the daemons' own statistics; null without them. */
function totalsOf(daemons) {
  const stats = Object.fromEntries(daemons.map((d) => [d.name, d.stats]));
  const depth = sumOf(daemons, "simplequeue", ({ queues }) => sum(queues, "depth"));
  const requests = Object.entries(stats.api?.request_seconds ?? {}).filter(([name]) => QUERIES.test(name));
  return {
    put: sumOf(daemons, "simplequeue", ({ queues }) => sum(queues, "puts")),
    queued: depth === null ? null : Math.max(0, depth - (stats.queue_to_nats?.unsettled_messages ?? 0)),
    buried: sumOf(daemons, "simplequeue", ({ queues }) => sum(queues, "buried")),
    delivered: (stats.queue_to_pubsub ?? stats.queue_to_nats)?.messages_delivered_total ?? null,
    published: sumOf(daemons, "pubsub", ({ streams }) => sum(streams, "lines_published")),
    counted: sumOf(daemons, "aggregator", (s) => s.events_counted_total),
    rejected: sumOf(daemons, "aggregator", (s) => s.lines_rejected_total),
    lag: sumOf(daemons, "aggregator", (s) => s.lag_bytes),
    reads: sumOf(daemons, "sortdb", (s) => s.total_requests),
    checks: stats.spamfilter?.checks_total ?? null,
    queries: stats.api ? sum(Object.fromEntries(requests), "count") : null,
  };
}

/** Names the addresses of daemons of one name outside cells, such as further queues. */
const placed = (daemons) => daemons.map((d) => (d.cell || daemons.every((other) => other === d || other.name !== d.name) ? d
  : { ...d, at: (d.url ?? "").replace(/^https?:\/\//, "") }));

const listeners = new Set();
const recent = []; // the polls of the last seconds
let failure = null;

async function poll(signal) {
  const reply = await get("v1/pipeline", {}, signal);
  const pipeline = { ...reply, daemons: placed(reply.daemons), totals: totalsOf(reply.daemons) };
  recent.push(pipeline);
  while (recent.length > 1 && (recent[0].time < pipeline.time - RATE_OVER || recent[0].time > pipeline.time)) recent.shift();
  for (const listener of [...listeners]) listener.show(pipeline);
}

/** Begins to poll. A token that may not see the pipeline ends it. */
export function startPipeline() {
  keepFresh(EVERY, poll, (error) => {
    failure = error;
    for (const listener of listeners) listener.fail?.(error);
  }, { part: "pipeline", of: "daemons", atMost: () => Math.min(AT_MOST, ...[...listeners].map((listener) => listener.atMost)) });
}

/** Calls show({time, daemons, run, history, totals}) now if it is known, and whenever it is asked: when the state of a daemon changes, and at
 *  least every `atMost` ms. Returns a function that stops it. */
export function watchPipeline(show, fail, { atMost = AT_MOST } = {}) {
  const listener = { show, fail, atMost };
  listeners.add(listener);
  if (recent.length) show(recent.at(-1));
  else if (failure) fail?.(failure);
  return () => listeners.delete(listener);
}

/** Events a second of one total over the last seconds; null without two polls that have it. */
export function rateOf(pipeline, name) {
  const first = recent.find((poll) => poll.totals[name] !== null);
  if (!first || pipeline.totals[name] === null) return null;
  const seconds = pipeline.time - first.time;
  return seconds > 0.5 ? Math.max(0, (pipeline.totals[name] - first.totals[name]) / seconds) : null;
}

/** The totals of the history as rates between samples; a restart begins again at 0. */
export function ratesOf(pipeline, name) {
  return pipeline.history.slice(1).map((s, i) => Math.max(0, (s[name] - pipeline.history[i][name]) / Math.max(1, s.t - pipeline.history[i].t)));
}

/** How long the history is, in seconds: an hour, or less after the API's start. */
export const historySpan = ({ history }) => (history.length > 1 ? history.at(-1).t - history[0].t : 0);

/** The name of a daemon, with that of its cell, or with its address if there are several. */
export const nameOf = (d) => [d.name, d.cell || d.at].filter(Boolean).join(" ");
export const daemonOf = (pipeline, name) => pipeline.daemons.find((d) => d.name === name);
export const statsOf = (pipeline, name) => daemonOf(pipeline, name)?.stats ?? null;
export const isDown = (pipeline, name) => pipeline.daemons.some((d) => d.name === name && ["unreachable", "not ready"].includes(d.state));
/** The names of the streams. Those that are counted come first: a view begins with events, and not with the samples of metrics. */
export function streamsOf(pipeline) {
  const counted = statsOf(pipeline, "aggregator")?.streams ?? {};
  return Object.keys(statsOf(pipeline, "pubsub")?.streams ?? {}).sort((a, b) => (b in counted) - (a in counted));
}
