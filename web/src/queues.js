// Queues: the queues with their buried messages, and the streams with their producers, cursors and subscribers. Each change is
// asked once more; the API permits it only with a token that has the scope admin, and logs it.

import { get, hasToken, post, setToken } from "./api.js";
import { confirmAct, openDialog } from "./dialog.js";
import { announce, h } from "./dom.js";
import { bytes, count, duration, moment, plural } from "./format.js";
import { keepFresh } from "./live_update.js";
import { panel } from "./panel.js";
import { nameOf, watchPipeline } from "./pipeline_data.js";
import { share } from "./share.js";
import { address, note as noteChoice } from "./state.js";

const BURIED = 20; // messages at a time
const FEW = 3; // messages of each of several queues
const BURIED_QUEUES = 10;
const FRESH = 3000; // ms
const EVERY_ID = "1-18446744073709551614";
const SHOWN = 4000; // characters of a message

const bdi = (text) => h("bdi", {}, text);
const number = (text) => h("td", { class: "number" }, text);

/** A table whose rows are arrays of cells; the first is the row's header. */
const table = (label, columns, rows) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", { class: "things" },
  h("thead", {}, h("tr", {}, columns.map((name, i) => h("th", { scope: "col", class: rows[0]?.[i]?.className === "number" ? "number" : null }, name)))),
  h("tbody", {}, rows.map(([first, ...cells]) => h("tr", {}, h("th", { scope: "row" }, first), cells.map((cell) => (cell?.tagName === "TD" ? cell : h("td", {}, cell))))))));

const bare = (node) => node.cloneNode(false);

/** Makes `old` equal to `next`, and keeps the nodes that are, so that a focus and a click survive. A button that changes is another one: its
 *  act is in its attributes. */
function patch(old, next) {
  if (old.isEqualNode(next)) return;
  const isSame = old.nodeType === 1 && old.tagName !== "BUTTON" && old.childNodes.length === next.childNodes.length && bare(old).isEqualNode(bare(next));
  if (!isSame) old.replaceWith(next);
  else [...next.childNodes].forEach((child, i) => patch(old.childNodes[i], child));
}

/** Shows the children in a panel. */
function fill({ element, body }, ...children) {
  const next = h("div", {}, children);
  element.setAttribute("aria-busy", "false");
  if (body.childNodes.length !== next.childNodes.length) body.replaceChildren(...next.childNodes);
  else [...next.childNodes].forEach((child, i) => patch(body.childNodes[i], child));
}

/** The rate of a number between two polls of the pipeline, by the name of what it belongs to. */
function rates() {
  let before = new Map();
  let now = new Map();
  let at = 0;
  return {
    next(time) { if (time > at) [before, now, at] = [now, new Map(), time]; },
    of(name, n) {
      now.set(name, { n, at });
      const old = before.get(name);
      return old && at > old.at ? `${count(Math.round(Math.max(0, n - old.n) / (at - old.at)))}/s` : "–";
    },
  };
}

