// One view of the page at a time, chosen by the part of the address behind `#`. Without this script all are shown.
"use strict";

(() => {
  const { data } = bench;
  const views = [...document.querySelectorAll(".view")];
  const title = document.title;

  // `#samples?left=a` -> ["samples", URLSearchParams]
  function parse(hash) {
    const [path, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
    return [decodeURIComponent(path), new URLSearchParams(query)];
  }

  function show(moved) {
    const [path, query] = parse(location.hash);
    const target = document.getElementById(path || data.start) ?? document.getElementById(data.start);
    const view = target.closest(".view") ?? views[0];
    for (const other of views) other.classList.toggle("here", other === view);
    const room = view.dataset.room ?? view.id;
    for (const link of document.querySelectorAll("#rooms a")) {
      if (link.hash === `#${room}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const heading = view.querySelector("h1, h2");
    document.title = view.id === data.start ? title : `${heading.firstChild.textContent.trim()} · ${title}`;
    view.dispatchEvent(new CustomEvent("shown", { detail: query }));
    for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    if (!moved) return;
    if (target === view) scrollTo(0, 0);
    else target.scrollIntoView();
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }

  addEventListener("hashchange", () => show(true));
  addEventListener("load", () => {
    document.documentElement.classList.add("js");
    show(location.hash.length > 1);
  });
})();
