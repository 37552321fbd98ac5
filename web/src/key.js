// One key: its series beside the period before, and its breakdowns.

import { get } from "./api.js";
import { periodControls } from "./controls.js";
import { byNamespace, configured, constantKey, feedOf, isConstant, isHistogram, totalOf } from "./counters.js";
import { breakdownPanel, quantilesPanel, seriesPanel } from "./counts_panels.js";
import { getCounts } from "./counts.js";
import { h, select } from "./dom.js";
import { emptyHint } from "./empty.js";
import { count, keyText, numbersOf, plural } from "./format.js";
import { latestTime } from "./latest.js";
import { keepFresh, loadParts } from "./live_update.js";
import { failFirst, panel } from "./panel.js";
import { share } from "./share.js";
import { unknownKey } from "./unknown_key.js";
import { address, go, timeOf } from "./state.js";
import { uniquesPanels } from "./uniques.js";

const FRESH = 1000; // ms
const ROWS = 15;
const SUGGESTIONS = 20;
const RECENT = 8;

const recentName = (ns) => `millrace-recent-${ns}`;
const recents = (ns) => JSON.parse(localStorage.getItem(recentName(ns)) ?? "[]");
function remember(ns, key) {
  localStorage.setItem(recentName(ns), JSON.stringify([key, ...recents(ns).filter((k) => k !== key)].slice(0, RECENT)));
}

/** Keys to choose from: those that begin with a text, then those that contain it; without a text, the largest of the latest 30 days if a counter
 *  has them. */
async function keysToChoose(totals, total, prefix, resolve, signal) {
  const feed = feedOf(totals);
  const top = !prefix && feed?.subtotals.find((s) => s.key === total.key);
  if (top) {
    const time = timeOf(await resolve({ ns: feed.ns, key: constantKey(feed) }, signal));
    const request = { path: "v1/breakdown", parameters: { ns: top.ns, key: constantKey(feed), limit: SUGGESTIONS, ...time } };
    const { rows } = await getCounts(request.path, request.parameters, signal);
    if (rows.length) return { request, rows, isLargest: true };
  }
  const request = { path: "v1/lookup", parameters: { ns: total.ns, prefix, limit: SUGGESTIONS } };
  const { rows } = await get(request.path, request.parameters, signal);
  if (prefix && rows.length < SUGGESTIONS) {
    const parts = { ns: total.ns, contains: prefix, limit: SUGGESTIONS };
    rows.push(...await get(request.path, parts, signal).then((found) => found.rows, () => [])); // a large archive is not searched
    signal.throwIfAborted();
  }
  return { request, rows, isLargest: false };
}

function finder(totals, total, state) {
  const list = h("datalist", { id: "keys" });
  let controller = new AbortController();

  async function update(prefix) {
    controller.abort();
    controller = new AbortController();
    try {
      const keys = (await keysToChoose(totals, total, prefix, latestTime(state), controller.signal)).rows.map((row) => row.key);
      const own = recents(total.ns).filter((key) => key.toLowerCase().includes(prefix.toLowerCase()));
      list.replaceChildren(...[...new Set([...own, ...keys])].map((value) => h("option", { value })));
    } catch { /* suggestions are a convenience; the request for the key itself shows the failure */ }
  }

  const input = h("input", { name: "key", list: "keys", value: state.key ?? "", autocomplete: "off", spellcheck: "false",
    placeholder: `Type a part of a ${total.label || total.ns}`, oninput: (event) => update(event.target.value),
    onfocus: (event) => update(event.target.value) });
  const open = () => go({ ns: total.ns, key: input.value, by: "", sub: "" });
  // Leaving the field, for example by a click on a link, does not choose a key.
  input.addEventListener("change", () => document.activeElement === input && open());
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
    // A counter that is not configured: the API knows whether it was, and says so.
    const former = state.ns && { ns: state.ns, key: "", label: "", subtotals: [], uniques: [] };
    const total = byNamespace(totals, state.ns) ?? (former || totals.find((t) => !isConstant(t)) || totals[0]);
    const key = state.key ?? (isConstant(total) ? constantKey(total) : undefined);
    element.replaceChildren(h("h1", {}, key === undefined ? "Find a key" : h("bdi", {}, keyText(key))),
      periodControls(state, finder(total === former ? [former, ...totals] : totals, total, state)));
    inner = key === undefined || key === "" ? start(totals, total, state, element)
      : show(totals, total, key, state, element, freshness);
  }, (error) => element.replaceChildren(h("p", { class: "error" }, error.message)));
  return { element, redraw: () => inner?.redraw?.(), stop() { stopped = true; stopFirst(); inner?.stop(); } };
}

