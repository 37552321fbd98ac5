// The panels that show counts: a series as a chart, and a breakdown as bars.

import { bars } from "./bars.js";
import { chart } from "./chart.js";
import { configured, isHistogram } from "./counters.js";
import { getCounts, without } from "./counts.js";
import { h } from "./dom.js";
import { emptyHint } from "./empty.js";
import { filteredBreakdown, filteredSeries, filtersOf, missedWords, wordsOf } from "./filters.js";
import { change, count, likeForLike, numbersOf, span } from "./format.js";
import { panel } from "./panel.js";
import { share } from "./share.js";
import { address, againstOf, go, LATEST, seriesRequest, timeOf, unitsOf, zoneOf } from "./state.js";

const APPROXIMATE = "Approximate: the zone has part hours, and counts are by whole hours of UTC.";

/** Why the view shows another time than usual, and the way to the usual one. */
function oldNote(state) {
  const { period, days, words } = LATEST[state.view] ?? LATEST.overview;
  return [`No events ${words}: ${days === 1 ? "this is the day of" : `these are the ${days} days up to`} the newest event. `,
    h("a", { href: address({ period }) }, `Show ${period === "today" ? "today" : "the last 30 days"}`)];
}

/**
 * `showsChange`: the head has the change of the units that have passed. `empty(state, signal)` gives what a time without events shows.
 */
export function seriesPanel(view, { showsChange = false, empty = async (state, signal) => emptyHint(await configured(signal), state) } = {}) {
  const p = panel("Events", { wide: true });
  const zone = zoneOf(view);
  const plot = chart({ label: "Events", zone, onZoom: (from, to) => go({ from, to, unit: "auto" }) });
  const moved = h("p", { class: "change" });
  let request = { path: "v1/compare", parameters: {} };
  let rows = [];
  let hint = null;
  if (showsChange) p.head.append(moved);
  p.head.append(share({ name: "events", request: () => request, table: plot.table,
    rows: () => [["date", "events", "compared with"], ...rows.map((r) => [r.date, r.n, r.before?.n ?? ""])] }));
  return {
    element: p.element,
    request: () => request,
    title: p.title,
    fail: p.fail,
    redraw: plot.redraw,
    destroy: plot.destroy,
    /** `series` is {ns, key, sub}. Returns the API's answer. */
    async load(state, series, signal) {
      request = seriesRequest(state, await filteredSeries(state, series, signal));
      const reply = await getCounts(request.path, request.parameters, signal);
      rows = reply.rows;
      p.note(state.isOld ? oldNote(state) : "", reply.note ?? "", reply.approximate ? APPROXIMATE : "");
      const like = reply.before && likeForLike(reply);
      moved.textContent = like?.then ? change(like.percent) : "";
      const number = numbersOf(reply);
      moved.title = like ? `${number(like.now)} now, ${number(like.then)} in the same part of the other time` : "";
      const before = reply.before && `${span(reply.before.from, reply.before.to, zone)}: ${number(reply.before.total)}`;
      plot.draw(rows, { now: `${span(reply.from, reply.to, zone)}: ${number(reply.total)}`, before, to: reply.to, number });
      const hasEvents = reply.total || rows.some((row) => row.n); // values may add up to zero
      const isEmpty = !hasEvents && !reply.before?.total;
      const filters = filtersOf(state);
      const unknown = without(reply) ? h("p", { class: "muted" }, `No counts ${without(reply)}.`)
        : filters.length > 0 && h("p", { class: "muted" }, `No events with ${wordsOf(filters)} in this time.`);
      p.show(...(isEmpty ? [] : [plot.element]), ...(hasEvents ? [] : [unknown || (hint ??= await empty(state, signal))]));
      return reply;
    },
  };
}

/** Buckets in the order of their numbers, and `None` after them. */
const byNumber = (a, b) => Number(isNaN(a.key)) - Number(isNaN(b.key)) || a.key - b.key || 0;

const CHANGES_FRESH = 60000; // ms; changes are of whole hours

