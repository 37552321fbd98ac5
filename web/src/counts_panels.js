// The panels that show counts: a series as a chart, and a breakdown as bars.

import { bars } from "./bars.js";
import { chart } from "./chart.js";
import { configured } from "./counters.js";
import { getCounts } from "./counts.js";
import { h } from "./dom.js";
import { emptyHint } from "./empty.js";
import { change, count, likeForLike, span } from "./format.js";
import { panel } from "./panel.js";
import { share } from "./share.js";
import { address, go, LATEST, seriesRequest, timeOf, zoneOf } from "./state.js";

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
  p.head.append(share({ name: "events", request: () => request,
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
      request = seriesRequest(state, series);
      const reply = await getCounts(request.path, request.parameters, signal);
      rows = reply.rows;
      p.note(state.isOld ? oldNote(state) : "", reply.note ?? "", reply.approximate ? APPROXIMATE : "");
      const like = reply.before && likeForLike(rows);
      moved.textContent = like?.then ? change(like.percent) : "";
      moved.title = like ? `${count(like.now)} now, ${count(like.then)} in the same part of the other time` : "";
      const before = reply.before && `${span(reply.before.from, reply.before.to, zone)}: ${count(reply.before.total)}`;
      plot.draw(rows, { now: `${span(reply.from, reply.to, zone)}: ${count(reply.total)}`, before, to: reply.to });
      const isEmpty = !reply.total && !reply.before?.total;
      p.show(...(isEmpty ? [] : [plot.element]), ...(reply.total ? [] : [hint ??= await empty(state, signal)]));
      return reply;
    },
  };
}

/** `link(row, time)` gives the address behind a bar, `note(reply)` more words. */
export function breakdownPanel(subtotal, { limit, link, note = () => "", pressed }) {
  const name = subtotal.label || subtotal.ns;
  const p = panel(name);
  let request = { path: "v1/breakdown", parameters: {} };
  let rows = [];
  p.head.append(share({ name, request: () => request, rows: () => [[name, "events", "share"], ...rows.map((r) => [r.key, r.n, r.share])] }));
  return {
    element: p.element,
    fail: p.fail,
    async load(state, key, signal) {
      request = { path: "v1/breakdown", parameters: { ns: subtotal.ns, key, limit, ...timeOf(state) } };
      const reply = await getCounts(request.path, request.parameters, signal);
      rows = reply.rows;
      p.note(rows.length < reply.distinct ? `${count(rows.length)} of ${count(reply.distinct)}` : "", note(reply), reply.approximate ? APPROXIMATE : "");
      p.show(bars({ caption: name, rows, other: reply.other, total: reply.total, pressed, link }));
    },
  };
}
