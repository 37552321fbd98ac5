// Requests to the API. Every answer is JSON; every failure becomes an ApiError.

const TOKEN = "millrace-token";
const TOKEN_BYTES = /^[\x21-\x7e]*$/; // of any token; others cannot be sent

export class ApiError extends Error {
  constructor(status, problem, detail) {
    super(detail);
    this.status = status; // 0: the API does not answer
    this.code = problem?.code ?? problem?.errorType; // Prometheus' API has the latter
    this.hint = problem?.hint;
  }
}

/** A page in a frame may have no storage: then the token is only in memory. */
let token = "";
try {
  token = sessionStorage.getItem(TOKEN) ?? "";
} catch { /* see above */ }

export const hasToken = () => Boolean(token);
export function setToken(next) {
  token = next;
  try {
    sessionStorage.setItem(TOKEN, next);
  } catch { /* see above */ }
}

// A shared link has its token after the #, which browsers send to no server. It leaves the address at once.
if (location.hash.startsWith("#token=")) {
  setToken(decodeURIComponent(location.hash.slice("#token=".length)));
  history.replaceState(null, "", location.pathname + location.search);
}

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

/** The address of a request, relative to the page, so that a proxy may serve it below any path. */
export function target(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const each of [value].flat()) if (each !== undefined && each !== null) query.append(name, each);
  const text = query.toString();
  return path + (text ? `?${text}` : "");
}

async function open(address, signal, accept, init) {
  let reply;
  if (!TOKEN_BYTES.test(token)) throw new ApiError(401, null, "The text is not a token.");
  try {
    // The API lets past units be cached for a minute; the page shows late events at once, and unchanged answers cost no body.
    reply = await fetch(address, { signal, cache: "no-cache", headers: { ...headers(), Accept: accept }, ...init });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, null, "The API does not answer.");
  }
  if (reply.ok) return reply;
  if (reply.status === 502 || reply.status === 504) throw new ApiError(0, null, "The API does not answer."); // says a proxy
  const problem = await reply.json().catch(() => null);
  throw new ApiError(reply.status, problem, problem?.detail ?? problem?.error ?? `The API answered ${reply.status}.`);
}

export async function get(path, parameters, signal) {
  const reply = await open(target(path, parameters), signal, "application/json, application/problem+json");
  try {
    return await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, null, "The API's answer is incomplete.");
  }
}

/** A request that changes something. Its token is in a header, so another page cannot send it. */
export async function post(path, parameters, body) {
  const reply = await open(target(path, parameters), undefined, "application/json, application/problem+json", { method: "POST", body });
  return reply.json();
}

/** An event of a stream of Server-Sent Events: {data, id}, or {warning}; null without data, and for a gap. */
function eventOf(text) {
  const lines = text.split("\n");
  const data = lines.filter((line) => line.startsWith("data:"));
  if (lines.includes("event: undecided")) return { warning: JSON.parse(data[0].slice(5)) };
  if (!data.length || lines.some((line) => line.startsWith("event:"))) return null;
  return { data: data.map((line) => line.slice(5).replace(/^ /, "")).join("\n"), id: lines.find((line) => line.startsWith("id:"))?.slice(3) };
}

/**
 * Calls onOpen() once the reply begins, and onEvents([{data, id}]) as Server-Sent Events arrive, until the reply ends or the signal
 * aborts. EventSource cannot send a token.
 */
export async function events(path, parameters, signal, onOpen, onEvents) {
  const reply = await open(target(path, parameters), signal, "text/event-stream");
  onOpen();
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new ApiError(0, null, "The API does not answer.");
    });
    if (done) return;
    const texts = (rest + value).split("\n\n");
    rest = texts.pop();
    const found = texts.map(eventOf).filter(Boolean);
    if (found.length) onEvents(found);
  }
}

/** What `millrace forget` leaves of a line. */
const ERASED = /^\{\} +$/;

/** Calls onLines(lines, offset, warning, offsets) with arrays of lines as they arrive. The offsets are those after the lines. */
export const follow = (parameters, signal, onOpen, onLines) => events("v1/live", parameters, signal, onOpen, (found) => {
  const lines = found.filter((event) => !event.warning);
  const offset = (event) => parseInt(event.id, 10);
  const kept = lines.filter((event) => !ERASED.test(event.data));
  onLines(kept.map((event) => event.data), lines.length ? offset(lines.at(-1)) : undefined, found.find((event) => event.warning)?.warning, kept.map(offset));
});

/** A command that asks the same. */
export function curl(path, parameters) {
  const address = new URL(target(path, parameters), document.baseURI).href;
  return `curl${token ? " -H 'Authorization: Bearer TOKEN'" : ""} '${address.replaceAll("'", "%27")}'`;
}