/** Without a key: recent and largest keys to choose from. */
function start(totals, total, state, element) {
  const name = total.label || total.ns;
  const own = panel(`Your latest: ${name}`);
  const found = panel(`Choose a ${name}`);
  const resolve = latestTime(state);
  let shown = { request: { path: "v1/lookup", parameters: { ns: total.ns, prefix: "" } }, rows: [] };
  found.head.append(share({ name, request: () => shown.request, rows: () => [[name, "events"], ...shown.rows.map((r) => [r.key, r.n])] }));
  const listOf = (rows) => h("ul", { class: "keys" }, rows.map(({ key, n }) => h("li", {},
    h("a", { href: address({ ns: total.ns, key }) }, h("bdi", {}, keyText(key))), n === undefined ? null : h("span", { class: "muted" }, ` ${count(n)}`))));
  // Without a time, the API answers for the last 30 days.
  own.head.append(share({ name: "latest", request: () => ({ path: "v1/series", parameters: { ns: total.ns, key: recents(total.ns) } }),
    rows: () => [[name], ...recents(total.ns).map((key) => [key])] }));
  own.show(listOf(recents(total.ns).map((key) => ({ key }))));
  element.append(...(recents(total.ns).length ? [own.element] : []), found.element);
  const stop = keepFresh(FRESH, async (signal) => {
    shown = await keysToChoose(totals, total, "", resolve, signal);
    found.note(shown.isLargest ? "the largest, with their numbers of events" : "");
    found.show(shown.rows.length ? listOf(shown.rows) : emptyHint(await configured(signal), state));
  }, found.fail);
  return { stop };
}

function show(totals, total, key, view, element, freshness) {
  const chosen = view.by && view.sub !== undefined ? total.subtotals.find((s) => s.label === view.by || s.ns === view.by) : null;
  const isFormer = !chosen && view.by && view.sub !== undefined; // a subtotal that is not configured
  const wanted = chosen ? { ns: chosen.ns, key, sub: view.sub } : { ns: total.ns, key, ...(isFormer ? { by: view.by, sub: view.sub } : {}) };
  const series = seriesPanel(view, { showsChange: true, empty });
  const grid = h("div", { class: "grid" });
  const resolve = latestTime(view);
  let state = view; // with the time that is shown
  let isRemembered = false;
  const ofAll = view.sub === undefined ? "" : h("p", { class: "aside of-all" },
    "The bars below are of all events of the key, not only of those with ", `${chosen?.label || view.by} `, h("bdi", {}, keyText(view.sub)), ".");
  // Sets are kept for a key, not for its sub keys.
  const uniques = uniquesPanels(view.sub === undefined ? total : { uniques: [] }, key, view);
  const quantiles = (view.sub === undefined && !total.value ? total.subtotals.filter(isHistogram) : []).map((subtotal) => quantilesPanel(subtotal, view));
  element.append(series.element, ...quantiles.map((p) => p.element), ...uniques.elements, ofAll, grid);

  /** A time without events: of a key that was counted at another time, or of one that is not known. */
  async function empty(shown, signal) {
    const { total: ever } = await getCounts("v1/series", { ns: total.ns, key, unit: "month", period: "all" }, signal);
    if (ever) remember(total.ns, key);
    return ever || isConstant(total) ? emptyHint(await configured(signal), shown) : unknownKey(total, key, signal);
  }

  async function loadSeries(signal) {
    const reply = await series.load(state, wanted, signal);
    freshness(reply);
    if (reply.total && !isRemembered) remember(total.ns, key);
    isRemembered ||= reply.total > 0;
    const words = reply.scale === undefined ? plural(reply.total, "event", "events") : numbersOf(reply)(reply.total);
    series.title(...(chosen ? [`${words} with ${chosen.label} `, h("bdi", {}, keyText(view.sub)), " "] : [words]),
      chosen ? h("a", { class: "clear", href: address({ by: "", sub: "" }) }, "Show all") : "");
  }

  const panels = total.subtotals.map((subtotal) => {
    const own = totalOf(totals, subtotal);
    const isChosen = subtotal === chosen;
    const p = breakdownPanel(subtotal, { limit: ROWS, pressed: isChosen ? view.sub : undefined,
      link: (row) => address({ by: subtotal.label || subtotal.ns, sub: row.key }),
      note: () => (own && isChosen ? h("a", { class: "own", href: address({ ns: own.ns, key: view.sub, by: "", sub: "" }) }, `Open this ${own.label}`) : "") });
    grid.append(p.element);
    return { load: (signal) => p.load(state, key, signal), fail: p.fail };
  });

  const sets = uniques.charts.map((chart) => ({ load: (signal) => chart.load(state, key, signal), fail: chart.fail }));
  const charts = quantiles.map((p) => ({ load: (signal) => p.load(state, key, signal), fail: p.fail }));
  const parts = [{ load: loadSeries, fail: series.fail }, ...charts, ...panels, ...sets];
  const stop = keepFresh(FRESH, async (signal) => {
    state = await resolve(wanted, signal);
    await loadParts(parts, signal);
  }, (error) => failFirst(error, series, grid));
  return { redraw() { series.redraw(); quantiles.forEach((p) => p.redraw()); uniques.redraw(); },
    stop() { stop(); series.destroy(); quantiles.forEach((p) => p.destroy()); uniques.stop(); } };
}
