// A client of millrace for Node.js 18 and browsers. millrace.d.ts describes it.

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class MillraceError extends Error {
  constructor(status, code, detail, hint = "", members = {}) {
    super([code, detail].filter(Boolean).join(": ") + (hint && ` (${hint})`));
    Object.assign(this, { name: "MillraceError", status, code, detail, hint, members });
  }

  get isTemporary() {
    return this.status === 0 || this.status === 429 || this.status === 503;
  }
}

async function failure(reply) {
  const problem = await reply.json().catch(() => ({}));
  return new MillraceError(reply.status, problem.code ?? "", problem.detail ?? `HTTP status ${reply.status}`, problem.hint, problem);
}

class Server {
  constructor(url, { token, timeout = 30000 } = {}) {
    this.url = url.replace(/\/+$/, "");
    this.headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.timeout = timeout;
  }

  /** A reply with status 200, whose body is not read yet. */
  async open(method, path, parameters, { body, headers }, signal) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters))
      for (const one of Array.isArray(value) ? value : [value])
        if (one !== undefined && one !== null) query.append(name, one);
    const text = query.toString();
    const reply = await fetch(this.url + path + (text && `?${text}`), { method, body, headers: { ...this.headers, ...headers }, signal });
    if (!reply.ok) throw await failure(reply);
    return reply;
  }

  /** The whole reply. The own timer also ends a fetch that lost its connection without noticing. */
  async ask(method, path, parameters = {}, { body, more = 0 } = {}) {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), this.timeout + more);
    try {
      const reply = await this.open(method, path, parameters, { body }, stop.signal);
      return { headers: reply.headers, body: new Uint8Array(await reply.arrayBuffer()) };
    } catch (error) {
      throw this.lost(error);
    } finally {
      clearTimeout(timer);
    }
  }

  /** The error of a request as a MillraceError. */
  lost(error) {
    if (error instanceof MillraceError) return error;
    // Only a refused connection proves that the request was not received.
    const code = error.cause?.code === "ECONNREFUSED" ? "not-sent" : "no-reply";
    return new MillraceError(0, code, `${this.url}: ${error.cause?.message ?? error.message}`);
  }

  async json(...request) {
    return JSON.parse(decode((await this.ask(...request)).body));
  }
}

const decode = (bytes) => new TextDecoder().decode(bytes);
const encode = (text) => new TextEncoder().encode(text);
const bytesOf = (data) => (data instanceof Uint8Array ? data : encode(typeof data === "string" ? data : JSON.stringify(data)));

function join(parts) {
  const body = new Uint8Array(parts.reduce((size, part) => size + part.length + 1, -1));
  let at = 0;
  for (const part of parts) {
    if (at > 0) body[at++] = 10;
    body.set(part, at);
    at += part.length;
  }
  return body;
}

/** Waits before each attempt but the first, from 0.1 to 2 s, until `patience` ms have passed. */
function backoff(patience) {
  const end = Date.now() + patience;
  let delay = 100;
  return async (error) => {
    if (Date.now() + delay > end) throw error;
    await sleep(delay);
    delay = Math.min(2 * delay, 2000);
  };
}

export class Producer {
  #server;
  #mark;
  #last = Promise.resolve();

  constructor({ name, queue = "default", url = "http://127.0.0.1:8080", token, timeout, patience = 60000 } = {}) {
    Object.assign(this, { name, queue, patience });
    this.#server = new Server(url, { token, timeout });
  }

  async mark() {
    if (this.name === undefined) throw new TypeError("a producer without a name has no mark");
    if (this.#mark === undefined) {
      const { mark } = await this.#repeat(() => this.#server.json("GET", "/producer", { queue: this.queue, producer: this.name }));
      this.#mark = BigInt(mark);
    }
    return this.#mark;
  }

