// One key: its series beside the period before, and its breakdowns.

import { get } from "./api.js";
import { bars } from "./bars.js";
import { chart } from "./chart.js";
import { periodControls } from "./controls.js";
import { byNamespace, configured, constantKey, feedOf, isConstant, totalOf } from "./counters.js";
import { h, select } from "./dom.js";
import { emptyHint } from "./empty.js";
import { change, count, isWholeHour, keyText, likeForLike, moment } from "./format.js";
import { keepFresh, loadParts } from "./live_update.js";
import { panel } from "./panel.js";
import { share } from "./share.js";
import { address, go, seriesPath, timeOf, unitOf, zoneOf } from "./state.js";

const FRESH = 1000; // ms
const ROWS = 15;
const SUGGESTIONS = 20;
const RECENT = 8;

const recentName = (ns) => `millrace-recent-${ns}`;
const recents = (ns) => JSON.parse(localStorage.getItem(recentName(ns)) ?? "[]");
function remember(ns, key) {
  localStorage.setItem(recentName(ns), JSON.stringify([key, ...recents(ns).filter((k) => k !== key)].slice(0, RECENT)));
}

/** Keys that begin with `prefix`; without one the largest of the last weeks, if there are any. */
async function suggest(totals, total, prefix, signal) {
  const feed = feedOf(totals);
  const top = prefix ? null : feed?.subtotals.find((s) => s.key === total.key);
  const largest = top ? await get("v1/breakdown", { ns: top.ns, key: constantKey(feed), period: "30d", limit: SUGGESTIONS }, signal) : null;
  const reply = largest?.rows.length ? largest : await get("v1/lookup", { ns: total.ns, prefix, limit: SUGGESTIONS }, signal);
  return reply.rows.map((row) => row.key);
}

function finder(totals, total, state) {
  const list = h("datalist", { id: "keys" });
  let controller = new AbortController();

  async function update(prefix) {
    controller.abort();
    controller = new AbortController();
    try {
      const keys = await suggest(totals, total, prefix, controller.signal);
      const own = recents(total.ns).filter((key) => key.startsWith(prefix));
      list.replaceChildren(...[...new Set([...own, ...keys])].map((value) => h("option", { value })));
    } catch { /* suggestions are a convenience; the request for the key itself shows the failure */ }
  }

  const input = h("input", { name: "key", list: "keys", value: state.key ?? "", autocomplete: "off", spellcheck: "false",
    placeholder: `Type the beginning of a ${total.label || total.ns}`, oninput: (event) => update(event.target.value),
    onfocus: (event) => update(event.target.value) });
  const open = () => go({ ns: total.ns, key: input.value, by: "", sub: "" });
  input.addEventListener("change", open);
  return [select("Counter", "ns", totals.map((t) => [t.ns, t.label || t.ns]), total.ns, (ns) => {
    const next = byNamespace(totals, ns);
    go({ ns, key: isConstant(next) ? constantKey(next) : "", by: "", sub: "" });
  }), isConstant(total) ? null : h("label", { class: "find" }, h("span", {}, "Key"), input, list)];
}

export function keyView(state, { freshness }) {
  const element = h("div", { class: "key" }, h("p", { class: "muted" }, "Loading…"));
  let inner = null;
  let stopped = false;
  const stopFirst = keepFresh(3600000, async (signal) => {
    const { totals } = await configured(signal);
    if (stopped || inner || totals.length === 0) return;
    const total = byNamespace(totals, state.ns) ?? totals.find((t) => !isConstant(t)) ?? totals[0];
    const key = state.key ?? (isConstant(total) ? constantKey(total) : undefined);
    element.replaceChildren(h("h1", {}, key === undefined ? "Find a key" : h("bdi", {}, keyText(key))),
      periodControls(state, finder(totals, total, state)));
    inner = key === undefined || key === "" ? start(totals, total, state, element)
      : show(totals, total, key, state, element, freshness);
  }, (error) => element.replaceChildren(h("p", { class: "error" }, error.message)));
  return { element, redraw: () => inner?.redraw?.(), stop() { stopped = true; stopFirst(); inner?.stop(); } };
}

