// One key: its series beside the period before, and its breakdowns.

import { get } from "./api.js";
import { periodControls, showTime } from "./controls.js";
import { countMore } from "./count_more.js";
import { byNamespace, configured, constantKey, feedOf, isConstant, isHistogram, totalOf } from "./counters.js";
import { breakdownPanel, quantilesPanel, seriesPanel } from "./counts_panels.js";
import { getCounts } from "./counts.js";
import { h, select } from "./dom.js";
import { emptyHint } from "./empty.js";
import { filtersOf, wordsOf } from "./filters.js";
import { count, keyText, numbersOf, plural } from "./format.js";
import { latestTime } from "./latest.js";
import { keepFresh, loadParts } from "./live_update.js";
import { failFirst, panel } from "./panel.js";
import { share } from "./share.js";
import { unknownKey } from "./unknown_key.js";
import { address, go, timeOf, withFilter } from "./state.js";
import { uniquesPanels } from "./uniques.js";

const FRESH = 1000; // ms
const ROWS = 15;
const SUGGESTIONS = 20;
const RECENT = 8;
const LOOKED_AT = 1000; // keys, of which those with the most events are shown
const FOUND = 60;
const TYPED = 150; // ms after the last letter
const SEARCH_FRESH = 60000; // ms; a search may read a large archive

const recentName = (ns) => `millrace-recent-${ns}`;
const recents = (ns) => JSON.parse(localStorage.getItem(recentName(ns)) ?? "[]");
function remember(ns, key) {
  localStorage.setItem(recentName(ns), JSON.stringify([key, ...recents(ns).filter((k) => k !== key)].slice(0, RECENT)));
}

/** The largest keys of the latest 30 days, if a counter has them, or else the first of all. */
async function largestKeys(totals, total, resolve, signal) {
  const feed = feedOf(totals);
  const top = feed?.subtotals.find((s) => s.key === total.key);
  if (top) {
    const time = timeOf(await resolve({ ns: feed.ns, key: constantKey(feed) }, signal));
    const request = { path: "v1/breakdown", parameters: { ns: top.ns, key: constantKey(feed), limit: SUGGESTIONS, ...time } };
    const { rows } = await getCounts(request.path, request.parameters, signal);
    if (rows.length) return { request, rows, words: "the largest, with their numbers of events" };
  }
  const request = { path: "v1/lookup", parameters: { ns: total.ns, prefix: "", limit: SUGGESTIONS } };
  return { request, rows: (await get(request.path, request.parameters, signal)).rows, words: "" };
}

/** The keys that contain a text in any case, those with the most events first; of an archive that is too large to search, those that begin with it. */
async function keysWith(total, text, signal) {
  const ask = async (parameters, words) => {
    const request = { path: "v1/lookup", parameters: { ns: total.ns, ...parameters, limit: LOOKED_AT } };
    const { rows, continuation } = await get(request.path, request.parameters, signal);
    return { request, rows: rows.sort((a, b) => b.n - a.n), words: [words, continuation && "more keys follow, type more of the key"].filter(Boolean).join("; ") };
  };
  return ask({ contains: text }, "").catch((error) => {
    if (error.code !== "search-too-large") throw error;
    return ask({ prefix: text }, "the archive is too large to search, so these keys begin with the text");
  });
}

const keysToChoose = (totals, total, text, resolve, signal) => (text ? keysWith(total, text, signal) : largestKeys(totals, total, resolve, signal));

