// Sharing the view: its link, a link with a token that opens only this view, and a frame for another page.

import { copy } from "./share.js";
import { openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { read } from "./state.js";

const TOKEN_LENGTH = 24;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

function randomText(length) {
  const most = 256 - (256 % LETTERS.length); // so that every letter is as likely
  let text = "";
  while (text.length < length) {
    const [byte] = crypto.getRandomValues(new Uint8Array(1));
    if (byte < most) text += LETTERS[byte % LETTERS.length];
  }
  return text;
}

/** A key as keys= of a token's line writes it. */
const escaped = (text) => encodeURIComponent(text).replaceAll("*", "%2A");

/** The line of the tokens file for a token that sees only this view, and in the view of a key only this key. */
export function tokenLine(state, token) {
  const key = state.view === "key" && state.ns && state.key !== undefined ? ` keys=${escaped(state.ns)}|${escaped(state.key)}` : "";
  return `shared-${token.slice(0, 6)} read ${token} views=${state.view}${key}`;
}

const field = (label, text) => h("div", { class: "field" }, h("label", {}, h("span", {}, label), h("input", { readonly: true, value: text, onfocus: (event) => event.target.select() })),
  h("button", { type: "button", "aria-label": `Copy: ${label}`, onclick: () => copy(text) }, "Copy"));

export function shareView() {
  const state = read();
  const token = randomText(TOKEN_LENGTH);
  const address = new URL(location.href);
  address.hash = "";
  const plain = address.href;
  address.hash = `token=${token}`;
  const own = address.href;
  address.searchParams.set("embed", "1");
  const frame = `<iframe src="${address.href.replaceAll("&", "&amp;")}" title="millrace" width="100%" height="600"></iframe>`;
  openDialog("Share this view", (close) => [
    h("p", {}, "For readers who can open this page; if the API has tokens, they enter their own."), field("Link", plain),
    h("p", {}, "For readers who may see only this view: add the line to the file of ", h("code", {}, "[api] tokens_file"), ", and send SIGHUP to the API. The token is in the link and on no server yet."),
    field("Line of the tokens file", tokenLine(state, token)), field("Link with the token", own),
    h("p", {}, "In a page of your own: also list its origin in ", h("code", {}, "[api] embed_origins"), "."), field("Frame", frame),
    h("p", { class: "choice" }, h("button", { type: "button", onclick: close }, "Close"))]);
}
