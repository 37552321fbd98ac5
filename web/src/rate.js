// Events a second: the API pushes the number of new lines each second.

import { ApiError, events } from "./api.js";
import { keepFresh } from "./live_update.js";

const OVER = 5; // events, of which the mean is shown
const AGAIN = 1000; // ms
const SILENCE = 3000; // ms

/**
 * Calls show(rate) every second, and show(null) while the rate is not known, until the returned function is called. A hidden tab has
 * no connection, because a browser allows few to one host.
 */
export function watchRate(show, onError, { stream, silence = `The number of events a second has not arrived for ${SILENCE / 1000} seconds.` } = {}) {
  return keepFresh(AGAIN, async (outer, works) => {
    if (document.hidden) return;
    const connection = new AbortController();
    const once = { signal: connection.signal };
    const recent = [];
    let timer;
    let isSilent = false;
    const end = () => connection.abort();
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => { isSilent = true; end(); }, SILENCE);
    };
    outer.addEventListener("abort", end, once);
    document.addEventListener("visibilitychange", end, once);
    wait();
    try {
      await events("v1/live/rate", { stream }, connection.signal, works, (found) => {
        wait();
        recent.push(...found.map((event) => JSON.parse(event.data)));
        recent.splice(0, recent.length - OVER);
        const sum = (name) => recent.reduce((n, event) => n + event[name], 0);
        show(sum("lines") / sum("seconds"));
      });
    } catch (error) {
      if (isSilent) throw new ApiError(503, null, silence);
      if (outer.aborted || !connection.signal.aborted) throw error;
    } finally {
      clearTimeout(timer);
      end();
      if (!outer.aborted) show(null);
    }
  }, onError, { mayWait: true });
}
