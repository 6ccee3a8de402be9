// The page's scripts: one view at a time, charts, and the browser of responses.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// Create an element. Strings become text, never markup: model output is displayed, not interpreted.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// --- Companion files -------------------------------------------------------------------------------------------------
// A page opened from disk cannot fetch a file beside it, but can add it as a script, which calls `bench.arrived`.

const bench = (() => {
  const waiting = new Map(); // name -> resolve
  const files = new Map(); // name -> promise of its value
  const address = (name) => `${data.folder}/${name.split("/").map(encodeURIComponent).join("/")}`;
  const missing = (name) => new Error(`${address(name)} cannot be read. The folder ${data.folder} has to lie beside this file; run snakemake report to write both.`);
  // The file was read, but is cut or changed (gzip carries a checksum).
  const damaged = (name) => new Error(`${address(name)} is damaged: run snakemake report to write it again.`);

  function script(name, done, failed) {
    document.head.append(el("script", { src: address(name), onload: done, onerror: () => failed(missing(name)) }));
  }

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }

  function load(name) {
    if (!files.has(name)) {
      const packed = new Promise((resolve, reject) => {
        waiting.set(name, resolve);
        script(`${name}.js`, () => waiting.delete(name) && reject(damaged(name)), reject);
      });
      files.set(name, packed.then((text) => unpack(text).catch(() => Promise.reject(damaged(name)))));
      files.get(name).catch(() => files.delete(name));
    }
    return files.get(name);
  }

  const arrived = (name, text) => waiting.get(name)?.(text) ?? waiting.delete(name);

  return { load, arrived, script, address, damaged };
})();

// --- Charts ----------------------------------------------------------------------------------------------------------

{
  const SHOWN = 6; // lines at first; more are distinguishable, but not readable at a glance
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toString());

  // Draw one quantity, with three series per line: mean, low, high. Charts of one `key` share crosshair and toggles.
  function draw(box, panel, lines, key) {
    const values = lines.map((line) => line.values[panel.id] ?? { mean: [], low: [], high: [] });
    const steps = Array.from({ length: Math.max(1, ...values.map(({ mean }) => mean.length)) }, (_, n) => n + 1);
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 0.6 }, ticks: { stroke: colour("--grid"), width: 0.6, size: 4 }, labelSize: 18 };
    const series = lines.flatMap(({ title, look }, place) => {
      const { low, high } = values[place];
      const interval = (n) => ((low[n] ?? null) === null ? "" : ` (${plain(low[n])} to ${plain(high[n])})`);
      const edge = { class: "edge", label: title, show: place < SHOWN, width: 0, points: { show: false } };
      return [{ ...edge, class: "line", stroke: colour(look.colour), width: look.width, dash: look.dashes, value: (_, value, __, n) => plain(value) + (n === null ? "" : interval(n)) }, edge, edge];
    });
    const names = (chart) => [...chart.root.querySelectorAll(".u-legend .line .u-label")];
    const toggle = (chart, n, { show }) => {
      if (show === undefined || show === null || n % 3 !== 1) return;
      for (const end of [n + 1, n + 2]) chart.setSeries(end, { show });
      names(chart)[(n - 1) / 3].ariaPressed = show;
    };
    const reachable = (chart) => names(chart).forEach((name, place) => Object.assign(name, { tabIndex: 0, role: "button", ariaPressed: place < SHOWN }));
    return new uPlot(
      {
        width: Math.max(240, box.clientWidth),
        height: 240,
        cursor: { y: false, drag: { x: true, y: false }, sync: { key, setSeries: true } },
        scales: { x: { time: false }, y: { range: (_, low, high) => [low < 0 ? low * 1.05 : 0, high > 0 ? high * 1.05 : 1] } },
        axes: [
          { ...axis, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500], label: "step (one rollout)", size: 30 },
          { ...axis, size: 52, label: panel.label, values: (_, ticks) => ticks.map(plain) },
        ],
        series: [{ label: "rollout" }, ...series],
        bands: lines.map(({ look }, place) => ({ series: [3 * place + 3, 3 * place + 2], fill: `color-mix(in srgb, ${colour(look.colour)} 13%, transparent)` })),
        hooks: { setSeries: [toggle], ready: [reachable] },
      },
      [steps, ...values.flatMap(({ mean, high, low }) => [mean, low, high].map((ends) => steps.map((_, n) => ends[n] ?? null)))],
      box,
    );
  }

  // Redraw `place` when its view is first shown, or its width or the colours change. content: () -> [panels, lines]
  function keep(place, content) {
    let drawn = [];
    let width = 0;
    const renew = () => {
      for (const chart of drawn.splice(0)) chart.destroy();
      if (place.clientWidth === 0) return;
      const [panels, lines] = content();
      const boxes = panels.map(() => el("div", { class: "plot" }));
      place.replaceChildren(...panels.map(({ title }, n) => el("section", { class: "panel" }, el("h3", {}, title), boxes[n])));
      drawn = panels.map((panel, n) => draw(boxes[n], panel, lines, place.id));
    };
    new ResizeObserver(() => width !== (width = place.clientWidth) && renew()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renew);
    return renew;
  }

  // uPlot's legend reacts to clicks only.
  addEventListener("keydown", (event) => {
    if (!event.target.matches(".u-label") || !["Enter", " "].includes(event.key)) return;
    event.preventDefault();
    event.target.click();
  });

  const { panels, lines, front } = data.dynamics ?? {};
  if (byId("front")) keep(byId("front"), () => [panels.slice(0, 1), front.map((place) => lines[place])]);
  if (byId("dashboard")) {
    const controls = byId("choice");
    const renew = keep(byId("dashboard"), () => {
      const [model, settings] = ["model", "settings"].map((name) => controls.elements[name].value);
      const chosen = lines.filter((line) => line.model === model && line.settings === settings);
      return [panels.filter((panel) => chosen.some((line) => line.values[panel.id])), chosen];
    });
    controls.addEventListener("change", renew);
  }
}

