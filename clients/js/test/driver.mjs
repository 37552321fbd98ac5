// Does one thing with the client and prints the result: node driver.mjs '{"what":"put","url":"...","n":100}'

import { Api, follow, MillraceError, Producer, Queue } from "../millrace.js";

const task = JSON.parse(process.argv[2]);
const codeOf = (promise) => promise.then(() => "no error", (error) => error.code ?? error.name);
const all = async (rows) => { const found = []; for await (const row of rows) found.push(row); return found; };

const acts = {
  async put({ url, n }) {
    const producer = new Producer({ name: "app", url, timeout: 5000 });
    for (let i = 0; i < n; i += 4) await producer.put([0, 1, 2, 3].map((k) => `m${i + k}`));
    return { mark: String(await producer.mark()) };
  },

  async errors({ url }) {
    const wrong = await Promise.all([[], [""], ["a", "b\n"]].map((messages) => codeOf(new Producer({ url }).put(messages))));
    const [one, two] = [1, 2].map(() => new Producer({ name: "same", url }));
    await two.mark();
    await one.put("x", { next: 700 });
    const conflict = await two.put(["y", "z"], { next: 800 }).catch((error) => error);
    return { wrong: wrong.filter((name) => name === "TypeError").length, mark: conflict.members.mark,
      text: new MillraceError(400, "unknown-parameter", "sit is unknown", "did you mean site?").message,
      codes: [await codeOf(new Producer({ url, queue: "a/b" }).put("x")), conflict.code] };
  },

  async refused({ url }) {
    return { code: await codeOf(new Producer({ url, patience: 100 }).put("x")) };
  },

  async work({ url, wrong, tries, enough }) {
    const seen = [];
    const errors = [];
    const stop = new AbortController();
    await new Queue({ url, reader: "worker" }).consume((message) => {
      seen.push(message.text());
      if (seen.length === enough) stop.abort();
      if (message.text() === wrong) throw new Error("never works");
    }, { wait: 100, tries, delay: 1, signal: stop.signal, onError: (error) => errors.push(String(error)) });
    return { distinct: new Set(seen).size, errors };
  },

  async follow({ url, cursor, n }) {
    const lines = [];
    const cursors = [];
    for await (const line of follow("s", { url, cursor, start: "earliest", timeout: 2000 })) {
      lines.push(line.json());
      cursors.push(line.cursor);
      if (lines.length === n) break;
    }
    return { lines, cursors };
  },

  async counts({ url, start }) {
    const api = new Api({ url });
    const span = { from: start, to: start + 3600 };
    return {
      total: (await api.series({ feed: "", ...span })).total,
      several: (await api.series({ user: ["u0", "u1"], unit: "hour", ...span })).series.map((s) => s.total),
      rows: (await api.breakdown({ user: "u0", by: "country", ...span })).rows.map((row) => [row.key, row.n]),
      before: (await api.compare({ user: "u0", ...span })).before.total,
      keys: (await all(api.lookup("u", { ns: "u", limit: 1 }))).map((row) => row.key),
      top: (await api.top("user", span)).rows.length,
      median: (await api.quantile({ user: "u0", by: "ms", q: 0.5, ...span })).rows[0].value,
      newest: (await api.freshness()).newest_event,
      error: await codeOf(api.series({ usr: "u0" })),
    };
  },
};

console.log(JSON.stringify(await acts[task.what](task)));
