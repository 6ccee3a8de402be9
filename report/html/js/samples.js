// The sample browser: two checkpoints on the same problems, disagreements first.
"use strict";

(() => {
  const { data, el, load } = bench;
  const root = document.getElementById("browser");
  if (!root) return;
  const view = document.getElementById("samples");
  const PAGE = 50;
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const controls = part("controls");
  const [list, detail, count, status] = ["list", "detail", "count", "status"].map(part);
  const checkpoints = data.samples.checkpoints; // path -> {title, benchmarks: {key: stamp}}
  let state = null; // what is shown, as in the address
  let found = []; // all pairs of the chosen checkpoints and benchmarks
  let chosen = []; // those that pass the filters
  let length = PAGE;
  let turn = 0; // only the last request may write

  // The right side has the left one's choices, after "nothing": once in the file.
  controls.elements.right.append(...[...controls.elements.left.children].map((group) => group.cloneNode(true)));

  const field = (name) => controls.elements[name];
  const number = (text) => (text === "" || Number.isNaN(Number(text)) ? null : Number(text));
  const percent = (right, all) => `${((100 * right) / all).toFixed(2)} %`;

  function read(query) {
    const known = (name, fallback) => (checkpoints[query.get(name)] ? query.get(name) : fallback);
    const left = known("left", data.samples.start);
    const right = query.get("right") === "none" ? "" : known("right", checkpoints[left].beside ?? "");
    return {
      left,
      right,
      benchmark: data.samples.benchmarks.includes(query.get("benchmark")) ? query.get("benchmark") : "",
      show: pairs.SHOWN[query.get("show")] ? query.get("show") : "all",
      verdict: pairs.VERDICTS[query.get("verdict")] ? query.get("verdict") : "",
      least: number(query.get("least") ?? ""),
      most: number(query.get("most") ?? ""),
      text: query.get("text") ?? "",
      raw: query.has("raw"),
      item: query.get("item") ?? "",
      take: [number(query.get("l") ?? ""), number(query.get("r") ?? "")],
    };
  }

  function hash() {
    const query = new URLSearchParams({ left: state.left, right: state.right || "none" });
    for (const name of ["benchmark", "verdict", "text", "item"]) if (state[name]) query.set(name, state[name]);
    if (state.show !== "all") query.set("show", state.show);
    if (state.raw) query.set("raw", "1");
    for (const name of ["least", "most"]) if (state[name] !== null) query.set(name, state[name]);
    for (const [side, name] of ["l", "r"].entries()) if (state.take[side] !== null) query.set(name, state.take[side]);
    return `#samples?${query}`;
  }

  // Not for who has gone on while responses were loading. The address tells first: the other view is shown later.
  function remember() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1).split("?")[0]));
    if (view.contains(target)) history.replaceState(null, "", hash());
  }

  function mirror() {
    for (const name of ["left", "right", "benchmark", "show", "verdict", "text"]) field(name).value = state[name];
    for (const name of ["least", "most"]) field(name).value = state[name] ?? "";
    field("raw").checked = state.raw;
  }

  async function index(path, benchmark) {
    const stamp = checkpoints[path]?.benchmarks[benchmark];
    if (!stamp) return null;
    const value = await load(`samples/${path}/${benchmark}`);
    if (value.stamp !== stamp) throw new Error(`${data.folder} belongs to another build of this report; write both again.`);
    return value;
  }

  async function gather(benchmark) {
    const [left, right, problems] = await Promise.all([
      index(state.left, benchmark),
      state.right ? index(state.right, benchmark) : null,
      load(`problems/${benchmark}`),
    ]);
    const known = new Map(problems.items.map(([id, problem, gold]) => [id, { problem, gold }]));
    const joined = pairs.join(benchmark, left ? pairs.items(left) : new Map(), right ? pairs.items(right) : null, known.keys());
    return joined.map((pair) => ({ ...pair, indexes: [left, right], known: known.get(pair.id) ?? null }));
  }

  const benchmarks = () => (state.benchmark ? [state.benchmark] : data.samples.benchmarks);

  async function texts(pair, side) {
    const item = [pair.left, pair.right][side];
    const [file, place] = pairs.whereabouts(pair.indexes[side], item.place);
    const path = [state.left, state.right][side];
    const [prompt, responses] = (await load(`samples/${path}/${pair.benchmark}.${file}`))[place];
    return { prompt, responses };
  }

  // Pairs whose problem or responses hold the words looked for. All texts of the choice are read once.
  async function containing(candidates, words, mine) {
    const needle = words.toLowerCase();
    const kept = [];
    for (const [n, pair] of candidates.entries()) {
      if (n % 40 === 0) {
        status.textContent = `Reading responses: ${n} of ${candidates.length} problems`;
        if (mine !== turn) return [];
      }
      let hit = pair.known?.problem.toLowerCase().includes(needle);
      for (const side of [0, 1]) {
        if (hit || ![pair.left, pair.right][side]) continue;
        const { prompt, responses } = await texts(pair, side);
        hit = [prompt, ...responses].some((text) => text.toLowerCase().includes(needle));
      }
      if (hit) kept.push(pair);
    }
    status.textContent = "";
    return kept;
  }

  async function refresh() {
    turn += 1;
    const mine = turn;
    mirror();
    try {
      const all = (await Promise.all(benchmarks().map(gather))).flat();
      if (mine !== turn) return;
      found = all;
      let kept = pairs.select(found, state);
      if (state.text) kept = await containing(kept, state.text, mine);
      if (mine !== turn) return;
      chosen = kept;
    } catch (error) {
      if (mine === turn) status.textContent = error.message;
      return;
    }
    status.textContent = "";
    length = PAGE;
    if (!chosen.some((pair) => key(pair) === state.item)) Object.assign(state, { item: chosen[0] ? key(chosen[0]) : "", take: [null, null] });
    draw();
  }

  const key = (pair) => `${pair.benchmark}/${pair.id}`;

  function draw() {
    remember();
    const sums = ["left", "right"].filter((side) => state[side]).map((side) => {
      const { right, all } = pairs.tally(found, side);
      return el("li", {}, el("b", {}, checkpoints[state[side]].title), all ? `: ${right} of ${all} right (${percent(right, all)})` : ": not evaluated");
    });
    const differing = found.filter((pair) => pair.gap !== 0).length;
    count.replaceChildren(
      el("ul", {}, ...sums),
      el("p", {}, `${chosen.length} of ${found.length} problems shown`, state.right ? `; the two differ on ${differing}.` : "."),
    );
    const rows = chosen.slice(0, length).map(row);
    const left = chosen.length - length;
    const more = left > 0 ? [el("button", { type: "button", onclick: longer }, `Show ${Math.min(PAGE, left)} more`)] : [];
    list.replaceChildren(el("ul", {}, ...rows), ...more);
    open();
  }

  function longer() {
    length += PAGE;
    draw();
  }

  function row(pair) {
    const text = pair.known?.problem ?? pair.id;
    const marks = [pair.left, pair.right].map((side) => (side ? mark(side) : el("span", { class: "mark none" }, "–")));
    if (!state.right) marks.pop();
    return el("li", {}, el(
      "button",
      { type: "button", "aria-pressed": String(key(pair) === state.item), onclick: () => pick(pair) },
      el("span", { class: "problem" }, typeset.visible(text.slice(0, 160))),
      el("small", {}, pair.benchmark),
      el("span", { class: "marks" }, ...marks),
    ));
  }

  function mark(side) {
    const right = Math.round(side.share * side.count);
    const kind = side.share === 1 ? "right" : side.share === 0 ? "wrong" : "mixed";
    const text = side.count === 1 ? (right ? "right" : "wrong") : `${right}/${side.count}`;
    return el("span", { class: `mark ${kind}` }, text);
  }

  function pick(pair) {
    Object.assign(state, { item: key(pair), take: [null, null] });
    remember();
    for (const button of list.querySelectorAll("li button")) button.setAttribute("aria-pressed", "false");
    list.querySelectorAll("li button")[chosen.indexOf(pair)]?.setAttribute("aria-pressed", "true");
    open();
  }

  async function open() {
    const pair = chosen.find((other) => key(other) === state.item);
    if (!pair) {
      detail.replaceChildren(el("p", { class: "note" }, "No problem passes these filters."));
      return;
    }
    const mine = turn;
    const wanted = [0, 1].filter((side) => [pair.left, pair.right][side]);
    try {
      const loaded = await Promise.all(wanted.map((side) => texts(pair, side)));
      if (mine !== turn || key(pair) !== state.item) return;
      const problem = el("div", { class: "text problem" });
      await typeset.fill(problem, pair.known?.problem ?? loaded[0].prompt, !state.raw);
      const gold = el("span", { class: "text" });
      await typeset.fill(gold, pair.known ? formula(pair.known.gold) : "not known to this report", !state.raw && Boolean(pair.known));
      const columns = await Promise.all(wanted.map((side, n) => column(pair, side, loaded[n])));
      if (mine !== turn || key(pair) !== state.item) return;
      detail.replaceChildren(
        el("h3", {}, "Problem ", el("code", {}, pair.id), el("small", {}, ` of ${pair.benchmark}`)),
        problem,
        el("p", { class: "gold" }, "Gold answer ", gold),
        el("div", { class: "sides" }, ...columns),
      );
    } catch (error) {
      status.textContent = error.message;
    }
  }

  const formula = (gold) => (/[\\^_]/.test(gold) && !gold.includes("$") ? `$${gold}$` : gold);

  async function column(pair, side, { prompt, responses }) {
    const item = [pair.left, pair.right][side];
    const path = [state.left, state.right][side];
    const n = Math.min(state.take[side] ?? pairs.hits(item, state)[0] ?? 0, item.count - 1);
    const body = el("div", { class: "text response", tabindex: "0", role: "group", "aria-label": "Response" });
    await typeset.fill(body, responses[n], !state.raw);
    const verdict = item.verdicts[n];
    const take = (m) => () => {
      state.take[side] = m;
      remember();
      open();
    };
    const strip = el("div", { class: "strip", role: "group", "aria-label": "Samples" }, ...[...item.verdicts].map((letter, m) =>
      el("button", { type: "button", class: letter === "c" ? "right" : "wrong", "aria-pressed": String(m === n), title: `sample ${m}: ${pairs.VERDICTS[letter]}`, "aria-label": `sample ${m}: ${pairs.VERDICTS[letter]}`, onclick: take(m) }),
    ));
    const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value));
    return el(
      "section",
      { class: "side" },
      el("h4", {}, checkpoints[path].title, el("small", {}, path)),
      item.count > 1 ? strip : null,
      el(
        "dl",
        {},
        fact("Verdict", el("b", { class: verdict === "c" ? "right" : "wrong" }, pairs.VERDICTS[verdict]), el("small", {}, ` rule: ${item.rules[n]}`)),
        ...item.graders.map(([name, letters, of]) => fact(name, el("b", { class: letters[n] === "c" ? "right" : "wrong" }, pairs.VERDICTS[letters[n]]), of[n] === null ? "" : el("code", {}, typeset.visible(of[n])))),
        fact("Extracted", item.extracted[n] === null ? "nothing" : el("code", {}, typeset.visible(item.extracted[n]))),
        fact("Length", item.tokens[n] === null ? "unknown" : `${item.tokens[n]} tokens`, `, ${pairs.STOPS[item.stops[n]]}`),
        item.count > 1 ? fact("Sample", `${n} of 0–${item.count - 1}; ${Math.round(item.share * item.count)} of ${item.count} right`) : null,
      ),
      body,
      el("details", {}, el("summary", {}, "What the model was given"), el("pre", {}, typeset.visible(prompt))),
    );
  }

  function changed(event) {
    const name = event.target.name;
    if (!name) return;
    const value = name === "raw" ? event.target.checked : event.target.value;
    state[name] = name === "least" || name === "most" ? number(value) : value;
    if (name === "raw") {
      remember();
      open();
    } else refresh();
  }

  function swap() {
    [state.left, state.right] = [state.right || state.left, state.left];
    state.take.reverse();
    refresh();
  }

  controls.addEventListener("change", changed);
  controls.addEventListener("submit", (event) => event.preventDefault());
  part("swap").addEventListener("click", swap);
  view.addEventListener("shown", (event) => {
    state = read(event.detail);
    refresh();
  });
})();
