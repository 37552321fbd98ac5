// Live: the last lines of a stream, then its lines as they arrive.

import { follow } from "./api.js";
import { configured } from "./counters.js";
import { h, select } from "./dom.js";
import { emptyHint } from "./empty.js";
import { count, plural } from "./format.js";
import { keepFresh } from "./live_update.js";
import { statsOf, streamsOf, watchPipeline } from "./pipeline_data.js";
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

/** The text of the filter if it is a condition, which the API reads; undefined: it is a text that lines contain. */
const conditionOf = (text) => (/[=<>~]|\bin\s*\(/.test(text) ? text : undefined);

/** The line with muted names, so that its values stand out. */
function lineOf(line) {
  const parts = line.slice(0, LINE_SHOWN).split(NAME);
  return h("li", {}, h("code", {}, parts.map((part, i) => (i % 2 ? h("span", { class: "name" }, part) : part)), line.length > LINE_SHOWN ? "…" : ""));
}

export function liveView(state) {
  const list = h("ol", { class: "lines", tabindex: "0", "aria-label": "Lines, newest first" });
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
    h("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, choose, h("label", { class: "find" }, h("span", {}, "Filter"), filter, filterNote), pause,
      share({ name: "lines", request: () => ({ path: "v1/live", parameters: beginning() }),
        rows: () => [["line"], ...[...list.querySelectorAll("code")].map((code) => [code.textContent])] })),
    note, list, hint);
  let chosen = state.stream;
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
    list.replaceChildren();
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
      await follow({ stream, ...place, if: only }, second.signal, works, (lines, offset, warning) => {
        if (warning) showFilterNote(warning);
        if (offset !== undefined) place = { from: offset }; // a new connection goes on where this one has ended
        if (performance.now() - began > 1000) {
          began = performance.now();
          inSecond = 0;
        }
        inSecond += lines.length;
        total += lines.length;
        waiting.push(...lines.slice(-KEPT));
        waiting.splice(0, waiting.length - KEPT);
        if (inSecond > LINES_A_SECOND) {
          sampled = true;
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
    const shown = condition ? `The last ${plural(list.childElementCount, "line", "lines")} for which the condition is true`
      : `${count(list.childElementCount)} of the last ${plural(seen.length, "line", "lines")}${!filter.value ? "" : list.childElementCount === 1 ? " contains the text" : " contain the text"}`;
    note.textContent = `${shown}; ${plural(total, "line", "lines")} received. Above ${count(LINES_A_SECOND)} lines a second the page shows a sample.`;
  }

  function refill() {
    list.replaceChildren(...seen.filter(matches).map(lineOf));
    if (seen.length) showNote();
  }

  const timer = setInterval(() => {
    if (pause.getAttribute("aria-pressed") === "true" || !waiting.length) return;
    const fresh = waiting.reverse();
    waiting = [];
    seen = [...fresh, ...seen].slice(0, KEPT);
    hint.replaceChildren();
    list.prepend(...fresh.filter(matches).map(lineOf));
    while (list.childElementCount > KEPT) list.lastElementChild.remove();
    showNote();
  }, DRAW_EVERY);

  async function showHint(isEmpty) {
    const counters = isEmpty && await configured();
    if (!isEmpty || total) hint.replaceChildren();
    else if (!hint.firstChild) hint.append(emptyHint(counters, { period: "all" }, "The stream has no lines yet."));
  }

  let streams = "";
  const stopPipeline = watchPipeline((pipeline) => {
    const names = streamsOf(pipeline);
    showHint(chosen !== undefined && statsOf(pipeline, "pubsub")?.streams[chosen]?.end === "0").catch(() => {}); // the lines go on without it
    if (names.join() === streams || !names.length) return;
    streams = names.join();
    const name = names.includes(state.stream) ? state.stream : names[0];
    chosen = name;
    choose.replaceChildren(select("Stream", "stream", names.map((n) => [n]), name, (stream) => go({ stream })));
    stopFollowing();
    start();
  }, (error) => note.replaceChildren(error.message));
  return { element, stop() { clearInterval(timer); clearTimeout(typing); stopFollowing(); stopPipeline(); } };
}
