// The page's scripts: one view at a time, tables that sort, charts, and the browser of responses.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

// Create an element. Strings become text, never markup: what a model wrote is shown and cannot act.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// --- Companion files -------------------------------------------------------------------------------------------------
// A page opened from disk may not fetch a file beside it, but may add it as a script, which calls `bench.arrived`.

const bench = (() => {
  const KEPT = 300; // unpacked companion files
  const waiting = new Map(); // name -> resolve
  const files = new Map(); // name -> promise of its value, oldest first
  const address = (name) => `${data.folder}/${name.split("/").map(encodeURIComponent).join("/")}`;
  const missing = (name) => new Error(`${address(name)} cannot be read. The folder ${data.folder} has to lie beside this file; run snakemake report to write both.`);
  // It was read and differs from what was written: cut, or a byte changed (gzip carries a checksum).
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
      const value = packed.then((text) => unpack(text).catch(() => Promise.reject(damaged(name))));
      value.catch(() => files.delete(name));
      files.set(name, value);
      if (files.size > KEPT) files.delete(files.keys().next().value);
    }
    return files.get(name);
  }

  function arrived(name, text) {
    const resolve = waiting.get(name);
    if (waiting.delete(name)) resolve(text);
  }

  return { load, arrived, script, address, damaged };
})();

// --- Tables ----------------------------------------------------------------------------------------------------------

const sorting = (() => {
  // A cell's value: its number without interval and mark, else its text; null for a cell without a measurement.
  function value(cell) {
    if (cell?.classList.contains("none")) return null;
    const text = ((cell?.querySelector("a, b") ?? cell)?.textContent ?? "").trim();
    const number = Number(text.replace("−", "-").replace(/[%,]/g, ""));
    return text === "" || text === "–" ? null : Number.isNaN(number) ? text : number;
  }

  // Order of two values; null comes last either way.
  function compare(a, b, down) {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return down ? -order : order;
  }

  return { value, compare };
})();

for (const table of document.querySelectorAll("table.sortable")) {
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = el("button", { type: "button", class: "sort" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const next = { null: "descending", descending: "ascending", ascending: null }[head.getAttribute("aria-sort")];
      for (const other of heads) other.removeAttribute("aria-sort");
      if (next) head.setAttribute("aria-sort", next);
      const free = rows.filter((row) => row.dataset.last === undefined); // differences and means stay below
      const sorted = free.toSorted((a, b) => sorting.compare(sorting.value(a.cells[column]), sorting.value(b.cells[column]), next === "descending"));
      table.tBodies[0].append(...(next ? [...sorted, ...rows.filter((row) => row.dataset.last !== undefined)] : rows));
    });
  });
}

// How a number was computed, shown while it is pointed at or has the focus.
{
  const panel = el("div", { id: "behind", role: "tooltip", hidden: true });
  document.body.append(panel);
  const show = (event) => {
    const link = event.target.closest?.("[data-behind]");
    panel.hidden = !link;
    if (!link) return;
    panel.replaceChildren(...link.dataset.behind.split(" ").map((number) => el("span", {}, data.behind[number])));
    link.setAttribute("aria-describedby", panel.id);
    const [spot, size] = [link.getBoundingClientRect(), panel.getBoundingClientRect()];
    const above = spot.bottom + size.height + 12 > innerHeight && spot.top > size.height + 12;
    panel.style.left = `${Math.max(8, Math.min(spot.left, document.documentElement.clientWidth - size.width - 8))}px`;
    panel.style.top = `${above ? spot.top - size.height - 8 : spot.bottom + 8}px`;
  };
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, show);
  document.addEventListener("keydown", (event) => event.key === "Escape" && (panel.hidden = true));
  for (const kind of ["hashchange", "scroll"]) addEventListener(kind, () => (panel.hidden = true), { passive: true });
}

// --- Charts ----------------------------------------------------------------------------------------------------------

