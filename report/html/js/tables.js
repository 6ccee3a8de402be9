// Tables that sort by a click on a heading, and what stands behind a number while one points at it.
"use strict";

const sorting = (() => {
  // A cell's value: its number without the interval and mark, else its text; nothing measured comes last either way.
  function value(cell) {
    if (cell?.classList.contains("none")) return null;
    const text = ((cell?.querySelector("a") ?? cell)?.textContent ?? "").trim();
    const number = Number(text.replace("−", "-").replace(/[%,]/g, ""));
    return text === "" || text === "–" ? null : Number.isNaN(number) ? text : number;
  }

  function compare(a, b, down) {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return down ? -order : order;
  }

  return { value, compare };
})();

{
  const { data, el } = bench;

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = el("button", { type: "button", class: "sort" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const next = { null: "descending", descending: "ascending", ascending: null }[now];
        for (const other of heads) other.removeAttribute("aria-sort");
        if (next) head.setAttribute("aria-sort", next);
        const free = rows.filter((row) => row.dataset.last === undefined);
        const sorted = next ? [...free].sort((a, b) => sorting.compare(sorting.value(a.cells[column]), sorting.value(b.cells[column]), next === "descending")) : free;
        body.append(...sorted, ...rows.filter((row) => row.dataset.last !== undefined));
        if (!next) body.append(...rows);
      });
    });
  }

  const panel = el("div", { id: "behind", hidden: true });
  document.body.append(panel);

  function show(link) {
    panel.replaceChildren(...link.dataset.behind.split(" ").map((number) => el("span", {}, data.behind[number])));
    panel.hidden = false;
    link.setAttribute("aria-describedby", panel.id);
    const [spot, size] = [link.getBoundingClientRect(), panel.getBoundingClientRect()];
    const above = spot.bottom + size.height + 12 > innerHeight && spot.top > size.height + 12;
    panel.style.left = `${Math.max(8, Math.min(spot.left, document.documentElement.clientWidth - size.width - 8))}px`;
    panel.style.top = `${above ? spot.top - size.height - 8 : spot.bottom + 8}px`;
  }

  function hide() {
    panel.hidden = true;
  }

  const link = (event) => event.target.closest?.("a[data-behind]");
  document.addEventListener("pointerover", (event) => (link(event) ? show(link(event)) : hide()));
  document.addEventListener("focusin", (event) => (link(event) ? show(link(event)) : hide()));
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  addEventListener("hashchange", hide);
  addEventListener("scroll", hide, { passive: true });
}
