// A breakdown: one bar a row, with counts and shares. The bars are a table for screen readers.

import { h } from "./dom.js";
import { count, keyText, share } from "./format.js";

/**
 * `link` returns the address behind a row, or null. `rows` are {key, n, share}, `other` is the rest of the total.
 */
export function bars({ caption, rows, other, total, link, pressed }) {
  const most = Math.max(1, ...rows.map((row) => row.n));
  const line = (text, n, part, address, chosen) => {
    const bar = h("span", { class: "bar" });
    bar.style.width = `${(n / most) * 100}%`;
    return h("tr", { class: chosen ? "chosen" : null },
      h("th", { scope: "row" }, bar, address ? h("a", { href: address, "aria-current": chosen ? "true" : null }, text) : h("span", {}, text)),
      h("td", { class: "number" }, count(n)), h("td", { class: "number" }, share(part)));
  };
  const body = rows.map((row) => line(h("bdi", {}, keyText(row.key)), row.n, row.share, link?.(row), row.key === pressed));
  if (other > 0) {
    const part = total ? other / total : 0;
    body.push(h("tr", { class: "muted" }, h("th", { scope: "row" }, "others"), h("td", { class: "number" }, count(other)),
      h("td", { class: "number" }, share(part))));
  }
  return h("table", { class: "bars" }, h("caption", { class: "visually-hidden" }, caption),
    h("colgroup", {}, h("col"), h("col", { class: "count" }), h("col", { class: "part" })),
    h("thead", { class: "visually-hidden" }, h("tr", {}, ...["Key", "Events", "Share"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, body.length ? body : h("tr", {}, h("td", {}, "No events in this time."))));
}
