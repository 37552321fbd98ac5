// A breakdown: one bar a row, with counts and shares. The bars are a table for screen readers.

import { h } from "./dom.js";
import { count, countryName, keyText, share } from "./format.js";

/**
 * `link` returns the address behind a row, or null. `rows` are {key, n, share}, `other` is the rest of the total.
 */
export function bars({ caption, rows, other, total, link, pressed }) {
  const most = Math.max(1, ...rows.map((row) => row.n));
  const name = (key) => (caption === "country" ? countryName(key) : undefined);
  const line = (row) => {
    const chosen = row.key === pressed;
    const bar = h("span", { class: "bar" });
    bar.style.width = `${(row.n / most) * 100}%`;
    const text = [h("bdi", {}, keyText(row.key)), name(row.key) && h("span", { class: "name" }, ` ${name(row.key)}`)];
    const address = link?.(row);
    return h("tr", { class: chosen ? "chosen" : null },
      h("th", { scope: "row", title: row.key.slice(0, 500) }, bar, address ? h("a", { href: address, "aria-current": chosen ? "true" : null }, text) : h("span", {}, text)),
      h("td", { class: "number" }, count(row.n)), h("td", { class: "number part" }, share(row.share)));
  };
  const body = rows.map(line);
  if (other > 0)
    body.push(h("tr", { class: "muted" }, h("th", { scope: "row" }, "others"), h("td", { class: "number" }, count(other)),
      h("td", { class: "number part" }, share(total ? other / total : 0))));
  return h("table", { class: "bars" }, h("caption", { class: "visually-hidden" }, caption),
    h("colgroup", {}, h("col"), h("col", { class: "count" }), h("col", { class: "part" })),
    h("thead", { class: "visually-hidden" }, h("tr", {}, ...["Key", "Events", "Share"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, body.length ? body : h("tr", {}, h("td", { colspan: "3", class: "muted" }, "No events in this time."))));
}