{
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toString());

  // The interval over seeds behind a line, as long as the line is shown.
  const band = (lines) => (chart, place) => {
    const { low, high } = lines[place - 1] ?? {};
    if (!low) return;
    const edge = (values) => values.map((value, n) => (value === null ? null : [chart.valToPos(n + 1, "x", true), chart.valToPos(value, "y", true)])).filter(Boolean);
    chart.ctx.save();
    chart.ctx.globalAlpha = 0.13;
    chart.ctx.fillStyle = chart.series[place].stroke();
    chart.ctx.beginPath();
    for (const [x, y] of [...edge(low), ...edge(high).reverse()]) chart.ctx.lineTo(x, y);
    chart.ctx.fill();
    chart.ctx.restore();
  };

  // Draw one quantity. lines: {title, look, shown, mean, low, high}; charts with one `key` share crosshair and toggles.
  function draw(box, { title, label }, lines, key) {
    const rollouts = Math.max(1, ...lines.map((line) => line.mean.length));
    const steps = Array.from({ length: rollouts }, (_, n) => n + 1);
    const at = (values, n) => values?.[n] ?? null;
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 0.6 }, ticks: { stroke: colour("--grid"), width: 0.6, size: 4 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 };
    const series = lines.map((line) => ({
      label: line.title,
      show: line.shown,
      stroke: colour(line.look.colour),
      width: line.look.width,
      dash: line.look.dashes,
      points: { show: false },
      value: (_, value, __, n) => (n === null ? "–" : `${plain(value)}${at(line.low, n) === null ? "" : ` (${plain(line.low[n])} to ${plain(line.high[n])})`}`),
    }));
    const chart = new uPlot(
      {
        width: Math.max(240, box.clientWidth),
        height: 240,
        cursor: { y: false, drag: { x: true, y: false }, sync: { key, setSeries: true } },
        scales: { x: { time: false }, y: { range: (_, low, high) => [low < 0 ? low * 1.05 : 0, high > 0 ? high * 1.05 : 1] } },
        axes: [
          { ...axis, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500], label: "step (one rollout)", size: 30 },
          { ...axis, size: 52, label, values: (_, ticks) => ticks.map(plain) },
        ],
        series: [{ label: "rollout" }, ...series],
        legend: { markers: { dash: (_, n) => (lines[n - 1]?.look.dashes.length ? "dashed" : "solid") } },
        hooks: { drawSeries: [band(lines)] },
      },
      [steps, ...lines.map((line) => steps.map((_, n) => at(line.mean, n)))],
      box,
    );
    const names = lines.filter((line) => line.shown).map((line) => line.title).join(", ");
    chart.root.querySelector(".u-wrap").setAttribute("role", "img");
    chart.root.querySelector(".u-wrap").setAttribute("aria-label", `${title}, ${label}, by rollout: ${names}`);
    // The legend's entries are buttons for the keyboard too.
    for (const entry of [...chart.root.querySelectorAll(".u-legend .u-series > th")].slice(1)) {
      entry.tabIndex = 0;
      entry.addEventListener("keydown", (event) => event.key === "Enter" && entry.click());
    }
    return chart;
  }

  // Redraw `place` when its view is first shown, its width changes or the colours do. content: () -> [[panel, lines, box], ...]
  function keep(place, key, content) {
    let drawn = [];
    const renew = () => {
      for (const chart of drawn.splice(0)) chart.destroy();
      if (place.clientWidth === 0) return;
      const boxes = content();
      place.replaceChildren(...boxes.map(([panel, , box]) => el("section", { class: "panel" }, el("h3", {}, panel.title), box)));
      drawn = boxes.map(([panel, lines, box]) => draw(box, panel, lines, key));
    };
    let width = 0;
    new ResizeObserver(() => width !== (width = place.clientWidth) && renew()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renew);
    return renew;
  }

  const values = (lines, column) => lines.map((line) => ({ ...line, ...(line.values[column] ?? { mean: [] }) }));
  const { panels, lines, front } = data.dynamics ?? { panels: [], lines: [], front: [] };
  const plot = (panel, of) => [panel, values(of, panel.id), el("div", { class: "plot" })];

  const first = document.getElementById("front");
  if (first) keep(first, "front", () => [plot(panels[0], front)]);

  const dashboard = document.getElementById("dashboard");
  const controls = document.getElementById("choice");
  if (dashboard) {
    const renew = keep(dashboard, "dashboard", () => {
      const [model, variant] = ["model", "variant"].map((name) => controls.elements[name].value);
      const chosen = lines.filter((line) => line.model === model && line.variant === variant);
      return panels.filter((panel) => chosen.some((line) => line.values[panel.id])).map((panel) => plot(panel, chosen));
    });
    controls.addEventListener("change", renew);
  }
}