// --- Model output: shown as written, with invisible characters made visible ------------------------------------------

// Control characters, and marks that change the direction of the text around them.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;
const visible = (text) => text.replace(HIDDEN, (letter) => `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

// --- Responses: two checkpoints on the same problems -----------------------------------------------------------------

// A pair is a problem with the answers of each side: {benchmark, id, sides: [item or null, item or null], gap}.
const pairs = (() => {
  const count = (item) => item.verdict.length;
  const right = (item) => item.verdict.filter((one) => one === "correct").length;
  const there = (pair) => pair.sides.filter(Boolean);
  const gap = (a, b) => (a && b ? right(a) / count(a) - right(b) / count(b) : 0);
  const hits = (item, verdict) => item.verdict.flatMap((one, n) => (verdict === "" || one === verdict ? [n] : []));
  const SHOWN = {
    all: () => true,
    differ: (pair) => pair.gap !== 0,
    left: (pair) => pair.gap > 0,
    right: (pair) => pair.gap < 0,
    neither: (pair) => there(pair).every((item) => right(item) === 0),
  };

  // Problems that either side answered, in the order of `order` (ids).
  function join(benchmark, left, other, order) {
    const [a, b] = [left, other].map((items) => new Map(items.map((item) => [item.id, item])));
    return [...new Set([...order, ...a.keys(), ...b.keys()])]
      .map((id) => ({ benchmark, id, sides: [a.get(id) ?? null, b.get(id) ?? null], gap: gap(a.get(id), b.get(id)) }))
      .filter((pair) => there(pair).length > 0);
  }

  const select = (list, { show, verdict }) => list
    .filter((pair) => SHOWN[show](pair) && there(pair).some((item) => hits(item, verdict).length > 0))
    .sort((a, b) => Math.abs(b.gap) - Math.abs(a.gap));

  // Count the right responses of one side, and all.
  function tally(list, side) {
    const items = list.map((pair) => pair.sides[side]).filter(Boolean);
    const sum = (of) => items.reduce((total, item) => total + of(item), 0);
    return { right: sum(right), all: sum(count) };
  }

  return { count, right, join, hits, select, tally };
})();

if (byId("controls")) {
  const PAGE = 50;
  const [view, form, list, detail, count, status] = ["samples", "controls", "list", "detail", "count", "status"].map(byId);
  const { checkpoints, benchmarks, start } = data.samples; // path -> {title, beside, benchmarks: {key: stamp}}
  const ENDS = { stop: "ended", length: "cut at the limit", unknown: "end unknown" };
  const kind = (verdict) => (verdict === "correct" ? "right" : "wrong");
  const USUAL = { benchmark: "", show: "all", verdict: "" }; // what the address leaves out
  let state = null; // what is shown, as in the address; l and r: the sample of a side
  let chosen = []; // pairs that pass the filters
  let turn = 0; // only the last request may write
  const key = (pair) => `${pair.benchmark}/${pair.id}`;
  const paths = () => [state.left, state.right];

  // The right side offers "nothing", then the left one's choices: the file lists them once.
  form.elements.right.append(...[...form.elements.left.children].map((choice) => choice.cloneNode(true)));

  function read(query) {
    state = { ...USUAL, item: "", l: "", r: "", ...Object.fromEntries(query) };
    if (!(state.left in checkpoints)) state.left = start;
    if (!(state.right in checkpoints) && state.right !== "none") state.right = checkpoints[state.left].beside ?? "none";
    for (const name of ["left", "right", "benchmark", "show", "verdict"]) {
      form.elements[name].value = state[name];
      if (form.elements[name].value !== state[name]) state[name] = form.elements[name].value = USUAL[name]; // no such choice
    }
  }

  // Keep the choice in the address, unless the reader left the view while responses were loading: the address changes
  // before the view does.
  function remember() {
    if (!view.contains(byId(decodeURIComponent(location.hash.slice(1).split("?")[0])))) return;
    const query = Object.entries(state).filter(([name, value]) => value !== (USUAL[name] ?? ""));
    history.replaceState(null, "", `#samples?${new URLSearchParams(query)}`);
  }

  async function index(path, benchmark) {
    const stamp = checkpoints[path]?.benchmarks[benchmark];
    if (!stamp) return [];
    const value = await bench.load(`samples/${path}/${benchmark}`);
    if (value.stamp !== stamp) throw new Error(`${data.folder} belongs to another build of this report; run snakemake report to write both again.`);
    return value.items;
  }

  async function gather(benchmark) {
    const [left, right, problems] = await Promise.all([...paths().map((path) => index(path, benchmark)), bench.load(`problems/${benchmark}`)]);
    const known = new Map(problems.map(([id, problem, gold]) => [id, { problem, gold }]));
    return pairs.join(benchmark, left, right, known.keys()).map((pair) => ({ ...pair, known: known.get(pair.id) ?? null }));
  }

  // A side's [prompt, [response, ...]] of a problem.
  const texts = async (pair, side) => (await bench.load(`samples/${paths()[side]}/${pair.benchmark}.${pair.sides[side].file}`))[pair.sides[side].place];

  async function refresh() {
    const mine = (turn += 1);
    try {
      const found = (await Promise.all((state.benchmark ? [state.benchmark] : benchmarks).map(gather))).flat();
      if (mine !== turn) return;
      chosen = pairs.select(found, state);
      if (!chosen.some((pair) => key(pair) === state.item)) Object.assign(state, { item: chosen[0] ? key(chosen[0]) : "", l: "", r: "" });
      const sums = paths().filter((path) => path !== "none").map((path, side) => {
        const { right, all } = pairs.tally(found, side);
        return el("li", {}, el("b", {}, checkpoints[path].title), all ? `: ${right} of ${all} right (${((100 * right) / all).toFixed(2)} %)` : ": not evaluated");
      });
      const differing = found.filter((pair) => pair.gap !== 0).length;
      count.replaceChildren(el("ul", {}, ...sums), el("p", {}, `${chosen.length} of ${found.length} problems shown${state.right === "none" ? "" : `; the two sides differ on ${differing}`}.`));
      status.textContent = "";
      enumerate(PAGE);
      await open();
    } catch (error) {
      if (mine === turn) status.textContent = error.message;
    }
  }

  function enumerate(length) {
    const more = el("button", { type: "button", onclick: () => { enumerate(length + PAGE); open(); } }, `Show ${PAGE} more`);
    list.replaceChildren(el("ul", {}, ...chosen.slice(0, length).map(row)), chosen.length > length ? more : "");
  }

  function row(pair) {
    const mark = (item) => {
      if (!item) return el("span", { class: "mark none" }, "–");
      const [right, all] = [pairs.right(item), pairs.count(item)];
      const kind = right === all ? "right" : right === 0 ? "wrong" : "mixed";
      return el("span", { class: `mark ${kind}` }, all > 1 ? `${right}/${all}` : kind);
    };
    const pick = () => { Object.assign(state, { item: key(pair), l: "", r: "" }); open(); };
    return el("li", {}, el(
      "button", { type: "button", "data-item": key(pair), onclick: pick },
      el("span", { class: "problem" }, visible((pair.known?.problem ?? pair.id).slice(0, 160))),
      el("small", {}, pair.benchmark),
      el("span", { class: "marks" }, ...pair.sides.slice(0, state.right === "none" ? 1 : 2).map(mark)),
    ));
  }

  // Show the problem `state.item` with a response of each side.
  async function open() {
    status.textContent = "";
    remember();
    for (const button of list.querySelectorAll("[data-item]")) button.setAttribute("aria-pressed", button.dataset.item === state.item);
    const pair = chosen.find((other) => key(other) === state.item);
    if (!pair) return detail.replaceChildren(el("p", { class: "note" }, "No problem passes these filters."));
    const mine = turn;
    try {
      const loaded = await Promise.all([0, 1].filter((side) => pair.sides[side]).map(async (side) => [side, await texts(pair, side)]));
      const problem = visible(pair.known?.problem ?? loaded[0][1][0]);
      const gold = visible(pair.known?.gold ?? "unknown");
      const columns = loaded.map(([side, text]) => column(pair, side, text));
      if (mine !== turn || key(pair) !== state.item) return;
      detail.replaceChildren(
        el("h3", {}, "Problem ", el("code", {}, pair.id), el("small", {}, ` of ${pair.benchmark}`)), el("div", { class: "text" }, problem),
        el("p", { class: "gold" }, "Gold answer ", el("span", { class: "text" }, gold)), el("div", { class: "sides" }, ...columns),
      );
    } catch (error) {  // a companion file is missing or damaged
      status.textContent = error.message;
      detail.replaceChildren();
    }
  }

  function column(pair, side, [prompt, responses]) {
    const [item, path, name] = [pair.sides[side], paths()[side], "lr"[side]];
    const [all, right] = [pairs.count(item), pairs.right(item)];
    const n = Math.min(state[name] === "" ? pairs.hits(item, state.verdict)[0] ?? 0 : Number(state[name]) || 0, all - 1);
    const body = el("div", { class: "text response", tabindex: "0", role: "group", "aria-label": "Response" }, visible(responses[n]));
    const strip = item.verdict.map((verdict, m) => {
      const label = `sample ${m}: ${verdict.replace("_", " ")}`;
      const take = () => { state[name] = String(m); open(); };
      return el("button", { type: "button", class: kind(verdict), "aria-pressed": m === n, title: label, "aria-label": label, onclick: take });
    });
    const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value));
    return el(
      "section", { class: "side" },
      el("h4", {}, checkpoints[path].title, el("small", {}, path)),
      all > 1 ? el("div", { class: "strip", role: "group", "aria-label": "Samples" }, ...strip) : null,
      el("dl", {},
        fact("Verdict", el("b", { class: kind(item.verdict[n]) }, item.verdict[n].replace("_", " ")), el("small", {}, ` rule: ${item.rule[n]}`)),
        fact("Extracted", item.extracted[n] === null ? "nothing" : el("code", {}, visible(item.extracted[n]))),
        fact("Length", item.tokens[n] === null ? "unknown" : `${item.tokens[n]} tokens`, `, ${ENDS[item.stop[n]]}`),
        all > 1 ? fact("Sample", `${n} of 0–${all - 1}; ${right} of ${all} right`) : null,
      ),
      body,
      item.whole?.[n] ? el("p", { class: "note" }, "Shortened in the middle. ", el("a", { href: bench.address(item.whole[n]) }, "The whole response")) : null,
      el("details", {}, el("summary", {}, "Prompt"), el("pre", {}, visible(prompt))),
    );
  }

  form.addEventListener("change", ({ target: { name, value } }) => {
    state[name] = value;
    refresh();
  });
  view.addEventListener("shown", ({ detail: query }) => {
    read(query);
    refresh();
  });
}

// --- Views: one at a time, chosen by the part of the address behind `#`; without scripts all are shown ----------------

{
  const views = [...document.querySelectorAll(".view")];

  function show(moved) {
    const [path, query = ""] = location.hash.slice(1).split(/\?(.*)/s); // `#samples?left=a`
    const target = byId(decodeURIComponent(path)) ?? views[0];
    const view = target.closest(".view") ?? views[0];
    for (const other of views) other.classList.toggle("here", other === view);
    for (const link of document.querySelectorAll("#rooms a")) link.setAttribute("aria-current", link.hash === `#${view.id}` ? "page" : "false");
    const heading = view.querySelector("h1, h2");
    view.dispatchEvent(new CustomEvent("shown", { detail: new URLSearchParams(query) }));
    for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    if (!moved) return;
    if (target === view) scrollTo(0, 0);
    else target.scrollIntoView();
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }

  addEventListener("hashchange", () => show(true));
  addEventListener("load", () => show(location.hash.length > 1));
}
