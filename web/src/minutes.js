// The last 30 minutes: a bar for each minute, and the largest keys, from the counts that the aggregator has in memory.

import { bars } from "./bars.js";
import { get } from "./api.js";
import { getWhole } from "./counts.js";
import { h, svg } from "./dom.js";
import { filteredBreakdown, filteredOrAll, missedWords } from "./filters.js";
import { clock, count } from "./format.js";
import { keepFresh } from "./live_update.js";
import { panel } from "./panel.js";
import { share } from "./share.js";
import { zoneOf } from "./state.js";

const FRESH = 2000; // ms
const MINUTES = 30;
const LISTS = 3;
const TOP = 5;
const HEIGHT = 40;
const STEP = 10;

/** A bar for each row. Bars of minutes that are not complete are lighter. */
function minuteBars(rows, zone, label) {
  const most = Math.max(1, ...rows.map((row) => row.n));
  const bar = (row, i) => {
    const height = (row.n / most) * HEIGHT;
    const words = `${clock(row.t, zone)}: ${count(row.n)}${row.complete ? "" : ", not complete yet"}`;
    return svg("g", {}, svg("title", {}, words),
      svg("rect", { x: `${i * STEP}`, y: "0", width: `${STEP}`, height: `${HEIGHT}`, class: "ground" }),
      svg("rect", { x: `${i * STEP + 1}`, y: `${HEIGHT - height}`, width: `${STEP - 2}`, height: `${height}`, class: row.complete ? "whole" : "open" }));
  };
  return svg("svg", { class: "minutes", viewBox: `0 0 ${rows.length * STEP} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, rows.map(bar));
}

/** `shown` is that of firstOf, `linkOf(part)` gives the address behind a row of a part. */
export function minutesPanel(shown, view, linkOf) {
  const p = panel("Last 30 minutes", { wide: true });
  const zone = zoneOf(view);
  const time = { period: `${MINUTES}m`, timezone: zone };
  const request = { path: "v1/series", parameters: { ns: shown.total.ns, key: shown.key, unit: "minute", ...time } };
  const parts = shown.panels.slice(0, LISTS);
  let rows = [];
  p.head.append(share({ name: "minutes", request: () => request, rows: () => [["date", shown.name], ...rows.map((r) => [r.date, r.n])] }));

  function show(series, lists) {
    const label = `${count(series.total)} ${shown.name} from ${clock(series.from, zone)} to ${clock(series.to, zone)}`;
    rows = series.rows;
    p.note(`${count(series.total)} ${shown.name}`);
    const ends = h("p", { class: "ends", "aria-hidden": "true" }, h("span", {}, new Date(series.from * 1000).toLocaleTimeString(undefined, { timeZone: zone, timeStyle: "short" })), h("span", {}, "now"));
    p.show(minuteBars(rows, zone, label), ends, h("div", { class: "grid" }, lists.map((reply, i) => {
      const caption = parts[i].subtotal.label || parts[i].subtotal.ns;
      return h("div", {}, h("h3", {}, caption), bars({ caption, rows: reply.rows, other: reply.other, total: reply.total, link: linkOf(parts[i]) }));
    })));
  }

  async function load(signal) {
    const [all, ...lists] = await Promise.all([filteredOrAll(view, { ns: shown.total.ns, key: shown.key }, signal),
      ...parts.map(({ key, subtotal }) => filteredBreakdown(view, subtotal, key, signal))]);
    const unable = [all, ...lists].find(({ missed }) => missed.length);
    p.why(missedWords(unable?.missed ?? []), unable?.remedy);
    Object.assign(request.parameters, { ns: all.ns, key: all.key, sub: all.sub });
    const top = ({ ns, key }, exact) => get("v1/breakdown", { ns, key, limit: TOP, ...time }, exact);
    try {
      const replies = await getWhole((exact) => Promise.all([get(request.path, request.parameters, exact), ...lists.map((list) => top(list, exact))]), signal);
      if (replies) show(replies[0], replies.slice(1));
      else p.fail({ message: "The aggregator, which has the counts of these minutes, does not answer." });
      return !replies;
    } catch (error) {
      // After a start, the aggregator first reads these minutes again.
      if (error.code !== "minutes-not-held") throw error;
      p.fail({ message: `${error.message[0].toUpperCase()}${error.message.slice(1)}.` });
      return true;
    }
  }

  const stop = keepFresh(FRESH, load, (error) => (error.code === "minutes-off" ? p.element.remove() : p.fail(error)), { of: "minutes" });
  return { element: p.element, stop };
}
