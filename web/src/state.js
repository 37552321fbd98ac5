// The view is its URL: every choice is a parameter, so links, back and forward work.

const defaults = (view) => ({ view: "overview", period: view === "key" ? "30d" : "today", unit: "auto", zone: "" });

export const PERIODS = [
  ["today", "Today"], ["yesterday", "Yesterday"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"], ["this-month", "This month"],
  ["last-month", "Last month"], ["12mo", "12 months"], ["this-year", "This year"], ["all", "All time"],
];
export const UNITS = [["auto", "Automatic"], ["hour", "Hour"], ["day", "Day"], ["week", "Week from Sunday"], ["mweek", "Week from Monday"],
  ["month", "Month"]];

const listeners = new Set();

export function read() {
  const chosen = Object.fromEntries(new URLSearchParams(location.search));
  return { ...defaults(chosen.view), ...chosen };
}

export function address(changes, base = read()) {
  const query = new URLSearchParams();
  const all = { ...base, ...changes };
  const usual = defaults(all.view);
  for (const [name, value] of Object.entries(all))
    if (value !== undefined && value !== null && value !== "" && value !== usual[name]) query.set(name, value);
  return `?${query}`;
}

/** Goes to another view. */
export function go(changes) {
  history.pushState(null, "", address(changes));
  notify();
}

/** Keeps a choice in the URL that the view has made already. */
export function note(changes) {
  history.replaceState(null, "", address(changes));
}

export function onChange(listener) {
  listeners.add(listener);
}

function notify() {
  for (const listener of listeners) listener();
}

addEventListener("popstate", notify);

/** Follow links within the page without loading it again. */
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='?']");
  if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href") || "?");
  notify();
  document.getElementById("view").focus({ preventScroll: true });
});

export const zoneOf = (state) => state.zone || Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

const HOURS = new Set(["today", "yesterday", "24h"]);
const MONTHS = new Set(["12mo", "this-year", "last-year", "all"]);

export function unitOf(state) {
  if (state.unit !== "auto") return state.unit;
  if (state.from && state.to) {
    const days = (state.to - state.from) / 86400;
    return days <= 3 ? "hour" : days <= 120 ? "day" : "month";
  }
  return HOURS.has(state.period) ? "hour" : MONTHS.has(state.period) ? "month" : "day";
}

/** Where a series comes from: nothing is before all time. */
export const seriesPath = (state) => (state.period === "all" && !state.from ? "v1/series" : "v1/compare");

/** The parameters of the API that select the time. */
export function timeOf(state) {
  const span = state.from && state.to ? { from: state.from, to: state.to } : { period: state.period };
  // A zone with half hours is answered by whole hours, and the answer says so.
  return { ...span, timezone: zoneOf(state), round: "hour" };
}
