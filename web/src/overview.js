// Overview: how many events now, today against yesterday, and the largest keys.

import { sparkline } from "./chart.js";
import { periodControls } from "./controls.js";
import { configured, firstOf, siteOf, totalOf } from "./counters.js";
import { without } from "./counts.js";
import { breakdownPanel, seriesPanel } from "./counts_panels.js";
import { h } from "./dom.js";
import { change, clock, count, duration, isToday, likeForLike, moment, span } from "./format.js";
import { latestTime } from "./latest.js";
import { minutesPanel } from "./minutes.js";
import { keepFresh, loadParts } from "./live_update.js";
import { failFirst, tile } from "./panel.js";
import { addToSite } from "./site.js";
import { historySpan, ratesOf, watchPipeline } from "./pipeline_data.js";
import { watchRate } from "./rate.js";
import { address, isSpan, zoneOf } from "./state.js";
import { uniquesPanels } from "./uniques.js";

const FRESH = 1000; // ms
const TOP = 10;

const iso = (seconds) => (seconds ? new Date(seconds * 1000).toISOString() : "");

export function overview(view, { freshness }) {
  const zone = zoneOf(view);
  const series = seriesPanel(view);
  let last = null; // the API's answer for the series, which has three of the numbers
  const rate = tile("Events a second", { request: () => ({ path: "v1/live/rate" }), rows: () => [["rate"], [perSecond]] });
  const total = tile("Events", { request: series.request, rows: () => [["from", "to", "events"], [iso(last?.from), iso(last?.to), last?.total]] });
  const before = tile("Change", { request: series.request, rows: () => {
    const like = last?.before && likeForLike(last.rows);
    return [["percent", "now", "then"], [like?.percent, like?.now, like?.then]];
  } });
  const complete = tile("Complete until", { request: series.request, rows: () => [["until"], [iso(last?.complete_until)]] });
  const grid = h("div", { class: "grid" });
  const tiles = h("div", { class: "tiles" }, [rate, total, before, complete].map((t) => t.element));
  const members = h("div", { class: "members" });
  const controls = periodControls(view);
  const element = h("div", {}, h("h1", { class: "visually-hidden" }, "Overview"), h("p", { class: "muted" }, "Loading…"));
  const resolve = latestTime(view);
  let state = view; // with the time that is shown
  let panels = null;
  let uniques = null;
  let minutes = null;

  /** All parts at once: a part that came later would move the others. */
  function place(...more) {
    if (!element.contains(grid)) element.lastChild.replaceWith(controls, tiles, series.element, members, grid, ...more);
  }

  /** A tile and a chart for each unique counter of the total that is shown. */
  function addUniques(shown) {
    uniques = uniquesPanels(shown.total, shown.key, view);
    members.append(...uniques.elements);
    return uniques.charts.map((chart) => {
      const name = chart.unique.label || chart.unique.ns;
      let reply = null;
      const number = tile(`Unique: ${name}`, { request: chart.request, rows: () => [["from", "to", name], [iso(reply?.from), iso(reply?.to), reply?.total]] });
      total.element.after(number.element);
      return { fail: chart.fail, async load(signal) {
        reply = await chart.load(state, shown.key, signal);
        number.show(count(reply.total), span(reply.from, reply.to, reply.timezone));
      } };
    });
  }

  function showTiles(reply, name) {
    total.show(count(reply.total), (name === "events" ? "" : `${name}, `) + (state.period === "today" && !isSpan(state) ? "today" : span(reply.from, reply.to, zone)) + (without(reply) && `, ${without(reply)}`));
    const like = reply.before && likeForLike(reply.rows);
    before.show(like ? change(like.percent) : "–", !reply.before ? "compared with nothing" : !like ? "no unit has passed yet"
      : `${like.then ? `from ${count(like.then)}` : "no events"} in ${reply.complete_until < reply.to ? "the same part of " : ""}${span(reply.before.from, reply.before.to, zone)}`);
    const until = reply.complete_until;
    if (until && reply.rows.every((row) => row.passed)) complete.show("the end", reply.approximate ? "of this time, approximate" : "of this time");
    else complete.show(until ? clock(until, zone) : "–", reply.held_by ? `held back by ${reply.held_by}` : !until ? "not known" : isToday(until, zone) ? "every event accepted before" : moment(until, zone));
  }

  async function loadSeries({ total: { ns }, key, name }, signal) {
    const reply = await series.load(state, { ns, key }, signal);
    last = reply;
    freshness(reply);
    series.title(name[0].toUpperCase() + name.slice(1));
    showTiles(reply, name);
  }

  /** A bar leads to the key's own view, at the time that is shown. */
  function linkOf({ total, key, subtotal }, totals, fixed) {
    const own = totalOf(totals, subtotal);
    return (row) => {
      const time = fixed ?? (state.isOld ? { from: state.from, to: state.to } : { period: state.period });
      return own ? address({ view: "key", ns: own.ns, key: row.key, ...time })
        : address({ view: "key", ns: total.ns, key, by: total.subtotals.find((s) => s.ns === subtotal.ns).label, sub: row.key, ...time });
    };
  }

  async function load(signal) {
    const { script, totals } = await configured(signal);
    const shown = firstOf(totals);
    if (!shown) {
      place();
      series.fail({ message: "No counter counts the whole feed. Add one to the configuration. The other views work without it.",
        hint: "[total all]\nkey = \"all\"\nlabel = feed\n" });
      return;
    }
    if (!panels) {
      panels = shown.panels.map((part) => {
        const p = breakdownPanel(part.subtotal, { limit: TOP, link: linkOf(part, totals) });
        return { element: p.element, load: (s) => p.load(state, part.key, s), fail: p.fail };
      });
      grid.append(...panels.map((p) => p.element));
      minutes = minutesPanel(shown, view, (part) => linkOf(part, totals, {}));
      panels.push(...addUniques(shown));
      place(siteOf(totals) ? addToSite(script) : "", minutes.element);
    }
    state = await resolve({ ns: shown.total.ns, key: shown.key }, signal);
    await loadParts([first, ...panels], signal);
  }

  const first = { load: async (signal) => loadSeries(firstOf((await configured(signal)).totals), signal), fail: series.fail };
  const stopCounts = keepFresh(FRESH, load, (error) => {
    place();
    failFirst(error, series, grid);
  });
  let perSecond = null;
  let pipeline = null;
  let why = "";

  function showRate() {
    const past = pipeline?.history.length > 2 && sparkline(ratesOf(pipeline, "published"), `Events a second, the last ${duration(historySpan(pipeline))}`);
    rate.show(perSecond === null ? "–" : count(Math.round(perSecond)), why || past || "published in the last seconds");
  }

  const stopRate = watchRate((next) => {
    perSecond = next;
    showRate();
  }, (error) => {
    why = error.message;
    showRate();
  });
  const stopPipeline = watchPipeline((next) => {
    pipeline = next;
    showRate();
  });

  const redraw = () => { series.redraw(); uniques?.redraw(); };
  return { element, redraw, stop() { stopCounts(); stopRate(); stopPipeline(); series.destroy(); uniques?.stop(); minutes?.stop(); } };
}
