// Metrics: the lines of one metric of metricdb, chosen by name and filtered by labels.

import { ApiError, get } from "./api.js";
import { chart } from "./chart.js";
import { zoneControl } from "./controls.js";
import { h, select } from "./dom.js";
import { clock, count, keyText, moment, plural, precise, span } from "./format.js";
import { keepFresh } from "./live_update.js";
import { expressionOf, filtersOf, FILTER, linesOf, LINES_MAX, drawingOf, isCounter, PERIODS, timeOf } from "./metrics_query.js";
import { panel } from "./panel.js";
import { copy, share } from "./share.js";
import { address, go, isSpan, note, zoneOf } from "./state.js";

const FRESH = 5000; // ms
const PAST_FRESH = 60000; // ms, for a time that has ended
const NAMES_FRESH = 10000; // ms
const NAMES_SHOWN = 200;
const SOURCE = { source: "metricdb" };
const ZOOM_MIN = 60; // seconds
const NO_NAMES = "metricdb has no metrics. Add the section [scraper] to the configuration: see millrace help metrics.";

/** The series of the latest metric, so that the choice of labels keeps its place when a choice changes the view. */
let known = { metric: null, sets: [] };

const withoutFilters = (state) => Object.fromEntries(Object.keys(state).filter((name) => name.startsWith(FILTER)).map((name) => [name, ""]));
const matches = (set, filters) => filters.every(([label, value]) => (set[label] ?? "") === value);

/** A select for each label that divides the series, and a chip for each chosen value. */
function filterControls(state, sets) {
  const filters = filtersOf(state);
  const labels = [...new Set(sets.flatMap(Object.keys))].filter((label) => label !== "__name__").sort();
  const selects = labels.map((label) => {
    const others = filters.filter(([name]) => name !== label);
    const values = [...new Set(sets.filter((set) => matches(set, others)).map((set) => set[label]))].filter(Boolean).sort();
    return values.length > 1 && select(label, FILTER + label, [["", "any"], ...values.map((value) => [value, keyText(value)])], state[FILTER + label] ?? "",
      (value) => go({ [FILTER + label]: value }));
  });
  return h("form", { class: "controls filters", onsubmit: (event) => event.preventDefault() }, selects,
    filters.map(([label, value]) => h("p", { class: "chip" }, `${label} = `, h("bdi", {}, keyText(value)), " ",
      h("a", { href: address({ [FILTER + label]: "" }), "aria-label": `Remove the filter ${label}` }, "Remove"))));
}

/** The field with a list of the names that contain each word of its text. */
function finder(state) {
  const found = panel("Choose a metric");
  let names = null;
  const shown = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    return (names ?? []).filter((name) => words.every((word) => name.toLowerCase().includes(word)));
  };
  const linkOf = (metric) => address({ ...withoutFilters(state), metric, find: "", draw: "" });
  function show() {
    const list = shown();
    found.element.hidden = Boolean(state.metric) && input.value === state.metric;
    if (!names) return;
    found.note(list.length > NAMES_SHOWN ? `${count(NAMES_SHOWN)} of ${count(list.length)} names; type to find others` : plural(list.length, "name", "names"));
    found.show(list.length ? h("ul", { class: "keys" }, list.slice(0, NAMES_SHOWN).map((name) => h("li", {}, h("a", { href: linkOf(name) }, h("bdi", {}, keyText(name))))))
      : h("p", { class: "muted" }, names.length ? "No metric has this text in its name." : NO_NAMES));
  }
  const input = h("input", { name: "metric", type: "search", value: state.find ?? state.metric ?? "", autocomplete: "off", spellcheck: "false",
    placeholder: "Type a part of a name", oninput: () => {
      note({ find: input.value === state.metric ? "" : input.value });
      show();
    } });
  const request = { path: "api/v1/label/__name__/values", parameters: {} };
  found.head.append(share({ name: "metrics", request: () => request, rows: () => [["name"], ...shown().map((name) => [name])] }));
  const stop = keepFresh(NAMES_FRESH, async (signal) => {
    names = (await get(request.path, request.parameters, signal)).data;
    show();
  }, found.fail, SOURCE);
  show();
  return { field: h("label", { class: "find" }, h("span", {}, "Metric"), input), element: found.element, stop,
    choose() {
      const list = shown();
      const metric = list.includes(input.value) ? input.value : list[0];
      if (metric && metric !== state.metric) go({ ...withoutFilters(state), metric, find: "", draw: "" });
    } };
}

