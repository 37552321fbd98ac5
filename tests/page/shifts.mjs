// Loads the page while a test decides in which order the answers of the API arrive, and says what moved.

import assert from "node:assert/strict";

/** Of the answers that are held, the one to give next. null: each request fails once, and is then answered at once. */
export const ORDERS = { "first to last": (held) => held[0], "last to first": (held) => held.at(-1), "after errors": null };

/** Runs on the page: no panel waits for its first answer. */
const isSettled = () => document.querySelector("main .panel, main .lines li") !== null && !document.querySelector("main [aria-busy=true]");
export const settled = (page) => page.waitForFunction(isSettled, null, { polling: 50 });

const drawn = (page) => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));

/** Requests of a page that fail or have their answer. An answer that is a stream does not end. */
function watchRequests(page) {
  const ended = new Set();
  const end = (request) => ended.add(request);
  const answer = (reply) => /event-stream/.test(reply.headers()["content-type"]) && end(reply.request());
  page.on("requestfinished", end).on("requestfailed", end).on("response", answer);
  return { ended, stop: () => page.off("requestfinished", end).off("requestfailed", end).off("response", answer) };
}

/** Holds the first request of each kind; the page asks again and again. */
async function hold(page, held, mayWait) {
  const seen = new Set();
  await page.route("**/v1/**", (route) => {
    const { pathname, searchParams } = new URL(route.request().url());
    const kind = `${pathname} ${searchParams.get("ns")} ${searchParams.get("period")}`;
    if (seen.has(kind)) return route.continue();
    seen.add(kind);
    return mayWait ? held.push(route) : route.fulfill({ status: 503, json: { detail: "not yet" } });
  });
}

/** The shifts of the layout since the page was loaded: the score, then each element with its places. */
const shifts = (page) => page.evaluate(() => new Promise((resolve) => {
  const name = (node) => node && [node.nodeName, node.id && `#${node.id}`, node.className && `.${node.className}`, (node.textContent ?? "").slice(0, 20)].join("");
  const place = (r) => [r.x, r.y, r.width, r.height].map(Math.round).join();
  const moved = [];
  new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries())
      moved.push([value.toFixed(4), ...sources.map((s) => `${name(s.node)} ${place(s.previousRect)} -> ${place(s.currentRect)}`)]);
  }).observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => setTimeout(() => resolve(moved)));
}));

/** Loads a view until it is settled. Gives one answer at a time, each once the one before is drawn. `patience` is in ms, for each answer. */
export async function shiftsOf(page, address, choose, patience) {
  const held = [];
  const requests = watchRequests(page);
  await hold(page, held, Boolean(choose));
  await page.goto(address);
  let given = null; // the request that has no answer yet
  for (let end = Date.now() + patience; given || held.length || !(await page.evaluate(isSettled));) {
    assert.ok(Date.now() < end, `${address} waits for an answer`);
    await drawn(page);
    const isOver = requests.ended.has(given);
    if (isOver) given = null;
    if (isOver || given || !held.length) continue;
    const [route] = held.splice(held.indexOf(choose(held)), 1);
    given = route.request();
    end = Date.now() + patience;
    await route.continue();
  }
  await drawn(page);
  await page.unrouteAll({ behavior: "wait" });
  requests.stop();
  return shifts(page);
}
