// A titled part of a view, with its states: loading, ready, error.

import { h } from "./dom.js";
import { popup } from "./popup.js";
import { copy } from "./share.js";

/** Joins notes to sentences. */
function sentences(notes) {
  const out = [];
  for (const note of notes.filter((one) => one && one.length !== 0)) {
    if (out.length > 0) out.push(/[.!?]$/.test(out.at(-1)) ? " " : ". ");
    out.push(...(typeof note === "string" ? [note[0].toUpperCase() + note.slice(1).trimEnd()] : [note].flat()));
  }
  return out;
}

export function panel(title, { wide = false } = {}) {
  const heading = h("h2", {}, title);
  const aside = h("p", { class: "aside" });
  const body = h("div", { class: "body" }, h("p", { class: "muted" }, "Loading…"));
  const head = h("div", { class: "panel-head" }, heading, aside);
  const reason = h("p", { class: "aside why", hidden: true });
  const element = h("section", { class: wide ? "panel wide" : "panel", "aria-busy": "true" }, head, reason, body);
  return {
    element,
    head,
    body,
    title(...text) {
      const next = h("h2", {}, text);
      if (!heading.isEqualNode(next)) heading.replaceChildren(...next.childNodes);
    },
    /** Each note is a text, or a list with a link. */
    note(...notes) {
      const next = h("p", { class: "aside" }, sentences(notes)); // a link keeps the focus while its words stay the same
      if (!aside.isEqualNode(next)) aside.replaceChildren(...next.childNodes);
    },
    /** What the panel cannot do, and a button for what would make it possible: remedy() returns a promise of a text. "" removes both. */
    why(text, remedy) {
      if (reason.dataset.text === text) return;
      reason.dataset.text = text;
      reason.hidden = !text;
      reason.replaceChildren(...(text ? [text, " ", ...popup({ text: "How to count it", kind: "remedy", fill: () => {
        const shown = h("pre", { tabindex: "0", autofocus: true }, "Loading…");
        remedy().then((found) => shown.replaceChildren(found));
        return [shown, h("button", { type: "button", onclick: () => copy(shown.textContent) }, "Copy")];
      } })] : []));
    },
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

/** Shows an error of the whole view in its first panel, and removes the panels that would say "Loading…" for ever. */
export function failFirst(error, first, grid) {
  first.fail(error);
  grid.querySelectorAll("[aria-busy=true]").forEach((element) => element.remove());
}

/** One number with a name, which `link` makes a link. */
export function tile(name, link) {
  const value = h("p", { class: "value" }, "–");
  const note = h("p", { class: "muted" });
  return {
    element: h("section", { class: "tile" }, h("h2", {}, link ? h("a", { href: link }, name) : name), value, note),
    show(text, words = "") {
      if (value.textContent !== text) {
        value.textContent = text;
        value.style.setProperty("--length", text.length);
      }
      const next = h("p", { class: "muted", title: typeof words === "string" ? words : "" }, words); // it may be cut off
      if (!note.isEqualNode(next)) {
        note.replaceChildren(...next.childNodes);
        note.title = next.title;
      }
    },
  };
}
