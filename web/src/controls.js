// The choice of time, unit and zone, above each view that shows counts.

import { configured } from "./counters.js";
import { h, select } from "./dom.js";
import { span } from "./format.js";
import { address, AGAINST, go, isSpan, periodsOf, UNITS, zoneOf } from "./state.js";

const zones = () => ["", "UTC", ...Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC")];

export const zoneControl = (state) =>
  select("Zone", "zone", zones().map((name) => [name, name || `Browser (${zoneOf({})})`]), state.zone, (name) => go({ zone: name }));

export function periodControls(state, ...more) {
  const own = isSpan(state);
  const periods = own ? [["", "Selected"], ...periodsOf(state)] : periodsOf(state);
  const unit = select("Unit", "unit", UNITS, state.unit, (chosen) => go({ unit: chosen }));
  configured().then(({ resolution }) => {
    if (resolution === "1h" && state.unit !== "15m") unit.querySelector("[value='15m']").remove();
  }).catch(() => { /* the view's own requests show the failure */ });
  return h("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, more,
    select("Period", "period", periods, own ? "" : state.period, (period) => period && go({ period, from: "", to: "", unit: "auto" })),
    unit,
    select("Compare with", "against", AGAINST, state.against, (against) => go({ against })),
    zoneControl(state),
    own && h("p", { class: "chip" }, `${span(state.from, state.to, zoneOf(state))} `,
      h("a", { href: address({ from: "", to: "" }) }, "Clear the selection")));
}