// --- Text of models --------------------------------------------------------------------------------------------------
// Shown as it is, with mathematics set by KaTeX and invisible characters made visible.

const typeset = (() => {
  const DELIMITERS = [
    ["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false],
    ...["align", "align*", "equation", "cases"].map((name) => [`\\begin{${name}}`, `\\end{${name}}`, true]),
  ].map(([left, right, display]) => ({ left, right, display }));
  const LONGEST = 60_000; // characters; above, setting mathematics would block the page
  // Control characters, and marks that change the direction of the text around them.
  const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;
  let library = null;

  const visible = (text) => text.replace(HIDDEN, (letter) => `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

  function katex() {
    library ??= new Promise((resolve, reject) => {
      document.head.append(el("link", { rel: "stylesheet", href: bench.address("math.css") }));
      bench.script("math.js", () => (window.renderMathInElement ? resolve() : reject(bench.damaged("math.js"))), reject);
    });
    return library;
  }

  // A box outside of mathematics is set too: tiny models write nothing else.
  const boxes = (text) => (/\$|\\[([]/.test(text) ? text : text.replace(/\\boxed\{[^{}]*\}/g, (box) => `\\(${box}\\)`));

  // Fill `element` with `text`. With `math` its formulas are set; a formula that KaTeX refuses stays as written.
  async function fill(element, text, math) {
    element.textContent = visible(text);
    if (!math || text.length > LONGEST || !/[$\\]/.test(text)) return;
    await katex();
    element.textContent = boxes(visible(text));
    renderMathInElement(element, { delimiters: DELIMITERS, throwOnError: false, trust: false, strict: "ignore", maxExpand: 500, maxSize: 20, errorColor: "inherit" });
  }

  return { fill, visible };
})();

// --- Responses: two checkpoints on the same problems -----------------------------------------------------------------

const pairs = (() => {
  const VERDICTS = { c: "correct", w: "wrong", n: "no answer", t: "truncated", u: "gold not readable", o: "timed out", e: "grading failed", "-": "unknown", graders: "graders differ" };
  const STOPS = { s: "ended by itself", l: "cut at the limit", u: "unknown" };

  // An index file as one entry per problem: id -> {id, file, place, count, verdicts, ...}
  function items(index) {
    const found = new Map();
    let first = 0;
    index.items.forEach((id, place) => {
      const end = first + index.per[place];
      const cut = (values) => values.slice(first, end);
      const file = index.begins.findLastIndex((begin) => begin <= place);
      found.set(id, {
        id, file, place: place - index.begins[file], count: end - first,
        verdicts: cut(index.verdicts), stops: cut(index.stops), tokens: cut(index.tokens), extracted: cut(index.extracted),
        graders: Object.entries(index.graders ?? {}).map(([name, of]) => [name, cut(of.verdicts), cut(of.extracted)]),
        rules: cut(index.rules).map((rule) => index.rule_names[rule]),
        right: [...cut(index.verdicts)].filter((letter) => letter === "c").length,
      });
      first = end;
    });
    return found;
  }

  const share = (side) => side.right / side.count;
  const sides = (pair) => pair.sides.filter(Boolean);

  // Problems that either side answered, in the order of `order` (ids); `right` may be null.
  function join(benchmark, left, right, order) {
    const ids = new Set([...order, ...left.keys(), ...(right?.keys() ?? [])]);
    return [...ids]
      .map((id) => ({ benchmark, id, sides: [left.get(id) ?? null, right?.get(id) ?? null] }))
      .filter((pair) => sides(pair).length > 0)
      .map((pair) => ({ ...pair, gap: sides(pair).length === 2 ? share(pair.sides[0]) - share(pair.sides[1]) : 0 }));
  }

  const SHOWN = {
    all: () => true,
    differ: (pair) => pair.gap !== 0,
    left: (pair) => pair.gap > 0,
    right: (pair) => pair.gap < 0,
    neither: (pair) => sides(pair).every((side) => side.right === 0),
    both: (pair) => sides(pair).every((side) => side.right === side.count),
  };

  // Whether graders of response `n` differ in calling it correct; an unknown verdict does not count.
  const differ = (side, n) => new Set(side.graders.filter(([, letters]) => letters[n] !== "-").map(([, letters]) => letters[n] === "c")).size > 1;

  // The responses of a side with the verdict; a problem is shown when one of either side has it.
  const hits = (side, verdict) => [...side.verdicts].map((_, n) => n).filter((n) => (verdict === "graders" ? differ(side, n) : !verdict || side.verdicts[n] === verdict));

  function select(list, { show, verdict }) {
    return list
      .filter((pair) => SHOWN[show](pair) && sides(pair).some((side) => hits(side, verdict).length > 0))
      .sort((a, b) => Math.abs(b.gap) - Math.abs(a.gap));
  }

  // Right responses over all of one side.
  const tally = (list, side) => list.map((pair) => pair.sides[side]).filter(Boolean)
    .reduce(({ right, all }, item) => ({ right: right + item.right, all: all + item.count }), { right: 0, all: 0 });

  return { VERDICTS, STOPS, SHOWN, items, join, hits, select, tally };
})();

if (document.getElementById("browser")) {
  const PAGE = 50;
  const view = document.getElementById("samples");
  const part = (name) => view.querySelector(`[data-part="${name}"]`);
  const [controls, list, detail, count, status] = ["controls", "list", "detail", "count", "status"].map(part);
  const { checkpoints, benchmarks, start } = data.samples; // path -> {title, beside, benchmarks: {key: stamp}}
  const FIELDS = { benchmark: "", show: "all", verdict: "", text: "" }; // name -> what the address leaves out
  let state = null; // what is shown, as in the address
  let found = []; // all pairs of the chosen checkpoints and benchmarks
  let chosen = []; // those that pass the filters
  let length = PAGE;
  let turn = 0; // only the last request may write
  const key = (pair) => `${pair.benchmark}/${pair.id}`;
  const paths = () => [state.left, state.right];

  // The right side has the left one's choices, after "nothing": once in the file.
  controls.elements.right.append(...[...controls.elements.left.children].map((group) => group.cloneNode(true)));

  function read(query) {
    const known = (name, choices, fallback) => (query.get(name) in choices ? query.get(name) : fallback);
    const left = known("left", checkpoints, start);
    const right = query.get("right") === "none" ? "" : known("right", checkpoints, checkpoints[left].beside ?? "");
    const benchmark = benchmarks.includes(query.get("benchmark")) ? query.get("benchmark") : "";
    const take = ["l", "r"].map((name) => (query.has(name) ? Number(query.get(name)) || 0 : null));
    return { left, right, benchmark, show: known("show", pairs.SHOWN, "all"), verdict: known("verdict", pairs.VERDICTS, ""), text: query.get("text") ?? "", raw: query.has("raw"), item: query.get("item") ?? "", take };
  }

  // Keep the choice in the address, unless the reader has gone on while responses were loading: the address changes
  // before the view does.
  function remember() {
    if (!view.contains(document.getElementById(decodeURIComponent(location.hash.slice(1).split("?")[0])))) return;
    const query = new URLSearchParams({ left: state.left, right: state.right || "none" });
    for (const [name, usual] of Object.entries({ ...FIELDS, item: "" })) if (state[name] !== usual) query.set(name, state[name]);
    if (state.raw) query.set("raw", "1");
    for (const [side, name] of ["l", "r"].entries()) if (state.take[side] !== null) query.set(name, state.take[side]);
    history.replaceState(null, "", `#samples?${query}`);
  }

  async function index(path, benchmark) {
    const stamp = checkpoints[path]?.benchmarks[benchmark];
    if (!stamp) return null;
    const value = await bench.load(`samples/${path}/${benchmark}`);
    if (value.stamp !== stamp) throw new Error(`${data.folder} belongs to another build of this report; run snakemake report to write both again.`);
    return pairs.items(value);
  }

  async function gather(benchmark) {
    const [left, right, problems] = await Promise.all([...paths().map((path) => index(path, benchmark)), bench.load(`problems/${benchmark}`)]);
    const known = new Map(problems.items.map(([id, problem, gold]) => [id, { problem, gold }]));
    return pairs.join(benchmark, left ?? new Map(), right, known.keys()).map((pair) => ({ ...pair, known: known.get(pair.id) ?? null }));
  }

  async function texts(pair, side) {
    const { file, place } = pair.sides[side];
    const [prompt, responses] = (await bench.load(`samples/${paths()[side]}/${pair.benchmark}.${file}`))[place];
    return { prompt, responses };
  }

  // Pairs whose problem or responses contain the words; every text of the choice is read once.
  async function containing(candidates, words, mine) {
    const has = (text) => text.toLowerCase().includes(words.toLowerCase());
    const kept = [];
    for (const [n, pair] of candidates.entries()) {
      if (n % 40 === 0) status.textContent = `Reading responses: ${n} of ${candidates.length} problems`;
      if (mine !== turn) return [];
      let hit = pair.known && has(pair.known.problem);
      for (const side of [0, 1].filter((side) => pair.sides[side] && !hit)) {
        const { prompt, responses } = await texts(pair, side);
        hit ||= [prompt, ...responses].some(has);
      }
      if (hit) kept.push(pair);
    }
    return kept;
  }

  async function refresh() {
    const mine = (turn += 1);
    for (const name of ["left", "right", ...Object.keys(FIELDS)]) controls.elements[name].value = state[name];
    controls.elements.raw.checked = state.raw;
    try {
      const all = (await Promise.all((state.benchmark ? [state.benchmark] : benchmarks).map(gather))).flat();
      let kept = pairs.select(all, state);
      if (state.text && mine === turn) kept = await containing(kept, state.text, mine);
      if (mine !== turn) return;
      [found, chosen, length] = [all, kept, PAGE];
    } catch (error) {
      if (mine === turn) status.textContent = error.message;
      return;
    }
    status.textContent = "";
    if (!chosen.some((pair) => key(pair) === state.item)) Object.assign(state, { item: chosen[0] ? key(chosen[0]) : "", take: [null, null] });
    draw();
  }

  function draw() {
    remember();
    const sums = paths().map((path, side) => {
      if (!path) return null;
      const { right, all } = pairs.tally(found, side);
      return el("li", {}, el("b", {}, checkpoints[path].title), all ? `: ${right} of ${all} right (${((100 * right) / all).toFixed(2)} %)` : ": not evaluated");
    });
    const differing = found.filter((pair) => pair.gap !== 0).length;
    count.replaceChildren(el("ul", {}, ...sums), el("p", {}, `${chosen.length} of ${found.length} problems shown`, state.right ? `; the two differ on ${differing}.` : "."));
    const left = chosen.length - length;
    const more = () => { length += PAGE; draw(); };
    list.replaceChildren(el("ul", {}, ...chosen.slice(0, length).map(row)), left > 0 ? el("button", { type: "button", onclick: more }, `Show ${Math.min(PAGE, left)} more`) : "");
    open();
  }

  function row(pair) {
    const mark = (side) => {
      if (!side) return el("span", { class: "mark none" }, "–");
      const kind = side.right === side.count ? "right" : side.right === 0 ? "wrong" : "mixed";
      return el("span", { class: `mark ${kind}` }, side.count > 1 ? `${side.right}/${side.count}` : kind);
    };
    const pick = () => { Object.assign(state, { item: key(pair), take: [null, null] }); draw(); };
    return el("li", {}, el(
      "button", { type: "button", "aria-pressed": String(key(pair) === state.item), onclick: pick },
      el("span", { class: "problem" }, typeset.visible((pair.known?.problem ?? pair.id).slice(0, 160))),
      el("small", {}, pair.benchmark),
      el("span", { class: "marks" }, ...pair.sides.slice(0, state.right ? 2 : 1).map(mark)),
    ));
  }

  async function open() {
    const pair = chosen.find((other) => key(other) === state.item);
    if (!pair) return detail.replaceChildren(el("p", { class: "note" }, "No problem passes these filters."));
    const mine = turn;
    const wanted = [0, 1].filter((side) => pair.sides[side]);
    try {
      const loaded = await Promise.all(wanted.map((side) => texts(pair, side)));
      const problem = el("div", { class: "text problem" });
      const gold = el("span", { class: "text" });
      await typeset.fill(problem, pair.known?.problem ?? loaded[0].prompt, !state.raw);
      await typeset.fill(gold, pair.known ? formula(pair.known.gold) : "not known to this report", !state.raw && Boolean(pair.known));
      const columns = await Promise.all(wanted.map((side, n) => column(pair, side, loaded[n])));
      if (mine !== turn || key(pair) !== state.item) return;
      detail.replaceChildren(
        el("h3", {}, "Problem ", el("code", {}, pair.id), el("small", {}, ` of ${pair.benchmark}`)), problem,
        el("p", { class: "gold" }, "Gold answer ", gold), el("div", { class: "sides" }, ...columns),
      );
    } catch (error) {
      status.textContent = error.message;
    }
  }

  const formula = (gold) => (/[\\^_]/.test(gold) && !gold.includes("$") ? `$${gold}$` : gold);

  async function column(pair, side, { prompt, responses }) {
    const item = pair.sides[side];
    const path = paths()[side];
    const n = Math.min(state.take[side] ?? pairs.hits(item, state.verdict)[0] ?? 0, item.count - 1);
    const body = el("div", { class: "text response", tabindex: "0", role: "group", "aria-label": "Response" });
    await typeset.fill(body, responses[n], !state.raw);
    const take = (m) => () => { state.take[side] = m; remember(); open(); };
    const strip = [...item.verdicts].map((letter, m) => {
      const label = `sample ${m}: ${pairs.VERDICTS[letter]}`;
      return el("button", { type: "button", class: letter === "c" ? "right" : "wrong", "aria-pressed": String(m === n), title: label, "aria-label": label, onclick: take(m) });
    });
    const verdict = (letter) => el("b", { class: letter === "c" ? "right" : "wrong" }, pairs.VERDICTS[letter]);
    const code = (text) => (text === null ? "nothing" : el("code", {}, typeset.visible(text)));
    const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value));
    return el(
      "section", { class: "side" },
      el("h4", {}, checkpoints[path].title, el("small", {}, path)),
      item.count > 1 ? el("div", { class: "strip", role: "group", "aria-label": "Samples" }, ...strip) : null,
      el("dl", {},
        fact("Verdict", verdict(item.verdicts[n]), el("small", {}, ` rule: ${item.rules[n]}`)),
        ...item.graders.map(([name, letters, of]) => fact(name, verdict(letters[n]), " ", of[n] === null ? "" : code(of[n]))),
        fact("Extracted", code(item.extracted[n])),
        fact("Length", item.tokens[n] === null ? "unknown" : `${item.tokens[n]} tokens`, `, ${pairs.STOPS[item.stops[n]]}`),
        item.count > 1 ? fact("Sample", `${n} of 0–${item.count - 1}; ${item.right} of ${item.count} right`) : null,
      ),
      body,
      el("details", {}, el("summary", {}, "Prompt"), el("pre", {}, typeset.visible(prompt))),
    );
  }

  controls.addEventListener("change", ({ target: { name, type, checked, value } }) => {
    state[name] = type === "checkbox" ? checked : value;
    refresh();
  });
  controls.addEventListener("submit", (event) => event.preventDefault());
  part("swap").addEventListener("click", () => {
    [state.left, state.right] = [state.right || state.left, state.left];
    state.take.reverse();
    refresh();
  });
  view.addEventListener("shown", ({ detail: query }) => {
    state = read(query);
    refresh();
  });
}

// --- Views: one at a time, chosen by the part of the address behind `#`; without scripts all are shown ----------------

{
  const views = [...document.querySelectorAll(".view")];
  const title = document.title;

  function show(moved) {
    const [path, query = ""] = location.hash.slice(1).split(/\?(.*)/s); // `#samples?left=a`
    const target = document.getElementById(decodeURIComponent(path)) ?? views[0];
    const view = target.closest(".view") ?? views[0];
    for (const other of views) other.classList.toggle("here", other === view);
    for (const link of document.querySelectorAll("#rooms a")) link.setAttribute("aria-current", link.hash === `#${view.id}` ? "page" : "false");
    const heading = view.querySelector("h1, h2");
    document.title = view === views[0] ? title : `${heading.firstChild.textContent.trim()} · ${title}`;
    view.dispatchEvent(new CustomEvent("shown", { detail: new URLSearchParams(query) }));
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
}