/** The change of each row against the time before, {key: {before, change}}, asked again once a minute. */
function changesOf() {
  let asked = "";
  let until = 0;
  let found = {};
  return async (state, parameters, signal) => {
    const against = againstOf(state);
    if (!against) return null;
    const name = JSON.stringify([parameters, against]);
    if (name === asked && Date.now() < until) return found;
    const rows = await getCounts("v1/breakdown", { ...parameters, limit: 2 * parameters.limit, against }, signal).then((reply) => reply.rows, (error) => {
      if (error.status !== 400 && error.status !== 413 && error.status !== 422) throw error;
      return []; // this time cannot be compared
    });
    [asked, until, found] = [name, Date.now() + CHANGES_FRESH, Object.fromEntries(rows.map((row) => [row.key, row]))];
    return found;
  };
}

/** `link(row)` gives the address behind a bar, `note(chosen)` more words; `chosen` is the value of a filter of this subtotal. */
export function breakdownPanel(subtotal, { limit, link, note = () => "" }) {
  const name = subtotal.label || subtotal.ns;
  const p = panel(name);
  const changes = changesOf();
  let request = { path: "v1/breakdown", parameters: {} };
  let rows = [];
  let moved = null;
  p.body.style.setProperty("--rows", limit + 1); // with the others
  p.head.append(share({ name, request: () => request,
    rows: () => [[name, "events", "share", "before", "change"], ...rows.map((r) => [r.key, r.n, r.share, moved?.[r.key]?.before, moved?.[r.key]?.change])] }));
  return {
    element: p.element,
    fail: p.fail,
    async load(state, key, signal) {
      const { missed, chosen, remedy, ...counter } = await filteredBreakdown(state, subtotal, key, signal);
      request = { path: "v1/breakdown", parameters: { ...counter, limit, ...timeOf(state) } };
      const [reply, change] = await Promise.all([getCounts(request.path, request.parameters, signal), changes(state, request.parameters, signal)]);
      rows = reply.rows;
      moved = change;
      p.note(rows.length < reply.distinct ? `${count(rows.length)} of ${count(reply.distinct)}` : "", note(chosen), reply.approximate ? APPROXIMATE : "");
      p.why(missedWords(missed), remedy);
      const shown = isHistogram(subtotal) ? [...rows].sort(byNumber) : rows;
      p.show(bars({ caption: name, rows: shown, other: reply.other, total: reply.total, pressed: chosen, link, count: numbersOf(reply), moved,
        none: without(reply) && `No counts ${without(reply)}.` }));
    },
  };
}

const QUANTILES = ["p50", "p95", "p99"];

/** The quantiles of a subtotal by bucket(FIELD), over time. */
export function quantilesPanel(subtotal, view) {
  const name = subtotal.label || subtotal.ns;
  const p = panel(`${name}: ${QUANTILES.join(", ")}`, { wide: true });
  const plot = chart({ label: `Quantiles: ${name}`, zone: zoneOf(view), lines: QUANTILES, onZoom: (from, to) => go({ from, to, unit: "auto" }) });
  let request = { path: "v1/quantile", parameters: {} };
  let rows = [];
  p.head.append(share({ name: `quantiles-${name}`, request: () => request, table: plot.table, rows: () => [["date", ...QUANTILES, "events"], ...rows.map((r) => [r.date, ...r.values, r.n])] }));
  return {
    element: p.element,
    fail: p.fail,
    redraw: plot.redraw,
    destroy: plot.destroy,
    async load(state, key, signal) {
      const { missed, remedy, chosen, ...counter } = await filteredBreakdown(state, subtotal, key, signal);
      p.why(missedWords(missed), remedy);
      request = { path: "v1/quantile", parameters: { ...counter, ...unitsOf(state), q: "0.5,0.95,0.99", ...timeOf(state) } };
      const reply = await getCounts(request.path, request.parameters, signal);
      rows = reply.rows.flatMap((_, i, all) => (i % QUANTILES.length ? []
        : [{ ...all[i + QUANTILES.length - 1], values: all.slice(i, i + QUANTILES.length).map((r) => r.value) }]));
      p.note("Each value is at most 5 % off.", reply.note ?? "", reply.approximate ? APPROXIMATE : "");
      plot.draw(rows, { to: reply.to });
      p.show(reply.total ? plot.element : h("p", { class: "muted" }, `None ${without(reply) || "in this time"}.`));
    },
  };
}
