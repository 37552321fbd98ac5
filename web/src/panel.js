// A titled part of a view, with its states: loading, ready, error.

import { h } from "./dom.js";

export function panel(title, { wide = false, actions, note } = {}) {
  const heading = h("h2", {}, title);
  const aside = h("p", { class: "aside" }, note);
  const body = h("div", { class: "body" }, h("p", { class: "muted" }, "Loading…"));
  const element = h("section", { class: wide ? "panel wide" : "panel", "aria-busy": "true" },
    h("div", { class: "panel-head" }, heading, aside, actions), body);
  return {
    element,
    body,
    title: (...text) => heading.replaceChildren(...text),
    note: (...text) => aside.replaceChildren(...text),
    show(...children) {
      element.setAttribute("aria-busy", "false");
      if (body.childNodes.length === children.length && children.every((child, i) => body.childNodes[i].isEqualNode(child))) return;
      const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      body.replaceChildren(...children);
      if (focused) body.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    },
    fail(error) {
      element.setAttribute("aria-busy", "false");
      body.replaceChildren(h("p", { class: "error" }, error.message), error.hint ? h("pre", {}, error.hint) : "");
    },
  };
}

/** One number with a name. */
export function tile(name) {
  const value = h("p", { class: "value" }, "–");
  const note = h("p", { class: "muted" });
  return {
    element: h("section", { class: "tile" }, h("h2", {}, name), value, note),
    show(text, words = "") {
      value.replaceChildren(text);
      note.replaceChildren(words);
    },
  };
}
