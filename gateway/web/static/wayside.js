// The page works without this file. With it, what is on the screen stays true: the gateway says that something has
// changed, the page is asked for again, and what differs is put in place. Nothing here knows what the page is about.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const PART = { headers: { "X-Wayside-Part": "1" } };

  // -- time: spans that go on, and countdowns, by the gateway's clock ----------------------------------------------
  let ahead = 0;
  const setClock = (body) => { if (body.dataset.now) ahead = Date.parse(body.dataset.now) - Date.now(); };
  const now = () => Date.now() + ahead;

  function span(ms) {
    const s = Math.max(0, Math.round(ms / 1000));
    if (s < 60) return `${s} s`;
    const m = Math.floor(s / 60);
    if (m < 60) return m < 5 && s % 60 ? `${m} min ${s % 60} s` : `${m} min`;
    const h = Math.floor(m / 60);
    if (h < 24) return m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
    const d = Math.floor(h / 24);
    return h % 24 && d < 7 ? `${d} d ${h % 24} h` : `${d} d`;
  }
  function ago(ms) {
    if (ms < 5000) return "just now";
    if (ms < 3600000) return ms < 60000 ? `${span(ms)} ago` : `${Math.floor(ms / 60000)} min ago`;
    return `${span(ms).split(" ").slice(0, 2).join(" ")} ago`;
  }
  function write(node, text) { if (node.textContent !== text) node.textContent = text; }
  function tick() {
    for (const time of $$("time[data-ago]")) {
      const at = Date.parse(time.dateTime);
      write(time, ago(now() - at));
      if (!time.title) time.title = new Date(at).toLocaleString();
    }
    for (const time of $$("time[data-until]")) {
      const left = Date.parse(time.dateTime) - now();
      write(time, left > 0 ? `${span(left)} left` : "over");
      if (!time.title) time.title = new Date(time.dateTime).toLocaleString();
    }
    for (const bar of $$("progress[data-to]")) {
      const from = Date.parse(bar.dataset.from), to = Date.parse(bar.dataset.to);
      bar.value = Math.min(1, Math.max(0, (to - now()) / (to - from || 1)));
    }
  }

  // -- what changed ------------------------------------------------------------------------------------------------
  // Bring `old` to what `fresh` is, keeping the nodes: focus, selection, open details and typed text stay.
  function morph(old, fresh) {
    if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
    if (old.nodeType !== Node.ELEMENT_NODE || old.hasAttribute("data-keep") || old.isEqualNode(fresh)) return;
    for (const { name } of [...old.attributes])
      if (!fresh.hasAttribute(name) && !(name === "open" || name === "title" || name === "value")) old.removeAttribute(name);
    for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const keyed = new Map([...old.children].filter((c) => c.dataset?.key).map((c) => [c.dataset.key, c]));
    const list = keyed.size > 0;
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const key = next.dataset?.key;
      const same = key ? keyed.get(key) : undefined;
      if (same) {
        if (same === at) at = at.nextSibling; else old.insertBefore(same, at);
        morph(same, next);
      } else if (at && !key && !at.dataset?.key && at.nodeName === next.nodeName) {
        const target = at; at = at.nextSibling; morph(target, next);
      } else {
        const added = document.importNode(next, true);
        if (key && list) added.classList.add("fresh");
        old.insertBefore(added, at);
      }
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  }

  let busy = false, again = false, took = 0, timer = 0;
  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    const begun = performance.now();
    try {
      const answer = await fetch(location.href, { ...PART, cache: "no-store" });
      if (answer.status === 401) { location.assign("/login"); return; }
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const region of $$("[data-region]")) {
        const next = fresh.getElementById(region.id);
        if (next) morph(region, next);
      }
      setClock(fresh.body);
      tick();
      say();
    } catch { /* the gateway is away: the stream says so, and when it is back */ } finally {
      took = performance.now() - begun;
      busy = false;
      if (again) { again = false; soon(); }
    }
  }
  // Never more than a fraction of the time is spent on reading again, however much happens.
  function soon() {
    if (timer) return;
    timer = setTimeout(() => { timer = 0; refresh(); }, Math.max(120, took * 3));
  }

  let said;
  function say() {
    const words = $("[data-say]")?.dataset.say;
    if (words && said !== undefined && words !== said) $("#say").textContent = words;
    said = words;
  }

  let stream;
  function listen() {
    const pulse = $("[data-pulse]");
    const show = (on) => { pulse.classList.toggle("on", on); pulse.title = on ? "Live" : "Not live"; $("span", pulse).textContent = pulse.title; };
    stream = new EventSource(document.body.dataset.live);
    stream.addEventListener("ready", () => { show(true); soon(); });
    stream.addEventListener("changed", soon);
    stream.addEventListener("over", () => location.assign("/login"));
    stream.onerror = () => {
      show(false);
      if (stream.readyState === EventSource.CLOSED) { stream = undefined; setTimeout(watch, 5000); }
    };
  }
  function watch() {
    if (!document.body.dataset.live) return;
    if (document.hidden) { stream?.close(); stream = undefined; } else if (!stream) listen();
  }

  // -- forms -------------------------------------------------------------------------------------------------------
  async function send(event) {
    const form = event.target.closest("form[data-inline]");
    if (!form) return;
    event.preventDefault();
    const button = $("button", form), output = $("output", form);
    button.disabled = true;
    try {
      const answer = await fetch(form.action, { ...PART, method: "POST", body: new URLSearchParams(new FormData(form)) });
      if (answer.status === 401) { location.assign("/login"); return; }
      const told = new DOMParser().parseFromString(await answer.text(), "text/html");
      output.replaceChildren(...[...told.body.childNodes].map((node) => document.importNode(node, true)));
      soon();
    } catch {
      output.textContent = "The gateway did not answer.";
    } finally { button.disabled = false; }
  }

  function theme(button) {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    button.hidden = false;
    button.addEventListener("click", () => {
      const root = document.documentElement;
      const shown = root.dataset.theme || (dark.matches ? "dark" : "light");
      root.dataset.theme = shown === "dark" ? "light" : "dark";
      document.cookie = `wayside_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
    });
  }

  document.documentElement.classList.add("scripted");
  setClock(document.body);
  tick();
  say();
  setInterval(() => { if (!document.hidden) tick(); }, 1000);
  setInterval(() => { if (!document.hidden && document.body.dataset.live) soon(); }, 20000);
  watch();
  document.addEventListener("visibilitychange", watch);
  document.addEventListener("submit", send);
  document.addEventListener("change", (event) => {
    const field = event.target;
    if (field.matches("[data-go]")) field.form.requestSubmit();
    if (field.dataset.samples) $(`#${field.dataset.samples}`).value = field.selectedOptions[0].dataset.sample;
  });
  // An open menu closes by Escape and by a click elsewhere.
  const menus = () => $$("details.drop[open], details.confirm[open]");
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const menu of menus()) { menu.open = false; $("summary", menu).focus(); }
  });
  document.addEventListener("click", (event) => { for (const menu of menus()) if (!menu.contains(event.target)) menu.open = false; });
  $$("[data-theme-toggle]").forEach(theme);
  for (const button of $$("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText($(`#${button.dataset.copy}`).textContent);
      button.textContent = "Copied";
    });
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
})();
