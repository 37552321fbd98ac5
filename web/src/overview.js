// Overview: how many events now, today against yesterday, and the largest keys.

import { get } from "./api.js";
import { bars } from "./bars.js";
import { chart } from "./chart.js";
import { periodControls } from "./controls.js";
import { constantKey, configured, feedOf, totalOf } from "./counters.js";
import { h } from "./dom.js";
import { emptyHint } from "./empty.js";
import { change, clock, count, likeForLike, moment } from "./format.js";
import { keepFresh, loadParts } from "./live_update.js";
import { panel, tile } from "./panel.js";
import { rateOf, watchPipeline } from "./pipeline_data.js";
import { share } from "./share.js";
import { address, go, seriesPath, timeOf, unitOf, zoneOf } from "./state.js";

const FRESH = 1000; // ms
const TOP = 10;

export function overview(state, { freshness }) {
  const zone = zoneOf(state);
  const rate = tile("Events a second");
  const today = tile("In this time");
  const before = tile("Against the time before");
  const complete = tile("Complete until");
  const series = panel("Events", { wide: true });
  const grid = h("div", { class: "grid" });
  const element = h("div", {}, h("h1", { class: "visually-hidden" }, "Overview"), periodControls(state),
    h("div", { class: "tiles" }, [rate, today, before, complete].map((t) => t.element)), series.element, grid);
  const plot = chart({ label: "Events", zone, onZoom: (from, to) => go({ from, to, unit: "auto" }) });
  let parts = null;
  let answer = null;
  let hint = null;

  series.element.querySelector(".panel-head").append(share({ name: "events",
    request: () => ({ path: seriesPath(state), parameters: answer?.parameters ?? {} }),
    rows: () => [["date", "events", "before"], ...(answer?.rows ?? []).map((r) => [r.date, r.n, r.before?.n ?? ""])],
    canvas: plot.canvas }));

  async function loadSeries(feed, signal) {
    const parameters = { ns: feed.ns, key: constantKey(feed), unit: unitOf(state), ...timeOf(state) };
    const reply = await get(seriesPath(state), parameters, signal);
    answer = { parameters, ...reply };
    freshness(reply, zone);
    today.show(count(reply.total), "events");
    showChange(reply);
    complete.show(clock(reply.complete_until, zone), reply.held_by ? `held back by ${reply.held_by}` : moment(reply.complete_until, zone));
    plot.draw(reply.rows);
    series.note(reply.before ? `dashed: ${moment(reply.before.from, zone)} on` : "");
    series.show(plot.element, ...(reply.total ? [] : [hint ??= emptyHint(await configured(signal))]));
  }

  function showChange(reply) {
    if (!reply.before) {
      before.show("–", "nothing is before all time");
      return;
    }
    const like = likeForLike(reply.rows);
    before.show(like ? change(like.percent) : "–", like ? `${count(like.then)} by the same time` : "no unit is complete yet");
  }

  async function loadTop(p, feed, totals, subtotal, signal) {
    const parameters = { ns: subtotal.ns, key: constantKey(feed), limit: TOP, ...timeOf(state) };
    const reply = await get("v1/breakdown", parameters, signal);
    p.reply = { parameters, ...reply };
    const own = totalOf(totals, subtotal);
    p.note(`${count(reply.distinct)} in all`);
    p.show(bars({ caption: subtotal.label, rows: reply.rows, other: reply.other, total: reply.total,
      link: (row) => (own ? address({ view: "key", ns: own.ns, key: row.key })
        : address({ view: "key", ns: feed.ns, key: constantKey(feed), by: subtotal.label, sub: row.key })) }));
  }

  function addPanel(feed, subtotal) {
    const p = panel(subtotal.label);
    p.element.querySelector(".panel-head").append(share({ name: subtotal.label,
      request: () => ({ path: "v1/breakdown", parameters: p.reply?.parameters ?? {} }),
      rows: () => [[subtotal.label, "events", "share"], ...(p.reply?.rows ?? []).map((r) => [r.key, r.n, r.share])] }));
    grid.append(p.element);
    return p;
  }

  async function load(signal) {
    const { totals } = await configured(signal);
    const feed = feedOf(totals);
    if (!feed) {
      series.show(h("p", {}, "No counter counts the whole feed. Add one to the configuration:"),
        h("pre", {}, "[total all]\nkey = \"all\"\nlabel = feed\n"), h("p", {}, "The other views work without it."));
      return;
    }
    parts ??= [{ load: (s) => loadSeries(feed, s), fail: series.fail }, ...feed.subtotals.map((subtotal) => {
      const p = addPanel(feed, subtotal);
      return { load: (s) => loadTop(p, feed, totals, subtotal, s), fail: p.fail };
    })];
    await loadParts(parts, signal);
  }

  const stopCounts = keepFresh(FRESH, load, series.fail);
  const stopPipeline = watchPipeline((pipeline) => {
    const perSecond = rateOf(pipeline);
    rate.show(perSecond === null ? "–" : count(Math.round(perSecond)), "published, in the last seconds");
  });

  return { element, redraw: plot.redraw, stop() { stopCounts(); stopPipeline(); plot.destroy(); } };
}
