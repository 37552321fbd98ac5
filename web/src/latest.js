// The time that a view shows without a choice: the usual period, or the time of the newest events if these are older.

import { changes } from "./changes.js";
import { getCounts } from "./counts.js";
import { isSpan, LATEST, timeOf, zoneOf } from "./state.js";

/** The last unit with events: {t, end}; null: there is none. */
async function lastUnit(series, time, signal) {
  const reply = await getCounts("v1/series", { ...series, ...time }, signal);
  const i = reply.rows.findLastIndex((row) => row.n > 0);
  return i < 0 ? null : { t: reply.rows[i].t, end: reply.rows[i + 1]?.t ?? reply.to };
}

/** The span of `days` days up to the newest event of a series: {from, to}; null without events. */
async function newestSpan(series, zone, days, signal) {
  const where = { timezone: zone, round: "hour" };
  const month = await lastUnit(series, { ...where, period: "all", unit: "month" }, signal);
  const day = month && await lastUnit(series, { ...where, from: month.t, to: month.end, unit: "day" }, signal);
  if (!day || days === 1) return day && { from: day.t, to: day.end };
  const reply = await getCounts("v1/series", { ...series, ...where, unit: "day", units: days, unit_reference_ts: day.t }, signal);
  return { from: reply.from, to: reply.to };
}

/**
 * Returns resolve(series, signal), which gives the state with a period or a span that the API knows. `isOld` is set if the
 * usual period has no events. New events bring the usual period back; old ones may move the span.
 */
export function latestTime(state) {
  const usual = LATEST[state.view] ?? LATEST.overview;
  let span;
  let counted; // the version of the counts in which the span was found
  return async (series, signal) => {
    if (state.period !== "latest" || isSpan(state)) return state;
    const now = { ...state, period: usual.period };
    const { total } = await getCounts("v1/series", { ...series, unit: "day", ...timeOf(now) }, signal);
    if (total) return now;
    const latest = changes()?.counts;
    if (span === undefined || !latest || counted !== latest) {
      span = await newestSpan(series, zoneOf(state), usual.days, signal);
      counted = latest;
    }
    return span ? { ...now, ...span, isOld: true } : now;
  };
}
