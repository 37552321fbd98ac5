// The numbers of a chart as a table, which the menu of its panel shows and hides.

import { h } from "./dom.js";

/** Calls show(() => [header, ...rows]) as often as the rows may have changed. They are read only while the table is open. */
export function dataTable(label) {
  const head = h("thead");
  const body = h("tbody");
  const element = h("div", { class: "data", hidden: true },
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, head, body)));
  let read = () => [[]];
  let shown = "";
  const fill = () => {
    if (element.hidden) return;
    const [header, ...rows] = read();
    const text = JSON.stringify([header, rows]);
    if (text === shown) return; // so that its text can be selected
    shown = text;
    head.replaceChildren(h("tr", {}, header.map((name) => h("th", { scope: "col" }, name))));
    body.replaceChildren(...rows.map(([first, ...cells]) => h("tr", {}, h("th", { scope: "row" }, first), cells.map((cell) => h("td", {}, cell)))));
  };
  return { element, isOpen: () => !element.hidden, show(next) { read = next; fill(); }, toggle() {
    element.hidden = !element.hidden;
    fill();
  } };
}
