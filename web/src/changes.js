// The stream of changes: which answers of the API may have changed. The page asks again only for those.

import { ApiError, events } from "./api.js";

const SILENCE = 3000; // ms without an event, after which the stream counts as cut
const AGAIN = 1000; // ms
const REFUSED_AGAIN = 10000; // ms; the API has too many clients, or a proxy refuses streams
const PATIENCE = 500; // ms for the first event

const listeners = new Set();
let latest = null; // {counts, daemons, complete_until}; null: the stream is cut, or has not begun
let isSettled;
const settled = new Promise((resolve) => { isSettled = resolve; });

function show(event) {
  latest = event;
  for (const listener of [...listeners]) listener(event);
}

/** The latest event, or null without a stream: then anything may have changed. */
export const changes = () => latest;

/** Until there is a first event, or there will be none. */
export const changesBegin = () => settled;

/** Calls listener(event) each second, and listener(null) once the stream is cut. Returns a function that stops it. */
export function watchChanges(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Follows the stream until it ends, is silent, or the tab is hidden. Returns the time to wait before the next connection. */
async function follow() {
  const connection = new AbortController();
  let timer;
  const end = () => connection.abort();
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(end, SILENCE);
  };
  document.addEventListener("visibilitychange", end, { once: true, signal: connection.signal });
  wait();
  try {
    await events("v1/changes", {}, connection.signal, wait, (found) => {
      wait();
      show(JSON.parse(found.at(-1).data));
      isSettled();
    });
  } catch (error) {
    return error instanceof ApiError && error.status ? REFUSED_AGAIN : AGAIN;
  } finally {
    clearTimeout(timer);
    end();
  }
  return AGAIN;
}

/** A hidden tab has no connection, because a browser allows few to one host. */
async function run() {
  if (document.hidden) {
    document.addEventListener("visibilitychange", run, { once: true });
    return;
  }
  const wait = await follow();
  if (!document.hidden && latest) show(null);
  isSettled();
  setTimeout(run, document.hidden ? 0 : wait);
}

export function startChanges() {
  setTimeout(isSettled, PATIENCE);
  run();
}
