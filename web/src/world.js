// Countries on a map, darker with more events. The list of the counter has the same numbers as text. Nothing is asked until the map is on the
// screen.

import { getCounts } from "./counts.js";
import { h, svg } from "./dom.js";
import { filteredBreakdown, missedWords } from "./filters.js";
import { count, countryName, numbersOf, share as percent } from "./format.js";
import { panel } from "./panel.js";
import { share } from "./share.js";
import { timeOf } from "./state.js";

const COUNTRIES_MAX = 300;

let world; // {width, height, countries: {"US": PATH}}
const loadWorld = async () => (world ??= await (await fetch("map.json")).json());

/** `part` is {key, subtotal}. */
export function worldPanel({ key, subtotal }) {
  const p = panel("World");
  const readout = h("p", { class: "muted" });
  const shapes = new Map();
  let request = { path: "v1/breakdown", parameters: {} };
  let rows = [];
  let map = null;
  let asked = null; // {state, signal} of a load before the map was on the screen
  let isSeen = false;
  p.element.classList.add("world");
  p.element.setAttribute("aria-busy", "false");
  p.body.replaceChildren();
  p.head.append(share({ name: "world", request: () => request, rows: () => [["country", "events", "share"], ...rows.map((r) => [r.key, r.n, r.share])] }));

  function make({ width, height, countries }) {
    for (const [letters, d] of Object.entries(countries)) shapes.set(letters, svg("path", { d }, svg("title")));
    map = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" }, [...shapes.values()]);
    map.addEventListener("pointerover", ({ target }) => { readout.textContent = target.querySelector("title")?.textContent ?? ""; });
    map.addEventListener("pointerleave", () => { readout.textContent = ""; });
  }

  function show(reply) {
    const number = numbersOf(reply);
    const most = Math.max(0, ...rows.filter((row) => shapes.has(row.key)).map((row) => row.n)) || 1;
    const found = new Map(rows.map((row) => [row.key, row]));
    for (const [letters, shape] of shapes) {
      const { n, share: part } = found.get(letters) ?? { n: 0 };
      const words = `${countryName(letters) ?? letters}: ${number(n)}${part ? `, ${percent(part)}` : ""}`;
      if (shape.firstChild.textContent !== words) shape.firstChild.textContent = words;
      shape.style.setProperty("--share", n > 0 ? 0.15 + 0.85 * Math.sqrt(n / most) : 0); // a tenth of the most is still seen
    }
    const seen = rows.filter((row) => countryName(row.key)).length;
    map.setAttribute("aria-label", `Map of ${count(seen)} countries; the list "${subtotal.label}" has their numbers`);
    p.note(`${count(seen)} countries`);
    p.show(map, readout);
  }

  async function load(state, signal) {
    asked = { state, signal };
    if (!isSeen) return;
    const { missed, remedy, chosen, ...counter } = await filteredBreakdown(state, subtotal, key, signal);
    p.why(missedWords(missed), remedy);
    request = { path: "v1/breakdown", parameters: { ...counter, limit: COUNTRIES_MAX, ...timeOf(state) } };
    const [reply, borders] = await Promise.all([getCounts(request.path, request.parameters, signal), loadWorld()]);
    rows = reply.rows;
    if (!map) make(borders);
    show(reply);
  }

  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    isSeen = true;
    observer.disconnect();
    if (asked) load(asked.state, asked.signal).catch((error) => asked.signal.aborted || p.fail(error));
  });
  observer.observe(p.element);
  return { element: p.element, fail: p.fail, load, stop: () => observer.disconnect() };
}
