// Keeps what is on the screen fresh, and says when it cannot.

import { ApiError, hasToken, setToken } from "./api.js";
import { changes, changesBegin, watchChanges } from "./changes.js";
import { byId, h } from "./dom.js";
import { clock } from "./format.js";

const RETRY = 1000; // ms
const SLOW = 3000; // ms without an answer
const BUSY_SHARE = 3; // a request that takes a second is made again after three seconds
const BUSY_MAX = 5000; // ms
const SLOW_POLL = 5000; // ms between requests without the stream of changes
const LATE = 10; // seconds behind the clock, from which complete_until is not waited for

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

/** The unit up to which rows are complete, and the latest unit, which usually begins when the one before it is complete. */
const periods = (until, seconds) => [until ?? 0, Math.max(until ?? 0, Date.now() / 1000 - LATE)].map((t) => Math.floor(t / seconds)).join();

/** What answers depend on, in an event of the stream of changes. The rows of a series change with the time, too. */
const VERSIONS = {
  counts: (event) => `${event.counts} ${periods(event.complete_until, 900)}`,
  minutes: (event) => `${event.counts} ${periods(event.complete_until, 60)}`,
  daemons: (event) => event.daemons,
};

/**
 * Calls load(signal, works) now and then every `interval` ms while the tab is visible, until stop(). With `of`, one of VERSIONS, it is called
 * only when its answers may have changed, or if it has returned true. A failure that may pass shows in the
 * banner and is tried again; any other is given to onError, once. `mayWait`: load may wait for news for any time; it calls works() once it
 * can wait. `part` names the part of the page whose numbers become old when requests fail, `source` the daemon that answers them, and
 * atMost() the time (ms) after which load is called in any case.
 */
export function keepFresh(interval, load, onError, { mayWait = false, of = null, part = mayWait ? null : "view", source = "The API",
  atMost = () => Infinity } = {}) {
  const controller = new AbortController();
  const self = { error: null, part, answered: 0 };
  let timer;
  let version = null; // of the latest answers; null: not known
  let began = 0;
  let isWaiting = false; // for a change
  const works = () => {
    failing.delete(self);
    showBanner();
  };
  const current = () => (of && changes() ? VERSIONS[of](changes()) : null);

  async function run() {
    if (of) await changesBegin();
    if (controller.signal.aborted) return;
    began = performance.now();
    version = current();
    isWaiting = false;
    const isCut = Boolean(of) && version === null;
    let wait = isCut ? SLOW_POLL : interval;
    const slow = mayWait ? 0 : setTimeout(() => {
      self.error = new ApiError(0, null, `${source} has not answered for ${SLOW / 1000} seconds.`);
      failing.add(self);
      showBanner();
    }, SLOW);
    try {
      if (await load(controller.signal, works)) version = null;
      self.answered = Date.now() / 1000;
      failing.delete(self);
      if (!mayWait) wait = Math.max(wait, Math.min(BUSY_MAX, BUSY_SHARE * (performance.now() - began)));
      isWaiting = isCut;
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
      version = null;
      wait = RETRY;
    } finally {
      clearTimeout(slow);
    }
    showBanner();
    if (!controller.signal.aborted) timer = setTimeout(next, wait);
  }

  function next() {
    isWaiting = false;
    if (document.hidden) document.addEventListener("visibilitychange", next, { once: true, signal: controller.signal });
    else if (version === null || version !== current() || performance.now() - began >= atMost()) run();
    else {
      self.answered = Date.now() / 1000; // the answers are still those of now
      isWaiting = true;
    }
  }

  const unwatch = watchChanges(() => {
    if (!isWaiting) return;
    clearTimeout(timer);
    next();
  });
  run();
  return () => {
    unwatch();
    controller.abort();
    clearTimeout(timer);
    failing.delete(self);
    showBanner();
  };
}
