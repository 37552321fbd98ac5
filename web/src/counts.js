// Requests for counts. If the aggregator does not answer, they ask for what the archive has, and the banner says what is missing.

import { get } from "./api.js";
import { showMissing } from "./live_update.js";
import { isDown, watchPipeline } from "./pipeline_data.js";

const PATIENCE = 1; // seconds that a source may take when a daemon is known to be down

/** "without the archive", for an answer without the counts of a source that cannot be read; "" for a whole answer. */
export const without = ({ missing }) => (missing?.length ? `without the ${missing.map((m) => m.source).join(" and the ")}` : "");

/** Returns the answer of ask(signal), or null if a source does not answer. Ends the request once the aggregator is known to be down. */
export async function getWhole(ask, signal) {
  const exact = new AbortController();
  const stop = watchPipeline((pipeline) => isDown(pipeline, "aggregator") && exact.abort());
  try {
    exact.signal.throwIfAborted();
    return await ask(AbortSignal.any([signal, exact.signal]));
  } catch (error) {
    if (signal.aborted || !(exact.signal.aborted || error.code === "upstream-unavailable")) throw error;
    return null;
  } finally {
    stop();
  }
}

export async function getCounts(path, parameters, signal) {
  const reply = await getWhole((exact) => get(path, parameters, exact), signal) ?? await get(path, { ...parameters, partial: PATIENCE }, signal);
  showMissing(reply.missing ?? []);
  // A row has passed if its hours can change no more. In an approximate answer no row is complete.
  const end = (i) => Math.ceil((reply.rows[i + 1]?.t ?? reply.to) / 3600) * 3600;
  reply.rows?.forEach((row, i) => { row.passed = row.complete || Boolean(row.approximate && row.t !== undefined && end(i) <= reply.complete_until); });
  return reply;
}
