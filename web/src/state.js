// The view is its URL: every choice is a parameter, so links, back and forward work.

// The default period is the latest one that has events (latest.js).
const DEFAULTS = { view: "overview", period: "latest", unit: "auto", zone: "", against: "before" };

const PERIODS = [
  ["today", "Today"], ["yesterday", "Yesterday"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"], ["this-month", "This month"],
  ["last-month", "Last month"], ["12mo", "12 months"], ["this-year", "This year"], ["all", "All time"],
];
/** What "latest" means: this period, or if it has no events, as many days up to the newest event. */
export const LATEST = { overview: { period: "today", days: 1, words: "today" }, key: { period: "30d", days: 30, words: "in the last 30 days" } };
export const periodsOf = (state) => [["latest", state.view === "key" ? "Latest 30 days" : "Latest day"], ...PERIODS];
export const UNITS = [["auto", "Automatic"], ["15m", "Quarter hour"], ["hour", "Hour"], ["day", "Day"], ["week", "Week from Sunday"],
  ["mweek", "Week from Monday"], ["week-saturday", "Week from Saturday"], ["month", "Month"]];
export const AGAINST = [["before", "The time before"], ["year", "A year before"], ["none", "Nothing"]];

const listeners = new Set();

export function read() {
  const chosen = Object.fromEntries(new URLSearchParams(location.search));
  return { ...DEFAULTS, ...chosen };
}

export function address(changes, base = read()) {
  const query = new URLSearchParams();
  const all = { ...base, ...changes };
  for (const [name, value] of Object.entries(all))
    if (value !== undefined && value !== null && value !== "" && value !== DEFAULTS[name]) query.set(name, value);
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
export const isSpan = (state) => Boolean(state.from && state.to);

const HOURS = new Set(["today", "yesterday", "24h"]);
const MONTHS = new Set(["12mo", "this-year", "last-year", "all"]);

export function unitOf(state) {
  if (state.unit !== "auto") return state.unit;
  if (isSpan(state)) {
    const days = (state.to - state.from) / 86400; // NaN: the API says what it takes for a time
    return days <= 3 ? "hour" : days > 120 ? "month" : "day";
  }
  return HOURS.has(state.period) ? "hour" : MONTHS.has(state.period) ? "month" : "day";
}

/** The parameters of the API that select the time. */
export function timeOf(state) {
  // A span that was chosen in a zone with half hours may cut the hours of another zone.
  const span = isSpan(state) ? { from: state.from, to: state.to, bounds: "outward" } : { period: state.period };
  // A zone with half hours is answered by whole hours, and the answer says so.
  return { ...span, timezone: zoneOf(state), round: "hour" };
}

/** The request for a series ({ns, key, sub}). Nothing is before all time. */
export function seriesRequest(state, series) {
  const [unit, week_start] = unitOf(state).split("-");
  const compares = state.against !== "none" && (isSpan(state) || state.period !== "all");
  return {
    path: compares ? "v1/compare" : "v1/series",
    parameters: { ...series, unit, week_start, ...timeOf(state), ...(compares && state.against !== "before" ? { against: state.against } : {}) },
  };
}