export function queuesView(state) {
  const access = h("div");
  const queues = panel("Queues");
  const buried = panel("Buried messages");
  const streams = panel("Streams");
  const stream = panel("Producers and cursors");
  const element = h("div", { class: "queues" }, h("h1", { class: "visually-hidden" }, "Queues"), access, queues.element, buried.element, streams.element, stream.element);
  const perSecond = rates();
  let may = false; // change
  let pipeline = null;
  let chosen = { queue: state.queue, url: state.url, stream: state.stream, pubsub: state.pubsub }; // the addresses are those of the daemons
  let from = 1; // id of the first buried message that is shown
  let reload = () => {};
  let shown = [];

  const act = (name, words, parameters, { title, done }) => h("button", { type: "button", class: "quiet", disabled: !may, "data-act": JSON.stringify([name, parameters]),
    title: may ? null : "Needs a token with the scope admin",
    onclick: () => confirmAct(title, words(), () => post("v1/manage", { act: name, ...parameters }), (reply) => {
      announce(done(reply));
      reload();
    }) }, title);

  function choose(changes) {
    chosen = { ...chosen, ...changes };
    from = 1;
    noteChoice(changes);
    if (pipeline) draw(pipeline);
    reload();
  }
  const chooser = (text, label, isChosen, changes) => h("a", { href: address(changes), "aria-current": isChosen ? "true" : null, "aria-label": label,
    onclick: (event) => { event.preventDefault(); event.stopPropagation(); choose(changes); } }, text);

  const servers = (p) => p.daemons.filter((d) => d.name === "simplequeue");
  /** The present statistics of a queue: a button may be older than they are. */
  const nowOf = ({ queue, url }) => servers(pipeline).find((d) => d.url === url)?.stats?.queues[queue] ?? {};
  /** [[daemon, name, statistics]] of all queues. */
  const queuesOf = (p) => servers(p).flatMap((d) => Object.entries(d.stats?.queues ?? {}).map(([name, q]) => [d, name, q]));

  function queueRow([d, name, q], isOne) {
    const of = { queue: name, url: d.url };
    const where = isOne ? "" : ` of ${d.url}`;
    const held = q.follower ? `${q.follower} follows` : q.reader || q.leased ? `${q.reader || "a reader"}` : "–";
    return [
      [bdi(name), isOne ? "" : h("span", { class: "muted" }, ` ${d.url}`), q.paused ? h("span", { class: "chip" }, "paused") : ""],
      number(count(q.ready)), number(q.buried ? chooser(count(q.buried), `Show ${plural(q.buried, "buried message", "buried messages")} of ${name}`, chosen.queue === name && chosen.url === d.url, of) : "0"), number(count(q.leased)), number(count(q.delayed)),
      number(perSecond.of(`${d.url} ${name} in`, q.puts)), number(perSecond.of(`${d.url} ${name} out`, q.gets)), number(bytes(q.bytes)), held,
      [q.paused ? act("pause", () => `Deliver the messages of ${name}${where} again?`, { ...of, for: 0 }, { title: "Resume", done: () => `${name} delivers again` })
        : act("pause", () => `Stop all deliveries of ${name}${where}? Puts are still stored. The pause ends with “Resume” or a restart.`, of, { title: "Pause", done: () => `${name} is paused` }),
      q.follower ? "" : act("empty", () => `Delete the ${plural(nowOf(of).ready, "ready message", "ready messages")} of ${name}${where}? This cannot be undone.`, of, { title: "Empty", done: (r) => `${plural(r.dropped, "message", "messages")} deleted` }),
      q.leased && !q.follower ? act("release", () => `End the leases of ${q.reader || "the reader"} on ${name}${where}? Its messages are ready again, so a second reader may get them too.`,
        { ...of, reader: q.reader || undefined }, { title: "Release", done: (r) => `${plural(r.released, "message", "messages")} released` }) : ""],
    ];
  }

  function drawQueues(p) {
    const all = queuesOf(p);
    const isOne = servers(p).length === 1;
    const unknown = servers(p).filter((d) => !d.stats);
    queues.note(unknown.length ? `No numbers from ${unknown.map((d) => d.url).join(", ")}: ${unknown[0].detail || unknown[0].state}` : "");
    shown = [["queue", "url", "ready", "leased", "delayed", "buried", "puts", "gets", "bytes", "reader", "follower"],
      ...all.map(([d, name, q]) => [name, d.url, q.ready, q.leased, q.delayed, q.buried, q.puts, q.gets, q.bytes, q.reader, q.follower])];
    fill(queues, all.length ? table("Queues", ["Queue", "Ready", "Buried", "Leased", "Delayed", "In", "Out", "Size", "Reader", "Change"], all.map((one) => queueRow(one, isOne)))
      : h("p", { class: "muted" }, "No queue has a message yet."));
  }

  const streamsOf = (p) => p.daemons.filter((d) => d.name === "pubsub").flatMap((d) => Object.entries(d.stats?.streams ?? {}).map(([name, s]) => [d, name, s]));

  /** What the aggregator of a pubsub says about a stream; undefined if the stream is not counted. */
  const countedOf = (p, d, name) => p.daemons.find((a) => a.name === "aggregator" && (a.cell ?? "") === (d.cell ?? ""))?.stats?.streams?.[name];

  function drawStreams(p) {
    const all = streamsOf(p);
    const isOne = p.daemons.filter((d) => d.name === "pubsub").length === 1;
    fill(streams, all.length ? table("Streams", ["Stream", "In", "On disk", "Subscribers", "Last line", "Counted", "Held back by"], all.map(([d, name, s]) => {
      const of = countedOf(p, d, name);
      return [[chooser(bdi(name), `Show producers and cursors of ${name}`, chosen.stream === name && (isOne || chosen.pubsub === d.url), { stream: name, pubsub: d.url }),
        isOne ? "" : h("span", { class: "muted" }, ` ${nameOf(d)}`)],
      number(perSecond.of(`${d.url} ${name}`, s.lines_published)), number(bytes(s.disk_bytes)), number(count(s.subscribers)),
      s.last_time ? `${duration(p.time - s.last_time)} ago` : "–", of ? (of.refused ? "refused" : `${bytes(of.end - of.offset)} behind`) : "–", of?.held_by ? bdi(of.held_by) : "–"];
    })) : h("p", { class: "muted" }, "No stream has a line yet."));
  }

  function draw(p) {
    const numbers = () => pipeline && queuesOf(pipeline).map(([, , q]) => q.buried);
    const before = JSON.stringify([chosen, numbers()]);
    pipeline = p;
    perSecond.next(p.time);
    const known = streamsOf(p);
    if (chosen.stream === undefined && known.length) {
      const [d, name] = known.find(([own, each]) => countedOf(p, own, each)) ?? known[0];
      chosen = { ...chosen, stream: name, pubsub: d.url };
    }
    drawQueues(p);
    drawStreams(p);
    if (JSON.stringify([chosen, numbers()]) !== before) reload();
  }

  /** The text of a message in the dialog goes back to the queue instead of the message. */
  function edit(of, m) {
    const text = h("textarea", { rows: "10", "aria-label": "Message" }, m.message);
    openDialog("Edit the message", (close) => [text, h("p", { class: "choice" }, h("button", { type: "button", onclick: close }, "Cancel"),
      h("button", { type: "button", onclick: () => {
        close();
        confirmAct("Put it back", [`Put message ${m.id} of ${of.queue} back into the queue with this text?`, h("pre", {}, text.value.slice(0, SHOWN))],
          () => post("v1/manage", { act: "edit", ...of, id: m.id }, text.value), () => { announce("The message is in the queue again"); reload(); });
      } }, "Continue"))]);
  }

  function messageItem(of, m) {
    const isText = !/[\ufffd\r]/.test(m.message); // a text field would change other bytes
    return h("li", {}, h("p", { class: "muted" }, `Message ${m.id}, buried ${moment(Number(m.buried_at))}, ${plural(m.tries, "try", "tries")}, ${bytes(m.length)}`),
      h("p", { class: "error" }, bdi(m.reason || "no reason given")), h("pre", { tabindex: "0" }, m.message.slice(0, SHOWN), m.message.length > SHOWN ? "…" : ""),
      h("p", {}, act("kick", () => `Put message ${m.id} of ${of.queue} back into the queue?`, { ...of, id: m.id }, { title: "Put back", done: () => "The message is in the queue again" }),
        isText && h("button", { type: "button", class: "quiet", disabled: !may, "data-act": JSON.stringify(["edit", of, m]), onclick: () => edit(of, m) }, "Edit"),
        act("delete", () => `Delete message ${m.id} of ${of.queue}? This cannot be undone.`, { ...of, id: m.id }, { title: "Delete", done: (r) => `${plural(r.deleted, "message", "messages")} deleted` })));
  }

  const listOf = (of, messages) => h("ol", { class: "messages" }, messages.map((m) => messageItem(of, m)));
  const buriedOf = async (of, items, first, signal) => (await get("v1/manage", { show: "buried", ...of, items: items + 1, from: first }, signal)).buried;

  /** The first messages of each queue, until a queue is chosen. */
  async function loadAllBuried(signal) {
    const all = queuesOf(pipeline).filter(([, , q]) => q.buried);
    const isOne = servers(pipeline).length === 1;
    const lists = await Promise.all(all.slice(0, BURIED_QUEUES).map(async ([d, name, q]) => {
      const of = { queue: name, url: d.url };
      const messages = (await buriedOf(of, FEW, 1, signal)).slice(0, FEW);
      return [h("h3", {}, bdi(name), isOne ? "" : h("span", { class: "muted" }, ` ${d.url}`), " ",
        chooser(`all ${count(q.buried)}`, `Show all ${plural(q.buried, "buried message", "buried messages")} of ${name}`, false, of)), listOf(of, messages)];
    }));
    buried.title("Buried messages");
    buried.note(all.length > BURIED_QUEUES ? `Of ${BURIED_QUEUES} of ${count(all.length)} queues.` : "");
    fill(buried, lists.length ? lists : h("p", { class: "muted" }, "No message is buried."));
  }

  async function loadBuried(signal) {
    if (!pipeline) return;
    const of = { queue: chosen.queue, url: chosen.url };
    if (of.queue === undefined) {
      await loadAllBuried(signal);
      return;
    }
    const list = await buriedOf(of, BURIED, from, signal);
    const messages = list.slice(0, BURIED);
    buried.title("Buried messages of ", bdi(of.queue));
    buried.note([chooser("All queues", "Show the buried messages of all queues", false, { queue: undefined, url: undefined }), " ",
      messages.length ? act("kick", () => `Put all buried messages of ${of.queue} back into the queue?`, { ...of, id: EVERY_ID },
        { title: "Put all back", done: (r) => `${plural(r.kicked, "message is", "messages are")} in the queue again` }) : ""]);
    fill(buried, messages.length ? listOf(of, messages) : h("p", { class: "muted" }, from > 1 ? "No further buried messages." : "No message is buried."),
      list.length > BURIED || from > 1 ? h("p", {}, h("button", { type: "button", "data-act": list[BURIED]?.id, onclick: () => {
        from = list.length > BURIED ? Number(list[BURIED].id) : 1;
        reload();
      } }, list.length > BURIED ? "Next" : "From the first")) : "");
  }

  async function loadStream(signal) {
    if (chosen.stream === undefined) return;
    const of = { stream: chosen.stream, url: chosen.pubsub };
    const [{ producers }, { cursors }, { clients }] = await Promise.all([get("v1/manage", { show: "producers", ...of }, signal),
      get("v1/manage", { show: "cursors", ...of }, signal), get("v1/manage", { show: "subscribers", url: of.url }, signal)]);
    const own = clients.filter((c) => c.stream === of.stream);
    const held = pipeline?.daemons.map((d) => d.stats?.streams?.[of.stream]?.held_by ?? "").find(Boolean) ?? "";
    const holds = (each) => [each.producer, each.name].some((name) => name && (held === name || held.endsWith(`/${name}`)));
    stream.title("Producers and cursors of ", bdi(of.stream));
    fill(stream,
      producers.length ? table("Producers", ["Host", "Complete until", "Silent", "State", "Producer", "Change"], producers.map((each) => [bdi(each.name ?? "–"),
        each.until ? moment(each.until) : "–", each.silent_seconds === undefined ? "–" : duration(each.silent_seconds),
        each.left_out ? "left out of completeness" : holds(each) ? "holds the counts back" : "", bdi(each.producer),
        each.until === undefined || each.left_out ? "" : act("leave-out", () => `Leave ${each.name ?? each.producer} out of completeness until it sends again? Its events that arrive later are still counted.`,
          { ...of, producer: each.producer }, { title: "Leave out", done: () => "The producer is left out" })])) : h("p", { class: "muted" }, "The stream has no producer."),
      cursors.length ? table("Cursors", ["Cursor", "Behind", "Lines", "Time", "Change"], cursors.map((c) => [bdi(c.name), bytes(Number(c.lag_bytes)), count(c.lag_lines), c.lag_seconds === null ? "–" : duration(c.lag_seconds),
        act("delete-cursor", () => `Delete the cursor ${c.name} of ${of.stream}? Its reader then starts at the place that it chooses, and retention no longer waits for it.`,
          { ...of, name: c.name }, { title: "Delete", done: () => "The cursor is deleted" })])) : h("p", { class: "muted" }, "The stream has no named cursor."),
      own.length ? table("Subscribers", ["Subscriber", "Form", "State", "Behind"], own.map((c) => [bdi(c.client), c.form, c.state, bytes(Number(c.lag_bytes))])) : h("p", { class: "muted" }, "The stream has no subscriber."));
  }

  function showAccess({ token, scopes }) {
    may = scopes.includes("admin");
    const own = h("input", { name: "token", type: "password", autocomplete: "off", "aria-label": "Token" });
    access.replaceChildren(may ? "" : h("form", { class: "chip", onsubmit: (event) => {
      event.preventDefault();
      setToken(own.value.trim());
      location.reload();
    } }, token || hasToken() ? "This token permits reading, but no changes. Enter the admin token: "
      : "Reading needs no token. To change something, set auth_token_file under [millrace] and enter the token, or set allow_exit = yes under [api], [simplequeue] and [pubsub]: ", own, " ", h("button", {}, "Use it for this tab")));
    if (pipeline) draw(pipeline);
  }

  queues.head.append(share({ name: "queues", request: () => ({ path: "v1/pipeline", parameters: {} }), rows: () => shown }));
  const stops = [
    keepFresh(3600000, async (signal) => showAccess(await get("v1/access", {}, signal)), (error) => access.replaceChildren(h("p", { class: "error" }, error.message))),
    watchPipeline(draw, (error) => { queues.fail(error); streams.fail(error); }, { atMost: FRESH / 3 }),
  ];
  const again = (load, fail) => {
    let stop = keepFresh(FRESH, load, fail);
    return { stop: () => stop(), reload() { stop(); stop = keepFresh(FRESH, load, fail); } };
  };
  const parts = [again(loadBuried, buried.fail), again(loadStream, stream.fail)];
  reload = () => parts.forEach((part) => part.reload());
  return { element, stop() { stops.forEach((stop) => stop()); parts.forEach((part) => part.stop()); } };
}
