// The choice of time, comparison and zone, the filters, and what else a view lets choose, above each view that shows counts.

import { configured } from "./counters.js";
import { h, select } from "./dom.js";
import { filterControls } from "./filters.js";
import { span } from "./format.js";
import { popup, roving } from "./popup.js";
import { address, AGAINST, go, hasWeeks, isSpan, note, periodsOf, UNITS, weekStartOf, WEEK_STARTS, zoneOf } from "./state.js";

/** Cities that browsers list by their former names. */
const RENAMED = { "Asia/Calcutta": "Asia/Kolkata", "Asia/Katmandu": "Asia/Kathmandu", "Asia/Rangoon": "Asia/Yangon", "Asia/Saigon": "Asia/Ho_Chi_Minh",
  "Europe/Kiev": "Europe/Kyiv", "America/Godthab": "America/Nuuk", "Africa/Asmera": "Africa/Asmara" };

/** Zones, the browser's own first. */
function zones() {
  const own = zoneOf({});
  const others = Intl.supportedValuesOf("timeZone").map((zone) => RENAMED[zone] ?? zone).sort();
  return [[own, `${RENAMED[own] ?? own} (this browser)`], ...[...new Set(["UTC", ...others])].filter((zone) => zone !== own).map((zone) => [zone, zone])];
}

export const zoneControl = (state) => select("Zone", "zone", zones(), zoneOf(state), (zone) => go({ zone }));

const NOW = { overview: "Today", key: "Last 30 days" };
const DAY = 86400000; // ms
const dateOf = (ms, zone) => new Intl.DateTimeFormat("en-CA", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit" }).format(ms);
const nextDay = (date) => new Date(Date.parse(date) + DAY).toISOString().slice(0, 10);
const isDate = (text) => /^\d{4}-\d\d-\d\d$/.test(text);

/** The first and the last day of the chosen span, or empty texts. */
function daysOf(state) {
  if (!isSpan(state)) return ["", ""];
  const zone = zoneOf(state);
  const day = (text, earlier, inZone) => {
    const ms = isDate(text) ? Date.parse(text) : Number(text) * 1000;
    return Number.isFinite(ms) ? dateOf(ms - earlier, isDate(text) ? "UTC" : inZone) : "";
  };
  return [day(state.from, 0, zone), day(state.to, 1, zone)];
}

/** What the form of the time has chosen. A period chooses its own unit unless the unit was changed. */
function chosenTime(form, period, state) {
  const { from, to, ...more } = Object.fromEntries(new FormData(form));
  const was = daysOf(state);
  if (period) return { ...more, period, from: "", to: "", unit: more.unit === state.unit ? "auto" : more.unit };
  if (!from || !to || (from === was[0] && to === was[1])) return more;
  const [first, last] = from <= to ? [from, to] : [to, from];
  return { ...more, from: first, to: nextDay(last), unit: more.unit === state.unit ? "auto" : more.unit };
}

function timeForm(state, close) {
  const choose = (period) => {
    const changes = chosenTime(form, period, state);
    close();
    go(changes);
  };
  const [from, to] = daysOf(state);
  const isChosen = (value) => !isSpan(state) && value === state.period;
  const columns = periodsOf(state).map((column) => column.map(([value, text]) =>
    h("button", { type: "button", name: "period", value, onclick: () => choose(value), "aria-pressed": isChosen(value) ? "true" : "false", autofocus: isChosen(value) }, text)));
  const all = columns.flat();
  roving(all, all.find((button) => isChosen(button.value)));
  const date = (label, name, value) => h("label", {}, h("span", {}, label), h("input", { type: "date", name, value, max: "9999-12-31" }));
  const unit = select("A bar for each", "unit", UNITS, state.unit);
  configured().then(({ resolution }) => {
    if (resolution === "1h" && state.unit !== "15m") unit.querySelector("[value='15m']").remove();
  }).catch(() => { /* the view's own requests show the failure */ });
  const form = h("form", { class: "time", onsubmit: (event) => {
    event.preventDefault();
    choose();
  } }, h("div", { class: "periods", role: "group", "aria-label": "Period" }, columns.map((column) => h("div", {}, column))),
  h("div", { class: "fields" }, date("From", "from", from), date("To", "to", to), unit, select("Compare with", "against", AGAINST, state.against),
    select("Weeks begin on", "week_start", WEEK_STARTS, weekStartOf(state)), select("Zone", "zone", zones(), zoneOf(state))),
  h("button", { class: "main" }, "Show"));
  return form;
}

/** The chosen time in words; the zone if it is not the browser's. The latest time is, unless it is known to be older, that of now. */
function timeWords(state) {
  const zone = zoneOf(state);
  const name = !isSpan(state) && state.period === "latest" ? NOW[state.view] ?? NOW.overview : isSpan(state) ? span(state.from, state.to, zone) : periodsOf(state).flat().find(([value]) => value === state.period)?.[1] ?? state.period;
  return zone === zoneOf({}) ? name : `${name}, ${zone}`;
}

/** Shows which time "latest" has turned out to be. */
export function showTime(controls, { isOld, from, to, period }, view) {
  const words = timeWords(isOld ? { ...view, from, to } : { ...view, period });
  const chosen = controls.querySelector(".chosen-time");
  if (!chosen || chosen.textContent === words) return;
  chosen.textContent = words;
  chosen.closest("button").setAttribute("aria-label", `Time: ${words}`);
}

/** A view whose state has no `where` has no filters. */
export function periodControls(state, ...more) {
  note({ zone: zoneOf(state), ...(hasWeeks(state) ? { week_start: weekStartOf(state) } : {}) }); // so that a link gives the same view
  return h("div", { class: "controls" }, more,
    popup({ name: "time", text: h("span", { class: "chosen-time" }, timeWords(state)), label: `Time: ${timeWords(state)}`, kind: "time-choice", fill: (close) => timeForm(state, close) }),
    state.where && filterControls(state),
    isSpan(state) && h("p", { class: "chip" }, h("a", { href: address({ from: "", to: "" }) }, "Clear the selection")));
}