  /** Puts of one producer follow each other, because each begins at the mark of the one before. */
  put(messages, { next } = {}) {
    const done = this.#last.then(() => this.#put(Array.isArray(messages) ? messages : [messages], next));
    this.#last = done.catch(() => {});
    return done;
  }

  async #put(messages, next) {
    const lines = messages.map(bytesOf);
    if (!lines.length || lines.some((line) => !line.length || (lines.length > 1 && line.includes(10))))
      throw new TypeError("a message is empty, or one of several has a line feed");
    const parameters = { queue: this.queue };
    if (this.name !== undefined) {
      const mark = await this.mark();
      Object.assign(parameters, { producer: this.name, mark, next: next ?? mark + BigInt(lines.length) });
    }
    await this.#repeat(() => this.#server.ask("POST", lines.length > 1 ? "/mput" : "/put", parameters, { body: join(lines) }));
    if (this.name !== undefined) this.#mark = BigInt(parameters.next);
  }

  async #repeat(ask) {
    const wait = backoff(this.patience);
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        const isSafe = this.name !== undefined || !["no-reply", "storage-failed"].includes(error.code);
        if (!error.isTemporary || !isSafe) throw error;
        await wait(error);
      }
    }
  }
}

export class Queue {
  #server;

  constructor({ queue = "default", url = "http://127.0.0.1:8080", reader, token, timeout } = {}) {
    Object.assign(this, { queue, reader });
    this.#server = new Server(url, { token, timeout });
  }

  async reserve({ items = 1, lease = 30000, wait = 0 } = {}) {
    const { headers, body } = await this.#server.ask("GET", "/reserve", { queue: this.queue, reader: this.reader, items, lease, wait }, { more: wait });
    const messages = [];
    for (let at = 0; at < body.length;) {
      const end = body.indexOf(10, at);
      const [id, tries, length] = decode(body.subarray(at, end)).split(" ");
      const data = body.slice(end + 1, end + 1 + Number(length));
      messages.push({ id, tries: Number(tries), data, text: () => decode(data), json: () => JSON.parse(decode(data)) });
      at = end + Number(length) + 2;
    }
    return { number: headers.get("X-Millrace-Lease") ?? "", messages };
  }

