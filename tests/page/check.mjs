// Uses the page in a real browser as a person would, and fails if a check fails or the page logs an error.
//   node check.mjs SETTINGS < TASKS
// SETTINGS are JSON: chromium (the program), patience (seconds) and shots (a directory). Each line of TASKS is a task in JSON: base (the API's
// address), checks (lists of names; those of one list run side by side), run_file (of millrace up), and what the checks expect. After each
// task the program prints `end` and the number of checks that failed. All tasks share a browser: to start one costs a second of the processor.

import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { metricsChecks } from "./metrics.mjs";
import { pipelineChecks } from "./pipeline.mjs";
import { queuesChecks } from "./queues.mjs";
import { ORDERS, settled, shiftsOf } from "./shifts.mjs";

const settings = JSON.parse(process.argv[2]);
const patience = settings.patience * 1000;
const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SIDE_BY_SIDE = 3;
const HOSTILE = ["<img src=x onerror=\"window.attacked=1\">", "\"'`&lt;script>alert(1)</script>", "\u202Ertl \u05D0\u05D1\u05D2 \u2069", "x".repeat(10000)];

const browser = await chromium.launch({ executablePath: settings.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

let task;
const idle = [];

/** A page whose errors fail the test, except for requests that fail while `forgiving` is set. Without options it is one that a check has
 * closed, if there is one: a page of its own costs the processor half a second. */
async function open(address, options) {
  const page = (!options && idle.pop()) || (await create(options));
  page.problems = [];
  page.forgiving = false;
  await page.goto(task.base + address);
  return page;
}

async function create(options) {
  const context = await browser.newContext({ timezoneId: "UTC", locale: "en-US", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.isPlain = !options;
  page.on("pageerror", (error) => page.problems.push(String(error.stack)));
  page.on("console", (message) => {
    const isRequest = message.text().startsWith("Failed to load resource");
    const isIcon = message.location().url === `${task.base}/favicon.ico`; // of icon.svg below; the page names its own
    if (message.type() === "error" && !(isRequest && (page.forgiving || isIcon))) page.problems.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(task.base) && !/^(blob|data):/.test(request.url())) page.problems.push(`asked ${request.url()}`);
  });
  return page;
}

async function close(page) {
  assert.deepEqual(page.problems, []);
  if (!page.isPlain) return page.context().close();
  await page.goto(`${task.base}/icon.svg`); // neither timers nor requests
  await page.evaluate(() => [localStorage, sessionStorage].forEach((storage) => storage.clear()));
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize({ width: 1280, height: 720 });
  idle.push(page);
}

/** Goes to an address as a link on the page does, without loading the page again, which costs several times as much. */
const visit = (page, address) => page.evaluate((href) => {
  const link = document.createElement("a");
  link.href = href;
  document.body.append(link);
  link.click();
  link.remove();
}, address.replace(/^\/\??/, "?"));

/** Until the condition holds on the page. It is not asked on every frame, because then the page would draw every frame. */
const holds = (page, condition, argument) => page.waitForFunction(condition, argument, { polling: 50 });

const tileOf = (page, name) => page.locator(".tile", { has: page.getByRole("heading", { name, exact: true }) });

const number = (text) => Number(text.replace(/[^0-9]/g, ""));
const post = async (...events) => {
  const headers = task.writer ? { Authorization: `Bearer ${task.writer}` } : {};
  const reply = await fetch(`${task.base}/v1/events`, { method: "POST", headers, body: events.map((e) => JSON.stringify(e)).join("\n") });
  assert.equal(reply.status, 200, await reply.text());
};
const daemon = (name) => JSON.parse(fs.readFileSync(task.run_file, "utf8")).daemons[name];
async function until(condition, what, interval = 20) {
  for (const end = Date.now() + patience; !(await condition());) {
    assert.ok(Date.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, interval));
  }
}
/** A zone in which it is about noon: no day ends during a check. */
function noon() {
  const east = 12 - new Date().getUTCHours();
  return `Etc/GMT${east > 0 ? "-" : "+"}${Math.abs(east)}`; // POSIX: + is west
}
const query = (parameters) => `/?${new URLSearchParams(parameters)}`;
const rowsOf = (panel) => panel.locator(".bars tbody tr:not(.muted)").evaluateAll((rows) =>
  rows.map((row) => ({ key: row.querySelector("bdi").textContent.replace(/[\u2068\u2069]/g, ""), n: Number(row.children[1].textContent.replaceAll(",", "")) })));

/** Chooses an item of the menu of a panel, or of the first one. */
async function choose(scope, item) {
  await scope.locator(".share .opens").first().click();
  await scope.getByRole("menuitem", { name: item }).click();
}

/** Changes selects and dates in the popup of the time. */
async function chooseTime(page, changes) {
  await page.locator("button[name=time]").click();
  for (const [name, value] of Object.entries(changes)) {
    const field = page.locator(`.time [name=${name}]`);
    await (name === "from" || name === "to" ? field.fill(value) : field.selectOption(value));
  }
  await page.getByRole("button", { name: "Show", exact: true }).click();
}

async function choosePeriod(page, period) {
  await page.locator("button[name=time]").click();
  await page.locator(`.periods [value="${period}"]`).click();
}

/** Rows of the series that the open table shows, without zeros. */
async function tableOf(page) {
  await choose(page, "Show the table");
  await page.locator(".data tbody tr").first().waitFor();
  return page.locator(".data tbody tr").evaluateAll((rows) => rows.map((row) =>
    ({ date: row.children[0].textContent, n: Number(row.children[1].textContent.replaceAll(",", "")) })).filter((row) => row.n));
}

/** A picture of a state of the page, in the long round. */
const shot = async (page, name) => task.is_full && page.screenshot({ path: `${settings.shots}/state-${name}.png` });

/** The requests of a page from now on. */
function requestsOf(page) {
  const urls = [];
  page.on("request", (request) => urls.push(request.url().slice(task.base.length)));
  return urls;
}

const hide = (page, hidden) => page.evaluate((hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}, hidden);

/** The time that `measure` returns, in ms. In the long round it must be within the limit; a busy machine may need several tries. */
async function within(limit, what, measure) {
  if (!task.is_full) {
    console.log(`${what}: ${Math.round(await measure())} ms`);
    return;
  }
  const took = [], end = Date.now() + 2 * patience; // a busy machine needs more tries
  do took.push(Math.round(await measure()));
  while (Math.min(...took) >= limit && Date.now() < end);
  console.log(`${what}: ${took.join(", ")} ms`);
  assert.ok(Math.min(...took) < limit, `${what}: ${took.join(", ")} ms`);
}

const checks = {
  async "shows what was counted"() {
    const page = await open(query({ view: "key", ns: task.ns, key: task.key, period: "all", unit: "day", zone: "UTC" }));
    await page.getByText(`${task.total.toLocaleString("en-US")} events`, { exact: true }).waitFor();
    assert.deepEqual(await tableOf(page), task.days);
    for (const [label, expected] of Object.entries(task.breakdowns)) {
      const panel = page.locator(".grid .panel", { has: page.getByRole("heading", { name: label, exact: true }) });
      await panel.locator(".bars tbody tr").first().waitFor();
      const shown = await rowsOf(panel);
      assert.deepEqual(shown, expected.slice(0, shown.length).map(({ key, n }) => ({ key: key === "" ? "(empty)" : key, n })));
      assert.equal(shown.length, Math.min(15, expected.length));
    }
    await close(page);
  },

  async "follows links, back and forward"() {
    const page = await open(query({ view: "key", ns: "u", key: "bitly", period: "7d" }));
    const bar = page.locator(".bars th", { hasText: "JP" });
    await bar.click({ position: { x: (await bar.boundingBox()).width - 3, y: 5 } }); // far from the text
    await page.getByRole("heading", { name: /events? with country/ }).waitFor();
    assert.deepEqual(new URL(page.url()).searchParams.getAll("where"), ["country:JP"]);
    await page.locator(".bars .chosen", { hasText: "JP" }).waitFor();
    await chooseTime(page, { unit: "hour" });
    await page.waitForURL(/unit=hour/);
    await page.goBack();
    await page.waitForURL((url) => !url.searchParams.has("unit"));
    await page.goBack();
    await page.getByRole("heading", { name: /^[\d,]+ events$/ }).waitFor();
    await page.goForward();
    await page.getByRole("link", { name: "Remove the filter country: JP" }).click();
    await page.getByRole("heading", { name: /^[\d,]+ events$/ }).waitFor();
    assert.equal(await page.locator(".filter-chip").count(), 0);
    await visit(page, query({ view: "key", ns: "u", key: "bitly", by: "country", sub: "JP" })); // a link of before
    await page.locator(".filter-chip", { hasText: "country: \u2068JP" }).waitFor();
    await close(page);
  },

  async "shows unique members and how many come back"() {
    const page = await open(query({ view: "overview", period: "all", zone: "America/New_York" }));
    const tile = page.locator(".tile", { has: page.getByRole("heading", { name: "Unique: visitor" }) });
    await tile.getByText(task.unique.toLocaleString("en-US"), { exact: true }).waitFor();
    await tileOf(page, "sales").locator(".value", { hasText: /^500\.00 €$/ }).waitFor(); // of 400 events
    assert.deepEqual(await page.locator(".tile h2").allTextContents(), ["Unique: visitor", "Events", "sales", "Change", "Events a second", "Complete until"]);
    await page.getByRole("heading", { name: `${task.unique} unique: visitor` }).waitFor();
    await page.getByText("Days in UTC.").waitFor();
    await visit(page, query({ view: "overview", period: "all", zone: "UTC", where: "user:bitly" })); // the members of this user
    await tile.getByText(task.unique_of_key.toLocaleString("en-US"), { exact: true }).waitFor();
    assert.equal(await tile.getByText("without the filter").count(), 0);
    page.forgiving = true; // the browser logs the 404 of the series
    await visit(page, query({ view: "overview", period: "all", zone: "UTC", where: "country:US" })); // there is no such counter
    await tile.getByText("without the filter").waitFor();
    page.forgiving = false;
    await visit(page, query({ view: "key", ns: "u", key: "bitly", period: "all", unit: "day", zone: "UTC" }));
    const panel = page.locator(".panel", { has: page.getByRole("heading", { name: `${task.unique_of_key} unique: visitor` }) });
    await choose(panel, "Show the table");
    await panel.locator(".data tbody tr").first().waitFor();
    const days = await panel.locator(".data tbody tr").evaluateAll((rows) => rows.map((row) =>
      ({ date: row.children[0].textContent, n: Number(row.children[1].textContent) })).filter((row) => row.n));
    assert.deepEqual(days, task.unique_days);
    await settled(page);
    const rows = await page.getByRole("region", { name: "Retention: visitor" }).locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((c) => c.title || c.textContent)));
    assert.deepEqual(rows.map(([week, n, ...later]) => [week, Number(n), ...later.map((title) => parseInt(title, 10))]), task.retention);
    const asked = (ns) => page.waitForRequest((request) => request.url().includes("v1/retention") && new URL(request.url()).searchParams.get("ns") === ns);
    const requests = [asked("v.u"), asked("h.u")];
    const [{ date, n }] = task.unique_days;
    const end = new Date(Date.parse(date) + 86400000).toISOString().slice(0, 10);
    await visit(page, query({ view: "key", ns: "u", key: "bitly", from: date, to: end, unit: "day", zone: "America/New_York" }));
    const zones = (await Promise.all(requests)).map((request) => new URL(request.url()).searchParams.get("timezone"));
    assert.deepEqual(zones, [null, "America/New_York"]);
    const single = page.locator(".panel", { has: page.getByRole("heading", { name: `${n} unique: visitor`, exact: true }) }).locator(".u-over");
    await single.hover();
    const [over, point] = [await single.boundingBox(), await single.locator(".mark").boundingBox()];
    const place = (point.x + point.width / 2 - over.x) / over.width;
    assert.ok(Math.abs(place - 0.5) < 0.05, `the only bar is at ${place} of the width`);
    await visit(page, query({ view: "key", ns: "u", key: "bitly", period: "all", by: "country", sub: "US", zone: "UTC" }));
    await page.getByRole("heading", { name: /events? with country/ }).waitFor();
    await page.locator(".panel", { has: page.locator(".retention") }).getByText("Without the filter country").first().waitFor();
    await close(page);
  },

  async "shows values with their unit, and quantiles"() {
    const page = await open(query({ view: "key", ns: "revenue", key: "hat", period: "all", unit: "day", zone: "UTC" }));
    await page.getByRole("heading", { name: task.total, exact: true }).waitFor();
    const panelOf = (name) => page.locator(".panel", { has: page.getByRole("heading", { name, exact: true }) });
    const table = async (panel) => {
      await choose(panel, "Show the table");
      await panel.locator(".data tbody tr").first().waitFor();
      return panel.locator(".data tbody tr").evaluateAll((rows) => rows.map((row) => [...row.children].map((c) => c.textContent)));
    };
    const barsOf = (panel) => panel.locator("table.bars tbody tr").evaluateAll((rows) => rows.map((row) => [...row.children].map((c) => c.textContent.replace(/[\u2068\u2069]/g, ""))));
    assert.deepEqual((await table(panelOf(task.total))).map((row) => row.slice(0, 2)), task.days);
    await panelOf("country").locator("table.bars tbody tr").first().waitFor();
    assert.deepEqual((await barsOf(panelOf("country"))).map(([key, n, part]) => [key.split(" ")[0], n, part]), task.bars);
    const widths = await panelOf("country").locator("table.bars td.number").evaluateAll((cells) => cells.map((cell) => [cell.scrollWidth, cell.clientWidth]));
    for (const [text, room] of widths) assert.ok(text <= room, `${text} pixels of text in a cell of ${room}`);
    await visit(page, query({ view: "key", ns: "page", key: "/cart", period: "all", unit: "day", zone: "UTC" }));
    const quantiles = panelOf("ms: p50, p95, p99");
    await quantiles.locator(".plot canvas").waitFor();
    assert.deepEqual(await quantiles.locator(".legend span").allTextContents().then((all) => all.slice(0, 3)), ["p50", "p95", "p99"]);
    await settled(page);
    assert.deepEqual((await table(quantiles)).map((row) => row.slice(0, 5)), task.quantiles);
    assert.deepEqual((await barsOf(panelOf("ms"))).map(([key]) => key), task.buckets);
    await visit(page, query({ period: "7d", zone: "UTC" }));
    const slowest = panelOf("page by p95 of ms");
    await slowest.locator("table.bars tbody tr").first().waitFor();
    assert.deepEqual(await barsOf(slowest), task.slowest);
    for (const head of ["p95", "Events"]) {
      const [text, room] = await slowest.getByRole("columnheader", { name: head, exact: true }).evaluate((cell) => [cell.scrollWidth, cell.clientWidth]);
      assert.ok(text > 20 && text <= room, `${head}: ${text} pixels of text in a cell of ${room}`); // seen, and not cut
    }
    await slowest.getByRole("link", { name: "/slow" }).click();
    await page.getByRole("heading", { name: "/slow", level: 1 }).waitFor();
    await close(page);
  },

  async "finds a key by a part"() {
    const page = await open(query({ view: "key", ns: "u" }));
    const found = (keys) => holds(page, (keys) => [...document.querySelectorAll(".keys a")].map((a) => a.textContent.slice(1, -1)).sort().join() === keys, keys);
    await page.getByRole("link", { name: "bitly" }).waitFor();
    await page.getByLabel("Key").fill("na");
    await found("nasa,nato");
    await page.getByLabel("Key").fill("TL"); // in the middle, and in another case
    await found("bitly");
    await page.getByLabel("Key").fill("none like this");
    await page.getByText("No key contains this text.").waitFor();
    await page.getByLabel("Key").fill("");
    await page.getByRole("heading", { name: "Choose: user" }).waitFor();
    await page.getByText("Count one thing more").click();
    await page.getByText("[subtotal page.all]").waitFor();
    const { pid, config } = JSON.parse(fs.readFileSync(task.run_file, "utf8"));
    await page.getByText(`kill -HUP ${pid}`, { exact: true }).waitFor();
    await page.getByText(config, { exact: true }).waitFor();
    await page.getByLabel("Key").fill("nasa");
    await page.getByLabel("Key").press("Enter");
    await page.getByRole("heading", { name: "nasa", level: 1 }).waitFor();
    await page.getByLabel("Key").fill("TL");
    await page.locator("datalist option[value='bitly']").waitFor({ state: "attached" });
    await close(page);
  },

  async "offers the units that are counted"() {
    const page = await open(query({ view: "key", ns: task.ns, key: task.key, period: "today", zone: "UTC" }));
    await page.locator("[aria-label^='Events: 24 units']").waitFor();
    if (task.has_quarters) {
      await chooseTime(page, { unit: "Quarter hour" });
      await page.locator("[aria-label^='Events: 96 units']").waitFor();
    } else {
      await page.locator("button[name=time]").click();
      await page.locator(".time select[name=unit]").waitFor();
      await holds(page, () => !document.querySelector("select[name=unit] [value='15m']"));
    }
    await close(page);
  },

  /** Every period of the choice, a week that begins on the chosen day, and two dates in a zone: all of it is in the address. */
  async "chooses periods, weeks and dates"() {
    const page = await open(query({ view: "key", ns: "u", key: "bitly", zone: "UTC" }));
    await page.locator(".plot canvas").waitFor();
    for (const period of ["today", "yesterday", "this-week", "last-week", "this-month", "last-month", "7d", "30d", "12mo", "all"]) {
      const answered = page.waitForResponse((reply) => /v1\/(compare|series)/.test(reply.url()) && new URL(reply.url()).searchParams.get("period") === period);
      await choosePeriod(page, period);
      assert.equal((await answered).status(), 200, period);
      await page.waitForURL(new RegExp(`period=${period}`));
    }
    for (const [start, weekday] of [["sunday", 0], ["monday", 1], ["saturday", 6]]) {
      await visit(page, query({ view: "key", ns: "u", key: "bitly", period: "last-week", unit: "day", zone: "UTC" }));
      await page.waitForURL((url) => url.searchParams.get("week_start") === "monday"); // en-US, but the zone UTC
      await chooseTime(page, { week_start: start });
      await page.waitForURL(new RegExp(`week_start=${start}`));
      await page.locator("[aria-label^='Events: 7 units']").waitFor();
      await choose(page, "Show the table");
      const dates = await page.locator(".data tbody th").evaluateAll((cells) => cells.map((cell) => cell.textContent));
      assert.deepEqual(dates.map((date) => new Date(date).getUTCDay()), [0, 1, 2, 3, 4, 5, 6].map((n) => (n + weekday) % 7), start);
    }
    const american = await open(query({ view: "key", ns: "u", key: "bitly", period: "last-week" }), { timezoneId: "America/New_York" });
    await american.waitForURL((url) => url.searchParams.get("week_start") === "sunday");
    await close(american);
    const [from, to, end] = [5, 2, 1].map((days) => new Date(Date.now() - days * 86400000).toISOString().slice(0, 10));
    const words = new Intl.DateTimeFormat("en-US", { timeZone: "UTC", dateStyle: "medium" }).formatRange(new Date(from), new Date(to));
    await chooseTime(page, { from, to, zone: "Asia/Kolkata" });
    await page.waitForURL(new RegExp(`from=${from}&to=${end}`));
    await page.locator("[aria-label^='Events: 4 units']").waitFor();
    await page.getByRole("button", { name: `Time: ${words}, Asia/Kolkata` }).waitFor();
    await page.reload();
    await page.locator("[aria-label^='Events: 4 units']").waitFor();
    await page.locator("button[name=time]").click();
    for (const [name, value] of [["from", from], ["to", to], ["zone", "Asia/Kolkata"]])
      assert.equal(await page.locator(`.time [name=${name}]`).inputValue(), value);
    await close(page);
  },

  /** At most five tab stops before the chart; menus and the choice of time work from the keyboard. */
  async "is used by the keyboard alone"() {
    const page = await open("/?zone=UTC");
    for (const address of ["/?zone=UTC", query({ view: "key", ns: "u", key: "bitly", period: "7d", zone: "UTC" })]) {
      await visit(page, address);
      await settled(page);
      await page.locator("#view").focus();
      let stops = 0;
      do await page.keyboard.press("Tab");
      while (!(await page.evaluate(() => document.activeElement.matches(".plot"))) && ++stops < 9);
      assert.ok(stops <= 5, `${stops} tab stops before the chart of ${address}`);
    }
    const readout = page.locator(".readout").first();
    await page.keyboard.press("ArrowLeft");
    await readout.filter({ hasText: /\d/ }).waitFor({ state: "attached" });
    await page.locator(".tip").first().waitFor();
    const share = page.locator(".share .opens").first();
    await share.focus();
    const item = () => page.evaluate(() => document.activeElement.textContent);
    await page.keyboard.press("Enter");
    await page.locator(".popup.menu:popover-open").waitFor();
    assert.equal(await share.getAttribute("aria-expanded"), "true");
    assert.equal(await item(), "Copy as curl");
    await page.keyboard.press("ArrowUp");
    assert.equal(await item(), "Show the table");
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowDown");
    assert.equal(await item(), "Save as CSV");
    await page.keyboard.press("Escape");
    await page.locator(".popup.menu:popover-open").waitFor({ state: "detached" });
    assert.ok(await share.evaluate((button) => button === document.activeElement));
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("End");
    await page.keyboard.press("Enter");
    await page.locator(".data tbody tr").first().waitFor();
    await close(page);
  },

  /** The value of a bar appears at the pointer, the bar is marked, and the tallest bar is below the last gridline. */
  async "shows values at the pointer"() {
    const page = await open(query({ view: "key", ns: "u", key: "bitly", period: "7d", zone: "UTC" }));
    const plot = page.locator(".u-over").first();
    await plot.waitFor();
    const rows = await tableOf(page);
    const box = await plot.boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2); // the fourth of seven days
    const tip = page.locator(".tip").first();
    await tip.waitFor();
    const date = await page.locator(".data tbody tr").nth(3).locator("th").textContent();
    const shown = new Intl.DateTimeFormat("en-US", { timeZone: "UTC", year: "numeric", month: "short", day: "numeric", weekday: "short" }).format(new Date(date));
    assert.equal(await tip.locator("strong").textContent(), shown);
    assert.equal(number(await tip.locator("span").first().textContent()), rows.find((row) => row.date === date)?.n ?? 0);
    const mark = await page.locator(".mark").first().boundingBox();
    assert.ok(Math.abs(mark.x + mark.width / 2 - box.x - box.width / 2) < 3 && mark.width > box.width / 10, JSON.stringify([mark, box]));
    await page.mouse.move(5, 5);
    await tip.waitFor({ state: "hidden" });
    const [gridline, highest] = await plot.evaluate((over) => {
      const canvas = over.parentElement.querySelector("canvas");
      const fill = getComputedStyle(document.documentElement).getPropertyValue("--fill").trim();
      const wanted = [1, 3, 5].map((i) => parseInt(fill.slice(i, i + 2), 16));
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const left = Math.round(over.offsetLeft * (canvas.width / canvas.clientWidth)) + 2; // left of the first bar
      const rows = [...Array(canvas.height).keys()];
      const at = (x, y) => data.subarray(4 * (y * canvas.width + x), 4 * (y * canvas.width + x) + 4);
      const columns = [...Array(canvas.width).keys()];
      return [rows.find((y) => at(left, y)[3]), rows.find((y) => columns.some((x) => wanted.every((value, i) => at(x, y)[i] === value)))];
    });
    assert.ok(gridline <= highest + 1, `the last gridline is at ${gridline}, the tallest bar begins at ${highest}`);
    await close(page);
  },

  /** A filter applies to each card that has such counts. The others say so, and what would make them. */
  async "filters cards, or says which counter is missing"() {
    const page = await open(query({ view: "key", ns: "u", key: "bitly", period: "all", unit: "day", zone: "UTC" }));
    await page.getByRole("button", { name: "Filter" }).click();
    await page.locator(".filter select[name=label]").selectOption("country");
    await page.locator("datalist option[value='JP']").waitFor({ state: "attached" });
    await page.locator(".filter [name=value]").fill("JP");
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => url.searchParams.getAll("where").join() === "country:JP");
    const jp = task.breakdowns.country.find((row) => row.key === "JP").n;
    await page.getByRole("heading", { name: `${jp.toLocaleString("en-US")} events with country: ` }).waitFor();
    const card = (name) => page.locator(".grid .panel", { has: page.getByRole("heading", { name, exact: true }) });
    await card("country").locator(".chosen", { hasText: "JP" }).waitFor();
    assert.equal(await card("country").locator(".why:visible").count(), 0);
    await card("link").getByText("Without the filter country: \u2068JP\u2069, which is not counted here.").waitFor();
    page.forgiving = true; // the browser logs the 422
    await card("link").getByRole("button", { name: "How to count it" }).click();
    const remedy = page.locator(".remedy:popover-open pre");
    await remedy.filter({ hasText: "add to the configuration" }).waitFor();
    await remedy.filter({ hasText: "millrace sql" }).waitFor();
    await page.keyboard.press("Escape");
    await visit(page, query({ view: "key", ns: "u", key: "bitly", period: "all", unit: "day", zone: "UTC", where: "user:bitly" })); // the key itself
    await page.getByRole("heading", { name: "events with user: " }).waitFor();
    await card("link").locator(".bars tbody tr").first().waitFor();
    assert.equal(await page.locator(".why:visible").count(), 0);
    await visit(page, query({ period: "all", zone: "UTC", where: "user:bitly" })); // Overview: the counter of users has these
    const total = task.total.toLocaleString("en-US");
    await page.locator(".tile .value", { hasText: new RegExp(`^${total}$`) }).first().waitFor();
    await card("country").locator(".bars tbody tr").first().waitFor();
    assert.deepEqual(await rowsOf(card("country")), task.breakdowns.country);
    await page.getByRole("link", { name: "Remove the filter user: bitly" }).click();
    await page.waitForURL((url) => !url.searchParams.has("where"));
    await close(page);
  },

  /** The change of each row against the time before: today's rows are those of yesterday twice and once. */
  async "shows the change of each row"() {
    const now = Math.floor(Date.now() / 3600000) * 3600 - 1;
    const then = (days, c, n) => Array.from({ length: n }, () => ({ t: now - days * 86400, l: "moving", c }));
    await post(...then(0, "UP", 6), ...then(1, "UP", 4), ...then(0, "DN", 1), ...then(1, "DN", 2), ...then(0, "NEW", 3));
    const page = await open(query({ view: "key", ns: "u", key: "moving", from: now - 86399, to: now + 1, zone: "UTC" }));
    const row = (key) => page.locator(".bars tr", { hasText: key }).locator(".moved");
    await row("UP").filter({ hasText: /^\+50.0%$/ }).waitFor();
    await row("DN").filter({ hasText: /^\u221250.0%$/ }).waitFor();
    await row("NEW").filter({ hasText: /^new$/ }).waitFor();
    await visit(page, query({ view: "key", ns: "u", key: "moving", period: "today", unit: "day", zone: noon() }));
    await row("UP").filter({ hasText: /^\+50.0%$/ }).waitFor(); // and the whole compares the same hours, not only days that have passed
    await page.locator(".change", { hasText: /^\+66.7%$/ }).waitFor();
    await visit(page, query({ view: "key", ns: "u", key: "moving", from: now - 86399, to: now + 1, zone: "UTC" }));
    await page.waitForURL(/from=/);
    await row("NEW").waitFor();
    await chooseTime(page, { against: "none" });
    await page.waitForURL(/against=none/);
    await page.locator(".bars tbody tr").first().waitFor();
    assert.equal(await page.locator(".moved").count(), 0);
    await close(page);
  },

  async "says that a key is unknown"() {
    const page = await open(query({ view: "key", ns: "u", key: "bilty", period: "7d" }));
    await page.getByText("No event has the user").waitFor();
    assert.equal(await page.getByText("Post one").count(), 0);
    await page.locator(".empty").getByRole("link", { name: "bitly" }).click();
    await page.getByRole("heading", { name: /^[\d,]+ events$/ }).waitFor();
    await visit(page, query({ view: "key", ns: "u", key: "zzzzzzzzzz" })); // nothing is written alike
    await page.getByText("No event has the user").waitFor();
    assert.equal(await page.getByText("Did you mean").count(), 0);
    await visit(page, query({ view: "key", ns: "u", key: "nasa", from: "2012-03-01", to: "2012-03-08" })); // a key without events at that time
    await page.getByText("No events have been counted in this time").waitFor();
    await visit(page, query({ view: "key", ns: "u" }));
    const latest = page.locator(".panel", { has: page.getByRole("heading", { name: "Your latest: user" }) });
    await latest.waitFor();
    assert.deepEqual((await latest.locator(".keys bdi").allTextContents()).map((text) => text.slice(1, -1)), ["nasa", "bitly"]);
    await close(page);
  },

  async "asks for a token until it is right"() {
    const page = await open("/", {});
    page.forgiving = true;
    const banner = page.locator("#banner");
    const enter = async (token) => {
      await banner.locator("input").fill(token);
      await banner.getByRole("button").click();
    };
    await banner.filter({ hasText: "This API needs a token" }).waitFor();
    const [head, form] = [await page.locator("header").boundingBox(), await banner.boundingBox()];
    assert.ok(Math.abs(form.y - head.y - head.height) < 2, `the form is at ${form.y}, below the head of ${head.height}`);
    assert.equal(await page.getByText("Loading…").isVisible(), false);
    for (const wrong of ["wrong", "\u65e5\u672c", "two words"]) {
      await enter(wrong);
      await banner.filter({ hasText: "The API refuses this token" }).waitFor();
    }
    await enter(` ${task.token} `);
    await banner.waitFor({ state: "hidden" });
    await page.locator(".bars a", { hasText: "bitly" }).first().waitFor();
    await close(page);
  },

  /** Every daemon has ended. */
  /** Before the first answer, each part says that it loads. */
  async "says what is loading"() {
    const page = await open("/icon.svg", {});
    let go;
    const may = new Promise((resolve) => { go = resolve; });
    await page.route(/\/v1\/(compare|breakdown|series)\?/, async (route) => {
      await may;
      await route.continue();
    });
    await page.goto(page.url().replace("/icon.svg", "/"));
    await page.getByText("Loading…").first().waitFor();
    await shot(page, "loading");
    go();
    await page.locator(".bars tbody a").first().waitFor();
    await page.getByText("Loading…").first().waitFor({ state: "detached" });
    await page.unrouteAll({ behavior: "wait" });
    await close(page);
  },

  async "shows old numbers as old"() {
    const period = { period: "7d", zone: "UTC" };
    const addresses = [query(period), query({ view: "key", ns: "u", key: "bitly", ...period }), "/?view=pipeline"];
    const [overview, key, pipeline] = await Promise.all(addresses.map((address) => open(address, {})));
    await pipeline.getByText("Everything is ready.").waitFor();
    for (const page of [overview, key]) await page.locator(".bars tbody a").first().waitFor();
    for (const page of [overview, key, pipeline]) {
      page.forgiving = true;
      await holds(page, () => !document.querySelector(".old")); // a busy machine may be late
    }
    process.kill(task.up, "SIGTERM");
    await pipeline.getByText(/^The API has not answered since \d+:\d\d:\d\d/).waitFor();
    assert.equal(await pipeline.getByText("Everything is ready").count(), 0);
    assert.equal(await pipeline.locator(".state.good").count(), 0);
    for (const state of await pipeline.locator(".state").allTextContents()) assert.match(state, /^was /);
    for (const page of [overview, key]) {
      await page.locator("#banner", { hasText: /The numbers on this page are those of \d+:\d\d:\d\d/ }).waitFor();
      await page.locator("#view.old").waitFor();
      await page.locator("#trouble", { hasText: /^\?$/ }).waitFor();
    }
    for (const [name, page] of [["stopped", overview], ["stopped-pipeline", pipeline]]) await shot(page, name);
    for (const page of [overview, key, pipeline]) await close(page);
  },

  async "zooms by dragging and by keys"() {
    const page = await open(query({ view: "key", ns: "u", key: "bitly", period: "7d" }));
    const plot = page.locator(".u-over");
    await plot.waitFor();
    const box = await plot.boundingBox();
    await page.mouse.move(box.x + box.width * 0.55, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.95, box.y + 50, { steps: 5 });
    await page.mouse.up();
    await page.waitForURL(/from=\d+&to=\d+/);
    await page.getByRole("link", { name: "Clear the selection" }).click();
    await page.waitForURL((url) => !url.searchParams.has("from"));
    await page.locator(".plot canvas").waitFor();
    await page.locator(".plot").focus();
    await page.keyboard.press("ArrowLeft");
    await page.locator(".readout", { hasText: "20" }).waitFor({ state: "attached" });
    await page.keyboard.press("Enter");
    await page.waitForURL(/from=\d+&to=\d+/);
    await close(page);
  },

  async "shows a new event within two seconds"() {
    const page = await open(query({ zone: noon() }));
    const value = tileOf(page, "Events").locator(".value");
    await value.filter({ hasText: /\d/ }).waitFor();
    await within(2000, "a new event shows", async () => {
      const before = number(await value.textContent());
      await post({ t: Math.floor(Date.now() / 1000), l: "bitly", c: "US" });
      const began = Date.now();
      await value.filter({ hasText: new RegExp(`^${(before + 1).toLocaleString("en-US")}$`) }).waitFor();
      return Date.now() - began;
    });
    await close(page);
  },

  /** Events a second are pushed: the page does not need the polls of the pipeline for them. */
  /** Without new events, an open tab makes at most 5 requests in 10 seconds, and a hidden tab none. Each event is shown, also without the stream of
   *  changes. Rows of minutes and quarter hours end by themselves, so seconds that have the end of a minute do not count. */
  async "asks only for what has changed"() {
    const addresses = [query({ zone: noon() }), query({ view: "key", ns: "u", key: "bitly", period: "7d", zone: noon() }), "/?view=pipeline"];
    await Promise.all(addresses.map(async (address) => {
      const page = await open(address, {});
      await settled(page);
      const urls = requestsOf(page);
      do { // the first event may be of before the page was opened
        urls.length = 0;
        await page.waitForTimeout(2500);
      } while (urls.length > 2);
      await holds(page, () => Date.now() % 60000 > 3000 && Date.now() % 60000 < 48000);
      urls.length = 0;
      await page.waitForTimeout(10000);
      assert.ok(urls.length <= 5, `${address}: ${urls.join(" ")}`);
      console.log(`${address}: ${urls.length} requests in 10 s`);
      await close(page);
    }));
    const page = await open(query({ zone: noon() }), {});
    const value = tileOf(page, "Events").locator(".value");
    await value.filter({ hasText: /\d/ }).waitFor();
    await settled(page);
    let total = number(await value.textContent());
    const countOne = () => post({ t: Math.floor(Date.now() / 1000), l: "bitly", c: "US" });
    const showsNext = () => value.filter({ hasText: new RegExp(`^${(++total).toLocaleString("en-US")}$`) }).waitFor();
    await countOne();
    await showsNext();

    const ended = page.waitForEvent("requestfailed", (request) => request.url().endsWith("/v1/changes"));
    await hide(page, true);
    await ended;
    await settled(page);
    const urls = requestsOf(page);
    await countOne();
    await page.waitForTimeout(3000); // as long as a visible tab would need
    assert.deepEqual(urls, []);
    await hide(page, false);
    await showsNext();

    page.forgiving = true;
    await page.route("**/v1/changes", (route) => route.abort());
    await hide(page, true);
    await hide(page, false);
    for (let i = 0; i < 2; i++) {
      await countOne();
      await showsNext();
    }
    await page.unrouteAll({ behavior: "wait" });
    await close(page);
  },

  async "shows the countries on a map"() {
    const page = await open(query({ zone: noon() }), { viewport: { width: 1280, height: 400 } });
    const panel = page.locator(".world");
    await panel.waitFor();
    await settled(page);
    const urls = requestsOf(page);
    assert.equal(await panel.locator("path").count(), 0);
    await panel.scrollIntoViewIfNeeded();
    await panel.locator("path").first().waitFor();
    assert.equal(urls.filter((url) => url === "/map.json").length, 1);
    const share = (name) => panel.locator("path", { has: page.locator("title", { hasText: new RegExp(`^${name}: `) }) }).evaluate((path) => Number(path.style.getPropertyValue("--share")));
    await panel.locator("title", { hasText: /^Japan: [1-9]/ }).waitFor({ state: "attached" });
    assert.ok(await share("Japan") > 0);
    assert.equal(await share("Chad"), 0);
    assert.ok(await panel.locator("path").count() > 150);
    await panel.locator("path", { has: page.locator("title", { hasText: /^Brazil: / }) }).hover();
    await panel.getByText(/^Brazil: [1-9]/).last().waitFor();
    await shot(page, "map");
    await close(page);
  },

  async "shows events a second live"() {
    const page = await open("/", {}); // of its own: it does not get some answers
    const answer = (path, makeReply) => page.addInitScript(`{
      const real = fetch;
      window.fetch = (address, options) => address === ${JSON.stringify(path)} ? (${makeReply})() : real(address, options);
    }`);
    const value = page.locator(".tile", { has: page.getByRole("heading", { name: "Events a second" }) }).locator(".value");
    const shows = (pattern) => value.filter({ hasText: pattern }).waitFor();
    const moves = () => until(async () => {
      const t = Math.floor(Date.now() / 1000);
      await post(...Array(100).fill({ t, l: "bitly", c: "US" }));
      return number(await value.textContent()) > 0;
    }, "the rate of events that were posted", 200);
    await answer("v1/pipeline", () => new Promise(() => {})); // not answered
    await page.reload();
    await shows(/^0$/);
    await moves();
    await shows(/^0$/);

    const urls = requestsOf(page);
    const ended = page.waitForEvent("requestfailed", (request) => request.url().endsWith("/v1/changes"));
    await hide(page, true);
    await ended;
    await hide(page, false);
    await moves();
    assert.equal(urls.filter((url) => url.startsWith("/v1/live")).length, 0, "one stream only");

    page.forgiving = true;
    const { pid } = daemon("pubsub");
    process.kill(pid, "SIGSTOP");
    await page.locator(".tile").filter({ hasText: "pubsub does not answer" }).waitFor();
    await shows(/^–$/);
    process.kill(pid, "SIGCONT");
    await shows(/^\d/);
    process.kill(pid, "SIGKILL");
    await until(() => ![0, pid].includes(daemon("pubsub").pid), "another pubsub");
    await moves();

    // An API with too many clients: the page polls.
    const polling = await open("/icon.svg", {});
    polling.forgiving = true;
    await polling.route("**/v1/changes", (route) => route.fulfill({ status: 503, headers: { "Retry-After": "10" }, json: { code: "overloaded", detail: "too many" } }));
    await polling.goto(`${task.base}/`);
    await until(async () => {
      await post({ t: Math.floor(Date.now() / 1000), l: "bitly", c: "US" });
      return number(await polling.locator(".tile", { has: polling.getByRole("heading", { name: "Events a second" }) }).locator(".value").textContent()) > 0;
    }, "the rate without the stream of changes", 50);
    await close(polling);
    await close(page);
  },

  async "keeps the focus on a choice"() {
    const page = await open("/");
    const focused = (name) => holds(page, (name) => document.activeElement.name === name, name);
    await page.locator(".bars tbody tr").first().waitFor();
    for (const [period, text] of [["today", "Today"], ["yesterday", "Yesterday"]]) {
      await page.locator("button[name=time]").focus();
      await page.keyboard.press("Enter");
      await page.locator(".periods button:focus").waitFor();
      await page.keyboard.press("ArrowDown");
      assert.equal(await page.evaluate(() => document.activeElement.textContent), text);
      await page.keyboard.press("Enter");
      await page.waitForURL(new RegExp(`period=${period}`));
      await focused("time");
    }
    await visit(page, query({ view: "key", ns: "u" }));
    await page.getByRole("heading", { name: "Find a key" }).waitFor(); // Overview has such links, too
    await page.getByRole("link", { name: "bitly" }).waitFor();
    await page.getByLabel("Key").focus();
    await page.keyboard.type("bit");
    await page.getByRole("link", { name: "bitly" }).click(); // the text is not a key that was chosen
    await page.getByRole("heading", { name: "bitly", level: 1 }).waitFor();
    await page.getByLabel("Key").fill("nasa");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "nasa", level: 1 }).waitFor();
    await focused("key");
    await page.goBack();
    await page.getByRole("heading", { name: "bitly", level: 1 }).waitFor();
    await close(page);
  },

  async "copies and saves everything"() {
    await post({ t: Math.floor(Date.now() / 1000), l: "bitly", c: "]]></style>\u0001\uFFFF" }); // the picture of HTML is XML
    const page = await open("/", { permissions: ["clipboard-read", "clipboard-write"] });
    for (const address of ["/", query({ view: "key", ns: "u", key: "bitly", period: "7d" }), query({ view: "key", ns: "u" }), "/?view=live", "/?view=pipeline"]) {
      if (address === "/?view=pipeline") { // loaded anew, so that its first answer has a history to save
        await until(async () => (await (await fetch(`${task.base}/v1/pipeline`)).json()).history.length > 0, "the history");
        await page.goto(task.base + address);
      } else await visit(page, address);
      await settled(page);
      if (address === "/") await page.locator(".minutes").waitFor(); // the last panel has rows
      const pick = async (share, item) => {
        await share.locator(".opens").click();
        await share.getByRole("menuitem", { name: item }).click();
      };
      const saved = async (share, kind) => {
        const [download] = await Promise.all([page.waitForEvent("download"), pick(share, kind)]);
        return fs.readFileSync(await download.path());
      };
      assert.notEqual(await page.locator(".share").count(), 0, address);
      assert.equal(await page.locator(".panel:not(.daemon, :has(.share))").count(), 0, address);
      const shares = await page.locator(".share").all();
      const some = address === "/" ? [shares[0], shares.at(-1)] : [shares.at(-1)];
      for (const share of task.is_full ? shares : some) {
        assert.match((await saved(share, "CSV")).toString(), /^\w+(,[\w ]+)*\r\n/, address);
        const png = await saved(share, "PNG");
        assert.equal(png.toString("latin1", 1, 4), "PNG");
        const [width, height] = [png.readUInt32BE(16), png.readUInt32BE(20)]; // an empty image has fewer than 1,000 bytes
        assert.ok(width > 200 && height > 50 && png.length > 2000, `the image of ${width} x ${height} pixels has ${png.length} bytes`);
        await pick(share, "curl");
        await page.locator("#announce", { hasText: "Copied" }).waitFor();
        const { width: seen, height: tall } = await page.locator("#announce").boundingBox();
        assert.ok(seen > 50 && tall > 20, `"Copied" has ${seen} x ${tall} pixels`);
        const command = await page.evaluate(() => navigator.clipboard.readText());
        const child = spawn("sh", ["-c", `exec ${command} -sN`]); // a stream does not end
        let answer = "";
        child.stdout.on("data", (text) => { answer += text; });
        await until(() => /^data: \{.*\n/m.test(answer) || /^\{.*"(rows|daemons)":.*\}\n?$/s.test(answer), `${command}: ${answer}`);
        child.kill();
      }
    }
    await close(page);
  },

  /** Zones in which the day has just begun, and a browser whose clock goes past midnight. */
  async "goes past midnight"() {
    const now = Math.floor(Date.now() / 1000);
    const hour = new Date(now * 1000).getUTCHours();
    const zone = hour <= 12 ? `Etc/GMT+${hour}` : `Etc/GMT-${24 - hour}`; // POSIX: + is west
    await post({ t: now - 7200, l: "midnight", c: "US" });
    const page = await open(query({ view: "key", ns: "u", key: "midnight", zone, period: "yesterday" }), {}); // its clock stays changed
    await page.getByRole("heading", { name: "1 event", exact: true }).waitFor();
    await choosePeriod(page, "today");
    await page.getByText("No events have been counted in this time").waitFor();
    await post({ t: now, l: "midnight", c: "JP" });
    await page.getByRole("heading", { name: "1 event", exact: true }).waitFor();
    assert.deepEqual((await tableOf(page)).map((row) => row.n), [1]);

    const fresh = page.locator("#freshness");
    await page.clock.setSystemTime(now * 1000);
    await fresh.filter({ hasText: /^complete until \d+:\d\d:\d\d/ }).waitFor();
    await page.clock.setSystemTime((now + 86400) * 1000);
    await fresh.filter({ hasText: /^complete until \w+ \d+, 20\d\d/ }).waitFor();
    await close(page);
  },

  /** Nothing has been counted; then events of the past arrive while the page is open. */
  async "shows old events that arrive"() {
    const [page, keys, live] = await Promise.all([open("/"), open(query({ view: "key", ns: "u" })), open("/?view=live")]);
    const shows = (n, day) => holds(page, ([n, day]) => {
      const tile = [...document.querySelectorAll(".tile")].find((one) => one.querySelector("h2").textContent === "Events");
      return tile && tile.querySelector(".value").textContent === n && tile.querySelector(".muted").textContent === day;
    }, [n, day]);
    await shows("0", "today");
    await page.locator("button[name=time]", { hasText: "Today" }).waitFor();
    await page.locator(".empty pre").first().waitFor();
    assert.equal(await page.locator(".empty li").count(), 3);
    await page.getByRole("button", { name: "Copy the command" }).waitFor();
    await shot(page, "empty");
    await keys.locator(".empty pre").first().waitFor();
    await live.locator(".empty pre").first().waitFor();
    await post({ t: 1360281600, l: "bitly", c: "US" });
    await shows("1", "Feb 8, 2013");
    await page.locator("button[name=time]", { hasText: "Feb 8, 2013" }).waitFor();
    await keys.getByRole("link", { name: "bitly" }).waitFor();
    await post({ t: 1360454400, l: "nasa", c: "US" }, { t: 1360454401, l: "nasa", c: "US" });
    await shows("2", "Feb 10, 2013");
    await keys.getByRole("link", { name: "nasa" }).waitFor();
    await live.locator(".lines li").nth(2).waitFor();
    await live.locator(".empty").waitFor({ state: "detached" });
    for (const each of [page, keys, live]) await close(each);
  },

  /** A configuration that counts the views of a web site. */
  async "shows how to add a site, and its views first"() {
    const page = await open("/", { permissions: ["clipboard-read", "clipboard-write"] });
    const line = `<script defer src="${task.base}/p/m.js"></script>`;
    const empty = page.locator(".empty");
    await empty.getByText(line, { exact: true }).waitFor();
    await empty.getByText("For visitors, replace").waitFor();
    await empty.getByRole("button", { name: "Copy the line" }).click();
    await holds(page, (text) => document.getElementById("announce").textContent === "Copied" && text, line);
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), line);
    const view = (path, more) => ({ event: "view", site: "example.org", path, screen: "laptop", ...more });
    await post(view("/", { referrer: "http://search.example/" }), view("/"), view("/cart"),
      { event: "outbound", site: "example.org", path: "/", target: "http://other.example/a" },
      { event: "download", site: "example.org", path: "/", target: "/a.pdf" }, { event: "signup", site: "example.org", path: "/cart" });
    const panel = (name) => page.locator("section.panel", { has: page.getByRole("heading", { level: 2, name, exact: true }) });
    const shows = (name, ...rows) => holds(page, ([name, rows]) => {
      const found = [...document.querySelectorAll("section.panel")].find((section) => section.querySelector("h2").textContent === name);
      return found && [...found.querySelectorAll(".bars tbody tr")].map((row) => [...row.cells].slice(0, 2).map((cell) => cell.textContent.replace(/[\u2068\u2069]/g, "")).join(" ")).join() === rows.join();
    }, [name, rows]);
    await shows("page", "/ 2", "/cart 1");
    await shows("referrer", "None 2", "search.example 1");
    await shows("outbound links", "http://other.example/a 1");
    await shows("downloads", "/a.pdf 1");
    await shows("event", "view 3", "download 1", "outbound 1", "signup 1");
    await panel("Views").waitFor();
    await tileOf(page, "Events").getByText("views, today").waitFor();
    assert.equal(await empty.count(), 0);
    await page.getByText("Add to your site").click();
    await page.locator(".site").getByText(line, { exact: true }).waitFor();
    await panel("outbound links").getByRole("link").first().click();
    await page.getByRole("heading", { name: /1 event with target/ }).waitFor();
    await page.goBack();
    await panel("page").getByRole("link", { name: "/cart" }).click();
    await page.getByRole("heading", { level: 1, name: "/cart" }).waitFor();
    await close(page);
  },

  /** The daemons run, but not under `millrace up`, which tells of the compactor. */
  async "shows a pipeline that was started by hand"() {
    const page = await open("/?view=pipeline");
    const compactor = page.locator(".daemon", { has: page.getByRole("heading", { name: "compactor" }) });
    await compactor.getByText(/^\d+ (s|min) old$/).waitFor();
    assert.equal(await compactor.locator(".state").textContent(), "not run by millrace up");
    await choose(page, "Show the table"); // the numbers of the sparklines
    await compactor.getByText(/^Age of the archive/).waitFor();
    const queries = page.locator(".data tbody tr:last-child td:nth-last-child(2)");
    await holds(page, () => document.querySelectorAll(".data tbody tr").length > 1);
    assert.match(await queries.textContent(), /^[\d,]+$/);
    await close(page);
  },

  /** The address that `make run` prints shows all events, and the address without a choice shows those of today. */
  async "makes sense in any zone"() {
    for (const timezoneId of ["Pacific/Kiritimati", "America/Los_Angeles", "Asia/Kathmandu"]) {
      const page = await open(query({ from: task.from, to: task.to }), { timezoneId });
      await tileOf(page, "Events").locator(".value", { hasText: new RegExp(`^${task.all.toLocaleString("en-US")}$`) }).waitFor();
      await page.locator(".legend .now").waitFor();
      await visit(page, "/");
      await tileOf(page, "Events").locator(".value", { hasText: /^[1-9]/ }).waitFor();
      await page.locator(".bars tbody a").first().waitFor();
      await shot(page, `zone-${timezoneId.replace("/", "-")}`);
      await close(page);
    }
  },

  async "begins the week on any day"() {
    const page = await open(query({ view: "key", ns: "u", key: "bitly", period: "30d", zone: "UTC" }));
    for (const [start, weekday] of [["sunday", 0], ["monday", 1], ["saturday", 6]]) {
      await chooseTime(page, { unit: "week", week_start: start });
      await page.waitForURL(new RegExp(`week_start=${start}`));
      await page.getByRole("heading", { name: `${task.total.toLocaleString("en-US")} events`, exact: true }).waitFor();
      const rows = await tableOf(page);
      assert.equal(rows.reduce((sum, row) => sum + row.n, 0), task.total);
      assert.equal(new Date(rows.at(-1).date).getUTCDay(), weekday, start);
    }
    await visit(page, query({ view: "key", ns: "u", key: "bitly", period: "30d", unit: "mweek", zone: "UTC" })); // a link of before
    await page.waitForURL((url) => url.searchParams.get("unit") === "week" && url.searchParams.get("week_start") === "monday");
    await close(page);
  },

  /** The days on which clocks change have 23 and 25 hours. */
  async "counts days of 23 and 25 hours"() {
    for (const { zone, days, changed, hours } of task.changes) {
      const page = await open(query({ view: "key", ns: "u", key: "bitly", from: days[0].date, to: "2013-03-31", unit: "day", zone }));
      assert.deepEqual(await tableOf(page), days);
      const plot = page.locator(".u-over");
      for (const [unit, from, to, rows] of [["day", changed.yesterday, changed.to, hours], ["month", "2013-02-01", "2013-04-01", 31]]) {
        await visit(page, query({ view: "key", ns: "u", key: "bitly", from, to, unit, zone }));
        await page.locator(".plot canvas").waitFor();
        const box = await plot.boundingBox();
        await page.mouse.move(box.x + box.width * 0.6, box.y + 50); // over the second of two
        await page.mouse.down();
        await page.mouse.move(box.x + box.width * 0.98, box.y + 50, { steps: 5 });
        await page.mouse.up();
        await page.waitForURL(/from=\d+&to=\d+/);
        await choose(page, "Show the table");
        await page.locator(".data tbody tr").nth(rows - 1).waitFor();
        assert.equal(await page.locator(".data tbody tr").count(), rows, `${zone} ${unit}`);
      }
      await close(page);
    }
  },

  async "keeps the focus while numbers change"() {
    const page = await open(query({ view: "key", ns: "u", key: "bitly", period: "7d", zone: noon() }));
    const bar = page.locator(".bars tr", { hasText: "JP" });
    await bar.locator("a").focus();
    const before = number(await bar.locator("td").first().textContent());
    await post({ t: Math.floor(Date.now() / 1000), l: "bitly", c: "JP" });
    await bar.locator("td").filter({ hasText: (before + 1).toLocaleString("en-US") }).waitFor();
    assert.match(await page.evaluate(() => document.activeElement.closest("a")?.textContent ?? "nothing"), /JP/);
    await close(page);
  },

  async "answers a wrong address"() {
    const page = await open("/?view=constructor");
    await page.locator("nav a[aria-current]", { hasText: "Overview" }).waitFor();
    page.forgiving = true;
    await visit(page, query({ view: "key", ns: "u", key: "bitly", unit: "fortnight" }));
    await page.getByText("unit must be minute, 15m, hour, day").waitFor();
    await page.getByRole("link", { name: "JP" }).waitFor(); // the breakdowns have no unit
    await visit(page, query({ view: "key", ns: "u", key: "bitly", from: "x", to: "y" }));
    await page.locator(".panel .error").nth(1).waitFor();
    await holds(page, () => !document.body.innerText.includes("Loading"));
    await page.locator(".chosen-time", { hasText: "x – y" }).waitFor();
    for (const address of [query({ zone: "Europe/Berlln" }), query({ view: "key", ns: "u", key: "bitly", zone: "Europe/Berlln" })]) {
      await visit(page, address);
      await page.locator(".panel .error", { hasText: "did you mean Europe/Berlin?" }).first().waitFor();
      await holds(page, () => !document.body.innerText.includes("Loading"));
    }
    assert.equal(await page.getByText("Invalid").count(), 0);
    await visit(page, query({ view: "key", ns: "u", key: "bitly", from: "2012-03-01", to: "2012-03-08" }));
    await page.getByText("No events have been counted in this time").waitFor(); // dates, as the API takes them
    await visit(page, query({ view: "key", ns: "u", key: "bitly", period: "last-week", unit: "day", zone: "Asia/Kolkata", against: "2012-01-01..2012-02-01" }));
    await page.getByText("Approximate: the zone has part hours").first().waitFor(); // the API takes more than the page offers
    await page.locator("#freshness", { hasText: /, counts approximate$/ }).waitFor();
    await page.getByRole("button", { name: "Time: Last week, Asia/Kolkata" }).click();
    for (const [name, value] of [["zone", "Asia/Kolkata"], ["against", "2012-01-01..2012-02-01"]])
      assert.equal(await page.locator(`.time select[name=${name}]`).inputValue(), value);
    await visit(page, query({ view: "key", ns: "gone", key: "bitly" }));
    await page.locator(".panel .error", { hasText: 'no counter "gone"' }).waitFor();
    assert.equal(await page.locator("select[name=ns]").inputValue(), "gone");
    await visit(page, query({ view: "key", ns: "u", key: "bitly", by: "gone", sub: "x" }));
    await page.locator(".panel .error", { hasText: 'user is not counted by "gone"' }).waitFor();
    await close(page);
  },

  async "follows a stream, pauses and filters"() {
    const page = await open("/?view=live");
    await page.locator(".lines li").first().waitFor(); // what was there before
    await page.getByText(/^The last \d+ lines?; \d+ lines? received\.$/).waitFor();
    const t = Math.floor(Date.now() / 1000);
    const erased = await fetch(`${daemon("pubsub").url}/pub?stream=clicks`, { method: "POST", body: "{}      \n" });
    assert.equal(erased.status, 200, "what `millrace forget` leaves of a line");
    await post({ t, l: "one", c: "US" }, { t, l: "two <b>", c: "US" }, { t, l: "an event: x", c: "US" });
    await page.locator(".lines li", { hasText: "two <b>" }).waitFor();
    await page.locator(".lines li", { hasText: "an event: x" }).waitFor();
    assert.equal(await page.locator(".lines li", { hasText: "{}" }).count(), 0);
    await page.getByLabel("Filter").fill("four");
    await page.getByRole("button", { name: "Pause" }).click();
    const counted = (text) => holds(page, async (text) => (await (await fetch(`v1/lookup?ns=u&prefix=${text}`)).json()).rows.length, text);
    await post({ t, l: "three", c: "US" }, { t, l: "four", c: "US" });
    await counted("four"); // so it was published, and is drawn every 200 ms without the pause
    await page.waitForTimeout(300);
    assert.equal(await page.locator(".lines li", { hasText: "four" }).count(), 0);
    await page.getByRole("button", { name: "Continue" }).click();
    await page.locator(".lines li", { hasText: "four" }).waitFor();
    assert.equal(await page.locator(".lines li", { hasText: "three" }).count(), 0);
    await page.getByLabel("Filter").fill("three"); // also the lines that came before
    await page.locator(".lines li", { hasText: "three" }).waitFor();
    assert.equal(await page.locator(".lines li", { hasText: "four" }).count(), 0);
    await page.getByText(/^1 of the last \d+ lines contains the text; \d+ lines received\./).waitFor();
    await close(page);
  },

  async "follows the lines of a condition"() {
    const page = await open("/?view=live");
    const t = Math.floor(Date.now() / 1000);
    const filter = page.getByLabel("Filter");
    const line = (text) => page.locator(".lines li", { hasText: text });
    await post({ t, l: "low", status: 200 }, { t, l: "high", status: 503 }, { t, l: "slow", u: `${"a".repeat(40)}!` });
    await line("high").waitFor();
    await filter.fill("status >= 500");
    await page.getByText("The last 1 line for which the condition is true").waitFor();
    await line("high").waitFor(); // of the lines that came before
    assert.equal(await line("low").count(), 0);
    await post({ t, l: "low again", status: 404 }, { t, l: "high again", status: "599" });
    await line("high again").waitFor();
    assert.equal(await line("low").count(), 0);
    page.forgiving = true; // the browser logs the 400
    await filter.fill("status >= x");
    await page.locator("#filter-note", { hasText: "column 11: expected a number, not x" }).waitFor();
    assert.equal(await filter.getAttribute("aria-invalid"), "true");
    await filter.fill("u ~ ^(a+)+$");
    await page.locator("#filter-note", { hasText: "the condition takes too many steps" }).waitFor();
    await filter.fill("high"); // a text again
    await line("high again").waitFor();
    await page.locator("#filter-note:empty").waitFor({ state: "attached" });
    assert.equal(await line("low").count(), 0);
    await close(page);
    const shared = await open(query({ view: "live", filter: "l in (high)" }));
    await shared.locator(".lines li", { hasText: "high" }).first().waitFor();
    assert.equal(await shared.locator(".lines li", { hasText: "again" }).count(), 0);
    await close(shared);
  },

  async "shows the pipeline and what is wrong"() {
    const page = await open("/?view=pipeline");
    await page.getByText("Everything is ready.").waitFor();
    assert.deepEqual(await page.locator(".daemon h2").allTextContents(),
      ["simplequeue", "queue_to_pubsub", "pubsub", "aggregator", "compactor", "sortdb", "api"]);
    assert.deepEqual(await page.locator(".daemon .state").allTextContents(), Array(7).fill("ready"));
    const compactor = page.locator(".daemon", { hasText: "compactor" });
    await compactor.getByText(/^\d+ (s|min) old$/).waitFor();
    assert.match(await compactor.locator("div", { hasText: "Next compaction" }).last().textContent(), /20\d\d, \d+:\d\d/);
    const api = page.locator(".daemon", { has: page.getByRole("heading", { name: "api" }) });
    assert.equal((await fetch(`${task.base}/v1/counters`)).status, 200);
    await api.locator("dd").nth(1).filter({ hasText: /[1-9]/ }).waitFor(); // queries of the API

    await post({ t: "not a time", l: "x" }, { l: "no time" });
    const aggregator = page.locator(".daemon", { has: page.getByRole("heading", { name: "aggregator" }) });
    await aggregator.locator(".reasons li").nth(1).waitFor();
    await page.locator(".problems li", { hasText: "rejected in the last minute" }).locator("code", { hasText: "put-back" }).waitFor();
    await page.locator("#trouble").waitFor();

    const queue = daemon("simplequeue").url;
    await fetch(`${queue}/put?queue=other`, { method: "POST", body: "poison" });
    const reserved = await fetch(`${queue}/reserve?queue=other&items=1`);
    const [id] = (await reserved.text()).split(" ");
    await fetch(`${queue}/bury?queue=other&lease=${reserved.headers.get("X-Millrace-Lease")}&id=${id}&reason=poison`, { method: "POST" });
    await page.locator(".problems code", { hasText: new RegExp(`--url=${queue} .*--queue=other$`) }).waitFor();
    await close(page);
  },

  async "survives a restart of the API"() {
    const [page, live, rate] = await Promise.all([open("/?view=key&ns=u&key=bitly"), open("/?view=live"), open("/")]);
    await page.getByRole("heading", { name: /events?$/ }).waitFor();
    await live.locator(".lines li").first().waitFor();
    await rate.locator(".tile .value").first().filter({ hasText: /\d/ }).waitFor();
    for (const each of [page, live, rate]) each.forgiving = true;
    const first = daemon("api").pid;
    process.kill(first, "SIGSTOP"); // `millrace up` keeps the socket, so requests wait
    await page.locator("#banner", { hasText: "The API has not answered" }).waitFor();
    await shot(page, "stale");
    process.kill(first, "SIGKILL");
    await page.locator("#banner").waitFor({ state: "hidden" });
    await until(() => daemon("api").pid !== first, "another process answers");
    await post({ t: Math.floor(Date.now() / 1000), l: "bitly", c: "AFTER" });
    await page.locator(".bars bdi", { hasText: "AFTER" }).waitFor();
    await live.locator(".lines li", { hasText: "AFTER" }).waitFor();
    await rate.locator(".tile .value").first().filter({ hasText: /\d/ }).waitFor();
    for (const each of [page, live, rate]) await each.locator("#banner").waitFor({ state: "hidden" });
    for (const each of [page, live, rate]) await close(each);

    const pipeline = await open("/?view=pipeline", {});
    const said = (name, text) => pipeline.locator(".problems li", { hasText: new RegExp(`^${name}${text}see the log of millrace up$`) }).waitFor();
    await said("api", " was restarted 1 time, the last \\d+ s ago; last error \\d+ s ago: signal 9");
    const run = { // changes to run.json
      api: (d) => Object.assign(d, { restarted_at: d.restarted_at - 3600 }),
      sortdb: (d, now) => Object.assign(d, { restarts: 2, restarted_at: now - 2400 }),
      pubsub: (d, now) => Object.assign(d, { restarts: 2, restarted_at: now - 2400, error_at: now - 180, error: "x" }),
      compactor: (d, now) => Object.assign(d, { said: "failed", error_at: now - 7200, error: "y" }),
    };
    await pipeline.route("**/v1/pipeline", async (route) => {
      const reply = await route.fetch(), json = await reply.json();
      for (const [name, change] of Object.entries(run)) change(json.run.daemons[name], json.time);
      await route.fulfill({ response: reply, json });
    });
    await said("sortdb", " was restarted 2 times, the last 40 min ago; last error: unknown");
    await said("pubsub", " was restarted 2 times, the last 40 min ago; last error 3 min ago: x");
    await pipeline.locator(".problems li", { hasText: /^Compaction: failed; last error 2 h ago: ycorrect the cause/ }).waitFor();
    assert.equal(await pipeline.locator(".problems li", { hasText: "api" }).count(), 0);
    await pipeline.unrouteAll({ behavior: "wait" });
    await close(pipeline);
  },

  async "moves with the last 30 minutes"() {
    const page = await open(query({ zone: noon() }));
    const panel = page.locator(".panel", { has: page.getByRole("heading", { name: "Last 30 minutes" }) });
    await panel.locator("svg.minutes").waitFor();
    assert.equal(await panel.locator("svg.minutes rect.whole, svg.minutes rect.open").count(), 30);
    const t = Math.floor(Date.now() / 1000);
    await post(...Array.from({ length: 30 }, () => ({ t, l: "of this minute", c: "NZ" })), { t: t - 5 * 60, l: "of this minute", c: "NZ" }, { t: t - 3600, l: "old", c: "NZ" });
    const row = panel.locator("tr", { has: page.locator("bdi", { hasText: "of this minute" }) });
    await row.locator(".number", { hasText: /^31$/ }).waitFor();
    // The answer with the bars may be older than that with the rows.
    await holds(page, () => [...document.querySelectorAll("svg.minutes title")].some((title) => parseInt(title.textContent.split(": ")[1]) >= 30));
    await close(page);
  },

  async "shows hostile keys as text"() {
    const t = Math.floor(Date.now() / 1000), zone = noon();
    await post(...HOSTILE.map((key) => ({ t, l: "hostile", c: key })), ...HOSTILE.map((key) => ({ t, l: key, c: "US" })));
    const page = await open(query({ view: "key", ns: "u", key: "hostile", period: "today", zone }));
    const keys = page.locator(".bars bdi");
    await holds(page, (n) => document.querySelectorAll(".bars bdi").length >= n, HOSTILE.length);
    const texts = (await keys.allTextContents()).map((text) => text.slice(1, -1));
    for (const key of HOSTILE.slice(0, 3)) assert.ok(texts.includes(key), `${key} in ${texts}`);
    assert.ok(texts.some((text) => text.startsWith("x".repeat(200) + "…")));
    for (const key of HOSTILE) {
      await visit(page, query({ view: "key", ns: "u", key, period: "today", zone }));
      await page.getByRole("heading", { name: /events?$/ }).waitFor();
      await settled(page);
      const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(width <= 0, `the page is ${width} pixels too wide for ${key.slice(0, 40)}`);
    }
    for (const key of HOSTILE) {
      await visit(page, query({ view: "key", ns: "u", key: "hostile", period: "today", zone, where: `country:${key}` }));
      await page.getByRole("heading", { name: /^1 event with country: / }).waitFor();
      await page.locator(".filter-chip bdi", { hasText: key.slice(0, 40) }).waitFor();
      const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(width <= 0, `the page is ${width} pixels too wide for the filter ${key.slice(0, 40)}`);
    }
    assert.equal(await page.evaluate(() => window.attacked), undefined);
    await close(page);
  },

  async "has no serious fault of accessibility"() {
    const page = await open("/", { bypassCSP: true });
    await page.evaluate(axe);
    const addresses = ["/", "/?view=key&ns=u&key=bitly&by=country&sub=US", "/?view=pipeline", "/?view=key&ns=u", "/?view=live"];
    for (const address of task.addresses ?? (task.is_full ? addresses : addresses.slice(1, 2))) { // axe takes a second for each
      await visit(page, address);
      await settled(page);
      if (await page.locator("button[name=time]").count()) await page.locator("button[name=time]").click(); // the popup, too
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        const rules = { resultTypes: ["violations"], ...(colorScheme === "light" ? {} : { runOnly: ["color-contrast"] }) }; // all that the scheme changes
        const { violations } = await page.evaluate((options) => axe.run(options), rules);
        const serious = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
        assert.deepEqual(serious.map((v) => `${address} ${colorScheme} ${v.id}: ${v.nodes.map((n) => n.html).join(" ").slice(0, 500)}`), []);
      }
    }
    await close(page);
  },

  async "fits from 320 pixels to 4K, light and dark"() {
    const views = task.views ?? { overview: query({ zone: noon() }), key: "/?view=key&ns=u&key=bitly&period=7d", live: "/?view=live", pipeline: "/?view=pipeline" };
    const page = await open("/");
    for (const [name, address] of Object.entries(views)) {
      await visit(page, address);
      await settled(page);
      const sizes = [[3840, 2160, "light"], [320, 640, "light"], [1280, 900, "dark"], [1280, 900, "light"]];
      for (const [width, height, colorScheme] of task.is_full ? sizes : sizes.slice(0, 2)) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height });
        const [wide, head] = await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(() => {
          const fresh = document.getElementById("freshness");
          const text = fresh.textContent;
          fresh.textContent = "complete until Nov 22, 2026, 10:13:05 PM"; // the longest
          resolve([document.documentElement.scrollWidth, document.querySelector("header").offsetHeight]);
          fresh.textContent = text;
        }))));
        const long = await page.locator(".tile .value").evaluateAll((all) => all.filter((value) =>
          value.scrollWidth > value.clientWidth || value.offsetHeight > all[0].offsetHeight).map((value) => value.textContent));
        assert.deepEqual(long, [], `more than one line of a tile at ${width}`);
        assert.ok(wide <= width, `${name} is ${wide} wide at ${width}`);
        assert.ok(width > 320 || head < 96, `the head of ${name} is ${head} high`); // two rows
        if (task.is_full && width !== 3840) await page.screenshot({ path: `${settings.shots}/${name}-${width}-${colorScheme}.png` });
      }
    }
    await close(page);
  },

  async "draws quickly"() {
    const page = await open("/");
    const addresses = ["/", query({ view: "key", ns: "u", key: "bitly" }), "/?view=live", "/?view=pipeline"];
    for (const address of task.is_full ? addresses : addresses.slice(0, 2)) {
      await within(200, `the first paint of ${address}`, async () => {
        await page.goto(task.base + address);
        return (await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime)).jsonValue();
      });
    }
    await close(page);
  },

  async "does not shift in any order of answers"() {
    const views = ["/", query({ view: "key", ns: "u", key: "bitly" }), query({ view: "key", ns: "u" }), "/?view=live", "/?view=pipeline"];
    const at = (address) => `${address}${address.includes("?") ? "&" : "?"}${new URLSearchParams({ zone: noon() })}`; // a clock of two digits is the longest
    const moved = [];
    for (const width of task.is_full ? [1280, 700, 360] : [1280]) {
      const page = await open("/icon.svg", { viewport: { width, height: 2400 } }); // what is below the window does not count
      page.forgiving = true; // the browser logs answers with an error
      for (const address of task.addresses ?? views.slice(0, task.is_full ? views.length : 2)) {
        for (const [order, choose] of Object.entries(ORDERS)) {
          const shifts = await shiftsOf(page, task.base + at(address), choose, patience);
          moved.push(...shifts.map((shift) => `${address}, ${width} pixels, answers ${order}: ${shift}`));
        }
      }
      await close(page);
    }
    assert.deepEqual(moved, []);
  },

  async "draws 5,000 points in 50 ms"() {
    const to = Math.floor(Date.now() / 3600000) * 3600;
    const page = await open(query({ view: "key", ns: "u", key: "bitly", from: to - 5000 * 3600, to, unit: "hour" }));
    await page.locator(".plot canvas").waitFor();
    await within(50, "5,000 points", () => page.evaluate(async () => {
      const began = performance.now();
      document.getElementById("theme").click(); // makes the chart anew, which draws itself in a microtask
      await new Promise((resolve) => setTimeout(resolve));
      return performance.now() - began;
    }));
    await close(page);
  },

  async "names the lines of the chart"() {
    const zone = noon();
    const page = await open(query({ view: "key", ns: "u", key: "bitly", period: "7d", zone }));
    const legend = page.locator(".legend");
    const total = /^[\d,]+/.exec(await page.getByRole("heading", { name: /events$/ }).textContent())[0];
    await legend.locator("span", { has: page.locator(".now"), hasText: `: ${total}` }).waitFor();
    await legend.locator("span", { has: page.locator(".before"), hasText: /20\d\d: \d/ }).waitFor();
    await legend.getByText("not complete yet").waitFor();
    await chooseTime(page, { against: "none" });
    await page.waitForURL(/against=none/);
    await legend.locator(".now").waitFor();
    assert.equal(await legend.locator(".before").count(), 0);
    await chooseTime(page, { against: "year" });
    await legend.locator("span", { has: page.locator(".before"), hasText: `${Number(new Intl.DateTimeFormat("en", { timeZone: zone, year: "numeric" }).format()) - 1}` }).waitFor();
    await close(page);
  },

  /** The events are old. The first lines of the page that the newcomer sees make one of today. */
  async "begins with the newest events"() {
    const overview = query({ zone: noon() });
    const page = await open(overview);
    const value = tileOf(page, "Events").locator(".value");
    await page.getByText("No events today: this is the day of the newest event.").waitFor();
    assert.equal(number(await value.textContent()), task.newest_day);
    await page.locator(".bars a", { hasText: "bitly" }).first().click(); // at the same time
    await page.getByRole("heading", { name: `${task.newest_day} events` }).waitFor();
    await visit(page, query({ view: "key", ns: "u", key: "bitly" }));
    await page.getByText("these are the 30 days up to the newest event").waitFor();
    await page.getByRole("heading", { name: `${task.newest_days} events` }).waitFor();
    await page.goto(task.base + overview);
    await page.getByRole("link", { name: "Show today" }).click();
    await page.waitForURL(/period=today/);
    const command = await page.locator(".empty pre").first().textContent();
    const [, body, address] = command.match(/-d '(.*)' \\\n +'(.*)'/);
    await page.goto(task.base + overview);
    await page.getByText("No events today").waitFor();
    assert.equal((await fetch(address, { method: "POST", body })).status, 200);
    await value.filter({ hasText: /^1$/ }).waitFor();
    assert.equal(await page.getByText("No events today").count(), 0);
    await close(page);
  },

  async "shows what the archive has while the aggregator hangs"() {
    const page = await open(query({ view: "key", ns: "u", key: "bitly", period: "all", unit: "day" }));
    const heading = (n) => page.getByRole("heading", { name: `${n} events`, exact: true });
    await heading(task.total).waitFor();
    page.forgiving = true;
    const { pid } = daemon("aggregator");
    process.kill(pid, "SIGSTOP");
    await heading(task.archived).waitFor();
    await page.locator("#banner", { hasText: /^The aggregator has not answered since .*are without its counts/ }).waitFor();
    await page.reload();
    await heading(task.archived).waitFor();
    await page.goto(task.base + "/?period=all"); // the API answers, and is not said to be away
    await page.locator(".tile", { hasText: "without the aggregator" }).waitFor();
    await page.getByText("The aggregator, which has the counts of these minutes, does not answer.").waitFor();
    await page.locator("#banner", { hasText: /^The aggregator has not answered since .*; Pipeline shows the remedy/ }).waitFor();
    await shot(page, "part-missing");
    await page.goto(task.base + query({ view: "key", ns: "u", key: "bitly", period: "all", unit: "day" }));
    process.kill(pid, "SIGCONT");
    await heading(task.total).waitFor();
    await page.locator("#banner").waitFor({ state: "hidden" });
    await close(page);
  },

  /** The memory of open pages, after collection, and of the API, between the first third of the time and its end. */
  async "stays level in memory"() {
    const views = ["/", "/?view=key&ns=u&key=bitly", "/?view=live", "/?view=pipeline"];
    const pages = await Promise.all(Array.from({ length: task.is_full ? 10 : 2 }, (_, i) => open(views[i % views.length], {})));
    const used = async () => {
      let sum = 0;
      for (const page of pages) {
        const session = await page.context().newCDPSession(page);
        await session.send("HeapProfiler.collectGarbage");
        sum += (await session.send("Runtime.getHeapUsage")).usedSize;
        await session.detach();
      }
      return sum;
    };
    const served = async () => (await (await fetch(`${task.base}/stats?format=json`)).json()).resident_memory_bytes;
    const spend = async (seconds) => {
      for (const end = Date.now() + seconds * 1000; Date.now() < end;) {
        const t = Math.floor(Date.now() / 1000);
        await post(...Array.from({ length: 20 }, (_, i) => ({ t, l: "bitly", c: `C${i}` })));
        await pages[0].waitForTimeout(500);
      }
    };
    for (const page of pages) await settled(page);
    await spend(task.open_seconds / 3);
    const [early, earlyServed] = [await used(), await served()];
    await spend((task.open_seconds * 2) / 3);
    const [late, lateServed] = [await used(), await served()];
    const mb = (n) => (n / 1e6).toFixed(1);
    console.log(`${pages.length} pages hold ${mb(early)} MB, later ${mb(late)} MB; the API ${mb(earlyServed)} MB, later ${mb(lateServed)} MB`);
    assert.ok(late < early * 1.2 + 2e5 * pages.length, `${early} -> ${late}`);
    assert.ok(lateServed < earlyServed * 1.2 + 8e6, `the API: ${earlyServed} -> ${lateServed}`);
    for (const page of pages) await close(page);
  },
};

Object.assign(checks, queuesChecks({ open, close, post, daemon, query, until, HOSTILE, taskOf: () => task }), pipelineChecks({ open, close }), metricsChecks({ open, close, visit, holds, query, daemon, HOSTILE }));

/** Whether it has failed. */
async function run(name) {
  const began = Date.now();
  try {
    await checks[name]();
    console.log(`ok ${name} (${Date.now() - began} ms)`);
    return false;
  } catch (error) {
    console.log(`FAILED ${name}: ${error.stack}`);
    return true;
  }
}

async function runAll(names) {
  let failed = 0;
  for (let name; (name = names.shift());) failed += await run(name);
  return failed;
}

for await (const line of createInterface({ input: process.stdin })) {
  task = JSON.parse(line);
  let failed = 0;
  // Checks wait more than they compute, but a busy machine must not make all of them late.
  for (const names of task.checks)
    for (const some of await Promise.all(Array.from({ length: SIDE_BY_SIDE }, () => runAll(names)))) failed += some;
  console.log(`end ${failed}`);
}
await browser.close();
