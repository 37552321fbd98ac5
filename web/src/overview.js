// Overview: visitors, events and values of a time, against the time before, and the largest keys.

import { sparkline } from "./chart.js";
import { periodControls, showTime } from "./controls.js";
import { watchChanges } from "./changes.js";
import { countMore } from "./count_more.js";
import { configured, constantKey, firstOf, isConstant, siteOf, slowestOf, totalOf } from "./counters.js";
import { getCounts, without } from "./counts.js";
import { breakdownPanel, seriesPanel } from "./counts_panels.js";
import { h } from "./dom.js";
import { filteredOrAll, missedWords } from "./filters.js";
import { change, clock, count, duration, inSpan, isToday, likeForLike, moment, numbersOf, shortSpan, span } from "./format.js";
import { latestTime } from "./latest.js";
import { minutesPanel } from "./minutes.js";
import { keepFresh, loadParts } from "./live_update.js";
import { failFirst, tile } from "./panel.js";
import { addToSite } from "./site.js";
import { historySpan, ratesOf, watchPipeline } from "./pipeline_data.js";
import { watchPublished } from "./published.js";
import { address, isSpan, seriesRequest, zoneOf } from "./state.js";
import { uniquesPanels } from "./uniques.js";

const FRESH = 1000; // ms
const TOP = 10;

let makeWorld = null;
let makeSlowest = null;

export function overview(view, { freshness }) {
  const zone = zoneOf(view);
  const series = seriesPanel(view);
  let last = null; // the API's answer for the series
  const rate = tile("Events a second");
  const total = tile("Events");
  const before = tile("Change");
  const complete = tile("Complete until");
  const grid = h("div", { class: "grid" });
  const tiles = h("div", { class: "tiles" }, [total, before, rate, complete].map((t) => t.element));
  const members = h("div", { class: "members" });
  const controls = periodControls(view);
  const element = h("div", {}, h("h1", { class: "visually-hidden" }, "Overview"), h("p", { class: "muted" }, "Loading…"));
  const resolve = latestTime(view);
  let state = view; // with the time that is shown
  let panels = null;
  let uniques = null;
  let minutes = null;
  let world = null;

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
      const number = tile(`Unique: ${name}`);
      total.element.before(number.element);
      return { fail: chart.fail, async load(signal) {
        const reply = await chart.load(state, shown.key, signal);
        number.show(count(reply.total), `${span(reply.from, reply.to, reply.timezone)}${chart.missed() ? ", without the filter" : ""}`);
      } };
    });
  }

  /** A tile for each sum of the whole feed, such as the revenue. */
  const addValues = (totals) => totals.filter((own) => own.value && isConstant(own)).map((own) => {
    const number = tile(own.label || own.ns, address({ view: "key", ns: own.ns, key: constantKey(own) }));
    before.element.before(number.element);
    return { fail: (error) => number.show("–", error.message), async load(signal) {
      const { missed, remedy, ...counter } = await filteredOrAll(state, { ns: own.ns, key: constantKey(own) }, signal);
      const { path, parameters } = seriesRequest(state, counter);
      const reply = await getCounts(path, parameters, signal);
      const like = reply.before && likeForLike(reply);
      number.show(numbersOf(reply)(reply.total), missedWords(missed) || (like?.then ? `${change(like.percent)} against ${shortSpan(reply.before.from, reply.before.to, zone)}`
        : span(reply.from, reply.to, zone)));
    } };
  });

  /** The slowest keys of each total that counts numbers by bucket. */
  async function addSlowest(shown, totals) {
    const lists = slowestOf(totals, shown.panels);
    if (!lists.length) return;
    makeSlowest ??= (await import("./slowest.js")).slowestPanel;
    for (const list of lists) {
      const own = makeSlowest(list, linkOf(list.source, totals));
      grid.append(own.element);
      panels.push({ load: (signal) => own.load(state, signal), fail: own.fail });
    }
  }

  /** The countries of the first list of countries. */
  async function addWorld(shown) {
    const part = shown.panels.find(({ subtotal }) => subtotal.label === "country");
    if (!part) return;
    if (!makeWorld) makeWorld = (await import("./world.js")).worldPanel; // once: later views must not wait
    world = makeWorld(part);
    grid.append(world.element); // usually below the first screen, which loads without it
    panels.push({ load: (signal) => world.load(state, signal), fail: world.fail });
  }

  function showTiles(reply, name) {
    total.show(count(reply.total), (name === "events" ? "" : `${name}, `) + (state.period === "today" && !isSpan(state) ? "today" : span(reply.from, reply.to, zone)) + (without(reply) && `, ${without(reply)}`));
    const like = reply.before && likeForLike(reply);
    const isPart = reply.complete_until < reply.to;
    const then = like?.then ? `${isPart ? "" : "from "}${count(like.then)}` : "no events";
    const when = (from, to) => (isPart ? `in the same part of ${shortSpan(from, to, zone)}` : inSpan(from, to, zone));
    before.show(like ? change(like.percent) : "–", !reply.before ? "compared with nothing" : !like ? "no unit has passed yet"
      : `${then} ${when(reply.before.from, reply.before.to)}`);
    showComplete(reply);
  }

  function showComplete(reply) {
    const until = reply.complete_until;
    if (until && reply.rows.every((row) => row.passed)) complete.show("the end", reply.approximate ? "of this time; the counts are approximate" : "of this time");
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
      panels.push(...addUniques(shown), ...addValues(totals));
      await addWorld(shown);
      await addSlowest(shown, totals);
      place(siteOf(totals) ? addToSite(script) : "", countMore({ totals }), minutes.element);
    }
    state = await resolve({ ns: shown.total.ns, key: shown.key }, signal);
    showTime(controls, state, view);
    await loadParts([first, ...panels], signal);
  }

  const first = { load: async (signal) => loadSeries(firstOf((await configured(signal)).totals), signal), fail: series.fail };
  const stopCounts = keepFresh(FRESH, load, (error) => {
    place();
    failFirst(error, series, grid);
  }, { of: "counts" });
  let perSecond = null;
  let pipeline = null;
  let why = "";

  function showRate() {
    const past = pipeline?.history.length > 2 && sparkline(ratesOf(pipeline, "counted"), `Events a second, the last ${duration(historySpan(pipeline))}`);
    rate.show(perSecond === null ? "–" : count(Math.round(perSecond)), why || past || "published in the last seconds");
  }

  const stopRate = watchPublished((next, reason) => {
    [perSecond, why] = [next, reason];
    showRate();
  });
  const stopPipeline = watchPipeline((next) => {
    pipeline = next;
    showRate();
  });

  const stopChanges = watchChanges((event) => {
    if (event?.complete_until && last?.complete_until) showComplete({ ...last, complete_until: event.complete_until });
  });

  const redraw = () => { series.redraw(); uniques?.redraw(); };
  return { element, redraw, stop() { stopCounts(); stopRate(); stopPipeline(); stopChanges(); series.destroy(); uniques?.stop(); minutes?.stop(); world?.stop(); } };
}
