// Live: the last lines of a stream, then its lines as they arrive.

import { follow } from "./api.js";
import { configured } from "./counters.js";
import { h, select } from "./dom.js";
import { emptyHint } from "./empty.js";
import { count } from "./format.js";
import { keepFresh } from "./live_update.js";
import { statsOf, streamsOf, watchPipeline } from "./pipeline_data.js";
import { share } from "./share.js";
import { go, note as noteChoice } from "./state.js";

const KEPT = 500; // lines on the page
const LAST = 100; // lines at the start
const DRAW_EVERY = 200; // ms
const LINES_A_SECOND = 2000; // more are sampled
const LINE_SHOWN = 4000; // characters
const NAME = /("(?:[^"\\]|\\.)*"\s*:)/; // of a member in JSON

/** The line with muted names, so that its values stand out. */
function lineOf(line) {
  const parts = line.slice(0, LINE_SHOWN).split(NAME);
  return h("li", {}, h("code", {}, parts.map((part, i) => (i % 2 ? h("span", { class: "name" }, part) : part)), line.length > LINE_SHOWN ? "…" : ""));
}

export function liveView(state) {
  const list = h("ol", { class: "lines", tabindex: "0", "aria-label": "Lines, newest first" });
  const note = h("p", { class: "muted", role: "status" }, "Waiting for lines…");
  const hint = h("div");
  const choose = h("span", {}, select("Stream", "stream", [["", "…"]])); // takes the place until the streams are known
  const filter = h("input", { name: "filter", type: "search", value: state.filter ?? "", placeholder: "Only lines that contain…",
    oninput: (event) => { noteChoice({ filter: event.target.value }); refill(); } });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Continue" : "Pause";
  } }, "Pause");
  const element = h("div", {}, h("h1", { class: "visually-hidden" }, "Live"),
    h("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, choose, h("label", { class: "find" }, h("span", {}, "Filter"), filter), pause,
      share({ name: "lines", request: () => ({ path: "v1/live", parameters: { stream: chosen, last: LAST } }),
        rows: () => [["line"], ...[...list.querySelectorAll("code")].map((code) => [code.textContent])] })),
    note, list, hint);
  let chosen = state.stream;
  let waiting = [];
  let seen = []; // the last lines, newest first, whatever the filter
  let total = 0;
  let stopFollowing = () => {};

  function start(stream) {
    let place = { last: LAST };
    stopFollowing = keepFresh(0, async (outer, works) => {
      const second = new AbortController();
      outer.addEventListener("abort", () => second.abort(), { once: true });
      let began = performance.now();
      let inSecond = 0;
      let sampled = false;
      await follow({ stream, ...place }, second.signal, works, (lines, offset) => {
        place = { from: offset }; // a new connection goes on where this one has ended
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
        place = sampled ? { from: "latest" } : { last: LAST };
      });
      if (sampled) await new Promise((resolve) => setTimeout(resolve, Math.max(0, 1000 - (performance.now() - began))));
    }, (error) => note.replaceChildren(error.message), { mayWait: true });
  }

  const matches = (line) => line.includes(filter.value);

  function showNote() {
    note.textContent = `${count(list.childElementCount)} of the last ${count(seen.length)} lines${filter.value ? " contain the text" : ""}; ${
      count(total)} lines received. Above ${count(LINES_A_SECOND)} lines a second the page shows a sample.`;
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
    start(name);
  }, (error) => note.replaceChildren(error.message));
  return { element, stop() { clearInterval(timer); stopFollowing(); stopPipeline(); } };
}
