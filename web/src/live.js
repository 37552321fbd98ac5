// Live: the last lines of a stream, then its lines as they arrive.

import { follow } from "./api.js";
import { configured } from "./counters.js";
import { h, select } from "./dom.js";
import { emptyHint } from "./empty.js";
import { fieldsOf, minuteCounts, OVER, pathsOf, textOf } from "./fields.js";
import { count, plural } from "./format.js";
import { keepFresh } from "./live_update.js";
import { statsOf, streamsOf, watchPipeline } from "./pipeline_data.js";
import { watchRate } from "./rate.js";
import { share } from "./share.js";
import { go, note as noteChoice } from "./state.js";

const KEPT = 500; // lines on the page
const LAST = 100; // lines at the start
const SEARCHED = 1000; // lines at the start that a condition selects from, below what is sampled
const TYPING = 300; // ms after the last key before a condition is used
const DRAW_EVERY = 200; // ms
const LINES_A_SECOND = 2000; // more are sampled
const LINE_SHOWN = 4000; // characters
const NAME = /("(?:[^"\\]|\\.)*"\s*:)/; // of a member in JSON
const CELL_SHOWN = 200; // characters
const EXAMINED = 50; // new lines, for their fields
const PAST = 20000; // lines of the minute before a count begins; of more, those are a sample
const PAST_SILENCE = 2000; // ms after which no more of them follow
const REPLAY = 2000; // ms after which lines are new if the end of the stream is not known

