// Counts the visits of a web site. docs/guide/website.md describes the attributes of the <script> element.
//
// 1. The script stores nothing in the browser and reads nothing stored there: no cookie, no storage, no identifier.
// 2. The only global name is `millrace`. No error reaches the page, because each function that the browser calls catches its errors.
// 3. An event has no time, because the clock of a visitor may be wrong. The API adds the time of arrival.
// 4. A view is counted once for each path that the visitor reaches: at the load, after a change of the history, and when the browser shows
//    a page again that it has kept. A page that loads in the background or before its time is counted when it becomes visible.
//
// The syntax is that of ES5: an old browser reports no syntax error to the page. The build removes comments, indentation and line
// ends (minify.sed), and replaces the path of the events at the end.
(function (w, d, n, events) {
  var old = w.millrace || {};
  var script = d.currentScript;
  if (!script || old.on) return;
  var data = script.dataset;
  var url = script.src.replace(/[^/]*([?#].*)?$/, events);
  var at = w.location;
  var from = d.referrer;
  var last; // path of the last view

  function bare(host) {
    return host.replace(/^www\./, "");
  }

  function hash() {
    return "hash" in data ? at.hash : "";
  }

  // The fragment of an app's address may have a query of its own: #/cart?id=5.
  function param(name) {
    return new URLSearchParams(at.search + "&" + hash().split("?")[1]).get(name);
  }

  function list(text) {
    return text ? text.split(/[\s,]+/) : [];
  }

  function path() {
    var query = list(data.query).filter(param).map(function (name) {
      return name + "=" + param(name);
    }).join("&");
    return at.pathname.replace(/(.)\/+$/, "$1") + (query && "?" + query) + hash().replace(/[?&=].*/, "");
  }

  // As a path has no slash at its end, /admin and /admin/ mean the same, and /admin/* includes both.
  function skips(path) {
    return list(data.exclude).some(function (p) {
      return new RegExp("^" + p.replace(/[^\w*]/g, "\\$&").replace(/\*/g, ".*") + "/?$").test(path + "/");
    });
  }

  function send(body) {
    try {
      if (n.sendBeacon(url, body)) return;
    } catch (e) {}
    fetch(url, { method: "POST", body: body, keepalive: true, mode: "no-cors" }).catch(function () {});
  }

  // A phone is known by its shorter side, which stays the same when it is turned. A browser refuses bodies over 64 KB, and a character has up
  // to 3 bytes.
  function track(name, more) {
    var width = screen.width, event = {
      target: null, event: name, site: data.site || bare(at.hostname), path: path(),
      screen: Math.min(width, screen.height) < 500 ? "phone" : width < 1100 ? "tablet" : width < 1600 ? "laptop" : "desktop"
    };
    if (name == "view") {
      event.referrer = from && bare(from.split("/")[2]) != bare(at.host) ? from.replace(/[?#].*/, "").replace("//www.", "//") : null;
      from = "";
      list("source,medium,campaign,term,content").forEach(function (key) {
        event["utm_" + key] = param("utm_" + key) || (key == "source" && (param(key) || param("ref"))) || null;
      });
    }
    for (var key in more) /^(event|site|time)$/.test(key) || (event[key] = more[key]);
    if (!name || !at.hostname || n.webdriver || skips(event.path) || ("dnt" in data && (n.doNotTrack == 1 || n.globalPrivacyControl))) return;
    var body = JSON.stringify(event);
    body.length > 2e4 ? console.warn("too large", event) : send(body);
  }

  function safe(f) {
    return function (a, b) {
      try {
        f(a, b);
      } catch (e) {}
    };
  }

  var view = safe(function (e) {
    if (e && e.persisted) last = 0;
    if (d.visibilityState == "hidden" || last == path()) return;
    last = path();
    track("view");
  });

  // Links to another host and to files, clicked with the left or the middle button or from the keyboard. Only links have a protocol.
  var click = safe(function (e) {
    var link = e.composedPath().filter(function (node) {
      return /^http/.test(node.protocol);
    })[0];
    if (e.button > 1) return;
    var isOwn = bare(link.host) == bare(at.host);
    var isFile = link.hasAttribute("download") ||
      /\.(7z|apk|csv|deb|dmg|docx?|epub|exe|gz|iso|mov|mp[34]|msi|od[st]|pdf|pkg|pptx?|rar|rpm|tar|tgz|txt|wav|xlsx?|xz|zip)$/i.test(link.pathname);
    if (isFile || !isOwn) track(isFile ? "download" : "outbound", { target: (isOwn ? "" : link.origin) + link.pathname });
  });

  function watch(name) {
    var change = history[name];
    history[name] = function () {
      change.apply(this, arguments);
      view();
    };
  }

  w.millrace = safe(track);
  w.millrace.on = 1;
  (old.q || []).forEach(function (call) {
    w.millrace.apply(0, call);
  });
  w.addEventListener("click", click, true);
  w.addEventListener("auxclick", click, true);
  if ("manual" in data) return;
  watch("pushState");
  watch("replaceState");
  w.addEventListener("popstate", view);
  w.addEventListener("pageshow", view);
  d.addEventListener("visibilitychange", view);
  view();
})(window, document, navigator, "events");
