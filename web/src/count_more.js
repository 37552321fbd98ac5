// How to count one thing more: the two lines of configuration, and the guide.

import { feedOf } from "./counters.js";
import { h } from "./dom.js";
import { watchPipeline } from "./pipeline_data.js";
import { copy } from "./share.js";

const EXAMPLES = ["page", "campaign", "product", "plan"];

/** The file of the pipeline, and the command that makes it read the file again; the general ones if `millrace up` does not run it. */
const showPipeline = (file, command) => watchPipeline(({ run }) => {
  if (!run || run.ended) return;
  file.textContent = run.config;
  command.textContent = `kill -HUP ${run.pid}`;
})(); // once

/** `counters` are the configured ones. The example is a field that none of them has. */
export function countMore({ totals }) {
  const keys = new Set(totals.flatMap((total) => [total, ...total.subtotals]).map(({ key }) => key));
  const field = EXAMPLES.find((name) => !keys.has(name)) ?? "another";
  const feed = feedOf(totals);
  const lines = feed ? `[subtotal ${field}.${feed.ns}]\nkey = ${field}\n` : `[total ${field}]\nkey = ${field}\n`;
  const file = h("code", {}, "millrace.conf");
  const command = h("code", {}, "pkill -HUP -f '^millrace up'");
  return h("details", { class: "data more", ontoggle: () => showPipeline(file, command) }, h("summary", {}, "Count one thing more"),
    h("p", {}, "Post events with a field such as ", h("code", {}, field), ", and add two lines to the configuration file ", file, ":"), h("pre", { tabindex: "0" }, lines),
    h("p", {}, h("button", { type: "button", onclick: () => copy(lines) }, "Copy the lines")),
    h("p", {}, command, " makes the running pipeline read the file again. The events that follow are counted; ", h("code", {}, "millrace recount"),
      " counts the past. The guide: ", h("code", {}, "millrace help counting"), "."));
}