/** A query that takes too long would take as long again. */
const ask = (path, parameters, signal) => get(path, parameters, signal).catch((error) => {
  throw error.code === "timeout" ? new ApiError(422, null, error.message) : error;
});

/** The chart of the chosen metric. */
function linesPanel(state, showFilters) {
  const p = panel(h("bdi", {}, keyText(state.metric)), { wide: true });
  const zone = zoneOf(state);
  const plot = chart({ label: state.metric.slice(0, 60), zone, onZoom(from, to) {
    const more = Math.max(0, ZOOM_MIN - (to - from)) / 2;
    go({ from: Math.floor(from - more), to: Math.ceil(to + more) });
  } });
  plot.element.addEventListener("dblclick", (event) => {
    if (isSpan(state) && event.target.closest(".plot")) go({ from: "", to: "" });
  });
  let shown = { request: { path: "api/v1/query_range", parameters: {} }, names: [], rows: [] };
  p.head.append(share({ name: state.metric, request: () => shown.request, table: plot.table,
    more: [["Copy as PromQL", () => copy(shown.request.parameters.query)]],
    rows: () => [["time", ...shown.names], ...shown.rows.map((row) => [new Date(row.t * 1000).toISOString(), ...row.values])] }));

  async function load(signal) {
    const { start, end, step } = timeOf(state);
    const { data: sets } = await ask("api/v1/series", { "match[]": expressionOf({ metric: state.metric }, {}), start, end }, signal);
    known = { metric: state.metric, sets };
    showFilters(sets);
    const total = sets.filter((set) => matches(set, filtersOf(state))).length;
    const query = expressionOf(state, { step, total, draw: drawingOf(state) });
    shown.request = { path: "api/v1/query_range", parameters: { query, start, end, step } };
    const { data } = await ask(shown.request.path, shown.request.parameters, signal);
    const format = end - start > 86400 ? moment : clock;
    const { names, rows } = linesOf(data.result, { start, end, step }, (t) => format(t, zone));
    shown = { ...shown, names, rows };
    p.note([h("code", {}, query)], total > LINES_MAX ? `${names.length} of ${count(total)} lines: those with the largest values` : plural(names.length, "line", "lines"));
    if (!names.length) return p.show(h("p", { class: "muted" }, total ? "No values in this time: a rate needs two samples." : "No samples in this time."));
    plot.draw(rows, { lines: names.map(keyText), now: plural(names.length, "line", "lines"), to: end + step, number: precise });
    p.show(plot.element);
  }
  const stop = keepFresh(isSpan(state) ? PAST_FRESH : FRESH, load, p.fail, SOURCE);
  return { element: p.element, redraw: plot.redraw, stop() { stop(); plot.destroy(); } };
}

export function metricsView(state) {
  const own = isSpan(state);
  const find = finder(state);
  const filters = h("div", {});
  const showFilters = (sets) => {
    const next = filterControls(state, sets);
    if (!filters.firstChild?.isEqualNode(next)) filters.replaceChildren(next);
  };
  const controls = h("form", { class: "controls", onsubmit: (event) => {
    event.preventDefault();
    find.choose();
  } }, find.field,
  state.metric && select("Draw", "draw", [["rate", "Rate a second"], ["value", "Value"]], drawingOf(state),
    (draw) => go({ draw: (draw === "rate") === isCounter(state.metric) ? "" : draw })),
  select("Period", "period", own ? [["", "Selected"], ...PERIODS] : PERIODS, own ? "" : state.period, (period) => period && go({ period, from: "", to: "" })),
  zoneControl(state),
  own && h("p", { class: "chip" }, `${span(state.from, state.to, zoneOf(state))} `, h("a", { href: address({ from: "", to: "" }) }, "Clear the selection")));
  const lines = state.metric ? linesPanel(state, showFilters) : null;
  if (state.metric) showFilters(known.metric === state.metric ? known.sets : []);
  const element = h("div", { class: "metrics" }, h("h1", { class: "visually-hidden" }, "Metrics"), controls, filters, find.element, lines?.element);
  return { element, redraw: () => lines?.redraw(), stop() { find.stop(); lines?.stop(); } };
}
