// Requests for counts. If the aggregator does not answer, they ask for what the archive has, and the banner says what is missing.

import { get } from "./api.js";
import { showMissing } from "./live_update.js";
import { isDown, watchPipeline } from "./pipeline_data.js";

const PATIENCE = 1; // seconds that a source may take when a daemon is known to be down

export async function getCounts(path, parameters, signal) {
  const exact = new AbortController();
  const stop = watchPipeline((pipeline) => isDown(pipeline, "aggregator") && exact.abort());
  let reply;
  try {
    exact.signal.throwIfAborted();
    reply = await get(path, parameters, AbortSignal.any([signal, exact.signal]));
  } catch (error) {
    if (signal.aborted || !(exact.signal.aborted || error.code === "upstream-unavailable")) throw error;
    reply = await get(path, { ...parameters, partial: PATIENCE }, signal);
  } finally {
    stop();
  }
  showMissing(reply.missing ?? []);
  // A row has passed if its hours can change no more. In an approximate answer no row is complete.
  const end = (i) => Math.ceil((reply.rows[i + 1]?.t ?? reply.to) / 3600) * 3600;
  reply.rows?.forEach((row, i) => { row.passed = row.complete || Boolean(row.approximate && row.t !== undefined && end(i) <= reply.complete_until); });
  return reply;
}
