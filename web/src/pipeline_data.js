// The state of the pipeline, polled once a second and shared by the views.

import { get } from "./api.js";
import { keepFresh } from "./live_update.js";

const EVERY = 1000;
const RATE_OVER = 5; // seconds

const sum = (objects, name) => (objects ? Object.values(objects).reduce((total, o) => total + Number(o[name] ?? 0), 0) : null);

/** The totals since the daemons' start, from the daemons' own statistics; null without them. */
function totalsOf(daemons) {
  const stats = Object.fromEntries(daemons.map((d) => [d.name, d.stats]));
  return {
    put: sum(stats.simplequeue?.queues, "puts"),
    queued: sum(stats.simplequeue?.queues, "depth"),
    buried: sum(stats.simplequeue?.queues, "buried"),
    delivered: stats.queue_to_pubsub?.messages_delivered_total ?? null,
    published: sum(stats.pubsub?.streams, "lines_published"),
    counted: stats.aggregator?.events_counted_total ?? null,
    rejected: stats.aggregator?.lines_rejected_total ?? null,
    lag: stats.aggregator?.lag_bytes ?? null,
    reads: stats.sortdb?.total_requests ?? null,
  };
}

const recent = []; // the polls of the last seconds

/** Calls show({time, daemons, history, totals}) every second. Returns a function that stops it. */
export function watchPipeline(show, onError = () => {}) {
  return keepFresh(EVERY, async (signal) => {
    const reply = await get("v1/pipeline", {}, signal);
    const pipeline = { ...reply, totals: totalsOf(reply.daemons) };
    recent.push(pipeline);
    while (recent.length > 1 && recent[0].time < pipeline.time - RATE_OVER) recent.shift();
    show(pipeline);
  }, onError);
}

/** Events a second of one total over the last seconds; null without two polls that have it. */
export function rateOf(pipeline, name = "published") {
  const first = recent.find((poll) => poll.totals[name] !== null);
  if (!first || pipeline.totals[name] === null) return null;
  const seconds = pipeline.time - first.time;
  return seconds > 0.5 ? Math.max(0, (pipeline.totals[name] - first.totals[name]) / seconds) : null;
}

export const statsOf = (pipeline, name) => pipeline.daemons.find((d) => d.name === name)?.stats ?? null;
export const streamsOf = (pipeline) => Object.keys(statsOf(pipeline, "pubsub")?.streams ?? {});
