// Keeps a page up to date: asks for it again, and changes what is different in place, so that focus, selection and what a
// screen reader is at stay. Without this script the page reloads itself now and then, and all of it works.
"use strict";
(() => {
  const EVERY_MS = 2000;
  const away = document.getElementById("away");
  let shownAt = new Date();
  let asking = null;
  let timer = 0;

  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.id : "");

  const alike = (old, fresh) =>
    old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

  function takeAttributes(old, fresh) {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }

  function become(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.matches("input, select")) return; // what somebody types or chooses is theirs
    takeAttributes(old, fresh);
    const known = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
    let next = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const mine = known.get(keyOf(child));
      if (mine && mine !== next) old.insertBefore(mine, next);
      const found = mine || next;
      if (found && alike(found, child) && (mine || !known.has(keyOf(found)))) {
        become(found, child);
        next = found.nextSibling;
      } else {
        old.insertBefore(child, next);
      }
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  }

  function show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const focused = document.activeElement;
    for (const id of ["main", "foot"]) become(document.getElementById(id), fresh.getElementById(id));
    if (focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true }); // it moved
    document.title = fresh.title;
    shownAt = new Date();
    away.hidden = true;
  }

  async function ask() {
    clearTimeout(timer);
    if (asking) asking.abort();
    const mine = (asking = new AbortController());
    try {
      const answer = await fetch(location.href, { signal: mine.signal, cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const text = await answer.text();
      if (mine === asking) show(text);
    } catch (error) {
      if (mine !== asking) return;
      document.getElementById("away-since").textContent = shownAt.toLocaleTimeString();
      away.hidden = false;
    }
    if (mine === asking && !document.hidden) timer = setTimeout(ask, EVERY_MS);
  }

  const search = document.querySelector("[data-search]");
  if (search) {
    const go = () => {
      const chosen = new URLSearchParams([...new FormData(search)].filter(([, value]) => value));
      history.replaceState(null, "", `${location.pathname}${chosen.size ? "?" : ""}${chosen}`);
      ask();
    };
    search.addEventListener("input", go);
    search.addEventListener("submit", (event) => {
      event.preventDefault();
      go();
    });
  }

  if (document.body.dataset.live === "yes") {
    document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : ask()));
    timer = setTimeout(ask, EVERY_MS);
  }
})();
