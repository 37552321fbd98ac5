// A breakdown: one bar a row, with counts and shares. The bars are a table for screen readers.

import { h } from "./dom.js";
import { change, count as counted, countryName, keyText, share } from "./format.js";

const percent = (x) => (x === null ? "–" : share(x));

/**
 * `link` returns the address behind a row, or null. `rows` are {key, n, share}, `other` is the rest of the total. `count` formats a number.
 * A share is null if a row, or the rest, is negative; `part(row)` gives another text in its place, under the third of
 * `heads`, which are then shown. `moved` has {before, change} of keys, and each row shows its change against the time before.
 */
export function bars({ caption, rows, other, total, link, pressed, none, count = counted, moved, part = (row) => percent(row.share), heads }) {
  const most = Math.max(0, ...rows.map((row) => row.n)) || 1;
  const movement = (key) => {
    const found = moved?.[key];
    const text = !found || found.before === null ? "–" : found.before === 0 ? "new" : change(found.change);
    const kind = found?.change > 0 ? "up" : found?.change < 0 ? "down" : "";
    return moved && h("td", { class: `number moved ${kind}`, title: found && found.before !== null ? `${count(found.before)} in the same part of the time before` : null }, text);
  };
  const name = (key) => (caption === "country" ? countryName(key) : undefined);
  const line = (row) => {
    const chosen = row.key === pressed;
    const bar = h("span", { class: "bar" });
    bar.style.width = `${(Math.max(0, row.n) / most) * 100}%`;
    const text = [h("bdi", {}, keyText(row.key)), name(row.key) && h("span", { class: "name" }, ` ${name(row.key)}`)];
    const address = link?.(row);
    return h("tr", { class: chosen ? "chosen" : null },
      h("th", { scope: "row", title: row.key.slice(0, 500) }, bar, address ? h("a", { href: address, "aria-current": chosen ? "true" : null }, text) : h("span", {}, text)),
      h("td", { class: "number", title: row.share === null ? null : percent(row.share) }, count(row.n)), h("td", { class: "number part" }, part(row)), movement(row.key));
  };
  const body = rows.map(line);
  if (other)
    body.push(h("tr", { class: "muted" }, h("th", { scope: "row" }, "others"), h("td", { class: "number" }, count(other)),
      h("td", { class: "number part" }, percent(rows[0]?.share === null ? null : total ? other / total : 0)), moved && h("td")));
  const numbers = h("col", { class: "count" });
  numbers.style.setProperty("--length", Math.max(...[...rows.map((row) => row.n), other ?? 0].map((n) => count(n).length)));
  return h("table", { class: "bars" }, h("caption", { class: "visually-hidden" }, caption),
    h("colgroup", {}, h("col"), numbers, h("col", { class: "part" }), moved && h("col", { class: "moved" })),
    h("thead", { class: heads ? null : "visually-hidden" }, h("tr", {}, ...[...(heads ?? ["Key", "Events", "Share"]), ...(moved ? ["Change"] : [])].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, body.length ? body : h("tr", {}, h("td", { colspan: moved ? "4" : "3", class: "muted" }, none || "No events in this time."))));
}
