// Visits a web site that loads m.js, in a real browser. The pages are those of tests/daemons/test_website.py.
//   node site.mjs SETTINGS
// SETTINGS are JSON: chromium (the program), patience (seconds), site and other (origins of the same server), dir (has a saved page
// VARIANT.html), variants (name -> its scenarios). A scenario visits pages below SITE/SCENARIO.VARIANT/. Then the program prints `visited`, and keeps the browser open until its
// standard input ends, because a closed browser may drop requests. It fails if the script disturbs a page.

import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { once } from "node:events";

const { site, other, ...settings } = JSON.parse(process.argv[2]);
const AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";
const browser = await chromium.launch({ executablePath: settings.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage",
  "--disable-blink-features=AutomationControlled"] }); // so that navigator.webdriver is false
const problems = [];

async function open(before, viewport = { width: 1280, height: 720 }) {
  const context = await browser.newContext({ userAgent: AGENT, viewport });
  const page = await context.newPage();
  page.setDefaultTimeout(settings.patience * 1000);
  page.on("pageerror", (error) => problems.push(String(error.stack)));
  page.on("console", (message) => { if (message.type() === "error" && !/favicon/.test(message.location().url)) problems.push(message.text()); });
  if (before) await page.addInitScript(before);
  return page;
}

const scenarios = {
  async views(base, variant) {
    const page = await open();
    await page.goto(`${other.replace("//", "//www.")}/from?secret=1&to=${encodeURIComponent(`${base}/a?utm_source=news&utm_medium=e+mail&utm_campaign=caf%C3%A9%26co&x=1#part`)}`);
    const names = await page.evaluate("Object.keys(window)");
    await page.click("#link");
    await page.waitForFunction("window.millrace");
    await page.evaluate("history.pushState(0, '', 'c')");
    await page.click("#next");
    await page.waitForURL(`${base}/b`);
    await page.waitForFunction("window.millrace");
    const more = (await page.evaluate("Object.keys(window)")).filter((name) => !names.includes(name) && Number.isNaN(Number(name)));
    assert.deepEqual(more, ["millrace"], variant);
    assert.deepEqual(await page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]"), ["", 0, 0]);
  },
  async spa(base) {
    const page = await open();
    await page.goto(`${base}/a`);
    for (const act of ["pushState(0, '', 'b')", "replaceState(0, '', 'b')", "pushState(0, '', 'b?x=1')", "replaceState(0, '', 'c')", "pushState(0, '', 'd')"]) {
      await page.evaluate(`history.${act}`);
    }
    await page.evaluate("location.hash = 'x'");
    await page.evaluate("history.go(-2)");
    await page.waitForURL(`${base}/c`);
    await page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))");
  },
  async clicks(base) {
    const page = await open();
    await page.goto(`${base}/a`);
    await page.click("#out b");
    await page.click("#out", { button: "middle" });
    await page.press("#out", "Enter");
    await page.click("#out", { button: "right" });
    for (const id of ["stop", "pdf", "zip", "own", "in", "mail", "button"]) await page.click(`#${id}`);
    await page.click("#shadow a");
    await page.click("#leave");
    await page.waitForURL(`${other}/left`);
  },
  async dnt(base) {
    for (const [name, before] of [["asked", "Object.defineProperty(navigator, 'doNotTrack', { value: '1' })"],
      ["gpc", "Object.defineProperty(navigator, 'globalPrivacyControl', { value: true })"], ["free", ""]]) {
      const page = await open(before);
      await page.goto(`${base}/${name}`);
      await page.evaluate("millrace('signup')");
    }
  },
  async nodnt(base) {
    const page = await open("Object.defineProperty(navigator, 'doNotTrack', { value: '1' })");
    await page.goto(`${base}/a`);
  },
  async beacon(base) {
    for (const [name, value] of [["refuses", "() => false"], ["throws", "() => { throw new Error('blocked'); }"], ["missing", "undefined"]]) {
      const page = await open(`Object.defineProperty(navigator, 'sendBeacon', { value: ${value} })`);
      await page.goto(`${base}/${name}`);
    }
  },
  async hidden(base) {
    const page = await open("Object.defineProperty(document, 'visibilityState', { value: 'hidden', writable: true })");
    await page.goto(`${base}/never`);
    await page.goto(`${base}/later`);
    await page.evaluate("history.pushState(0, '', 'seen')");
    await page.evaluate("document.visibilityState = 'visible'");
    for (let i = 0; i < 2; i++) await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
  },
  async custom(base) {
    const page = await open();
    await page.goto(`${base}/a`);
    await page.evaluate("millrace('signup', { plan: 'pro', n: 3 })");
    await page.evaluate("millrace('own', { event: 'forged', site: 'forged', time: 1, screen: 'mine' })");
    for (const call of ["millrace()", "millrace('')"]) await page.evaluate(call);
    const warning = page.waitForEvent("console");
    await page.evaluate("millrace('large', { text: '\u20ac'.repeat(2e4) })");
    assert.match((await warning).text(), /^too large/);
    await page.evaluate("millrace('small', { n: '\u20ac'.repeat(1.9e4).length })");
    for (const path of ["x.y", "x.y/", "private", "private/", "private/b"]) {
      await page.goto(`${base}/${path}`);
      await page.evaluate("millrace('signup')");
    }
    await page.goto(`${base}/xzy`);
  },
  async hash(base) {
    const page = await open();
    await page.goto(`${base}/a/?id=5&utm_term=z&x=1#/one`);
    for (const hash of ["#/two", "#/two?token=secret&lang=de", "#access_token=secret&state=x"]) {
      await page.evaluate(`new Promise((done) => { addEventListener("popstate", () => done(0), { once: true }); location.hash = "${hash}"; })`);
    }
  },
  async automated(base) {
    const page = await open("Object.defineProperty(navigator, 'webdriver', { value: true })");
    await page.goto(`${base}/a`);
    await page.evaluate("millrace('signup')");
  },
  async file(base, variant) {
    const page = await open();
    await page.goto(`file://${settings.dir}/${variant}.html`);
    await page.evaluate("millrace('signup')");
  },
  async paths(base) {
    const page = await open();
    for (const path of ["a/", "a//", "caf%C3%A9/index.html", "a?utm_source=s&source=t&ref=u", "b?source=t&ref=u", "c?ref=u", ""]) await page.goto(`${base}/${path}`);
  },
  async manual(base) {
    const page = await open();
    await page.goto(`${base}/a`);
    await page.evaluate("history.pushState(0, '', 'b')");
    await page.evaluate("millrace('view', { path: '/virtual' })");
  },
  async twice(base) {
    const page = await open();
    await page.goto(`${base}/a`);
  },
  async broken(base) {
    const page = await open("delete window.fetch; delete window.URLSearchParams; delete Navigator.prototype.sendBeacon");
    await page.goto(`${base}/a`);
    await page.click("#in");
    await page.evaluate("millrace('x', { get y() { throw 1; } })");
  },
  async screens(base) {
    for (const [width, height] of [[375, 667], [667, 375], [820, 1180], [1366, 768], [1920, 1080]]) {
      const page = await open("", { width, height });
      await page.goto(`${base}/${width}`);
    }
  },
};

for (const [variant, names] of Object.entries(settings.variants)) {
  await Promise.all(names.map((name) => scenarios[name](`${site}/${name}.${variant}`, variant)));
}
assert.deepEqual(problems, []);
console.log("visited");
process.stdin.resume();
await once(process.stdin, "end");
await browser.close();
