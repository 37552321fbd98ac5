// The configured counters: totals, and the subtotals by which a total is broken down.

import { get } from "./api.js";

let known;

/** {time, totals}: the name of the time field, and the counters. */
export async function configured(signal) {
  known ??= await get("v1/counters", {}, signal);
  return known;
}

/** A total with a constant key counts the whole feed. */
export const isConstant = (total) => total.key.startsWith('"');
export const constantKey = (total) => JSON.parse(total.key);
export const feedOf = (totals) => totals.find(isConstant);
export const byNamespace = (totals, ns) => totals.find((total) => total.ns === ns);

/** The total whose keys are those of a subtotal, so that a row of a breakdown has a view of its own. */
export const totalOf = (totals, subtotal) => totals.find((total) => !isConstant(total) && total.key === subtotal.key);
