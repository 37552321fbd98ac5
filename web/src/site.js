// The line with which a web site loads m.js.

import { h } from "./dom.js";
import { copy } from "./share.js";

const LOOPBACK = /^(localhost|127\..*|\[::1\])$/;

export function siteLine(script) {
  const url = new URL(script, document.baseURI);
  const line = `<script defer src="${url.href}"></script>`;
  return [h("pre", { tabindex: "0" }, line), h("p", {}, h("button", { type: "button", onclick: () => copy(line) }, "Copy the line")),
    LOOPBACK.test(url.hostname) ? h("p", { class: "muted" }, `Only browsers on this host can load the script. For visitors, replace ${url.host} with the address of your proxy: see millrace help website.`) : ""];
}

export const addToSite = (script) => h("details", { class: "data site" }, h("summary", {}, "Add to your site"),
  h("p", {}, "Add this line to each page:"), siteLine(script));
