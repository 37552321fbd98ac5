// Checks of the Pipeline view with answers of the API that the check has changed.

import assert from "node:assert/strict";

/** Changes each answer of /v1/pipeline. */
async function change(page, changes) {
  await page.unrouteAll({ behavior: "wait" });
  await page.route("**/v1/pipeline", async (route) => {
    const reply = await route.fetch(), json = await reply.json();
    changes(json);
    await route.fulfill({ response: reply, json });
  });
}

export const pipelineChecks = ({ open, close }) => ({
  async "shows one problem of a full disk"() {
    const page = await open("/?view=pipeline", {});
    const full = [{ text: "refusing puts since 2026-01-01T00:00:00Z: the disk is full", remedy: "free disk space; it resumes by itself" },
      { text: "the disk is full: 1 MB free; puts are refused", remedy: "free disk space; it resumes by itself" }];
    await change(page, (json) => {
      for (const d of json.daemons) if (d.stats?.disk_size_bytes) d.stats.disk_free_bytes = 1000000;
      json.daemons.find((d) => d.name === "simplequeue").stats.health.notices = full;
    });
    const disk = page.locator(".problems > li", { hasText: /^The disk of \/.* has 1.0 MB of .* free\./ });
    await disk.locator("code", { hasText: "free disk space; it resumes by itself" }).waitFor();
    assert.deepEqual(await disk.locator("li").allTextContents(), full.map(({ text }) => `simplequeue: ${text}`));
    assert.equal(await page.locator(".problems > li", { hasText: /disk/ }).count(), 1);
    await page.unrouteAll({ behavior: "wait" });
    await close(page);
  },

  /** Counts that cannot be read are not called zero, and nobody is asked to post a first event. */
  async "says what is not known without the archive"() {
    const page = await open("/icon.svg", {});
    const base = page.url().replace("/icon.svg", "/");
    const missing = [{ source: "archive", url: "/data/archive", error: "damaged", since: 1332637200 }];
    await page.route(/\/v1\/(compare|breakdown)\?(?!.*minute|.*30m)/, async (route) => {
      const reply = await route.fetch(), json = await reply.json();
      const rows = route.request().url().includes("compare") ? json.rows.map((row) => ({ ...row, n: 0, complete: false })) : [];
      await route.fulfill({ response: reply, json: { ...json, total: 0, distinct: 0, other: 0, rows, partial: true, missing, before: undefined } });
    });
    await page.goto(`${base}?period=today`);
    await page.locator("#banner", { hasText: /^The archive cannot be read since .* are without its counts; Pipeline shows the remedy\.$/ }).waitFor();
    await page.locator(".tile", { hasText: "today, without the archive" }).waitFor();
    const words = page.getByText("No counts without the archive.");
    await words.first().waitFor();
    assert.ok(await words.count() > 1, "the series and each breakdown");
    assert.equal(await page.getByText(/No events have been counted|No events in this time/).count(), 0);
    await page.unrouteAll({ behavior: "wait" });
    await close(page);
  },

  async "shows each of several queues"() {
    const page = await open("/?view=pipeline", {});
    let own;
    await change(page, (json) => {
      const one = json.daemons.find((d) => d.name === "simplequeue");
      own = new URL(one.url).host;
      json.daemons.push({ ...one, url: "http://192.0.2.7:8080", stats: { ...one.stats, health: { notices: [{ text: "queue mails: 3 buried", remedy: "see" }] },
        queues: { mails: { depth: 4321, puts: 0, gets: 0, buried: 3 } } } });
    });
    const numbersOf = (host) => page.locator(".daemon", { has: page.getByRole("heading", { name: `simplequeue ${host}` }) }).locator("dl > div");
    await numbersOf("192.0.2.7:8080").filter({ hasText: /^Waiting4,321$/ }).waitFor();
    await numbersOf("192.0.2.7:8080").filter({ hasText: /^Buried3$/ }).waitFor();
    await numbersOf(own).filter({ hasText: /^Buried0$/ }).waitFor();
    await page.locator(".problems li", { hasText: /^simplequeue 192\.0\.2\.7:8080: queue mails: 3 buried/ }).waitFor();
    await page.unrouteAll({ behavior: "wait" });
    await close(page);
  },

  async "shows the cells"() {
    const page = await open("/?view=pipeline", {});
    const until = Date.UTC(2026, 0, 2, 3, 4, 5) / 1000;
    await change(page, (json) => {
      const own = json.daemons.find((d) => d.name === "aggregator");
      const cells = Object.entries({ east: 0, west: 3 }).flatMap(([cell, n]) => [
        { name: "nats_to_pubsub", cell, url: "", state: n ? "not ready" : "ready", detail: n ? "3 s behind" : "",
          stats: { lag_seconds: n, lag_messages: n, lines_stored_total: 1, waiting_queues: 0, partitions: n ? "16-63" : "0-15", disk_free_bytes: 5e9 } },
        { ...own, cell, stats: { ...own.stats, complete_until: until, lag_bytes: 1000 * n, disk_free_bytes: 4e9,
          lines_rejected_total: n, last_minute: { ...own.stats.last_minute, rejected: 0, reasons: [] } } },
        { name: "sortdb", cell, url: "", state: "ready", detail: "", stats: n ? { generation: 1, db_mtime: json.time - 7200, records: 1, bytes: 1 } : null }]);
      json.daemons = [...json.daemons.filter((d) => d !== own), ...cells];
    });
    await page.locator(".problems li", { hasText: /^In cell west, 3 lines were rejected/ }).waitFor();
    for (const [cell, behind, rejected] of [["east", "0 B", "0"], ["west", "3.0 KB", "3"]]) {
      const numbers = page.locator(".daemon", { has: page.getByRole("heading", { name: `aggregator ${cell}` }) }).locator("dl > div");
      assert.equal(await numbers.filter({ hasText: /^Rejected/ }).locator("dd").textContent(), rejected);
      assert.equal(await numbers.filter({ hasText: /^Behind/ }).locator("dd").textContent(), behind);
    }
    const rows = await page.locator(".cells tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
    const [east, west] = rows.map(([name, state, time, lag, partitions, archive]) => [name, state, lag, partitions, archive, /3:04/.test(time)]);
    assert.deepEqual(east, ["east", "ready", "0 s", "0-15", "–", true]);
    assert.deepEqual(west, ["west", "nats_to_pubsub not ready", "3 s", "16-63", "2 h old", true]);
    await page.unrouteAll({ behavior: "wait" });
    await close(page);
  },
});
