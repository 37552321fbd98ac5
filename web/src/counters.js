// The configured counters: totals, and the subtotals by which a total is broken down.

import { get } from "./api.js";

let known;

/** {time, resolution, script, totals}: the name of the time field, 1h or 15m, the path of m.js, and the counters. */
export async function configured(signal) {
  known ??= await get("v1/counters", {}, signal);
  return known;
}

/** A total with a constant key counts the whole feed. */
export const isConstant = (total) => total.key.startsWith('"');
export const constantKey = (total) => JSON.parse(total.key);
export const feedOf = (totals) => totals.find((total) => isConstant(total) && !total.value) ?? totals.find(isConstant);

/** The total of a web site's events by name (etc/website.conf). */
export const siteOf = (totals) => totals.find((total) => total.key === "event" && total.subtotals.some((subtotal) => subtotal.key === "path"));

/** {total, key, name, panels}: what Overview shows, the views of a web site or else the whole feed. A panel is {key, subtotal} of a total. */
export function firstOf(totals) {
  const site = siteOf(totals);
  const feed = feedOf(totals);
  const panels = (total, key, subtotals = total?.subtotals ?? []) => subtotals.map((subtotal) => ({ total, key, subtotal }));
  if (!site) return feed && { total: feed, key: constantKey(feed), name: "events", panels: panels(feed, constantKey(feed)) };
  const isTarget = (subtotal) => subtotal.key === "target";
  const targets = (key, label) => panels(site, key, site.subtotals.filter(isTarget).map((subtotal) => ({ ...subtotal, label })));
  return { total: site, key: "view", name: "views", panels: [...panels(site, "view", site.subtotals.filter((s) => !isTarget(s))),
    ...targets("outbound", "outbound links"), ...targets("download", "downloads"), ...(feed ? panels(feed, constantKey(feed), feed.subtotals.filter((s) => s.key === "event")) : [])] };
}

/** A subtotal of counts by bucket(FIELD). */
export const isHistogram = (subtotal) => subtotal.key.startsWith("bucket(");

export const byNamespace = (totals, ns) => totals.find((total) => total.ns === ns);

/** The total whose keys are those of a subtotal, so that a row of a breakdown has a view of its own. */
export const totalOf = (totals, subtotal) => totals.find((total) => !isConstant(total) && total.key === subtotal.key);

/** The lists of slowest keys: {total, subtotal, source} for each subtotal by bucket(FIELD) of a total whose keys the panel `source` counts. */
export const slowestOf = (totals, panels) => totals.filter((total) => !isConstant(total) && !total.value).flatMap((total) => {
  const source = panels.find(({ subtotal }) => subtotal.key === total.key);
  return source ? total.subtotals.filter(isHistogram).map((subtotal) => ({ total, subtotal, source })) : [];
});
