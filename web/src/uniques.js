// Different members, such as visitors, beside the events: a number, a chart, and how many come back.

import { chart } from "./chart.js";
import { getCounts, without } from "./counts.js";
import { h } from "./dom.js";
import { filteredUnique, missedWords } from "./filters.js";
import { count, share as percent, span } from "./format.js";
import { keepFresh } from "./live_update.js";
import { panel } from "./panel.js";
import { share } from "./share.js";
import { isSpan, timeOf, unitOf, unitsOf, zoneOf } from "./state.js";

const DAY = 86400;
const WEEKS = 9;
const RETENTION_FRESH = 60000; // ms; an answer may read large sets
const PLAIN = /^\d+$/; // Unix seconds

const round = (t, to) => (PLAIN.test(t) ? to(t / DAY) * DAY : t);

/** Sets of days are of UTC days, so they answer for whole UTC days. */
function setsTime(unique, state) {
  const chosen = unitOf(state);
  const unit = chosen === "15m" && unique.by !== "quarter" ? "hour" : chosen;
  if (unique.by !== "day") return { ...unitsOf(state, unit), ...timeOf(state) };
  const { period, week_start } = timeOf(state);
  const time = isSpan(state) ? { from: round(state.from, Math.floor), to: round(state.to, Math.ceil) }
    : { period: period === "24h" ? "2d" : period, week_start };
  return { ...unitsOf(state, unit === "hour" ? "day" : unit), ...time };
}

const nameOf = (unique) => unique.label || unique.ns;
const zoneNote = (unique, state) => (unique.by === "day" && zoneOf(state) !== "UTC" ? "Days in UTC." : "");

/** A chart of one unique counter. `load` returns the API's answer. */
export function uniquesPanel(unique, view) {
  const name = nameOf(unique);
  const p = panel(name, { wide: true });
  const plot = chart({ label: `Unique: ${name}`, zone: unique.by === "day" ? "UTC" : zoneOf(view) });
  let request = { path: "v1/uniques", parameters: {} };
  let rows = [];
  let isMissed = false;
  p.head.append(share({ name, request: () => request, table: plot.table, rows: () => [["date", name], ...rows.map((r) => [r.date, r.n])] }));
  return {
    element: p.element,
    fail: p.fail,
    redraw: plot.redraw,
    destroy: plot.destroy,
    missed: () => isMissed, // a filter of the view, in the latest answer
    async load(state, key, signal) {
      const { missed, remedy, ...counter } = await filteredUnique(state, unique, key, signal);
      request = { path: "v1/uniques", parameters: { ...counter, ...setsTime(unique, state) } };
      const reply = await getCounts(request.path, request.parameters, signal);
      rows = reply.rows;
      isMissed = missed.length > 0;
      p.why(missedWords(missed), remedy);
      p.title(`${count(reply.total)} unique: ${name}`);
      p.note("A member of several bars counts once in the total. ", zoneNote(unique, state), reply.visitor_key, reply.note);
      plot.draw(rows, { now: `${span(reply.from, reply.to, unique.by === "day" ? "UTC" : zoneOf(state))}: ${count(reply.total)}`, to: reply.to });
      p.show(reply.total ? plot.element : h("p", { class: "muted" }, reply.total === null ? "Not counted in this time." : `None ${without(reply) || "in this time"}.`));
      return reply;
    },
  };
}

function cell({ n, share, complete }) {
  const shade = h("td", { class: complete ? "number" : "number open", title: `${count(n)}${complete ? "" : ", not complete yet"}` }, share === null ? "–" : percent(share));
  shade.style.setProperty("--share", share ?? 0);
  return shade;
}

/** Of those first seen in a week, how many came back in each later week. Asks by itself, rarely. */
export function retentionPanel(unique, key, view) {
  const name = nameOf(unique);
  const p = panel(`Retention: ${name}`, { wide: true });
  const request = { path: "v1/retention", parameters: { ns: unique.ns, key, unit: "mweek", units: WEEKS, ...(unique.by === "day" ? {} : { timezone: zoneOf(view), round: "hour" }) } };
  let rows = [];
  p.head.append(share({ name: `retention-${name}`, request: () => request,
    rows: () => [["first seen", name, ...rows.slice(1).map((_, i) => i + 1)], ...rows.map((r) => [r.date, r.n, ...r.retained.map((c) => c.n)])] }));
  const stop = keepFresh(RETENTION_FRESH, async (signal) => {
    const { missed, remedy, ...counter } = await filteredUnique(view, unique, key, signal);
    Object.assign(request.parameters, counter);
    const reply = await getCounts(request.path, request.parameters, signal);
    rows = reply.rows;
    p.why(missedWords(missed), remedy);
    const shown = rows.filter((row) => row.n !== 0);
    const weeks = Math.max(0, ...shown.map((row) => row.retained.length));
    const line = (row) => h("tr", {}, h("th", { scope: "row" }, row.date), h("td", { class: "number" }, row.n === null ? "–" : count(row.n)), row.retained.map(cell));
    p.note(`Week of the first visit, and the share seen again 1 to ${WEEKS - 1} weeks later.`, shown.length && shown.length < rows.length ? "Weeks without new members are left out." : "", reply.visitor_key);
    p.show(!shown.length ? h("p", { class: "muted" }, `None was first seen in the last ${WEEKS} weeks.`) : h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Retention: ${name}` }, h("table", { class: "retention" },
      h("thead", {}, h("tr", {}, ["Week of", "New", ...Array.from({ length: weeks }, (_, i) => `+${i + 1}`)].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, shown.map(line)))));
  }, p.fail, { of: "counts" });
  return { element: p.element, stop };
}

/** The panels of all unique counters of a total, to append to a view. */
export function uniquesPanels(total, key, view) {
  const charts = (total.uniques ?? []).map((unique) => ({ unique, ...uniquesPanel(unique, view) }));
  const tables = (total.uniques ?? []).map((unique) => retentionPanel(unique, key, view));
  return {
    elements: [...charts.map((c) => c.element), ...tables.map((t) => t.element)],
    charts,
    redraw: () => charts.forEach((c) => c.redraw()),
    stop() { charts.forEach((c) => c.destroy()); tables.forEach((t) => t.stop()); },
  };
}
