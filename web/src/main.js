// Starts the page: the frame, and the view that the URL names.

import { startChanges, watchChanges } from "./changes.js";
import { byId, h } from "./dom.js";
import { clock, isToday, moment, plural } from "./format.js";
import { watchOld } from "./live_update.js";
import { overview } from "./overview.js";
import { daemonOf, startPipeline, watchPipeline } from "./pipeline_data.js";
import { problems } from "./problems.js";
import { address, onChange, read, zoneOf } from "./state.js";
import { get, hasToken } from "./api.js";

/** The name of each view, and how to load the function that makes it. */
const VIEWS = {
  overview: ["Overview", () => overview],
  key: ["Keys", async () => (await import("./key.js")).keyView],
  live: ["Live", async () => (await import("./live.js")).liveView],
  queues: ["Queues", async () => (await import("./queues.js")).queuesView],
  pipeline: ["Pipeline", async () => (await import("./pipeline.js")).pipelineView],
  metrics: ["Metrics", async () => (await import("./metrics.js")).metricsView],
};
const makers = { overview };
/** A frame on another page shows one view and changes nothing. */
const isEmbedded = read().embed === "1";
const EMBEDDED = ["overview", "key", "live"];
const nameOf = ({ view }) => (Object.hasOwn(VIEWS, view) && (!isEmbedded || EMBEDDED.includes(view)) ? view : "overview");
const THEMES = ["system", "light", "dark"];
const THEME = "millrace-theme";

let current = null;

let latest = null; // the answer of the view for which the head of the page says how fresh it is

/** Up to when the counts of an answer are complete, in the head of the page. */
function freshness(reply) {
  latest = reply;
  const zone = zoneOf(read());
  const until = reply.complete_until;
  const time = until && !reply.rows.every((row) => row.passed) ? ` until ${isToday(until, zone) ? clock(until, zone) : moment(until, zone)}` : "";
  byId("freshness").textContent = until ? `complete${time}${reply.approximate ? ", counts approximate" : ""}` : "completeness not known";
  byId("freshness").title = reply.held_by ? `held back by ${reply.held_by}` : "";
}

function navigation(chosen, state) {
  byId("nav").replaceChildren(...Object.entries(VIEWS).filter(([view]) => !permitted || permitted.includes(view)).map(([view, [name]]) =>
    h("a", { href: address({ view }, { zone: state.zone }), "aria-current": view === chosen ? "page" : null, hidden: view === "metrics" && view !== chosen && !hasMetrics }, name,
      view === "pipeline" ? h("span", { id: "trouble", class: "badge", hidden: true }) : null)));
  showTrouble();
}

let permitted = null; // the views that the token may open; null: all
let hasMetrics = false; // the pipeline has a metricdb
let troubles = 0;
let isOld = false; // the state of the pipeline

/** The number of problems, beside the view that names them. */
function showTrouble() {
  const badge = byId("trouble");
  if (!badge) return;
  badge.hidden = !troubles && !isOld;
  badge.textContent = isOld ? "?" : troubles;
  badge.title = isOld ? "The API does not answer" : plural(troubles, "problem", "problems");
}

/** Loads the function that makes a view. Another version of the page may have been installed since this one was loaded. */
async function load(name) {
  try {
    makers[name] = await VIEWS[name][1]();
  } catch {
    makers[name] = undefined;
    byId("view").replaceChildren(h("p", { class: "error" }, "This view cannot be loaded. "), h("button", { type: "button", onclick: () => location.reload() }, "Load the page again"));
    return;
  }
  if (nameOf(read()) === name) showView();
}

function showView() {
  const state = read();
  const name = nameOf(state);
  if (!makers[name]) {
    current?.stop();
    current = null;
    navigation(name, state);
    byId("view").replaceChildren();
    load(name);
    return;
  }
  const top = scrollY;
  const held = byId("view").contains(document.activeElement) ? document.activeElement : null;
  current?.stop();
  latest = null;
  byId("freshness").textContent = "";
  current = makers[name](state, { freshness });
  navigation(name, state);
  const subject = { key: state.key, metrics: state.metric }[name];
  document.title = `${subject ? `${subject.slice(0, 60)} – ` : ""}${VIEWS[name][0]} – millrace`;
  const view = byId("view");
  view.style.minHeight = `${view.offsetHeight}px`; // no jump while the next view loads
  view.replaceChildren(current.element);
  scrollTo(0, top);
  if (held) setTimeout(() => ((held.name && view.querySelector(`[name="${CSS.escape(held.name)}"]`)) || view).focus({ preventScroll: true }));
  setTimeout(() => { view.style.minHeight = ""; }, 1000);
}

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-label", `Theme: ${theme}`);
  byId("theme").title = `Theme: ${theme}`;
  localStorage.setItem(THEME, theme);
  current?.redraw?.();
}

document.documentElement.classList.toggle("embedded", isEmbedded);
byId("share").addEventListener("click", async () => (await import("./share_view.js")).shareView());
byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(localStorage.getItem(THEME) ?? "system") + 1) % THEMES.length]));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => current?.redraw?.());
setTheme(THEMES.find((theme) => theme === localStorage.getItem(THEME)) ?? "system");
onChange(showView);
startChanges();
showView();
if (hasToken())
  get("v1/access").then(({ views }) => {
    permitted = views;
    navigation(read().view, read());
  }, () => { /* the view's own requests show the failure */ });
watchPipeline((pipeline) => {
  troubles = problems(pipeline).length;
  if (hasMetrics !== Boolean(daemonOf(pipeline, "metricdb"))) {
    hasMetrics = !hasMetrics;
    byId("nav").querySelector("[href*='view=metrics']")?.toggleAttribute("hidden", !hasMetrics && read().view !== "metrics");
  }
  showTrouble();
});
watchOld("pipeline", (since) => {
  isOld = since !== null;
  showTrouble();
});
watchOld("view", (since) => byId("view").classList.toggle("old", since !== null));
watchChanges((event) => {
  if (event?.complete_until && latest?.complete_until) freshness({ ...latest, complete_until: event.complete_until });
});
startPipeline();
