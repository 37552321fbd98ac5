// Numbers, times and texts in the reader's locale.

const whole = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 4 });
const tenths = { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 };
const percent = new Intl.NumberFormat(undefined, tenths);
const signed = new Intl.NumberFormat(undefined, { ...tenths, signDisplay: "exceptZero" });

/** null: not counted. */
export const count = (n) => (n === null || n === undefined ? "–" : whole.format(n));
/** Formats the numbers of an answer: counts, or values with the digits of their scale and their unit. */
export function numbersOf({ scale, value_unit: unit }) {
  if (scale === undefined) return count;
  const format = new Intl.NumberFormat(undefined, { minimumFractionDigits: scale, maximumFractionDigits: scale });
  return (n) => (n === null || n === undefined ? "–" : `${format.format(n)}${unit ? ` ${unit}` : ""}`);
}
const digits = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
/** The middle of a bucket. */
export const middle = (n) => (n === null ? "–" : digits.format(n));
const six = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 6 });
/** A value of a metric. */
export const precise = (n) => (n === null ? "–" : six.format(n));
export const compact = (n) => short.format(n);
export const share = (x) => percent.format(x);
const signedWhole = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 0, signDisplay: "exceptZero" });
/** Of a change in percent; null after zero. */
export const change = (x) => (x === null || x === undefined ? "–" : (Math.abs(x) < 99.95 ? signed : signedWhole).format(x / 100).replace("-", "\u2212"));
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;

/**
 * Compares equal parts of an answer's time and the time before: the whole hours that have passed, or else the units that have passed.
 * Returns {now, then, percent}, or null if neither has.
 */
export function likeForLike({ rows, so_far: part }) {
  const passed = rows.filter((row) => row.passed && row.before);
  const sum = (numbers) => numbers.reduce((all, n) => all + n, 0);
  const isKnown = part && part.before !== null && part.total !== null;
  if (!passed.length && !isKnown) return null;
  const [now, then] = isKnown ? [part.total, part.before] : [sum(passed.map((row) => row.n)), sum(passed.map((row) => row.before.n))];
  return { now, then, percent: then > 0 ? (100 * (now - then)) / then : null };
}

const BYTES = ["B", "KB", "MB", "GB", "TB"];
export function bytes(n) {
  let i = 0;
  for (; n >= 1000 && i < BYTES.length - 1; i++) n /= 1000;
  return `${n >= 10 || i === 0 ? Math.round(n) : n.toFixed(1)} ${BYTES[i]}`;
}

export function clock(seconds, zone) {
  return new Date(seconds * 1000).toLocaleTimeString(undefined, { timeZone: zone });
}

export function moment(seconds, zone) {
  return new Date(seconds * 1000).toLocaleString(undefined, { timeZone: zone, dateStyle: "medium", timeStyle: "short" });
}

const DATE = /^\d{4}-\d\d-\d\d$/;
/** The time [from, to) in words, between two dates or two numbers of seconds. Anything else stays unchanged. */
export function span(from, to, zone) {
  if (DATE.test(from) && DATE.test(to) && Date.parse(from) < Date.parse(to)) return span(Date.parse(from) / 1000, Date.parse(to) / 1000, "UTC");
  if (!Number.isFinite(Number(from)) || !Number.isFinite(Number(to))) return `${from} – ${to}`;
  const time = new Intl.DateTimeFormat("en", { timeZone: zone, hour: "numeric", minute: "numeric", hourCycle: "h23" });
  const atMidnight = [from, to].every((t) => time.format(t * 1000) === "00:00");
  const format = new Intl.DateTimeFormat(undefined, { timeZone: zone, dateStyle: "medium", ...(atMidnight ? {} : { timeStyle: "short" }) });
  return format.formatRange(from * 1000, to * 1000 - (atMidnight ? 1 : 0));
}

/** Likewise, without the year if it is this one. */
export const shortSpan = (from, to, zone) => span(from, to, zone).replace(new RegExp(`,? ${new Date().getFullYear()}$`), "");

/** "on" a day, "in" any other time. */
export const inSpan = (from, to, zone) => `${to - from > 90000 || to - from < 82800 ? "in" : "on"} ${shortSpan(from, to, zone)}`;

/** The unit of a series that begins at a time, in words. `step` is its length in seconds. */
export function unitText(seconds, zone, step) {
  const day = { year: "numeric", month: "short", day: "numeric", weekday: "short" };
  const parts = step >= 28 * 86400 ? { year: "numeric", month: "long" } : step >= 82800 ? day
    : { ...day, hour: "numeric", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) };
  const text = new Intl.DateTimeFormat(undefined, { timeZone: zone, ...parts }).format(seconds * 1000);
  return step > 2 * 86400 && step < 28 * 86400 ? `Week of ${text}` : text;
}

export function isToday(seconds, zone) {
  const day = (t) => new Date(t).toLocaleDateString("en", { timeZone: zone });
  return day(seconds * 1000) === day(Date.now());
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

const KEY_SHOWN = 200;
/** A key for the screen: shortened, and isolated from the text around it in direction. */
export function keyText(key) {
  const text = key.length > KEY_SHOWN ? `${key.slice(0, KEY_SHOWN)}… (${count(key.length)} characters)` : key;
  return `\u2068${text === "" ? "(empty)" : text}\u2069`;
}

const regions = new Intl.DisplayNames(undefined, { type: "region", fallback: "none" });
/** The name of a country by its code; undefined: it is none. */
export const countryName = (key) => (/^[A-Z]{2}$/.test(key) ? regions.of(key) : undefined);
