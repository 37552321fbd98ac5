// A dialog over the page. The browser keeps the focus in it, and Escape closes it.

import { h } from "./dom.js";

/** Opens a dialog. `build(close)` returns its content. The element that had the focus gets it back. */
export function openDialog(title, build) {
  const held = document.activeElement;
  const dialog = h("dialog", { "aria-label": title, onclose: () => { dialog.remove(); held?.focus?.(); } });
  dialog.append(h("h2", {}, title), ...[build(() => dialog.close())].flat());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks once more before `act()`, whose failure is shown in the dialog. `done(reply)` is called after it. */
export function confirmAct(title, words, act, done) {
  openDialog(title, (close) => {
    const wrong = h("p", { class: "error", role: "alert" });
    const yes = h("button", { type: "button", class: "danger", onclick: async () => {
      yes.disabled = true;
      try {
        const reply = await act();
        close();
        done(reply);
      } catch (error) {
        wrong.replaceChildren(error.message, error.hint ? h("code", {}, error.hint) : "");
        yes.disabled = false;
      }
    } }, title);
    return [h("div", {}, words), wrong, h("p", { class: "choice" }, h("button", { type: "button", autofocus: true, onclick: close }, "Cancel"), yes)];
  });
}
