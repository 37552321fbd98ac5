// What a time without events shows: the line or the command that posts a first event.

import { siteOf } from "./counters.js";
import { h } from "./dom.js";
import { siteLine } from "./site.js";
import { address } from "./state.js";

const UNITS = { s: ["seconds", ""], ms: ["milliseconds", "000"], us: ["microseconds", "000000"], ns: ["nanoseconds", "000000000"] };
const PATH = /^\w+(\.\w+)*$/;

/** Sets the value at a path such as meta.time. */
function put(event, path, value) {
  const names = path.split(".");
  const last = names.pop();
  let at = event;
  for (const name of names) at = typeof at[name] === "object" ? at[name] : (at[name] = {});
  at[last] ??= value;
}

/** A field of the event that a counter's key is made of, and an example; null for a constant. */
function exampleOf({ key }) {
  const [, name, path] = key.match(/^(\w+)\(([\w.]+)/) ?? [null, "", key];
  if (!PATH.test(path)) return null;
  return [path, /^(host|path|query)$/.test(name) ? "http://example.org/" : name === "status_class" ? "200" : name === "bucket" ? 12.5 : "example"];
}

/** Each field once, as its first counter has it. */
const isFirst = (example, i, all) => example && all.findIndex((other) => other?.[0] === example[0]) === i;

export function emptyHint({ time, time_unit: unit, script, totals }, state, words = "No events have been counted in this time.") {
  const all = state.period === "all" ? null : h("p", {}, h("a", { href: address({ period: "all", from: "", to: "", unit: "auto" }) }, "Show all time"));
  if (siteOf(totals)) return h("div", { class: "empty" }, h("p", {}, `${words} Add this line to each page of your site:`), siteLine(script), all);
  const [unitName, zeros] = UNITS[unit] ?? UNITS.s;
  const event = {};
  if (PATH.test(time)) put(event, time, "NOW");
  for (const [path, value] of totals.flatMap((total) => [total, ...total.subtotals]).map(exampleOf).filter(isFirst).slice(0, 6)) put(event, path, value);
  // As text, because nanoseconds are beyond the whole numbers of JavaScript.
  const body = JSON.stringify(event).replace('"NOW"', `${Math.floor(Date.now() / 1000)}${zeros}`).replaceAll("'", "\\u0027");
  return h("div", { class: "empty" }, h("p", {}, `${words} Post one:`),
    h("pre", { tabindex: "0" }, `curl -d '${body}' \\\n  '${new URL("v1/events", document.baseURI).href}'\n`),
    h("p", { class: "muted" }, `${time} is the time, in Unix ${unitName}.`),
    all);
}
