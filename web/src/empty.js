// What a pipeline without events shows.

import { h } from "./dom.js";
import { address, read } from "./state.js";

export function emptyHint({ time, totals }) {
  const { period, from } = read();
  const now = Math.floor(Date.now() / 1000);
  const fields = [...new Set(totals.flatMap((total) => [total, ...total.subtotals]).map((c) => c.key.match(/^\w+\((\w+)\)$/)?.[1] ?? c.key))]
    .filter((field) => /^\w+$/.test(field)).slice(0, 4);
  const event = JSON.stringify(Object.fromEntries([[time, now], ...fields.map((field) => [field, "example"])]));
  const isAll = period === "all" && !from;
  return h("div", { class: "empty" }, h("p", {}, "No events have been counted in this time. Post one:"),
    h("pre", {}, `curl -d '${event}' \\\n  '${new URL("v1/events", document.baseURI).href}'\n`),
    h("p", { class: "muted" }, `"${time}" is the time, in Unix seconds.`),
    isAll ? null : h("p", {}, h("a", { href: address({ period: "all", from: "", to: "", unit: "auto" }) }, "Show all time")));
}
