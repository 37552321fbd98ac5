// What a time without events shows: three steps to the first event.

import { countMore } from "./count_more.js";
import { siteOf } from "./counters.js";
import { h } from "./dom.js";
import { copy } from "./share.js";
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

/** The command that posts an event, and what its time means. */
function commandOf({ time, time_unit: unit, totals }) {
  const [unitName, zeros] = UNITS[unit] ?? UNITS.s;
  const event = {};
  if (PATH.test(time)) put(event, time, "NOW");
  for (const [path, value] of totals.flatMap((total) => [total, ...total.subtotals]).map(exampleOf).filter(isFirst).slice(0, 6)) put(event, path, value);
  // As text, because nanoseconds are beyond the whole numbers of JavaScript.
  const body = JSON.stringify(event).replace('"NOW"', `${Math.floor(Date.now() / 1000)}${zeros}`).replaceAll("'", "\\u0027");
  const command = `curl -d '${body}' \\\n  '${new URL("v1/events", document.baseURI).href}'\n`;
  return [h("pre", { tabindex: "0" }, command), h("button", { type: "button", onclick: () => copy(command) }, "Copy the command"),
    h("p", { class: "muted" }, `${time} is the time, in Unix ${unitName}.`)];
}

export function emptyHint(counters, state, words = "No events have been counted in this time.") {
  const site = siteOf(counters.totals);
  const fields = [...new Set(counters.totals.map((total) => total.label || total.ns))].slice(0, 4).join(", ");
  return h("div", { class: "empty" }, h("p", {}, words, state.period === "all" ? null
    : [" ", h("a", { href: address({ period: "all", from: "", to: "", unit: "auto" }) }, "Show all time")]),
  h("ol", {},
    h("li", {}, site ? "Add this line to each page of your site:" : "Post an event:", site ? siteLine(counters.script) : commandOf(counters)),
    h("li", {}, site ? "Open a page of your site. " : "", "The event is here within two seconds, and ", h("a", { href: address({ view: "live" }, { zone: state.zone }) }, "Live"), " shows it as it was sent."),
    h("li", {}, `Choose what is counted, now ${fields}: `, h("code", {}, "millrace help counting"), ".", countMore(counters))));
}