/** The select of a counter and the field of a key. `onType(text)` filters the keys below; without it, the field suggests keys. */
function finder(totals, total, state, onType) {
  const list = h("datalist", { id: "keys" });
  let controller = new AbortController();

  async function suggest(text) {
    controller.abort();
    controller = new AbortController();
    try {
      const { rows } = await keysToChoose(totals, total, text, latestTime(state), controller.signal);
      const own = recents(total.ns).filter((key) => key.toLowerCase().includes(text.toLowerCase()));
      const keys = [...new Set([...own, ...rows.map((row) => row.key)])].slice(0, SUGGESTIONS);
      list.replaceChildren(...keys.map((value) => h("option", { value })));
    } catch { /* suggestions are a convenience; the request for the key itself shows the failure */ }
  }

  const update = (event) => (onType ?? suggest)(event.target.value);
  const input = h("input", { name: "key", type: "search", list: onType ? null : "keys", value: state.key ?? "", autocomplete: "off", spellcheck: "false",
    placeholder: `Type a part of the ${total.label || total.ns}`, oninput: update, onfocus: onType ? null : update });
  const open = () => go({ ns: total.ns, key: input.value });
  // Leaving the field, for example by a click on a link, does not choose a key.
  input.addEventListener("change", () => document.activeElement === input && open());
  return [select("Counter", "ns", totals.map((t) => [t.ns, t.label || t.ns]), total.ns, (ns) => {
    const next = byNamespace(totals, ns);
    go({ ns, key: isConstant(next) ? constantKey(next) : "", where: [] });
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
    const isStart = key === undefined || key === "";
    let found = null;
    element.replaceChildren(h("h1", {}, isStart ? "Find a key" : h("bdi", {}, keyText(isConstant(total) ? total.label || total.ns : key))),
      periodControls(isStart ? { ...state, where: null } : state,
        finder(total === former ? [former, ...totals] : totals, total, state, isStart ? (text) => found.look(text) : null)));
    inner = found = isStart ? start(totals, total, state, element) : show(totals, total, key, state, element, freshness);
  }, (error) => element.replaceChildren(h("p", { class: "error" }, error.message)));
  return { element, redraw: () => inner?.redraw?.(), stop() { stopped = true; stopFirst(); inner?.stop(); } };
}

/** Without a key: recent and largest keys to choose from, or those with the text that look(text) is given. */
function start(totals, total, state, element) {
  const name = total.label || total.ns;
  const own = panel(`Your latest: ${name}`);
  const found = panel(`Choose: ${name}`);
  const resolve = latestTime(state);
  let text = "";
  let shown = { request: { path: "v1/lookup", parameters: { ns: total.ns, prefix: "" } }, rows: [] };
  found.head.append(share({ name, request: () => shown.request, rows: () => [[name, "events"], ...shown.rows.map((r) => [r.key, r.n])] }));
  const listOf = (rows) => h("ul", { class: "keys" }, rows.map(({ key, n }) => h("li", {},
    h("a", { href: address({ ns: total.ns, key }) }, h("bdi", {}, keyText(key))), n === undefined ? null : h("span", { class: "muted" }, ` ${count(n)}`))));
  // Without a time, the API answers for the last 30 days.
  own.head.append(share({ name: "latest", request: () => ({ path: "v1/series", parameters: { ns: total.ns, key: recents(total.ns) } }),
    rows: () => [[name], ...recents(total.ns).map((key) => [key])] }));
  own.show(listOf(recents(total.ns).map((key) => ({ key }))));
  element.append(...(recents(total.ns).length ? [own.element] : []), found.element);
  const more = countMore({ totals }); // below the list, once its height is known

  async function load(signal) {
    const asked = text;
    const next = await keysToChoose(totals, total, asked, resolve, signal);
    if (asked !== text) return;
    shown = next;
    const rows = shown.rows.slice(0, asked ? FOUND : SUGGESTIONS);
    found.title(asked ? `Keys with “${asked.slice(0, 60)}”` : `Choose: ${name}`);
    const some = rows.length < shown.rows.length ? `${count(rows.length)} of ` : "";
    found.note(asked && rows.length ? `${some}${plural(shown.rows.length, "key", "keys")}, those with the most events first` : "", shown.words);
    found.show(rows.length ? listOf(rows) : asked ? h("p", { class: "muted" }, "No key contains this text.") : emptyHint(await configured(signal), state));
    if (!more.parentNode) element.append(more);
  }

  let stop = keepFresh(FRESH, load, found.fail, { of: "counts" });
  let typed;
  return { look(next) {
    text = next;
    own.element.hidden = Boolean(text);
    clearTimeout(typed);
    typed = setTimeout(() => {
      stop();
      stop = keepFresh(text ? SEARCH_FRESH : FRESH, load, found.fail, { of: "counts" });
    }, TYPED);
  }, stop() {
    clearTimeout(typed);
    stop();
  } };
}

function show(totals, total, key, view, element, freshness) {
  const wanted = { ns: total.ns, key };
  const series = seriesPanel(view, { showsChange: true, empty });
  const grid = h("div", { class: "grid" });
  const resolve = latestTime(view);
  let state = view; // with the time that is shown
  let isRemembered = false;
  const filters = filtersOf(view);
  const uniques = uniquesPanels(total, key, view);
  const quantiles = (total.value ? [] : total.subtotals.filter(isHistogram)).map((subtotal) => quantilesPanel(subtotal, view));
  element.append(series.element, ...quantiles.map((p) => p.element), ...uniques.elements, grid);

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
    series.title(filters.length ? `${words} with ${wordsOf(filters)}` : words);
  }

  const panels = total.subtotals.map((subtotal) => {
    const own = totalOf(totals, subtotal);
    const label = subtotal.label || subtotal.ns;
    const p = breakdownPanel(subtotal, { limit: ROWS,
      link: (row) => address({ where: filters.some(([name, value]) => name === label && value === row.key)
        ? view.where.filter((text) => text !== `${label}:${row.key}`) : withFilter(view.where, label, row.key) }),
      note: (chosen) => (own && chosen !== undefined ? h("a", { class: "own", href: address({ ns: own.ns, key: chosen, where: [] }) }, `Open this ${own.label}`) : "") });
    grid.append(p.element);
    return { load: (signal) => p.load(state, key, signal), fail: p.fail };
  });

  const sets = uniques.charts.map((chart) => ({ load: (signal) => chart.load(state, key, signal), fail: chart.fail }));
  const charts = quantiles.map((p) => ({ load: (signal) => p.load(state, key, signal), fail: p.fail }));
  const parts = [{ load: loadSeries, fail: series.fail }, ...charts, ...panels, ...sets];
  const stop = keepFresh(FRESH, async (signal) => {
    state = await resolve(wanted, signal);
    showTime(element, state, view);
    await loadParts(parts, signal);
  }, (error) => failFirst(error, series, grid), { of: "counts" });
  return { redraw() { series.redraw(); quantiles.forEach((p) => p.redraw()); uniques.redraw(); },
    stop() { stop(); series.destroy(); quantiles.forEach((p) => p.destroy()); uniques.stop(); } };
}