  async #change(act, lease, ids, more = {}) {
    if (ids.length) await this.#server.json("POST", `/${act}`, { queue: this.queue, lease: lease.number, ...more }, { body: ids.join(",") });
  }

  ack(lease, ids) { return this.#change("ack", lease, ids); }
  nack(lease, ids, delay = 0) { return this.#change("nack", lease, ids, delay ? { delay } : {}); }
  bury(lease, ids, reason = "") { return this.#change("bury", lease, ids, reason ? { reason: reason.slice(0, 256) } : {}); }
  touch(lease, extend) { return this.#server.json("POST", "/touch", { queue: this.queue, lease: lease.number, extend }); }
  async release() { await this.#server.json("POST", "/release", { queue: this.queue, reader: this.reader }); }

  async consume(work, { items = 100, lease = 30000, wait = 20000, tries = 5, delay = 60000, signal, onError = () => {} } = {}) {
    let released = !this.reader;
    while (!signal?.aborted) {
      try {
        if (!released) await this.release();
        released = true;
        await this.#workThrough(await this.reserve({ items, lease, wait }), work, { lease, tries, delay, signal, onError });
      } catch (error) {
        if (!(error instanceof MillraceError) || !(error.isTemporary || ["lease-lost", "queue-held", "followed"].includes(error.code))) throw error;
        onError(error);
        released = !this.reader;
        if (error.code !== "lease-lost") await sleep(1000);
      }
    }
  }

  async #workThrough(held, work, { lease, tries, delay, signal, onError }) {
    let done = [];
    const left = new Set(held.messages.map((message) => message.id));
    let extendAt = Date.now() + lease / 3;
    try {
      for (const message of held.messages) {
        if (signal?.aborted) break;
        if (Date.now() > extendAt) {
          await this.ack(held, done);
          done = [];
          await this.touch(held, lease);
          extendAt = Date.now() + lease / 3;
        }
        try {
          await work(message);
          done.push(message.id);
        } catch (error) {
          onError(error);
          if (message.tries >= tries) await this.bury(held, [message.id], String(error));
          else await this.nack(held, [message.id], delay);
        }
        left.delete(message.id);
      }
    } finally {
      await this.ack(held, done);
      await this.nack(held, [...left]);
    }
  }
}

/** The lines of a reply. A last line that was cut off is left out. onPiece() is called for each piece that arrives. */
async function* linesOf(reply, onPiece) {
  const reader = reply.body.getReader(); // browsers cannot iterate over the body
  const decoder = new TextDecoder();
  for (let rest = "", piece; !(piece = await reader.read()).done;) {
    onPiece();
    const lines = (rest + decoder.decode(piece.value, { stream: true })).split("\n");
    rest = lines.pop();
    yield* lines;
  }
}

/** What `millrace forget` leaves of a line. */
const ERASED = /^\{\} +$/;

async function* eventsOf(lines) {
  let event = {};
  for await (const line of lines) {
    const colon = line.indexOf(": ");
    if (line !== "") {
      event[line.slice(0, colon)] = line.slice(colon + 2);
      continue;
    }
    const { data, id: cursor = "", event: kind } = event;
    event = {};
    if (data === undefined || ERASED.test(data)) continue;
    yield kind === "gap" ? { data: "", cursor, gap: JSON.parse(data) } : { data, cursor, json: () => JSON.parse(data) };
  }
}

export async function* follow(stream, options = {}) {
  const { url = "http://127.0.0.1:8081", token, timeout = 60000, signal, onError = () => {} } = options;
  let { cursor, start = "latest" } = options;
  const server = new Server(url, { token });
  for (let delay = 100; !signal?.aborted; delay = Math.min(2 * delay, 2000)) {
    const stop = new AbortController();
    const end = () => stop.abort();
    let timer = setTimeout(end, timeout);
    const rewind = () => {
      clearTimeout(timer);
      timer = setTimeout(end, timeout);
    };
    signal?.addEventListener("abort", end);
    try {
      const headers = { Accept: "text/event-stream", ...(cursor ? { "Last-Event-ID": cursor } : {}) };
      const reply = await server.open("GET", "/sub", { stream, from: start }, { headers }, stop.signal);
      if (!cursor && start === "latest") start = reply.headers.get("X-Millrace-Offset") ?? start;
      for await (const line of eventsOf(linesOf(reply, rewind))) {
        cursor = line.cursor || cursor;
        delay = 100;
        yield line;
      }
    } catch (error) {
      const known = server.lost(error);
      if (signal?.aborted) return;
      if (!known.isTemporary) throw known;
      onError(known);
    } finally {
      signal?.removeEventListener("abort", end);
      clearTimeout(timer);
      stop.abort();
    }
    await sleep(delay);
  }
}

export class Api {
  #server;

  constructor({ url = "http://127.0.0.1:8088", token, timeout } = {}) {
    this.#server = new Server(url, { token, timeout });
  }

  get(what, parameters) { return this.#server.json("GET", `/v1/${what}`, parameters); }
  series(parameters) { return this.get("series", parameters); }
  breakdown(parameters) { return this.get("breakdown", parameters); }
  compare(parameters) { return this.get("compare", parameters); }
  top(counter, parameters = {}) { return this.get("top", { counter, ...parameters }); }
  quantile(parameters) { return this.get("quantile", parameters); }
  freshness() { return this.get("freshness"); }

  async* lookup(prefix = "", parameters = {}) {
    let continuation;
    do {
      const page = await this.get("lookup", { prefix, continuation, ...parameters });
      yield* page.rows;
      ({ continuation } = page);
    } while (continuation);
  }
}
