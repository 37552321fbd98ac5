// The view is its URL: every choice is a parameter, so links, back and forward work.

// The default period is the latest one that has events (latest.js).
const DEFAULTS = { view: "overview", period: "latest", unit: "auto", zone: "", against: "before" };

/** What "latest" means: this period, or if it has no events, as many days up to the newest event. */
export const LATEST = { overview: { period: "today", days: 1, words: "today" }, key: { period: "30d", days: 30, words: "in the last 30 days" } };
/** Periods by the columns of the choice. */
export const periodsOf = (state) => [
  [["latest", state.view === "key" ? "Latest 30 days" : "Latest day"], ["today", "Today"], ["yesterday", "Yesterday"], ["24h", "Last 24 hours"]],
  [["this-week", "This week"], ["last-week", "Last week"], ["7d", "Last 7 days"], ["30d", "Last 30 days"]],
  [["this-month", "This month"], ["last-month", "Last month"], ["12mo", "Last 12 months"], ["this-year", "This year"], ["all", "All time"]],
];
export const UNITS = [["auto", "Automatic"], ["15m", "Quarter hour"], ["hour", "Hour"], ["day", "Day"], ["week", "Week"], ["month", "Month"]];
export const AGAINST = [["before", "The time before"], ["year", "A year before"], ["none", "Nothing"]];
const WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
export const WEEK_STARTS = ["monday", "sunday", "saturday"].map((day) => [day, day[0].toUpperCase() + day.slice(1)]);

const listeners = new Set();

/** Each filter is LABEL:VALUE. A link may also have one as `by` and `sub`, and the day on which weeks begin as a part of the unit. */
export function read() {
  const query = new URLSearchParams(location.search);
  const { by, sub, ...state } = { ...DEFAULTS, ...Object.fromEntries(query), where: query.getAll("where") };
  if (by && sub !== undefined) state.where = withFilter(state.where, by, sub);
  if (state.unit === "mweek") state.unit = "week-monday";
  const [unit, day] = state.unit.split("-");
  return day ? { ...state, unit, week_start: day } : state;
}

/** The filters with one of this label, which replaces another of the label. */
export const withFilter = (where, label, value) => [...where.filter((text) => !text.startsWith(`${label}:`)), `${label}:${value}`];

export function address(changes, base = read()) {
  const query = new URLSearchParams();
  const all = { ...base, ...changes };
  for (const [name, value] of Object.entries(all))
    for (const each of [value].flat()) if (each !== undefined && each !== null && each !== "" && each !== DEFAULTS[name]) query.append(name, each);
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

/** The day on which weeks begin: the chosen one, or that of the reader's language. English (US) is also the language of a browser that was never
 *  set up, so outside America weeks then begin on Monday. */
export function weekStartOf(state) {
  const isUnset = navigator.language === "en-US" && !/^(America|Pacific|US)\//.test(zoneOf({}));
  const locale = new Intl.Locale(isUnset ? "en-GB" : navigator.language);
  const { firstDay = 1 } = locale.getWeekInfo?.() ?? locale.weekInfo ?? {}; // 7: Sunday
  return state.week_start || WEEKDAYS[firstDay % 7];
}

const HOURS = new Set(["today", "yesterday", "24h"]);
const MONTHS = new Set(["12mo", "this-year", "last-year", "all"]);
const isWeekly = (state) => !isSpan(state) && /-week$/.test(state.period);
/** Seconds of a time in the address: Unix seconds or a date. */
const secondsOf = (text) => (/^\d+$/.test(text) ? Number(text) : Date.parse(text) / 1000);

export function unitOf(state) {
  if (state.unit !== "auto") return state.unit;
  if (isSpan(state)) {
    const days = (secondsOf(state.to) - secondsOf(state.from)) / 86400; // NaN: the API says what it takes for a time
    return days <= 3 ? "hour" : days > 120 ? "month" : "day";
  }
  return HOURS.has(state.period) ? "hour" : MONTHS.has(state.period) ? "month" : "day";
}

/** Whether the view depends on the day on which weeks begin. */
export const hasWeeks = (state) => unitOf(state) === "week" || isWeekly(state);

/** The parameters of the API that select the time. */
export function timeOf(state) {
  // A span that was chosen in a zone with half hours may cut the hours of another zone.
  const span = isSpan(state) ? { from: state.from, to: state.to, bounds: "outward" }
    : { period: state.period, ...(isWeekly(state) ? { week_start: weekStartOf(state) } : {}) };
  // A zone with half hours is answered by whole hours, and the answer says so.
  return { ...span, timezone: zoneOf(state), round: "hour" };
}

/** The parameters of the API that select the units of a series. */
export const unitsOf = (state, unit = unitOf(state)) => (unit === "week" ? { unit, week_start: weekStartOf(state) } : { unit });

/** What to compare with, or null. Nothing is before all time. */
export const againstOf = (state) => (state.against !== "none" && (isSpan(state) || state.period !== "all") ? state.against : null);

/** The request for a series ({ns, key, sub}). */
export function seriesRequest(state, series) {
  const against = againstOf(state);
  return {
    path: against ? "v1/compare" : "v1/series",
    parameters: { ...series, ...unitsOf(state), ...timeOf(state), ...(against && against !== "before" ? { against } : {}) },
  };
}
