// The cells whose counts the API adds, each in one row: what the daemons of the cell say together.

import { h } from "./dom.js";
import { bytes, clock, duration } from "./format.js";
import { statsOf } from "./pipeline_data.js";

const COLUMNS = ["Cell", "State", "Complete until", "Behind JetStream", "Partitions", "Archive", "Disk left"];

function rowOf(p, cell) {
  const own = p.daemons.filter((d) => d.cell === cell);
  const stats = (name) => own.find((d) => d.name === name)?.stats ?? {};
  const bad = own.find((d) => d.state !== "ready");
  const { complete_until: until } = stats("aggregator");
  const { lag_seconds: lag, partitions } = stats("nats_to_pubsub");
  const made = (stats("sortdb").generation && stats("sortdb").db_mtime) || statsOf(p, "api")?.archive_made?.[`cell="${cell}"`];
  const disks = own.map((d) => d.stats?.disk_free_bytes).filter(Boolean);
  return [cell, bad ? `${bad.name} ${bad.state}` : "ready", until ? clock(until) : "–", lag === undefined ? "–" : duration(lag), partitions || "–",
    made ? `${duration(p.time - made)} old` : "–", disks.length ? bytes(Math.min(...disks)) : "–"];
}

/** A panel with a row for each cell; null without cells. */
export function cellsPanel(p) {
  const cells = [...new Set(p.daemons.map((d) => d.cell).filter(Boolean))];
  return cells.length === 0 ? null : h("section", { class: "panel cells" }, h("h2", {}, "Cells"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Cells" }, h("table", {},
      h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, cells.map((cell) => rowOf(p, cell)).map(([name, ...rest]) =>
        h("tr", {}, h("th", { scope: "row" }, name), rest.map((text) => h("td", {}, text))))))));
}
