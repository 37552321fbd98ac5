// Time series: bars for the period, a dashed line for the period before, hatching over units that have not passed.

import uPlot from "uplot";
import { h, svg } from "./dom.js";
import { change, compact, count, middle, plural, unitText } from "./format.js";
import { dataTable } from "./table.js";

const HEIGHT = 15; // rem
const LINES = ["--accent", "--before", "--muted"]; // colours of the lines
const LINES_NAMED = 3; // lines with the largest values, below the chart
const BARS_MAX = 200; // more rows are drawn as a filled line

const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The hue of a line of many: neighbours differ. */
const hueOf = (i) => Math.round((179 + i * 137.5) % 360);
const lineColour = (i, isMany) => (isMany ? `hsl(${hueOf(i)} 70% ${colour("--lightness")})` : colour(LINES[i]));

/** Stripes that mean "not complete yet". */
function hatching(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour("--panel");
  pen.lineWidth = 3;
  pen.beginPath();
  for (const at of [-4, 4, 12]) {
    pen.moveTo(at - 6, 14);
    pen.lineTo(at + 6, -6);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

/** Seconds of a unit. The end of the last row bounds a single row. */
const stepOf = (rows, endOf) => (rows.length > 1 ? rows[1].t : rows.length && endOf(rows[0])) - rows[0]?.t || 3600;

/** Hatches the plot from the first row on that has not passed. */
function drawIncomplete(u, rows, step) {
  const first = rows.findIndex((row) => !row.passed);
  if (first < 0) return;
  const left = Math.max(u.bbox.left, u.valToPos(rows[first].t - step / 2, "x", true));
  const right = u.bbox.left + u.bbox.width;
  u.ctx.save();
  u.ctx.globalAlpha = 0.7;
  u.ctx.fillStyle = hatching(u.ctx);
  u.ctx.fillRect(left, u.bbox.top, Math.max(0, right - left), u.bbox.height);
  u.ctx.restore();
}

const DAY = 86400;

/** Labels in the reader's locale: months, days, or hours with the day at midnight. Units of days have no labels between them. */
function timeLabels(zone, unit) {
  const format = (parts) => new Intl.DateTimeFormat(undefined, { timeZone: zone, ...parts });
  const month = format({ year: "numeric", month: "short" });
  const day = format({ day: "numeric", month: "short" });
  const hour = format({ hour: "numeric", minute: "2-digit" });
  const hourOfDay = new Intl.DateTimeFormat("en", { timeZone: zone, hour: "numeric", hourCycle: "h23" });
  const minute = format({ minute: "numeric" });
  const second = format({ hour: "numeric", minute: "2-digit", second: "2-digit" });
  return (u, times, axis, space, step) => times.map((t) => {
    const at = t * 1000;
    if (step < 60) return second.format(at);
    if (step < 3600 && minute.format(at) !== "0") return hour.format(at);
    if (step >= 28 * DAY) return month.format(at);
    if (step >= DAY || hourOfDay.format(at) === "00") return day.format(at);
    return unit < DAY - 3600 ? hour.format(at) : "";
  });
}

/** Even bounds and steps of an axis: the outer gridlines are beyond the lowest and the highest value. */
export function evenScale(low, high, lines, isWhole) {
  const least = isWhole ? 1 : 1e-12;
  const raw = Math.max(least, (high - low || 1) / lines);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(least, power * [1, 2, 2.5, 5, 10].find((n) => n * power >= raw * 0.999 && (!isWhole || Number.isInteger(n * power))));
  const [from, to] = [Math.floor(low / step + 1e-9), Math.max(1, Math.ceil(high / step - 1e-9))];
  return Array.from({ length: to - from + 1 }, (_, i) => (from + i) * step);
}

/** `rows` returns the current rows, which change without a new plot. */
function options(width, rows, { zone, before, lines, isMany, onZoom, onCursor, endOf }) {
  const line = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--muted"), grid: line, ticks: { ...line, size: 4 }, font: `${0.75 * rem()}px system-ui, sans-serif` };
  const many = rows().length > BARS_MAX;
  const step = stepOf(rows(), endOf);
  const isWhole = !lines && rows().every((row) => Number.isInteger(row.n ?? 0));
  let gridlines = [0, 1]; // of the rows that are shown
  const findGridlines = (u, low, high) => {
    gridlines = evenScale(Math.min(0, low ?? 0), Math.max(0, high ?? 0), (HEIGHT - 2) / 2.5, isWhole);
    return [gridlines[0], gridlines.at(-1)];
  };
  return {
    width,
    height: HEIGHT * rem(),
    legend: { show: false },
    tzDate: (t) => uPlot.tzDate(new Date(t * 1000), zone),
    cursor: { drag: { x: Boolean(onZoom), y: false, setScale: false }, x: false, y: false, points: { show: Boolean(lines) || many } },
    scales: {
      // For a single row, uPlot's own bounds are years apart.
      x: { range: (u, low, high) => [low - step * 0.6, (rows().length === 1 ? low : high) + step * 0.6] },
      y: { range: findGridlines },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 4.5 * rem(), size: 2 * rem(), values: timeLabels(zone, step) },
      { ...axis, ticks: { show: false }, space: 2.5 * rem(), size: 3.2 * rem(), splits: () => gridlines, values: (u, values) => values.map((v) => compact(v)) },
    ],
    series: lines ? [{}, ...lines.map((name, i) => ({ label: name, stroke: lineColour(i, isMany), width: isMany ? 1.5 : 2, dash: i === 2 && !isMany ? [5, 4] : undefined, points: { show: rows().length < 3 } }))] : [
      {},
      {
        label: "Now",
        stroke: colour("--accent"),
        fill: many ? colour("--accent-soft") : colour("--fill"),
        width: many ? 1.5 : 0,
        points: { show: false },
        paths: many ? undefined : uPlot.paths.bars({ size: [0.8, 6 * rem()], radius: [0.08, 0] }),
      },
      ...(before ? [{ label: "Before", stroke: colour("--before"), width: 2, dash: [5, 4], points: { show: rows().length < 3 } }] : []),
    ],
    hooks: {
      draw: [(u) => drawIncomplete(u, rows(), step)],
      setCursor: [(u) => onCursor(u.cursor.idx)],
      setSelect: [(u) => {
        if (!onZoom || u.select.width < 8) return;
        const from = u.posToVal(u.select.left, "x");
        const to = u.posToVal(u.select.left + u.select.width, "x");
        const inside = rows().filter((row) => row.t + step / 2 >= from && row.t - step / 2 <= to);
        // uPlot must finish its own handler before the view, and with it this plot, goes away.
        if (inside.length) setTimeout(onZoom, 0, inside[0].t, endOf(inside.at(-1)));
      }],
    },
  };
}

/** The time, and the lines with the largest values. */
function describeMany({ t, values }, lines, number, timeText) {
  const found = lines.map((name, i) => [name, values[i]]).filter(([, value]) => value !== null).sort((a, b) => b[1] - a[1]);
  const words = found.slice(0, LINES_NAMED).map(([name, value]) => `${name}: ${number(value)}`);
  return [timeText(t), ...(words.length ? words : ["No values"]), ...(found.length > LINES_NAMED ? [`and ${plural(found.length - LINES_NAMED, "line", "lines")} below`] : [])];
}

/** The time and the values of a row, as short texts. */
function describe(row, lines, number, timeText) {
  const moved = row.before?.n ? (100 * (row.n - row.before.n)) / row.before.n : null;
  return [timeText(row.t), ...(lines ? [...lines.map((name, i) => `${name}: ${middle(row.values[i])}`), `of ${count(row.n)}`] : [number(row.n)]),
    row.before && `${row.before.t === undefined ? row.before.date : timeText(row.before.t)}: ${number(row.before.n)}${row.passed && moved !== null ? ` (${change(moved)})` : ""}`,
    !row.passed && "not complete yet", row.approximate && "approximate", row.of && `with counts of the whole ${row.of}`].filter(Boolean);
}

/** The rows as those of a table. */
function tableOf(rows, label, lines, number) {
  const state = (row) => (row.complete ? "yes" : row.passed ? "approximate" : "not yet");
  if (lines && rows[0]?.n === undefined) return [["Time", ...lines], ...rows.map((row) => [row.date, ...row.values.map(number)])];
  if (lines) return [["Time", ...lines, "Events", "Complete"], ...rows.map((row) => [row.date, ...row.values.map(middle), count(row.n), state(row)])];
  const before = rows.some((row) => row.before);
  const cells = (time, n, then, complete) => [time, n, ...(before ? [then] : []), complete];
  return [cells("Time", label, "Compared with", "Complete"),
    ...rows.map((row) => cells(row.date, number(row.n), row.before ? number(row.before.n) : "–", state(row)))];
}

/**
 * A chart that keeps its place on the page. `draw(rows, {now, before, to, number})` may be called again: the words of the legend, the end
 * of the last row, and a format of the numbers. With `lines`, the chart has a line for each of these names, of the row's `values`; draw()
 * may be given other `lines`, of which there may be many, and whose rows have no `n`.
 * A row is {t, date, n, complete, passed, approximate?, before?: {date, n}}.
 */
export function chart({ label, zone, onZoom, lines: fixed }) {
  const plot = h("div", { class: "plot", tabindex: "0", role: "img", "aria-label": label });
  const legend = h("p", { class: "legend" });
  const readout = h("p", { class: "readout visually-hidden", "aria-live": "polite" });
  const data = dataTable("Rows of the series");
  const tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  const mark = h("div", { class: "mark", hidden: true });
  const element = h("div", { class: "chart" }, plot, h("div", { class: "below" }, legend), readout, data.element);
  let u = null;
  let rows = [];
  let shape = "";
  let lines = fixed;

  /** Shows the values of a row beside its bar, which is marked. */
  function show(index) {
    const row = rows[index];
    tip.hidden = mark.hidden = !row;
    if (!row) return;
    const words = lines && lines !== fixed ? describeMany : describe;
    const [title, ...values] = words(row, lines, lastWords.number ?? count, (t) => unitText(t, zone, stepOf(rows, endOf)));
    tip.replaceChildren(h("strong", {}, title), ...values.map((text) => h("span", {}, text)));
    const width = u.over.clientWidth;
    const left = u.valToPos(row.t, "x");
    const step = Math.max(3, u.valToPos(row.t + stepOf(rows, endOf), "x") - left);
    const isRight = left > width / 2;
    Object.assign(mark.style, { left: `${left - step / 2}px`, width: `${step}px` });
    Object.assign(tip.style, { left: isRight ? "auto" : `${left + step / 2 + 6}px`, right: isRight ? `${width - left + step / 2 + 6}px` : "auto" });
  }

  function make() {
    u?.destroy();
    const before = rows.some((row) => row.before);
    u = new uPlot(options(plot.clientWidth || 600, () => rows, { zone, before, lines, isMany: lines !== fixed, onZoom, onCursor: show, endOf }), columns(), plot);
    u.over.append(mark, tip);
  }

  /** Months and days differ in length. */
  const endOf = (row) => rows[rows.indexOf(row) + 1]?.t ?? lastWords.to;

  function columns() {
    if (lines) return [rows.map((row) => row.t), ...lines.map((_, i) => rows.map(({ values }) => (Number.isFinite(values[i]) ? values[i] : null)))];
    const before = rows.some((row) => row.before) ? [rows.map((row) => row.before?.n ?? null)] : [];
    return [rows.map((row) => row.t), rows.map((row) => row.n), ...before];
  }

  // New rows would end a selection that the pointer has begun.
  let isHeld = false;
  let waiting = null;
  let lastWords = {};
  const release = () => {
    isHeld = false;
    if (waiting) draw(waiting);
  };
  plot.addEventListener("pointerdown", () => { isHeld = true; });
  addEventListener("pointerup", release);

  /** What the bars, the dashed line and the hatching mean. */
  function showLegend({ now, before }) {
    const item = (kind, text) => text && h("span", {}, h("i", { class: kind }), text);
    const items = [...(lines ?? []).map((name, i) => item(lines === fixed ? `line line${i}` : "line hue", name)), !lines && item("now", now), item("before", rows.some((row) => row.before) && before), item("open", rows.some((row) => !row.passed) && "not complete yet")];
    const next = h("p", { class: "legend" }, items);
    next.querySelectorAll(".hue").forEach((mark, i) => mark.style.setProperty("--hue", hueOf(i)));
    if (!legend.isEqualNode(next)) legend.replaceChildren(...next.childNodes);
  }

  function draw(next, words = lastWords) {
    waiting = isHeld ? next : null;
    lastWords = words;
    if (isHeld) return;
    lines = words.lines ?? fixed;
    const nextShape = `${(lines ?? []).join("\n")} ${next.length} ${next[0]?.t} ${next.at(-1)?.t} ${next.some((row) => row.before)}`;
    rows = next;
    plot.setAttribute("aria-label", `${label}: ${plural(rows.length, "unit", "units")}, ${words.now ?? ""}`);
    if (u && shape === nextShape) u.setData(columns());
    else make();
    shape = nextShape;
    showLegend(words);
    data.show(() => tableOf(rows, label, lines, words.number ?? count));
  }

  // Left and right walk over the units; Enter zooms into one.
  let at = -1;
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && rows.length) {
      at = Math.min(rows.length - 1, Math.max(0, (at < 0 ? rows.length - (step > 0 ? 1 : 0) : at) + step));
      u?.setCursor({ left: u.valToPos(rows[at].t, "x"), top: 0 });
      show(at);
      readout.textContent = [...tip.children].map((part) => part.textContent).join(", ");
      event.preventDefault();
    } else if (event.key === "Enter" && onZoom && rows[at] && rows.length > 1) {
      onZoom(rows[at].t, endOf(rows[at]));
    }
  });

  plot.addEventListener("blur", () => u?.setCursor({ left: -10, top: -10 }));

  const observer = new ResizeObserver(() => {
    if (u && plot.clientWidth && plot.clientWidth !== u.width) u.setSize({ width: plot.clientWidth, height: HEIGHT * rem() });
  });
  observer.observe(plot);

  return {
    element,
    table: data,
    draw,
    redraw: () => rows.length && make(),
    destroy() {
      removeEventListener("pointerup", release);
      observer.disconnect();
      u?.destroy();
    },
  };
}

/** A small line without axes. */
export function sparkline(values, label) {
  const width = 120;
  const height = 28;
  const top = Math.max(1, ...values);
  const points = values.map((v, i) =>
    `${((i / Math.max(1, values.length - 1)) * width).toFixed(1)},${(height - 2 - (v / top) * (height - 4)).toFixed(1)}`);
  return svg("svg", { class: "sparkline", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("polygon", { points: `0,${height} ${points.join(" ")} ${width},${height}`, class: "area" }),
    svg("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": "1.5",
      "vector-effect": "non-scaling-stroke" }));
}
