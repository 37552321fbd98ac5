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

export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));
export const setToken = (token) => sessionStorage.setItem(TOKEN, token);

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** The address of a request, relative to the page, so that a proxy may serve it below any path. */
export function target(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const each of [value].flat()) if (each !== undefined && each !== null) query.append(name, each);
  const text = query.toString();
  return path + (text ? `?${text}` : "");
}

async function open(address, signal, accept) {
  let reply;
  if (!TOKEN_BYTES.test(sessionStorage.getItem(TOKEN) ?? "")) throw new ApiError(401, null, "The token is not one.");
  try {
    // The API lets past units be cached for a minute; the page shows late events at once, and unchanged answers cost no body.
    reply = await fetch(address, { signal, cache: "no-cache", headers: { ...headers(), Accept: accept } });
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

/** Calls onLines(lines, offset, warning) with arrays of lines as they arrive. The offset is that after the last line, if any. */
export const follow = (parameters, signal, onOpen, onLines) => events("v1/live", parameters, signal, onOpen, (found) => {
  const lines = found.filter((event) => !event.warning);
  onLines(lines.map((event) => event.data).filter((line) => !ERASED.test(line)), lines.length ? parseInt(lines.at(-1).id, 10) : undefined,
    found.find((event) => event.warning)?.warning);
});

/** A command that asks the same. */
export function curl(path, parameters) {
  const address = new URL(target(path, parameters), document.baseURI).href;
  const token = sessionStorage.getItem(TOKEN) ? " -H 'Authorization: Bearer TOKEN'" : "";
  return `curl${token} '${address.replaceAll("'", "%27")}'`;
}
