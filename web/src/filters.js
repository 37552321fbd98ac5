// Filters: LABEL:VALUE in the address. Each card asks the counter that has only the events with these values. If there is no such counter,
// the card shows all events, says so, and shows which counter to declare, or the statement that counts the lines.

import { get } from "./api.js";
import { byNamespace, configured, constantKey, firstOf, isConstant } from "./counters.js";
import { h } from "./dom.js";
import { keyText } from "./format.js";
import { popup } from "./popup.js";
import { address, go, timeOf, withFilter } from "./state.js";

const SUGGESTIONS = 100;

/** The filters of a view: [label, value] pairs. */
export const filtersOf = ({ where }) => (where ?? []).map((text) => {
  const at = text.indexOf(":");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
});
export const wordsOf = (filters) => filters.map(([label, value]) => `${label}: ${keyText(value)}`).join(" and ");
/** What a panel says about filters that it cannot apply. */
export const missedWords = (missed) => (missed.length ? `Without the filter ${wordsOf(missed)}, which is not counted here.` : "");
const whereOf = (filters) => filters.map((filter) => filter.join(":"));
const labelOf = (counter) => counter.label || counter.ns;
const isNamed = (name) => (counter) => counter.label === name || counter.ns === name;

/** What the key of a label is made of, such as host(r). The same label may mean different keys in different totals. */
function expressionOf(totals, total, label) {
  const all = [...total.subtotals, ...totals, ...totals.flatMap((other) => other.subtotals)];
  return all.find(isNamed(label))?.key;
}

const totalOf = (totals, counter) => totals.find((total) => total.ns === counter.ns || [...total.subtotals, ...total.uniques].some(({ ns }) => ns === counter.ns));

/**
 * The counter of the events of a total's key with the values of filters: {total, ns, key}, with `sub` if they are one row of a subtotal. With
 * `by`, the subtotal of these events by another key. null: nothing counts these values together.
 */
export function counterOf(totals, total, key, filters, by) {
  const alike = [total, ...totals.filter((other) => other !== total && other.value === total.value && other.having === total.having)];
  const values = [...(isConstant(total) ? [] : [[total.key, key]]), ...filters.map(([label, value]) => [expressionOf(totals, total, label), value])]
    .filter(([expression, value], i, all) => all.findIndex((one) => one[0] === expression && one[1] === value) === i); // a repeated filter changes nothing
  const keyed = ([expression]) => alike.find((other) => other.key === expression);
  const subtotal = (of, expression) => of?.subtotals.find((one) => one.key === expression);
  const whole = alike.find(isConstant);
  if (by) {
    const of = values.length ? keyed(values[0]) : total;
    const found = values.length < 2 && subtotal(of, by);
    return found ? { total: of, ns: found.ns, key: values.length ? values[0][1] : key } : null;
  }
  if (!values.length) return { total, ns: total.ns, key };
  const [first, second] = values;
  if (values.length === 1 && keyed(first)) return { total: keyed(first), ns: keyed(first).ns, key: first[1] };
  const ways = values.length === 1 ? [[whole, whole && constantKey(whole), first]] : [[keyed(first), first[1], second], [keyed(second), second[1], first]];
  const way = values.length < 3 && ways.find(([of, , [expression]]) => subtotal(of, expression));
  return way ? { total: way[0], ns: subtotal(way[0], way[2][0]).ns, key: way[1], sub: way[2][1] } : null;
}

const knownTime = (state) => timeOf(state.period === "latest" ? { ...state, period: "30d" } : state);

/** How the API says that a breakdown can be made. */
const remedyOf = (ask) => get("v1/breakdown", ask).then(() => "", (error) => error.hint ?? error.message);

/** The counter of the events of {ns, key} that the filters of a view leave: {ns, key, sub}, or null. */
async function filteredCounter(state, { ns, key }, signal) {
  const filters = filtersOf(state);
  const { totals } = await configured(signal);
  const total = byNamespace(totals, ns);
  const found = total && counterOf(totals, total, key, filters);
  return filters.length ? found && { ns: found.ns, key: found.key, sub: found.sub } : { ns, key };
}

/** Likewise; without such a counter, the error of the API says what would make it. */
export async function filteredSeries(state, { ns, key }, signal) {
  const found = await filteredCounter(state, { ns, key }, signal);
  if (found) return found;
  const filters = filtersOf(state);
  const [by, sub] = filters.at(-1);
  if (filters.length === 1) return { ns, key, by, sub };
  const other = await get("v1/breakdown", { ns, key, by, where: whereOf(filters.slice(0, -1)), limit: 1, ...timeOf(state) }, signal);
  return { ns: other.ns, key: other.key, sub };
}

