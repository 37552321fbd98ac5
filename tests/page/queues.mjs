// Checks of the Queues view, of columns and counts in Live, of shared links and of the page in a frame. The API has tokens: task.viewer may
// read, task.operator may change, and task.shared sees one key in the view of a key.

import assert from "node:assert/strict";
import fs from "node:fs";

export const queuesChecks = ({ open, close, post, daemon, query, until, HOSTILE, taskOf }) => {
  const withToken = (parameters, token) => `${query(parameters)}#token=${token}`;
  const ask = async (method, target, body) => {
    const reply = await fetch(`${daemon("simplequeue").url}${target}`, { method, body });
    assert.equal(reply.status, 200, target);
    return reply;
  };
  const ready = async () => (await ask("GET", "/dump?queue=work")).text();

  /** Buries the messages in a queue. */
  async function bury(messages, reason, queue = "work") {
    for (const message of messages) await ask("POST", `/put?queue=${queue}`, message);
    const reserved = await ask("POST", `/reserve?queue=${queue}&items=${messages.length}`);
    const ids = [...(await reserved.text()).matchAll(/^(\d+) \d+ \d+$/gm)].map((m) => m[1]);
    assert.equal(ids.length, messages.length);
    await ask("POST", `/bury?queue=${queue}&lease=${reserved.headers.get("X-Millrace-Lease")}&id=${ids}&reason=${encodeURIComponent(reason)}`);
  }

  return {
    async "shows and changes queues"() {
      const task = taskOf();
      await bury([`${HOSTILE[0]}1`, "two", "three"], HOSTILE[0]);
      await ask("POST", "/mput?queue=work", "a\nb");
      const viewer = await open(withToken({ view: "queues", queue: "work" }, task.viewer), {});
      await viewer.getByText("This token permits reading, but no changes.").waitFor();
      await viewer.locator(".messages li").nth(2).waitFor();
      assert.equal(await viewer.getByRole("button", { name: "Empty" }).first().isDisabled(), true);
      assert.ok(!viewer.url().includes(task.viewer), "the token has left the address");
      await close(viewer);

      const page = await open(withToken({ view: "queues" }, task.operator), {});
      const row = page.getByRole("region", { name: "Queues" }).locator("tbody tr", { has: page.locator("th", { hasText: "work" }) });
      const dialog = page.getByRole("dialog");
      const confirm = async (words) => {
        await dialog.getByText(words).waitFor();
        await dialog.locator(".danger").click();
        await dialog.waitFor({ state: "detached" });
      };
      const message = (text) => page.locator(".messages li", { hasText: text });
      await bury(["lost"], "no route", "spare");
      await message("lost").getByText("no route", { exact: true }).waitFor(); // of all queues
      await message("two").waitFor();
      await row.getByRole("link", { name: "Show 3 buried messages of work" }).click();
      await message("lost").waitFor({ state: "detached" });
      await message(`${HOSTILE[0]}1`).getByText(HOSTILE[0], { exact: true }).waitFor(); // the reason
      await message(`${HOSTILE[0]}1`).getByRole("button", { name: "Edit" }).click();
      assert.equal(await dialog.getByLabel("Message").inputValue(), `${HOSTILE[0]}1`);
      await dialog.getByLabel("Message").fill("mended");
      await dialog.getByRole("button", { name: "Continue" }).click();
      await confirm("Put message");
      await message(`${HOSTILE[0]}1`).waitFor({ state: "detached" });
      assert.equal(await ready(), "a\nb\nmended\n");
      await message("two").getByRole("button", { name: "Delete" }).click();
      await confirm("This cannot be undone.");
      await message("two").waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Put all back" }).click();
      await confirm("Put all buried messages of work back");
      await page.getByText("No message is buried.").waitFor();
      assert.equal(await ready(), "a\nb\nmended\nthree\n");
      await page.getByRole("link", { name: "Show the buried messages of all queues" }).click();
      await message("lost").waitFor();

      await row.getByRole("button", { name: "Pause" }).click();
      await confirm("Stop all deliveries of work");
      await row.locator(".chip", { hasText: "paused" }).waitFor();
      await row.getByRole("button", { name: "Resume" }).click();
      await confirm("Deliver the messages of work again");
      await row.locator(".chip").waitFor({ state: "detached" });
      await row.getByRole("button", { name: "Empty" }).click();
      await dialog.getByText("Delete the 4 ready messages of work?").waitFor();
      await page.keyboard.press("Escape");
      await dialog.waitFor({ state: "detached" });
      assert.equal(await ready(), "a\nb\nmended\nthree\n", "not asked for");
      await row.getByRole("button", { name: "Empty" }).click();
      await confirm("Delete the 4 ready messages of work?");
      assert.equal(await ready(), "");

      await page.getByRole("region", { name: "Streams" }).getByRole("link", { name: "Show producers and cursors of clicks" }).waitFor();
      await page.getByRole("region", { name: "Producers" }).locator("tbody tr").first().waitFor(); // the relay
      assert.equal(await page.evaluate(() => window.attacked), undefined);
      await close(page);
    },

    async "chooses columns and counts a field"() {
      const page = await open(withToken({ view: "live" }, taskOf().viewer), {});
      const t = Math.floor(Date.now() / 1000);
      await post({ t, l: HOSTILE[0], c: "US", at: { city: "Reno" } });
      await page.locator(".lines li", { hasText: "Reno" }).first().waitFor();
      await page.getByText("Columns", { exact: true }).first().click();
      for (const name of ["l", "c", "at.city"]) await page.locator(".columns label").getByText(name, { exact: true }).click();
      const table = page.getByRole("region", { name: "Lines, newest first" });
      await table.locator("tr", { hasText: "Reno" }).first().waitFor();
      assert.deepEqual(await table.locator("thead th").allTextContents(), ["l", "c", "at.city"]);
      assert.deepEqual(await table.locator("tbody tr", { hasText: "Reno" }).first().locator("td").allTextContents(), [HOSTILE[0], "US", "Reno"]);
      assert.equal(new URL(page.url()).searchParams.get("columns"), "l,c,at.city");
      await page.getByText("Columns", { exact: true }).first().click();
      await page.getByLabel("Last minute by").selectOption("l");
      const counts = page.locator(".counts");
      await counts.locator("tr", { hasText: HOSTILE[0] }).locator("td", { hasText: /^1$/ }).waitFor(); // the line from before the choice
      await post({ t, l: HOSTILE[1], c: "US" }, { t, l: HOSTILE[1], c: "JP" }, { t, l: "other", c: "US" }, { t, c: "DE" });
      await counts.locator("tr", { hasText: HOSTILE[1] }).locator("td", { hasText: /^2$/ }).waitFor();
      await counts.locator("tr", { hasText: "(missing)" }).locator("td", { hasText: /^1$/ }).waitFor();
      await counts.getByText(/^[\d,]+ lines in the last 60 seconds$/).waitFor();
      await page.reload();
      await counts.locator("tr", { hasText: HOSTILE[1] }).locator("td", { hasText: /^2$/ }).waitFor();
      await counts.getByRole("button", { name: HOSTILE[1] }).click();
      await page.getByText("The last 2 lines for which the condition is true").waitFor();
      assert.equal(await table.locator("tbody tr").count(), 2);
      await page.locator("#filter-note:empty").waitFor({ state: "attached" });
      assert.equal(await page.evaluate(() => window.attacked), undefined);
      await close(page);
    },

    /** Live and Queues begin with events, whatever other streams there are. */
    async "begins with a counted stream"() {
      const t = Math.floor(Date.now() / 1000);
      await post({ t, l: "counted", c: "US" });
      const publish = async (stream) => assert.equal((await fetch(`${daemon("pubsub").url}/pub?stream=${stream}`, { method: "POST", body: "another line\n" })).status, 200);
      await publish("a_log");
      const page = await open(query({ view: "live" }));
      await page.locator("select[name=stream] option[value=a_log]").waitFor({ state: "attached" });
      assert.equal(await page.locator("select[name=stream]").inputValue(), "clicks");
      const line = page.locator(".lines li", { hasText: '"counted"' });
      await line.first().waitFor();
      await publish("b_log"); // a further stream does not show the lines again
      await page.locator("select[name=stream] option[value=b_log]").waitFor({ state: "attached" });
      await post({ t, l: "after", c: "US" });
      await page.locator(".lines li", { hasText: '"after"' }).waitFor();
      assert.equal(await line.count(), 1);
      await page.getByRole("link", { name: "Queues" }).click();
      await page.getByRole("link", { name: "Show producers and cursors of a_log" }).waitFor();
      await page.getByRole("heading", { name: "Producers and cursors of clicks" }).waitFor();
      const heads = page.getByRole("region", { name: "Producers" }).getByRole("columnheader");
      await heads.first().waitFor();
      assert.equal(await heads.first().textContent(), "Host"); // the id of a producer is long
      await close(page);
    },

    async "says that pubsub hangs"() {
      const page = await open(withToken({ view: "live" }, taskOf().viewer), {});
      await page.locator(".lines li").first().waitFor();
      await page.locator(".rate", { hasText: /^[\d,]+ lines\/s$/ }).waitFor();
      page.forgiving = true;
      const { pid } = daemon("pubsub");
      process.kill(pid, "SIGSTOP");
      await page.locator("#banner", { hasText: "pubsub has not answered for 3 seconds: new lines do not arrive." }).waitFor();
      process.kill(pid, "SIGCONT");
      await page.locator(".rate", { hasText: /^[\d,]+ lines\/s$/ }).waitFor();
      await page.locator("#banner").waitFor({ state: "hidden" });
      await post({ t: Math.floor(Date.now() / 1000), l: "afterwards", c: "US" });
      await page.locator(".lines li", { hasText: "afterwards" }).waitFor();
      await close(page);
    },

    async "opens a shared view and a frame"() {
      const task = taskOf();
      const heading = (where) => where.getByRole("heading", { name: `${task.total.toLocaleString("en-US")} events`, exact: true });
      const view = { view: "key", ns: "u", key: "bitly", period: "all", zone: "UTC" };
      const shared = await open(withToken(view, task.shared), {});
      shared.forgiving = true; // what the token may not see
      await heading(shared).waitFor();
      await until(async () => (await shared.locator("#nav a").allTextContents()).join() === "Keys", "the only view of the token");
      await shared.locator("input[name=key]").fill("nasa");
      await shared.keyboard.press("Enter");
      await shared.locator(".error", { hasText: "the token may not see u|nasa" }).first().waitFor();
      await close(shared);

      const operator = await open(withToken(view, task.operator), {});
      await heading(operator).waitFor();
      await operator.getByRole("button", { name: "Share", exact: true }).click();
      const link = new URL(await operator.getByLabel("Link with the token", { exact: true }).inputValue());
      const line = await operator.getByLabel("Line of the tokens file", { exact: true }).inputValue();
      assert.match(line, /^shared-\w{6} read \w{24} views=key keys=u\|bitly$/);
      assert.equal(await operator.getByLabel("Link", { exact: true }).inputValue(), operator.url());
      const html = await operator.getByLabel("Frame", { exact: true }).inputValue();
      await close(operator);
      fs.appendFileSync(task.tokens, `${line}\n`);
      process.kill(task.api_pid, "SIGHUP");
      const token = link.hash.slice("#token=".length);
      await until(async () => (await fetch(`${task.base}/v1/access`, { headers: { Authorization: `Bearer ${token}` } })).ok, "the new token");
      const reader = await open(link.href.slice(task.base.length), {});
      reader.forgiving = true;
      await heading(reader).waitFor();

      fs.writeFileSync(task.frame, html);
      await reader.goto(`${task.parent}/frame.html`);
      await heading(reader.frameLocator("iframe")).waitFor();
      assert.equal(await reader.frameLocator("iframe").locator("nav").isVisible(), false);
      const refused = reader.waitForEvent("console", (message) => /frame-ancestors/.test(message.text()));
      await reader.goto(`${task.parent.replace("localhost", "127.0.0.1")}/frame.html`); // another origin
      await refused;
      reader.problems = []; // requests to the other pages, and the refusal
      await close(reader);
    },
  };
};
