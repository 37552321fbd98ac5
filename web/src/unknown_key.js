// What the view of a key shows that has never been counted: keys that are written nearly alike.

import { get } from "./api.js";
import { h } from "./dom.js";
import { keyText } from "./format.js";
import { address } from "./state.js";

const LOOKED_AT = 1000; // keys a request
const SHOWN = 3;
const LENGTH_MAX = 100; // of a key that is compared

/** The number of characters to insert, delete, replace or swap with the next one, to make one text of the other. */
function distance(a, b) {
  let [before, last, row] = [[], [], [...b, ""].map((_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    [before, last, row] = [last, row, [i]];
    for (let j = 1; j <= b.length; j++) {
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1), isSwapped ? before[j - 2] + 1 : Infinity);
    }
  }
  return row[b.length];
}

/** Known keys nearest to a text: among those with the same beginning, and among the first of all. */
async function nearKeys(ns, key, signal) {
  const letters = [...key];
  const most = Math.max(2, Math.floor(letters.length / 3));
  if (letters.length > LENGTH_MAX) return [];
  const prefixes = [letters.slice(0, Math.ceil(letters.length / 2)).join(""), letters[0] ?? "", ""];
  const replies = await Promise.all([...new Set(prefixes)].map((prefix) => get("v1/lookup", { ns, prefix, limit: LOOKED_AT }, signal)));
  const known = new Set(replies.flatMap((reply) => reply.rows.map((row) => row.key)));
  const far = (text) => (Math.abs(text.length - key.length) > most ? Infinity : distance([...key.toLowerCase()], [...text.toLowerCase()]));
  return [...known].map((text) => [far(text), text]).filter(([d]) => d <= most && d < letters.length)
    .sort((a, b) => a[0] - b[0] || (a[1] < b[1] ? -1 : 1)).slice(0, SHOWN).map(([, text]) => text);
}

export async function unknownKey(total, key, signal) {
  const near = await nearKeys(total.ns, key, signal);
  const links = near.map((text, i) => [i ? " or " : "", h("a", { href: address({ key: text, by: "", sub: "" }) }, h("bdi", {}, keyText(text)))]);
  return h("div", { class: "empty" }, h("p", {}, `No event has the ${total.label || total.ns} `, h("bdi", {}, keyText(key)), "."),
    near.length ? h("p", {}, "Did you mean ", links, "?") : null,
    h("p", {}, h("a", { href: address({ key: "", by: "", sub: "" }) }, "Find a key")));
}
