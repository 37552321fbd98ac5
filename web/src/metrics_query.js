// The PromQL of the Metrics view, and its answers as the rows of a chart.

import { isSpan } from "./state.js";

export const LINES_MAX = 20;
export const FILTER = "l."; // begins each parameter of the page's address that filters by a label
const POINTS_MAX = 300; // of a line
const STEPS = [1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 10800, 21600, 86400]; // seconds
const RATE_OVER = 300; // seconds, at least
const END_MOVES = 15; // seconds, at most
const SECONDS = { latest: 3600, "15m": 900, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000, "12mo": 31536000 };

export const PERIODS = [["latest", "Last hour"], ["15m", "15 minutes"], ["6h", "6 hours"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"],
  ["12mo", "12 months"]];
export const isCounter = (metric) => /_(total|count|sum|bucket)$/.test(metric);
/** "rate" or "value". */
export const drawingOf = (state) => state.draw || (isCounter(state.metric) ? "rate" : "value");

/** [label, value] of each filter in the page's address. */
export const filtersOf = (state) => Object.entries(state).filter(([name, value]) => name.startsWith(FILTER) && value !== "").map(([name, value]) => [name.slice(FILTER.length), value]);

/** {start, end, step} in seconds. */
export function timeOf(state, now = Math.floor(Date.now() / 1000)) {
  const isOwn = isSpan(state);
  const [from, to] = isOwn ? [Number(state.from), Number(state.to)] : [now - SECONDS[state.period], now];
  if (!(from < to)) throw new Error(isOwn ? "from and to must be seconds since 1970, from before to" : `period must be ${PERIODS.map(([name]) => name).join(", ")}`);
  const step = STEPS.find((s) => (to - from) / s <= POINTS_MAX) ?? Math.ceil((to - from) / POINTS_MAX);
  const moves = Math.min(step, END_MOVES);
  const end = Math.floor(Math.min(to, Math.max(now, from)) / moves) * moves;
  return { start: end - Math.round((Math.min(to, Math.max(now, from)) - from) / step) * step, end, step };
}

/** The query of the lines. `total`: the number of series. Without `draw`, the selector alone. */
export function expressionOf(state, { draw, step, total }) {
  const isPlain = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(state.metric);
  const filters = [...(isPlain ? [] : [["__name__", state.metric]]), ...filtersOf(state)].map(([label, value]) => `${label}=${JSON.stringify(value)}`);
  const selector = `${isPlain ? state.metric : ""}${filters.length ? `{${filters.join(",")}}` : ""}`;
  const lines = draw === "rate" ? `rate(${selector}[${Math.max(RATE_OVER, step)}s])` : selector;
  return draw && total > LINES_MAX ? `topk(${LINES_MAX}, ${lines})` : lines;
}

/** A name for each line: the labels by which the lines differ, or all labels of a single line. */
function namesOf(series) {
  const labels = [...new Set(series.flatMap(({ metric }) => Object.keys(metric)))].filter((label) => label !== "__name__").sort();
  const differing = labels.filter((label) => series.some(({ metric }) => metric[label] !== series[0].metric[label]));
  return series.map(({ metric }) => (series.length > 1 ? differing : labels).filter((label) => metric[label])
    .map((label) => `${label}=${metric[label]}`).join(", ") || "no labels");
}

const numberOf = (text) => (text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text));

/**
 * {names, rows: [{t, date, values, passed}]} of a matrix. A value is null where a series has none. Of the series of topk, which may be more
 * than LINES_MAX over time, those with the most values are kept.
 */
export function linesOf(result, { start, end, step }, dateOf) {
  const kept = result.map((series) => ({ ...series, order: JSON.stringify(Object.entries(series.metric).sort()) }))
    .sort((a, b) => b.values.length - a.values.length).slice(0, LINES_MAX).sort((a, b) => (a.order < b.order ? -1 : 1));
  const values = kept.map((series) => new Map(series.values.map(([t, text]) => [Math.round(t), numberOf(text)])));
  const rows = [];
  for (let t = start; t <= end; t += step) rows.push({ t, date: dateOf(t), values: values.map((of) => of.get(t) ?? null), passed: true });
  return { names: namesOf(kept), rows };
}
