// Checks of the Metrics view, over a pipeline that scrapes its own daemons every second.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";

const DAEMONS = 8; // targets of the scraper
const MANY = 25;

export const metricsChecks = ({ open, close, visit, holds, query, daemon, HOSTILE }) => {
  const metric = (name, more) => query({ view: "metrics", metric: name, zone: "UTC", ...more });
  const asked = (page, expression) => page.locator(".aside code", { hasText: expression }).waitFor();
  const legend = (page, n) => holds(page, (n) => document.querySelectorAll(".legend span").length === n, n);
  const choose = async (page, item) => {
    await page.locator(".panel.wide:not([hidden]) .share .opens").click();
    await page.getByRole("menuitem", { name: item }).click();
  };
  const lastRow = async (page) => {
    await choose(page, "Show the table");
    await page.locator(".data tbody tr").first().waitFor();
    return page.locator(".data tbody tr:last-child td").allTextContents();
  };

  return {
    async "finds, filters and draws metrics"() {
      const page = await open("/", { permissions: ["clipboard-read", "clipboard-write"], timezoneId: "UTC", locale: "en-US" });
      await page.getByRole("link", { name: "Metrics", exact: true }).click();
      const field = page.getByRole("searchbox", { name: "Metric" });
      await page.locator(".keys a").first().waitFor();
      await field.fill("DURATION scrape");
      await holds(page, () => document.querySelectorAll(".keys a").length === 1);
      await field.press("Enter");
      await page.waitForURL(/metric=scrape_duration_seconds/);
      await field.fill("up");
      await field.press("Enter");
      await page.waitForURL(/metric=up/);
      await legend(page, DAEMONS);
      await page.locator(".legend span", { hasText: "job=pubsub" }).waitFor();
      await holds(page, () => document.title === "up – Metrics – millrace");
      await holds(page, () => !document.querySelector(".keys")?.offsetParent);
      await page.locator("select[name='l.job']").focus();
      await page.locator("select[name='l.job']").selectOption("pubsub");
      await asked(page, /^up\{job="pubsub"\}$/);
      await legend(page, 1);
      await holds(page, () => document.activeElement.name === "l.job");
      assert.deepEqual(await lastRow(page), ["1"]);
      await page.getByRole("link", { name: "Remove the filter job" }).click();
      await legend(page, DAEMONS);
      await visit(page, metric("no_such_metric"));
      await page.getByText("No samples in this time.").waitFor();

      const counter = "test_requests_total"; // a name that ends as those of counters
      const published = await fetch(`${daemon("pubsub").url}/pub?stream=metrics`, { method: "POST",
        body: Array.from({ length: 600 }, (_, i) => JSON.stringify({ t: Math.floor(Date.now() / 1000) - 600 + i, labels: { __name__: counter }, v: 3 * i })).join("\n") });
      assert.equal(published.status, 200);
      await visit(page, metric(counter, { period: "15m" }));
      await asked(page, /^rate\(test_requests_total\[300s\]\)$/);
      await page.locator(".plot canvas").waitFor();
      await choose(page, "PromQL");
      await page.locator("#announce", { hasText: "Copied" }).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `rate(${counter}[300s])`);
      await page.evaluate(() => navigator.clipboard.writeText(""));
      await choose(page, "curl");
      await holds(page, () => navigator.clipboard.readText());
      const answer = JSON.parse(execFileSync("sh", ["-c", `${await page.evaluate(() => navigator.clipboard.readText())} -s`], { encoding: "utf8" }));
      assert.equal(answer.data.resultType, "matrix");
      assert.equal(answer.data.result.length, 1);
      const rates = answer.data.result[0].values.map(([, v]) => Number(v));
      assert.ok(rates.some((rate) => Math.abs(rate - 3) < 0.1), `3 a second in ${rates}`);
      await page.getByLabel("Draw").selectOption("value");
      await page.waitForURL(/draw=value/);
      await asked(page, /^test_requests_total$/);
      for (const text of await lastRow(page)) // the last step is at most a bucket and a few seconds before the last sample
        assert.match(text, /^(1,7\d\d|–)$/);
      page.forgiving = true;
      await visit(page, metric("up", { "l.a b": "x" }));
      await page.locator(".panel .error", { hasText: /parse error/ }).waitFor();
      await visit(page, metric("up", { period: "this-month" }));
      await page.locator(".panel .error", { hasText: /^period must be latest, 15m/ }).waitFor();
      await close(page);
    },

    async "shows many lines and hostile labels"() {
      const t = Math.floor(Date.now() / 1000);
      const values = Array.from({ length: MANY }, (_, i) => (i < MANY - 3 ? `k${i}` : HOSTILE[i - MANY + 3]));
      const published = await fetch(`${daemon("pubsub").url}/pub?stream=metrics`, { method: "POST",
        body: values.map((k, i) => JSON.stringify({ t, labels: { __name__: "many", k }, v: i })).join("\n") });
      assert.equal(published.status, 200);
      const page = await open(metric("many", { period: "15m" }));
      await page.getByText(`20 of ${MANY} lines: those with the largest values`).waitFor();
      await asked(page, /^topk\(20, many\)$/);
      await legend(page, 20);
      const names = await page.locator(".legend span").allTextContents();
      for (const k of HOSTILE.slice(0, 3)) assert.ok(names.some((name) => name.includes(k)), `${k} in ${names}`);
      assert.ok(!names.some((name) => name.includes("=k4")) && names.some((name) => name.includes("=k5")), `${names}`);
      for (const k of HOSTILE.slice(0, 3)) {
        await page.locator("select[name='l.k']").selectOption(k);
        await legend(page, 1);
        await page.locator(".chip bdi").waitFor();
        assert.equal((await page.locator(".chip bdi").textContent()).slice(1, -1), k);
        await page.getByText("1 line", { exact: false }).first().waitFor();
        await page.goBack();
        await legend(page, 20);
      }
      assert.equal(await page.evaluate(() => window.attacked), undefined);
      await close(page);
    },

    async "zooms a metric and goes back"() {
      const page = await open(metric("up", { period: "6h" }));
      await legend(page, DAEMONS);
      const plot = page.locator(".u-over");
      const box = await plot.boundingBox();
      await page.mouse.move(box.x + box.width * 0.3, box.y + 50);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.998, box.y + 50, { steps: 5 });
      await page.mouse.up();
      await page.waitForURL(/from=\d+&to=\d+/);
      const { searchParams } = new URL(page.url());
      const seconds = searchParams.get("to") - searchParams.get("from");
      assert.ok(Math.abs(seconds - 0.7 * 21600) < 600, `${seconds} of the 6 hours`);
      await page.locator(".chip", { hasText: "Clear the selection" }).waitFor();
      await legend(page, DAEMONS);
      await page.locator(".u-over").dblclick();
      await page.waitForURL((url) => !url.searchParams.has("from"));
      await legend(page, DAEMONS);
      await page.locator(".plot").focus();
      await page.keyboard.press("ArrowLeft");
      await page.locator(".readout", { hasText: /job=\w+.*: 1, and 5 lines below$/ }).waitFor();
      await page.keyboard.press("Enter");
      await page.waitForURL(/from=\d+&to=\d+/);
      await close(page);
    },

    async "says that metricdb does not answer"() {
      const pipeline = await open("/?view=pipeline");
      await pipeline.locator(".daemon", { hasText: "scrapes the metrics of targets" }).getByText(/^\d+ of \d+$/).waitFor();
      await close(pipeline);
      const page = await open(metric("up"));
      await legend(page, DAEMONS);
      page.forgiving = true;
      const { pid } = daemon("metricdb");
      process.kill(pid, "SIGSTOP");
      await page.locator("#banner", { hasText: /^metricdb has not answered for 3 seconds\./ }).waitFor();
      await page.locator("#view.old").waitFor();
      process.kill(pid, "SIGCONT");
      await page.locator("#banner").waitFor({ state: "hidden" });
      await page.route("**/api/v1/**", (route) => route.fulfill({ status: 503, json: { detail: "metricdb does not answer: connection refused" } }));
      await page.locator("#banner", { hasText: /^metricdb does not answer: connection refused\. .*Trying again\.$/ }).waitFor();
      await page.unrouteAll({ behavior: "wait" });
      await page.locator("#banner").waitFor({ state: "hidden" });
      await page.route("**/api/v1/query_range**", (route) => route.fulfill({ status: 503, json: { status: "error", errorType: "timeout", error: "too slow" } }));
      await page.locator(".panel .error", { hasText: /^too slow$/ }).waitFor();
      await page.unrouteAll({ behavior: "wait" });
      await close(page);
    },

    async "says that the pipeline has no metricdb"() {
      const page = await open("/?view=pipeline");
      await page.locator(".daemon").first().waitFor();
      assert.equal(await page.locator("nav a", { hasText: "Metrics" }).isVisible(), false);
      page.forgiving = true;
      await visit(page, "/?view=metrics");
      await page.locator(".panel .error", { hasText: "this pipeline has no metricdb" }).waitFor();
      await page.getByText("add a section with the name of the daemon").waitFor();
      await page.locator("nav a[aria-current]", { hasText: "Metrics" }).waitFor();
      await close(page);
    },
  };
};
