// Keeps what is on the screen fresh, and says when it cannot.

import { ApiError, hasToken, setToken } from "./api.js";
import { byId, h } from "./dom.js";
import { clock } from "./format.js";

const RETRY = 1000; // ms
const SLOW = 3000; // ms without an answer
const BUSY_SHARE = 3; // a request that takes a second is made again after three seconds
const BUSY_MAX = 5000; // ms

const failing = new Set();
let missing = []; // sources whose counts are not in the latest answer

/** The sources whose counts are not in an answer of the API: [{source, error, since}]. */
export function showMissing(sources) {
  missing = sources;
  showBanner();
}

const oldListeners = new Set(); // {part, show, since}

/** When the oldest numbers of a part of the page were new, if its requests fail. null: they are fresh. 0: there are none. */
function oldSince(part) {
  const times = [...failing].filter((f) => f.part === part).map((f) => f.answered);
  return times.length ? Math.min(...times) : null;
}

/** Calls show(since), as oldSince, now and whenever it changes. Returns a function that stops it. */
export function watchOld(part, show) {
  const listener = { part, show, since: oldSince(part) };
  oldListeners.add(listener);
  show(listener.since);
  return () => oldListeners.delete(listener);
}

function showOld() {
  for (const listener of [...oldListeners]) {
    const since = oldSince(listener.part);
    if (since !== listener.since) listener.show(listener.since = since);
  }
}

function wordsOf(error) {
  const since = oldSince("view") ?? oldSince("pipeline");
  if (error) return `${error.message}${/[.!?]$/.test(error.message) ? "" : "."}${since ? ` The numbers on this page are those of ${clock(since)}.` : ""} Trying again.`;
  const absent = missing.map((m) => `The ${m.source} ${m.source === "archive" ? "cannot be read" : "has not answered"} since ${clock(m.since)}`);
  return absent.length ? `${absent.join(". ")}. The numbers on this page are without its counts; Pipeline shows the remedy.` : "";
}

function showBanner() {
  showOld();
  const banner = byId("banner");
  const error = [...failing].at(-1)?.error;
  if (error?.status === 401) {
    if (!banner.querySelector("form")) banner.replaceChildren(tokenForm());
    banner.hidden = false;
    return;
  }
  const words = wordsOf(error);
  banner.hidden = !words;
  if (words && banner.textContent !== words) banner.textContent = words;
}

function tokenForm() {
  return h("form", { onsubmit: (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token").trim());
    location.reload();
  } }, h("label", {}, hasToken() ? h("strong", { class: "error" }, "The API refuses this token. Enter another: ") : "This API needs a token: ", h("input", { name: "token", type: "password", autocomplete: "off" })),
  h("button", {}, "Use it for this tab"));
}

const isTemporary = (error) => error instanceof ApiError && (error.status === 0 || error.status === 503 || error.status === 429 || error.status === 401);

/**
 * Loads parts side by side: [{load, fail}]. A failure that will not pass is shown by its part, which is not asked again; the
 * other parts go on.
 */
export async function loadParts(parts, signal) {
  const ends = await Promise.allSettled(parts.filter((p) => !p.hasFailed).map(async (part) => {
    try {
      await part.load(signal);
    } catch (error) {
      if (signal.aborted || isTemporary(error)) throw error;
      part.hasFailed = true;
      part.fail(error);
    }
  }));
  const failed = ends.find((end) => end.status === "rejected");
  if (failed) throw failed.reason;
}

/**
 * Calls load(signal, works) now and then every `interval` ms while the tab is visible, until stop(). A failure that may pass shows in the
 * banner and is tried again; any other is given to onError, once. `mayWait`: load may wait for news for any time; it calls works() once it
 * can wait. `part` names the part of the page whose numbers become old when requests fail,
 * and `source` the daemon that answers them.
 */
export function keepFresh(interval, load, onError, { mayWait = false, part = mayWait ? null : "view", source = "The API" } = {}) {
  const controller = new AbortController();
  const self = { error: null, part, answered: 0 };
  let timer;
  const works = () => {
    failing.delete(self);
    showBanner();
  };

  async function run() {
    const began = performance.now();
    let wait = interval;
    const slow = mayWait ? 0 : setTimeout(() => {
      self.error = new ApiError(0, null, `${source} has not answered for ${SLOW / 1000} seconds.`);
      failing.add(self);
      showBanner();
    }, SLOW);
    try {
      await load(controller.signal, works);
      self.answered = Date.now() / 1000;
      failing.delete(self);
      if (!mayWait) wait = Math.max(wait, Math.min(BUSY_MAX, BUSY_SHARE * (performance.now() - began)));
    } catch (error) {
      if (controller.signal.aborted) return;
      if (!isTemporary(error)) {
        failing.delete(self);
        showBanner();
        onError(error);
        return;
      }
      self.error = error;
      failing.add(self);
      wait = RETRY;
    } finally {
      clearTimeout(slow);
    }
    showBanner();
    if (!controller.signal.aborted) timer = setTimeout(next, wait);
  }

  function next() {
    if (document.hidden) document.addEventListener("visibilitychange", next, { once: true, signal: controller.signal });
    else run();
  }

  run();
  return () => {
    controller.abort();
    clearTimeout(timer);
    failing.delete(self);
    showBanner();
  };
}