/** The text of the filter if it is a condition, which the API reads; undefined: it is a text that lines contain. */
const conditionOf = (text) => (/[=<>~]|\bin\s*\(/.test(text) ? text : undefined);

/** The line with muted names, so that its values stand out. */
function lineOf(line) {
  const parts = line.slice(0, LINE_SHOWN).split(NAME);
  return h("li", {}, h("code", {}, parts.map((part, i) => (i % 2 ? h("span", { class: "name" }, part) : part)), line.length > LINE_SHOWN ? "…" : ""));
}

/** The line as a row of the chosen columns. */
function rowOf(line, columns) {
  const fields = fieldsOf(line);
  return h("tr", { title: line.slice(0, LINE_SHOWN) }, columns.map((path) => {
    const text = textOf(fields.get(path));
    return h("td", {}, h("bdi", {}, text.length > CELL_SHOWN ? `${text.slice(0, CELL_SHOWN)}…` : text));
  }));
}

/** The paths in the address, between commas that are not in brackets. */
const listOf = (text) => (text ? text.split(/,(?![^[]*\])/) : []);

export function liveView(state) {
  const lines = h("ol", { class: "lines", tabindex: "0", "aria-label": "Lines, newest first" });
  const rows = h("tbody");
  const heads = h("tr");
  const grid = h("div", { class: "lines scroll", tabindex: "0", role: "region", "aria-label": "Lines, newest first", hidden: true }, h("table", {}, h("thead", {}, heads), rows));
  const rate = h("p", { class: "muted rate" }, "–");
  const fields = h("fieldset", {}, h("legend", { class: "visually-hidden" }, "Columns"));
  const picker = h("details", { class: "columns" }, h("summary", {}, "Columns"), fields);
  const countBy = h("span", { class: "count-by" }, select("Last minute by", "count", [["", "Nothing"]])); // takes the place until the fields are known
  const counted = h("div");
  const note = h("p", { class: "muted received", role: "status" }, "Waiting for lines…");
  const hint = h("div");
  const choose = h("span", { class: "stream" }, select("Stream", "stream", [["", "…"]])); // takes the place until the streams are known
  const filter = h("input", { name: "filter", type: "search", value: state.filter ?? "", placeholder: "A text, or status >= 500",
    "aria-describedby": "filter-note", oninput: () => {
      noteChoice({ filter: filter.value });
      clearTimeout(typing);
      typing = setTimeout(restart, condition === conditionOf(filter.value) ? 0 : TYPING);
      if (!condition && !conditionOf(filter.value)) refill();
    } });
  const filterNote = h("span", { id: "filter-note", class: "error", role: "status" });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Continue" : "Pause";
  } }, "Pause");
  const element = h("div", {}, h("h1", { class: "visually-hidden" }, "Live"),
    h("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, choose, h("label", { class: "find" }, h("span", {}, "Filter"), filter, filterNote), picker, countBy, pause, rate,
      share({ name: "lines", request: () => ({ path: "v1/live", parameters: beginning() }),
        rows: () => (columns.length ? [columns, ...matching().map((line) => columns.map((path) => textOf(fieldsOf(line).get(path))))]
          : [["line"], ...matching().map((line) => [line])]) })),
    note, counted, lines, grid, hint);
  let chosen = state.stream;
  let columns = listOf(state.columns);
  let paths = []; // of the fields that the lines have
  let counts = null; // of the last minute
  let isSample = false;
  let stopPast = () => {};
  let replayed = 0; // lines up to this offset came before the count of the last minute began
  let newest = 0; // offset
  let condition = conditionOf(filter.value);
  let typing;
  let waiting = [];
  let seen = []; // the last lines, newest first, whatever the filter
  let total = 0;
  let stopFollowing = () => {};

  const beginning = () => ({ stream: chosen, last: condition ? SEARCHED : LAST, if: condition });

  function showFilterNote(text) {
    filterNote.textContent = text;
    filter.setAttribute("aria-invalid", String(Boolean(text)));
  }

  /** Follows again if the condition is another one. */
  function restart() {
    if (condition === conditionOf(filter.value)) return;
    condition = conditionOf(filter.value);
    seen = [];
    waiting = [];
    total = 0;
    lines.replaceChildren();
    rows.replaceChildren();
    replayed = Math.max(replayed, newest);
    startCounting(state.count);
    note.textContent = "Waiting for lines…";
    stopFollowing();
    if (chosen !== undefined) start();
  }

  function start() {
    const { stream, if: only, ...first } = beginning();
    let place = first;
    showFilterNote("");
    stopFollowing = keepFresh(0, async (outer, works) => {
      const second = new AbortController();
      outer.addEventListener("abort", () => second.abort(), { once: true });
      let began = performance.now();
      let inSecond = 0;
      let sampled = false;
      await follow({ stream, ...place, if: only }, second.signal, works, (fresh, offset, warning, offsets) => {
        if (warning) showFilterNote(warning);
        if (offset !== undefined) {
          place = { from: offset }; // a new connection goes on where this one has ended
          newest = offset;
        }
        if (performance.now() - began > 1000) {
          began = performance.now();
          inSecond = 0;
        }
        inSecond += fresh.length;
        total += fresh.length;
        if (counts) fresh.forEach((line, i) => offsets[i] > replayed && matches(line) && counts.add(line));
        waiting.push(...fresh.slice(-KEPT));
        waiting.splice(0, waiting.length - KEPT);
        if (inSecond > LINES_A_SECOND) {
          sampled = isSample = true;
          second.abort();
        }
      }).catch((error) => {
        const isGone = error.status === 410 || error.status === 416; // retention has passed the offset, or the stream is another one
        if (!sampled && !isGone) throw error;
        place = sampled ? { from: "latest" } : first;
      });
      if (sampled) await new Promise((resolve) => setTimeout(resolve, Math.max(0, 1000 - (performance.now() - began))));
    }, (error) => {
      if (only && error.status === 400) showFilterNote(error.message.replace(/^if: /, ""));
      else note.replaceChildren(error.message);
    }, { mayWait: true });
  }

  const matches = (line) => Boolean(condition) || line.includes(filter.value);

  function showNote() {
    const n = (columns.length ? rows : lines).childElementCount;
    const shown = condition ? `The last ${plural(n, "line", "lines")} for which the condition is true`
      : filter.value ? `${count(n)} of the last ${plural(seen.length, "line", "lines")} ${n === 1 ? "contains" : "contain"} the text` : `The last ${plural(n, "line", "lines")}`;
    note.textContent = `${shown}; ${plural(total, "line", "lines")} received.${isSample ? ` Above ${count(LINES_A_SECOND)} lines a second the page shows a sample.` : ""}`;
  }

  const matching = () => seen.filter(matches);
  const elementsOf = (some) => some.filter(matches).map((line) => (columns.length ? rowOf(line, columns) : lineOf(line)));

  function refill() {
    const place = columns.length ? rows : lines;
    lines.replaceChildren();
    heads.replaceChildren(...columns.map((path) => h("th", { scope: "col" }, h("bdi", {}, path))));
    place.replaceChildren(...elementsOf(seen));
    lines.hidden = columns.length > 0;
    grid.hidden = !columns.length;
    if (seen.length) showNote();
  }

  function chooseColumn(path, isChosen) {
    columns = isChosen ? [...columns, path] : columns.filter((each) => each !== path);
    noteChoice({ columns: columns.join(",") });
    refill();
  }

  function startCounting(path) {
    state.count = path;
    counts = path ? minuteCounts(path, (only) => {
      filter.value = [condition && `(${condition})`, only].filter(Boolean).join(" and ");
      filter.dispatchEvent(new Event("input"));
    }) : null;
    counted.replaceChildren(counts?.element ?? "");
    counts?.draw(isSample);
    stopPast();
    if (counts && chosen !== undefined && replayed < Infinity) countPast(counts);
  }

  /** The lines of the last minute up to those that are counted as they arrive. Without them, the count begins with the lines that follow. */
  async function countPast(into) {
    const connection = new AbortController();
    const end = Math.max(replayed, newest);
    const past = [];
    const stop = () => connection.abort();
    let timer = setTimeout(stop, PAST_SILENCE);
    stopPast = () => { into = null; stop(); };
    replayed = end;
    await follow({ stream: chosen, from: `@${Math.floor(Date.now() / 1000) - OVER}`, if: condition }, connection.signal, () => {}, (fresh, offset, warning, offsets) => {
      clearTimeout(timer);
      timer = setTimeout(stop, PAST_SILENCE);
      past.push(...fresh.filter((line, i) => offsets[i] <= end && matches(line)));
      if (offset >= end || past.length > PAST) stop();
    }).catch(() => { /* the lines that arrive show the failure */ });
    clearTimeout(timer);
    if (!into) return;
    isSample ||= past.length > PAST;
    into.addPast(past);
    into.draw(isSample);
  }

  /** Offers the fields of the lines as columns and to count by. */
  function offerFields(fresh) {
    const next = pathsOf(fresh.slice(0, EXAMINED), [...columns, ...(state.count ? [state.count] : []), ...paths]);
    if (next.length === paths.length) return;
    if (picker.contains(document.activeElement) || countBy.contains(document.activeElement)) return; // not while one is chosen
    paths = next;
    fields.replaceChildren(fields.firstChild, ...paths.map((path) => h("label", {}, h("input", { type: "checkbox", value: path, checked: columns.includes(path),
      onchange: (event) => chooseColumn(path, event.target.checked) }), " ", h("bdi", {}, path))));
    countBy.replaceChildren(select("Last minute by", "count", [["", "Nothing"], ...paths.map((path) => [path])], state.count ?? "", (path) => {
      noteChoice({ count: path });
      startCounting(path);
    }));
  }

  const timer = setInterval(() => {
    if (pause.getAttribute("aria-pressed") === "true" || !waiting.length) return;
    const fresh = waiting.reverse();
    waiting = [];
    seen = [...fresh, ...seen].slice(0, KEPT);
    hint.replaceChildren();
    const place = columns.length ? rows : lines;
    place.prepend(...elementsOf(fresh));
    while (place.childElementCount > KEPT) place.lastElementChild.remove();
    offerFields(fresh);
    showNote();
  }, DRAW_EVERY);
  const countTimer = setInterval(() => counts?.draw(isSample), 1000);

  async function showHint(isEmpty) {
    const counters = isEmpty && await configured();
    if (!isEmpty || total) hint.replaceChildren();
    else if (!hint.firstChild) hint.append(emptyHint(counters, { period: "all" }, "The stream has no lines yet."));
  }

  /** pubsub sends a number each second, also without lines. Without one the connection hangs. */
  let stopRate = () => {};
  function watch() {
    stopRate();
    stopRate = watchRate((n) => { rate.textContent = n === null ? "–" : `${count(Math.round(n))} lines/s`; }, () => rate.replaceChildren(),
      { stream: chosen, silence: "pubsub has not answered for 3 seconds: new lines do not arrive." });
  }

  let opened; // a further stream does not begin this one again
  function openStream(name, end) {
    chosen = opened = name;
    replayed = end;
    stopFollowing();
    start();
    watch();
    startCounting(state.count);
    refill();
    offerFields([]);
  }

  let streams = "";
  const stopPipeline = watchPipeline((pipeline) => {
    const names = streamsOf(pipeline);
    showHint(chosen !== undefined && statsOf(pipeline, "pubsub")?.streams[chosen]?.end === "0").catch(() => {}); // the lines go on without it
    const all = names.toSorted().join(); // the order changes while the aggregator does not answer
    if (all === streams || !names.length) return;
    streams = all;
    const name = [state.stream, opened].find((each) => names.includes(each)) ?? names[0];
    choose.replaceChildren(select("Stream", "stream", names.map((n) => [n]), name, (stream) => go({ stream })));
    if (name !== opened) openStream(name, Number(statsOf(pipeline, "pubsub").streams[name].end));
  }, (error) => { // a shared link may show a stream, but not the pipeline
    if (!state.stream || error.status !== 403) {
      note.replaceChildren(error.message);
      return;
    }
    openStream(state.stream, Infinity);
    setTimeout(() => {
      replayed = newest;
      startCounting(state.count);
    }, REPLAY);
  });
  return { element, stop() { clearInterval(timer); clearInterval(countTimer); stopRate(); stopPast(); clearTimeout(typing); stopFollowing(); stopPipeline(); } };
}