/** Likewise; without such a counter, all events, and the filters that are missed. */
export async function filteredOrAll(state, series, signal) {
  const found = await filteredCounter(state, series, signal);
  const filters = filtersOf(state);
  return { missed: found ? [] : filters, remedy: () => remedyOf({ ...series, by: filters.at(-1)[0], where: whereOf(filters.slice(0, -1)), ...knownTime(state) }), ...(found ?? series) };
}

/**
 * The breakdown of a key's subtotal for the filters of a view: {ns, key, chosen, missed, remedy}. `chosen` is the value of a filter of this
 * subtotal, whose row is marked. `missed` are the filters that the subtotal cannot apply, and remedy() says what would make them.
 */
export async function filteredBreakdown(state, subtotal, key, signal) {
  const filters = filtersOf(state);
  if (!filters.length) return { ns: subtotal.ns, key, missed: [] };
  const { totals } = await configured(signal);
  const total = totalOf(totals, subtotal);
  const isOwn = ([label]) => expressionOf(totals, total, label) === subtotal.key;
  const others = filters.filter((filter) => !isOwn(filter));
  const found = counterOf(totals, total, key, others, subtotal.key);
  const ask = { ns: total.ns, key, by: subtotal.ns, where: whereOf(others), limit: 10, ...knownTime(state) };
  return { ns: found?.ns ?? subtotal.ns, key: found?.key ?? key, chosen: filters.find(isOwn)?.[1], missed: found ? [] : others,
    remedy: () => remedyOf(ask) };
}

/** Likewise for a unique counter: the counter of the same members for another key. */
export async function filteredUnique(state, unique, key, signal) {
  const filters = filtersOf(state);
  if (!filters.length) return { ns: unique.ns, key, missed: [] };
  const { totals } = await configured(signal);
  const found = counterOf(totals, totalOf(totals, unique), key, filters);
  const same = found?.sub === undefined && found?.total.uniques.find((one) => one.member === unique.member && one.by === unique.by);
  const expression = expressionOf(totals, totalOf(totals, unique), filters[0][0]);
  const name = unique.ns.split(".")[0];
  const sections = `[total NAME]\nkey = ${expression}\n[unique ${name}.NAME]\nmember = ${unique.member}\nby = ${unique.by}\n`;
  return same ? { ns: same.ns, key: found.key, missed: [] } : { ns: unique.ns, key, missed: filters,
    remedy: async () => (filters.length > 1 || !isConstant(totalOf(totals, unique)) ? "A counter has one field as its key. Post events with a field that joins the filtered values, and declare a total and a unique counter with this field as key."
      : `add to the configuration, and count the past with millrace recount:\n${sections}`) };
}

/** The total and the key whose events a view shows. */
function baseOf(totals, state) {
  if (state.view !== "key") return firstOf(totals);
  const total = byNamespace(totals, state.ns) ?? totals.find((one) => !isConstant(one)) ?? totals[0];
  return total && { total, key: state.key ?? (isConstant(total) ? constantKey(total) : "") };
}

/** The fields of a new filter: a label, and a value with suggestions. */
function filterForm(state, close) {
  const label = h("select", { name: "label", onchange: () => suggest() });
  const values = h("datalist", { id: "filter-values" });
  const value = h("input", { name: "value", list: values.id, autocomplete: "off", spellcheck: "false" });
  const time = knownTime(state);
  let base;

  async function suggest() {
    const subtotal = base.total.subtotals.find(isNamed(label.value));
    const found = subtotal && await get("v1/breakdown", { ns: subtotal.ns, key: base.key, limit: SUGGESTIONS, ...time }).catch(() => null); // a convenience
    values.replaceChildren(...(found?.rows ?? []).map(({ key }) => h("option", { value: key })));
  }

  configured().then(({ totals }) => {
    base = baseOf(totals, state);
    const counters = [...base.total.subtotals, ...totals.filter((total) => !isConstant(total) && total.key !== base.total.key)];
    label.replaceChildren(...[...new Set(counters.map(labelOf))].map((name) => h("option", {}, name)));
    label.focus();
    suggest();
  }).catch(() => close());
  return h("form", { class: "filter", onsubmit: (event) => {
    event.preventDefault();
    const where = withFilter(state.where, label.value, value.value);
    close();
    go({ where });
  } }, h("label", {}, h("span", {}, "Events whose"), label), h("label", {}, h("span", {}, "is"), value, values), h("button", { class: "main" }, "Add the filter"));
}

/** The button for a new filter, and a chip for each filter. */
export function filterControls(state) {
  return [popup({ name: "filter", text: "Filter", kind: "filter-choice", fill: (close) => filterForm(state, close) }),
    filtersOf(state).map(([label, value], i) => h("p", { class: "chip filter-chip" }, `${label}: `, h("bdi", {}, keyText(value)), " ",
      h("a", { href: address({ where: state.where.toSpliced(i, 1) }), "aria-label": `Remove the filter ${label}: ${value}` }, "×")))];
}
