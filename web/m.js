// Counts the visits of a web site. docs/guide/website.md describes the attributes of the <script> element.
//
// 1. The script stores nothing in the browser and reads nothing stored there: no cookie, no storage, no identifier.
// 2. The only global name is `millrace`. No error reaches the page, because each function that the browser calls catches its errors.
// 3. An event has no time, because the clock of a visitor may be wrong. The API adds the time of arrival.
// 4. A view is counted once for each path that the visitor reaches: at the load, after a change of the history, and when the browser shows
//    a page again that it has kept. A page that loads in the background or before its time is counted when it becomes visible.
//
// The syntax is that of ES5: an old browser reports no syntax error to the page. The build removes comments and indentation, and replaces
// the path of the events in the last line.
(function (w, d, n, events) {
  var old = w.millrace || {};
  var script = d.currentScript;
  if (!script || old.on) return;
  var data = script.dataset;
  var url = script.src.replace(/[^/]*([?#].*)?$/, events);
  var at = w.location;
  var referrer = d.referrer;
  var last; // path of the last view

  function bare(host) {
    return host.replace(/^www\./, "");
  }

  function parameter(name) {
    return new URLSearchParams(at.search).get(name);
  }

  function list(text) {
    return text ? text.split(/[\s,]+/) : [];
  }

  function path() {
    var query = list(data.query).filter(parameter).map(function (name) {
      return name + "=" + parameter(name);
    }).join("&");
    return at.pathname + (query && "?" + query) + ("hash" in data ? at.hash : "");
  }

  function isExcluded(path) {
    return list(data.exclude).some(function (pattern) {
      return new RegExp("^" + pattern.replace(/[^\w*]/g, "\\$&").replace(/\*/g, ".*") + "$").test(path);
    });
  }

  function send(body) {
    try {
      if (n.sendBeacon(url, body)) return;
    } catch (e) {}
    fetch(url, { method: "POST", body: body, keepalive: true, mode: "no-cors" }).catch(function () {});
  }

  // A phone is known by its shorter side, which stays the same when it is turned.
  function screenClass(size) {
    return Math.min(size.width, size.height) < 500 ? "phone" : size.width < 1100 ? "tablet" : size.width < 1600 ? "laptop" : "desktop";
  }

  function track(name, members) {
    var event = { event: name, site: data.site || bare(at.hostname), path: path(), screen: screenClass(screen) };
    if (name == "view") {
      if (referrer && bare(referrer.split("/")[2]) != bare(at.host)) event.referrer = referrer.replace(/[?#].*/, "");
      referrer = "";
      ["source", "medium", "campaign", "term", "content"].forEach(function (key) {
        if (parameter((key = "utm_" + key))) event[key] = parameter(key);
      });
    }
    for (var key in members) event[key] = members[key];
    if (isExcluded(event.path) || ("dnt" in data && (n.doNotTrack == 1 || n.globalPrivacyControl))) return;
    send(JSON.stringify(event));
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

  // Links to another host and to files, clicked with the left or the middle button or from the keyboard.
  var click = safe(function (e) {
    var link = e.composedPath().filter(function (node) {
      return node.matches && node.matches("a[href],area[href]");
    })[0];
    if (!/^http/.test(link.protocol) || e.button > 1) return;
    var isOwn = bare(link.host) == bare(at.host);
    var isFile = link.hasAttribute("download") ||
      /\.(7z|apk|csv|deb|dmg|docx?|epub|exe|gz|iso|mov|mp[34]|msi|od[st]|pdf|pkg|pptx?|rar|rpm|tar|tgz|txt|wav|xlsx?|xz|zip)$/i.test(link.pathname);
    if (isFile || !isOwn) track(isFile ? "download" : "outbound", { target: (isOwn ? "" : link.origin) + link.pathname });
  });

  function watch(name) {
    var change = history[name];
    history[name] = function () {
      var result = change.apply(this, arguments);
      view();
      return result;
    };
  }

  w.millrace = safe(track);
  w.millrace.on = 1;
  (old.q || []).forEach(function (call) {
    w.millrace(call[0], call[1]);
  });
  d.addEventListener("click", click, true);
  d.addEventListener("auxclick", click, true);
  if ("manual" in data) return;
  watch("pushState");
  watch("replaceState");
  w.addEventListener("popstate", view);
  w.addEventListener("pageshow", view);
  d.addEventListener("visibilitychange", view);
  view();
})(window, document, navigator, "events");
