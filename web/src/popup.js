// A popup below a button: the menu of a card, the choice of a time, a new filter. Its content is made when it opens, and removed when it
// closes. Esc or a click beside it closes it, and the button has the focus again.

import { h } from "./dom.js";

const STEPS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };

/** Places the popup beside its button. The top layer scrolls with the page. */
function place(button, body) {
  const { left, right, top, bottom } = button.getBoundingClientRect();
  const { clientWidth: width, clientHeight: height } = document.documentElement;
  const px = (n) => `${Math.round(n)}px`;
  const isRight = left > width / 2;
  const isAbove = bottom > height * 0.7 && top > height / 2;
  Object.assign(body.style, { left: isRight ? "auto" : px(left + scrollX), right: isRight ? px(width - right - scrollX) : "auto",
    top: isAbove ? "auto" : px(bottom + scrollY + 4), bottom: isAbove ? px(height - top - scrollY + 4) : "auto" });
}

/** Makes some buttons one tab stop: the arrow keys, Home and End walk over them. */
export function roving(items, first = items[0]) {
  for (const item of items) item.tabIndex = item === first ? 0 : -1;
  for (const item of items) item.addEventListener("keydown", (event) => {
    const at = items.indexOf(item);
    const next = event.key === "Home" ? items[0] : event.key === "End" ? items.at(-1)
      : STEPS[event.key] && items[(at + STEPS[event.key] + items.length) % items.length];
    if (!next) return;
    event.preventDefault();
    for (const other of items) other.tabIndex = other === next ? 0 : -1;
    next.focus();
  });
  return items;
}

/** `fill(close)` returns the content; its element with `autofocus` gets the focus. Returns the button and its popup. */
export function popup({ name, text, label, title, role = "dialog", kind = "", fill }) {
  const body = h("div", { popover: "auto", class: `popup ${kind}`, role, "aria-label": label ?? text });
  const button = h("button", { type: "button", name, title, class: `opens ${kind}`, "aria-label": label, "aria-haspopup": role, "aria-expanded": "false" }, text);
  const close = () => body.matches(":popover-open") && body.hidePopover();
  button.popoverTargetElement = body;
  body.addEventListener("beforetoggle", ({ newState }) => {
    button.setAttribute("aria-expanded", newState === "open");
    if (newState !== "open") return;
    body.replaceChildren(...[fill(close)].flat());
    place(button, body);
  });
  body.addEventListener("toggle", ({ newState }) => newState === "closed" && body.replaceChildren());
  body.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && relatedTarget !== button && !body.contains(relatedTarget) && close());
  button.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    if (!body.matches(":popover-open")) body.showPopover();
  });
  return [button, body];
}

/** A menu: `items()` returns [text, act] pairs. */
export const menu = (label, items) => popup({ text: "…", label, title: label, role: "menu", kind: "menu", fill: (close) => {
  const buttons = items().map(([text, act], i) => h("button", { type: "button", role: "menuitem", autofocus: i === 0, onclick: (event) => {
    act(event);
    close();
  } }, text));
  return roving(buttons);
} });
