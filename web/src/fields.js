// The fields of the lines in Live: which there are, their values, and how often each value came in the last minute.

import { h } from "./dom.js";
import { count, keyText, plural } from "./format.js";

const FIELDS_MAX = 60;
const LEVELS = 3; // of nested objects
const PLAIN = /^[^\s.[\]()"'=<>!~,]+$/; // a name that a condition takes without brackets
const KEYWORD = /^(and|or|not|in)$/;
export const OVER = 60; // seconds
const TOP = 10;

/** A step of a path, as conditions write it (docs/guide/counting.md). */
const step = (name, isFirst) => (PLAIN.test(name) && !KEYWORD.test(name) ? (isFirst ? name : `.${name}`) : `["${name}"]`);

function parse(line) {
  try {
    const value = JSON.parse(line);
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

function* walk(object, prefix, level) {
  for (const [name, value] of Object.entries(object)) {
    const path = prefix + step(name, prefix === "");
    if (value && typeof value === "object" && !Array.isArray(value) && level < LEVELS) yield* walk(value, path, level + 1);
    else yield [path, value];
  }
}

/** The fields of a line, by their paths. */
export function fieldsOf(line) {
  const object = parse(line);
  return new Map(object ? walk(object, "", 1) : []);
}

/** The paths of the fields in the lines, at most FIELDS_MAX, those of the newest lines first. */
export function pathsOf(lines, chosen) {
  const paths = new Set(chosen);
  for (const line of lines) for (const path of fieldsOf(line).keys()) if (paths.size < FIELDS_MAX) paths.add(path);
  return [...paths];
}

export const textOf = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

/** A condition that is true for events with this value; null: no condition can test it. */
export function conditionFor(path, value) {
  if (value === null || typeof value === "object") return value === null ? `${path} = null` : null;
  return `${path} = ${typeof value === "string" ? `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"` : value}`;
}

/**
 * Counts the values of a field in the lines of the last minute. `filterBy(condition)` shows only the lines with a value. add(line) counts a line
 * that has arrived, addPast(lines) those of the minute before the count began, in their order. It knows of no time of theirs, and
 * takes them as evenly spread over that minute; until then, the count covers only the time since it began.
 */
export function minuteCounts(path, filterBy) {
  const began = performance.now();
  let covered = 0; // seconds before the count began
  const seconds = new Map(); // second -> value as JSON -> lines
  const body = h("tbody");
  const note = h("p", { class: "muted" });
  const element = h("section", { class: "panel counts" }, h("h2", {}, "The last minute by ", h("bdi", {}, keyText(path))), note,
    h("table", { class: "bars" }, body));
  const now = () => Math.floor((performance.now() - began) / 1000);

  function draw(isSample) {
    const sums = new Map();
    for (const [second, values] of seconds)
      if (second <= now() - OVER) seconds.delete(second);
      else for (const [value, n] of values) sums.set(value, (sums.get(value) ?? 0) + n);
    const all = [...sums].sort((a, b) => b[1] - a[1]);
    const total = all.reduce((n, [, each]) => n + each, 0);
    const bar = (n) => {
      const element = h("span", { class: "bar" });
      element.style.width = `${(100 * n) / all[0][1]}%`;
      return element;
    };
    const row = ([json, n]) => {
      const value = JSON.parse(json).value;
      const condition = value === undefined ? `not ${path}` : conditionFor(path, value);
      const text = value === undefined ? "(missing)" : keyText(textOf(value));
      return h("tr", {}, h("th", { scope: "row" }, bar(n), condition ? h("button", { type: "button", class: "quiet", title: "Only these lines", onclick: () => filterBy(condition) }, h("bdi", {}, text)) : h("bdi", {}, text)),
        h("td", { class: "number count" }, count(n)));
    };
    const rest = all.slice(TOP).reduce((n, [, each]) => n + each, 0);
    const next = h("tbody", {}, all.slice(0, TOP).map(row), rest ? h("tr", { class: "muted" }, h("th", { scope: "row" }, `${count(all.length - TOP)} others`), h("td", { class: "number count" }, count(rest))) : "");
    if (!body.isEqualNode(next)) body.replaceChildren(...next.childNodes);
    note.textContent = `${plural(total, "line", "lines")} in the last ${plural(Math.min(OVER, covered + now() + 1), "second", "seconds")}${isSample ? ", of a sample" : ""}`;
  }

  function addAt(second, line) {
    const json = JSON.stringify({ value: fieldsOf(line).get(path) }); // {} if it is missing
    if (!seconds.has(second)) seconds.set(second, new Map());
    const values = seconds.get(second);
    values.set(json, (values.get(json) ?? 0) + 1);
  }

  return { element, draw, add: (line) => addAt(now(), line), addPast(lines) {
    covered = OVER;
    lines.forEach((line, i) => addAt(Math.floor(((i + 1) / (lines.length + 1) - 1) * OVER), line));
  } };
}
