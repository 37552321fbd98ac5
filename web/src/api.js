// Requests to the API. Every answer is JSON; every failure becomes an ApiError.

const TOKEN = "millrace-token";

export class ApiError extends Error {
  constructor(status, problem, detail) {
    super(detail);
    this.status = status; // 0: the API does not answer
    this.code = problem?.code;
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
    if (value !== undefined && value !== null) query.set(name, value);
  const text = query.toString();
  return path + (text ? `?${text}` : "");
}

async function open(address, signal, accept) {
  let reply;
  try {
    // The API lets past units be cached for a minute; the page shows late events at once, and unchanged answers cost no body.
    reply = await fetch(address, { signal, cache: "no-cache", headers: { ...headers(), Accept: accept } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, null, "The API does not answer.");
  }
  if (reply.ok) return reply;
  const problem = await reply.json().catch(() => null);
  throw new ApiError(reply.status, problem, problem?.detail ?? `The API answered ${reply.status}.`);
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

/** What `millrace forget` leaves of a line. */
const ERASED = /^\{\} +$/;

/**
 * Calls onLines(lines, offset) with arrays of lines as they arrive, until the signal aborts. The offset is that after the last line.
 * EventSource cannot send a token.
 */
export async function follow(parameters, signal, onLines) {
  const reply = await open(target("v1/live", parameters), signal, "text/event-stream");
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    const lines = [];
    let offset = 0;
    for (const event of events) {
      const parts = event.split("\n");
      const data = parts.filter((line) => line.startsWith("data:"));
      if (!data.length || parts.some((line) => line.startsWith("event:"))) continue;
      const line = data.map((part) => part.slice(5).replace(/^ /, "")).join("\n");
      if (!ERASED.test(line)) lines.push(line);
      offset = parseInt(parts.find((line) => line.startsWith("id:"))?.slice(3) ?? "0", 10);
    }
    if (offset) onLines(lines, offset);
  }
}

/** A command that asks the same. */
export function curl(path, parameters) {
  const address = new URL(target(path, parameters), document.baseURI).href;
  const token = sessionStorage.getItem(TOKEN) ? " -H 'Authorization: Bearer TOKEN'" : "";
  return `curl${token} '${address.replaceAll("'", "%27")}'`;
}
