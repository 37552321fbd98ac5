// The keys with the largest p95, such as the slowest pages: of the keys with the most events, because each is asked for by itself.

import { bars } from "./bars.js";
import { getCounts, without } from "./counts.js";
import { filtersOf, missedWords } from "./filters.js";
import { count, middle } from "./format.js";
import { panel } from "./panel.js";
import { share } from "./share.js";
import { timeOf } from "./state.js";

const ASKED = 30; // keys
const TOP = 10;
const FRESH = 60000; // ms

/** A list is one of slowestOf; `link(row)` gives the address behind a row. */
export function slowestPanel({ total, subtotal, source }, link) {
  const [name, value] = [total.label || total.ns, subtotal.label || subtotal.ns];
  const p = panel(`${name} by p95 of ${value}`);
  let request = { path: "v1/quantile", parameters: {} };
  let rows = [];
  let asked = "";
  let until = 0;
  p.body.style.setProperty("--rows", TOP + 1); // and the heads
  p.head.append(share({ name: `p95-${name}`, request: () => request, rows: () => [[name, `p95 of ${value}`, "events"], ...rows.map((r) => [r.key, r.n, r.events])] }));

  async function quantileOf(key, time, signal) {
    const reply = await getCounts("v1/quantile", { ns: subtotal.ns, key, q: 0.95, ...time }, signal).catch((error) => {
      if (error.status !== 422 && error.status !== 404) throw error;
      return { rows: [] }; // some of its numbers were counted as (other)
    });
    return reply.rows.map((row) => ({ key, n: row.value, events: row.n, share: null })).filter((row) => row.n !== null);
  }

  return {
    element: p.element,
    fail: p.fail,
    async load(state, signal) {
      const time = timeOf(state);
      if (asked === JSON.stringify(time) && Date.now() < until) return;
      const largest = await getCounts("v1/breakdown", { ns: source.subtotal.ns, key: source.key, limit: ASKED, ...time }, signal);
      const all = (await Promise.all(largest.rows.map((row) => quantileOf(row.key, time, signal)))).flat().sort((a, b) => b.n - a.n);
      [asked, until] = [JSON.stringify(time), Date.now() + FRESH];
      rows = all.slice(0, TOP);
      request = { path: "v1/quantile", parameters: { ns: subtotal.ns, key: rows[0]?.key ?? "", q: 0.95, ...time } };
      p.note(largest.distinct > ASKED ? `of the ${ASKED} with the most events` : "", missedWords(filtersOf(state)), "Each value is at most 5 % off.");
      p.show(bars({ caption: name, rows, link, count: middle, heads: [name, "p95", "Events"], part: (row) => count(row.events),
        none: `No events with ${value} ${without(largest) || "in this time"}.` }));
    },
  };
}