/** Without a key: recent and largest keys to choose from. */
function start(totals, total, state, element) {
  const found = panel(`Choose a ${total.label || total.ns}`);
  element.append(found.element);
  const stop = keepFresh(60000, async (signal) => {
    const keys = [...new Set([...recents(total.ns), ...await suggest(totals, total, "", signal)])];
    found.show(keys.length ? h("ul", { class: "keys" }, keys.map((key) =>
      h("li", {}, h("a", { href: address({ ns: total.ns, key }) }, h("bdi", {}, keyText(key)))))) : emptyHint(await configured(signal)));
  }, found.fail);
  return { stop };
}

function show(totals, total, key, state, element, freshness) {
  const zone = zoneOf(state);
  const chosen = state.by && state.sub !== undefined ? total.subtotals.find((s) => s.label === state.by || s.ns === state.by) : null;
  const series = panel("Events", { wide: true });
  const plot = chart({ label: "Events", zone, onZoom: (from, to) => go({ from, to, unit: "auto" }) });
  const grid = h("div", { class: "grid" });
  element.append(series.element, grid);
  remember(total.ns, key);

  const seriesParameters = () => ({ ...(chosen ? { ns: chosen.ns, key, sub: state.sub } : { ns: total.ns, key }),
    unit: unitOf(state), ...timeOf(state) });
  let rows = [];
  let hint = null;
  series.element.querySelector(".panel-head").append(share({ name: "series",
    request: () => ({ path: seriesPath(state), parameters: seriesParameters() }),
    rows: () => [["date", "events", "before"], ...rows.map((r) => [r.date, r.n, r.before?.n ?? ""])],
    canvas: plot.canvas }));

  async function loadSeries(signal) {
    const reply = await get(seriesPath(state), seriesParameters(), signal);
    rows = reply.rows;
    freshness(reply, zone);
    series.title(chosen ? h("span", {}, `${count(reply.total)} events with ${chosen.label} `, h("bdi", {}, keyText(state.sub)), " ",
      h("a", { class: "clear", href: address({ by: "", sub: "" }) }, "Show all")) : `${count(reply.total)} events`);
    const like = likeForLike(rows);
    series.note(like ? `${change(like.percent)}${like.then ? ` against ${count(like.then)}` : ""} in the same part of the time from ${
      moment(reply.before.from, zone)}` : "",
      reply.round && !isWholeHour(zone) ? "; zones with half hours are answered by whole hours" : "");
    plot.draw(rows);
    series.show(plot.element, ...(reply.total ? [] : [hint ??= emptyHint(await configured(signal))]));
  }

  const panels = total.subtotals.map((subtotal) => {
    const p = panel(subtotal.label || subtotal.ns);
    const parameters = { ns: subtotal.ns, key, limit: ROWS, ...timeOf(state) };
    p.element.querySelector(".panel-head").append(share({ name: subtotal.label, request: () => ({ path: "v1/breakdown", parameters }),
      rows: () => [[subtotal.label, "events", "share"], ...(p.reply?.rows ?? []).map((r) => [r.key, r.n, r.share])] }));
    grid.append(p.element);
    p.load = async (signal) => {
      const reply = await get("v1/breakdown", parameters, signal);
      const own = totalOf(totals, subtotal);
      p.reply = reply;
      p.note(`${count(reply.distinct)} in all`, own && subtotal === chosen
        ? h("a", { class: "own", href: address({ ns: own.ns, key: state.sub, by: "", sub: "" }) }, `Open this ${own.label}`) : "");
      p.show(bars({ caption: subtotal.label, rows: reply.rows, other: reply.other, total: reply.total,
        pressed: subtotal === chosen ? state.sub : undefined,
        link: (row) => address({ by: subtotal.label || subtotal.ns, sub: row.key }) }));
    };
    return p;
  });

  const parts = [{ load: loadSeries, fail: series.fail }, ...panels];
  const stop = keepFresh(FRESH, (signal) => loadParts(parts, signal), series.fail);
  return { redraw: plot.redraw, stop() { stop(); plot.destroy(); } };
}
