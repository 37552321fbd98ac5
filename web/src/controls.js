// The choice of time, unit and zone, above each view that shows counts.

import { h, select } from "./dom.js";
import { moment } from "./format.js";
import { address, go, PERIODS, UNITS, zoneOf } from "./state.js";

const zones = () => ["", "UTC", ...Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC")];

export function periodControls(state, ...more) {
  const zone = zoneOf(state);
  const own = state.from && state.to;
  const periods = own ? [["", "Selected"], ...PERIODS] : PERIODS;
  return h("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, more,
    select("Period", "period", periods, own ? "" : state.period, (period) => go({ period, from: "", to: "", unit: "auto" })),
    select("Unit", "unit", UNITS, state.unit, (unit) => go({ unit })),
    select("Zone", "zone", zones().map((name) => [name, name || `Browser (${zoneOf({})})`]), state.zone, (name) => go({ zone: name })),
    own && h("p", { class: "chip" }, `${moment(state.from, zone)} – ${moment(state.to, zone)} `,
      h("a", { href: address({ from: "", to: "" }) }, "Clear the selection")));
}
