// Keeps a page as things are now. An event stream tells what has changed; then <main> is fetched anew and merged into what stands there:
// focus, scroll, open details and forms that somebody has begun stay. Without this file every page works, as of when it was loaded.
"use strict";
(() => {
  const main = document.querySelector("main[data-live]"), button = document.getElementById("live"), said = document.getElementById("said");
  if (!main || !button || !window.EventSource) return;
  const parts = main.dataset.live.split(" ");
  let stream = null, busy = false, again = false, over = false, paused = sessionStorage.getItem("paused") === "yes";

  const show = (state, text) => { button.dataset.state = state; button.textContent = text; };
  const say = text => { if (text && said.textContent !== text) said.textContent = text; };
  const key = node => (node.dataset && node.dataset.key) || node.id || "";
  const alike = (a, b) => a.nodeName === b.nodeName && key(a) === key(b);
  const begun = form => "touched" in form.dataset || form.contains(document.activeElement);
  const drop = node => { if (!node.querySelector || !node.querySelector("form[data-touched]")) node.remove(); };

  function merge(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue; return; }
    if ("keep" in old.dataset || (old.nodeName === "FORM" && begun(old))) return;
    for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      let found = at;
      while (found && !alike(found, child)) found = found.nextSibling;
      if (!found) { old.insertBefore(child, at); continue; }
      if (found !== at && key(child)) old.insertBefore(found, at);
      else while (at !== found) { const gone = at; at = at.nextSibling; drop(gone); }
      if (found === at) at = at.nextSibling;
      merge(found, child);
    }
    while (at) { const gone = at; at = at.nextSibling; drop(gone); }
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.pathname + location.search, { cache: "no-store" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main[data-live]");
      if (fresh && !answer.redirected && !paused) {
        const focus = document.activeElement;
        merge(main, fresh);
        if (focus !== document.activeElement && main.contains(focus)) focus.focus({ preventScroll: true });
        say(main.dataset.say);
      }
    } catch { show("wait", "Waiting"); } finally {
      busy = false;
      if (again) { again = false; setTimeout(refresh, 1000); }
    }
  }

  function close() { if (stream) stream.close(); stream = null; }
  function open() {
    if (stream || paused || over || document.hidden) return;
    show("wait", "Waiting");
    stream = new EventSource("/events" + (main.dataset.of || ""));
    stream.onopen = () => { show("live", "Live"); refresh(); };
    stream.addEventListener("changed", e => { if (e.data.split(" ").some(p => parts.includes(p))) refresh(); });
    stream.addEventListener("ended", () => { over = true; close(); show("off", "Signed out"); say("The session is over: sign in again."); });
    stream.onerror = () => {
      show("wait", "Waiting");
      if (stream && stream.readyState === EventSource.CLOSED) { close(); setTimeout(open, 15000); }
    };
  }
  function pause(yes) {
    paused = yes;
    sessionStorage.setItem("paused", yes ? "yes" : "no");
    button.setAttribute("aria-pressed", String(!yes));
    if (yes) { close(); show("off", "Paused"); } else open();
  }

  main.addEventListener("input", e => { const form = e.target.form; if (form && form.method === "post") form.dataset.touched = ""; });
  button.addEventListener("click", () => { pause(!paused); say(paused ? "Updates are paused." : "Updates go on."); });
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", e => { if (e.persisted) open(); });
  button.hidden = false;
  pause(paused);
})();
