// Starts the page: the frame, and the view that the URL names.

import { byId, h } from "./dom.js";
import { clock, isToday, moment, plural } from "./format.js";
import { keyView } from "./key.js";
import { liveView } from "./live.js";
import { watchOld } from "./live_update.js";
import { metricsView } from "./metrics.js";
import { overview } from "./overview.js";
import { pipelineView } from "./pipeline.js";
import { daemonOf, startPipeline, watchPipeline } from "./pipeline_data.js";
import { problems } from "./problems.js";
import { queuesView } from "./queues.js";
import { shareView } from "./share_view.js";
import { address, onChange, read, zoneOf } from "./state.js";
import { get, hasToken } from "./api.js";

const VIEWS = { overview: ["Overview", overview], key: ["Keys", keyView], live: ["Live", liveView], queues: ["Queues", queuesView], pipeline: ["Pipeline", pipelineView],
  metrics: ["Metrics", metricsView] };
/** A frame on another page shows one view and changes nothing. */
const isEmbedded = read().embed === "1";
const EMBEDDED = ["overview", "key", "live"];
const THEMES = ["system", "light", "dark"];
const THEME = "millrace-theme";

let current = null;

/** Up to when the counts of an answer are complete, in the head of the page. */
function freshness(reply) {
  const zone = zoneOf(read());
  const until = reply.complete_until;
  const time = until && !reply.rows.every((row) => row.passed) ? ` until ${isToday(until, zone) ? clock(until, zone) : moment(until, zone)}` : "";
  byId("freshness").textContent = until ? `${reply.approximate ? "approximate" : "complete"}${time}` : "completeness not known";
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

function showView() {
  const state = read();
  const name = Object.hasOwn(VIEWS, state.view) && (!isEmbedded || EMBEDDED.includes(state.view)) ? state.view : "overview";
  const top = scrollY;
  const held = byId("view").contains(document.activeElement) ? document.activeElement : null;
  current?.stop();
  byId("freshness").textContent = "";
  current = VIEWS[name][1](state, { freshness });
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
byId("share").addEventListener("click", shareView);
byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(localStorage.getItem(THEME) ?? "system") + 1) % THEMES.length]));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => current?.redraw?.());
setTheme(THEMES.find((theme) => theme === localStorage.getItem(THEME)) ?? "system");
onChange(showView);
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
startPipeline();
