// Learning curves: four on the overview; in the view of training any, which the reader chooses and points at.
"use strict";

const curves = (() => {
  // Mean of the last `width` known values at each place: a smoothed curve is never ahead of its data.
  function smooth(values, width) {
    if (width < 2) return values;
    return values.map((value, n) => {
      if (value === null) return null;
      const known = values.slice(Math.max(0, n - width + 1), n + 1).filter((other) => other !== null);
      return known.reduce((sum, other) => sum + other, 0) / known.length;
    });
  }

  // Columns for the chart: what is drawn for one line under the chosen options, back to front. Where a seed collapsed, each
  // is a line of its own, as in the picture: their mean ends with the first.
  function columns(line, { single, width }) {
    const seeds = Object.entries(line.seeds);
    const found = [];
    if ((single || Object.keys(line.ended ?? {}).length > 0) && seeds.length > 1) {
      for (const [seed, values] of seeds) found.push({ name: `${line.title}, seed ${seed}`, values: smooth(values, width), role: "seed" });
      return found;
    }
    if (width > 1) found.push({ name: `${line.title}, as measured`, values: line.mean, role: "raw" });
    else if (line.low) found.push({ values: line.low, role: "low" }, { values: line.high, role: "high" });
    else if (seeds.length > 1) found.push(...seeds.map(([, values]) => ({ values, role: "raw" })));
    found.push({ name: line.title, values: smooth(line.mean, width), role: "mean" });
    return found;
  }

  // Lowest and highest value of the axis for these lines. From 0 unless something is below.
  function range(lines, log) {
    const values = lines.flatMap((line) => Object.values(line.seeds).flat()).filter((value) => value !== null && !(log && value <= 0));
    if (values.length === 0) return log ? [0.1, 1] : [0, 1];
    const [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
    if (log) return [low / 1.1, high * 1.1];
    return [low < 0 ? low * 1.05 : 0, high > 0 ? high * 1.05 : low < 0 ? 0 : 1];
  }

  // Which look each chosen line has: the one that figures give it, the one it had, or the first that is free; `given` are the figures'.
  function looks(keys, preferred, before = new Map(), given = []) {
    const found = new Map();
    const free = (look) => look !== undefined && look !== null && ![...found.values()].includes(look);
    for (const wanted of [(key) => before.get(key), (key) => preferred.get(key)])
      for (const key of keys) if (!found.has(key) && free(wanted(key))) found.set(key, wanted(key));
    let next = 0;
    for (const key of keys) {
      if (found.has(key)) continue;
      while (!free(next) || given.includes(next)) next += 1;
      found.set(key, next);
    }
    return found;
  }

  return { smooth, columns, range, looks };
})();

{
  const { data, el } = bench;
  const HIGH = 240;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toString());
  const spread = (line, place) => {
    const [low, high] = [line.low?.[place], line.high?.[place]];
    return low === null || low === undefined ? "" : ` (${plain(low)} to ${plain(high)})`;
  };

  const faded = (text, share) => {
    const [red, green, blue] = [1, 3, 5].map((n) => Number.parseInt(text.slice(n, n + 2), 16));
    return `rgba(${red}, ${green}, ${blue}, ${share})`;
  };

  // A line as it is drawn: colour, dash, width.
  function swatch({ colour: name, dashes, width }) {
    const svg = document.getElementById("swatch").content.firstElementChild.cloneNode(true);
    const line = svg.firstElementChild;
    line.setAttribute("stroke-width", width);
    line.setAttribute("stroke-dasharray", dashes.join(" "));
    line.setAttribute("style", `stroke: var(${name})`);
    return svg;
  }

  // One plot. `group` holds the plots that share its crosshair; `at` gets the rollout under it, or null.
  function panel({ heading, label, lines }, scale, options, group, at) {
    const { log } = options;
    const rollouts = Math.max(1, ...lines.map((line) => line.mean.length));
    const table = [Array.from({ length: rollouts }, (_, n) => n + 1)];
    const series = [{}];
    const bands = [];
    const value = (number) => (number === null || number === undefined || (log && number <= 0) ? null : number);
    for (const line of lines) {
      const stroke = colour(line.colour);
      for (const { values, role } of curves.columns(line, options)) {
        table.push(Array.from({ length: rollouts }, (_, n) => value(values[n])));
        const edge = role === "low" || role === "high";
        series.push({
          stroke: role === "mean" ? stroke : faded(stroke, edge || role === "raw" ? 0.35 : 0.8),
          width: role === "mean" ? line.width : edge ? 0.6 : 1,
          dash: role === "raw" ? [2, 3] : edge ? [] : line.dashes,
          points: { show: false },
        });
        if (role === "high") bands.push({ series: [series.length - 1, series.length - 2], fill: faded(stroke, 0.07) });
      }
    }
    const names = lines.map((line) => line.title).join(", ") || "no line chosen";
    const box = el("div", { class: "plot", tabindex: "0", role: "img", "aria-label": `${heading}, ${label}, by rollout: ${names}. Left and right arrow read values, Escape ends.` });
    const spoken = el("output", { class: "spoken" }); // for who reads with the keyboard; the pointer would make it speak at every pixel
    const tip = el("div", { class: "tip", hidden: true });
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 0.6 }, ticks: { stroke: colour("--grid"), width: 0.6, size: 4 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 };
    let chart = null;
    let active = false; // of the plots under one crosshair, the one that is pointed at

    const words = (line, place) => `${plain(curves.smooth(line.mean, options.width)[place])}${options.width > 1 ? "" : spread(line, place)}`;
    const count = (line) => {
      const seeds = Object.keys(line.seeds).length;
      return `${seeds} seed${seeds === 1 ? "" : "s"}`;
    };
    function say(place) {
      at(place);
      tip.hidden = place === null || !active || lines.length === 0;
      if (tip.hidden) return;
      const rows = lines.map((line) => el("tr", {}, el("th", { scope: "row" }, swatch(line), ` ${line.title}`), el("td", {}, words(line, place)), el("td", {}, count(line))));
      tip.replaceChildren(el("b", {}, `rollout ${place + 1}`), el("small", {}, ` ${label}${options.width > 1 ? `, mean of last ${options.width}` : ""}`), el("table", {}, el("tbody", {}, ...rows)));
      const left = chart.valToPos(place + 1, "x") + chart.bbox.left / devicePixelRatio;
      const [begins, ends] = [-box.getBoundingClientRect().left, document.documentElement.clientWidth - box.getBoundingClientRect().left - tip.offsetWidth];
      tip.style.left = `${Math.max(begins, left + 14 > ends ? left - tip.offsetWidth - 14 : left + 14)}px`;
    }
    const draw = () => {
      chart?.destroy();
      chart = new uPlot(
        {
          width: Math.max(240, box.clientWidth),
          height: HIGH,
          legend: { show: false },
          cursor: { y: false, drag: { x: true, y: false }, points: { size: 6 }, sync: { key: group.key, setSeries: false, scales: ["x", null] } },
          scales: { x: { time: false }, y: { distr: log ? 3 : 1, range: () => scale } },
          axes: [
            { ...axis, grid: { show: false }, space: 40, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500], label: "step (one rollout)", size: 30 },
            { ...axis, size: 52, label, values: (_, ticks) => ticks.map((tick) => plain(tick)) },
          ],
          series,
          bands,
          hooks: { setCursor: [({ cursor }) => say(cursor.idx ?? null)] },
        },
        table,
        box,
      );
      box.append(tip);
    };
    let reading = -1;
    const read = (place) => {
      reading = place;
      for (const other of group.plots) other.point(place);
      spoken.textContent = place < 0 ? "" : `rollout ${place + 1}: ${lines.map((line) => `${line.title} ${words(line, place)}, ${count(line)}`).join("; ")}`;
    };
    const point = (place) => chart?.setCursor(place < 0 ? { left: -10, top: -10 } : { left: chart.valToPos(place + 1, "x"), top: 10 }, true, false);
    box.addEventListener("mouseenter", () => (active = true));
    box.addEventListener("mouseleave", () => {
      active = false;
      tip.hidden = true;
    });
    box.addEventListener("focus", () => (active = true));
    box.addEventListener("blur", () => {
      active = false;
      if (reading >= 0) read(-1);
    });
    box.addEventListener("keydown", (event) => {
      const place = { ArrowRight: Math.min(rollouts - 1, reading + 1), ArrowLeft: Math.max(0, reading - 1), Home: 0, End: rollouts - 1, Escape: -1 }[event.key];
      if (place === undefined || !chart) return;
      event.preventDefault();
      active = true;
      read(place);
    });
    const watch = new ResizeObserver(() => box.clientWidth > 0 && draw());
    watch.observe(box);
    group.plots.push({
      point,
      end: () => {
        watch.disconnect();
        chart?.destroy();
      },
    });
    return el("div", { class: "panel" }, heading.startsWith("(") ? el("h3", {}, heading) : null, box, spoken);
  }

  // Plots that are drawn; they share a crosshair.
  const plots = (key) => ({
    key,
    plots: [],
    renew() {
      for (const plot of this.plots.splice(0)) plot.end();
    },
  });
  const group = plots("plots");
  const redraw = {}; // by view
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => Object.values(redraw).forEach((draw) => draw()));
  const named = (lines) => el("ul", { class: "legend", "aria-label": "Lines drawn" }, ...lines.map((line) => el("li", {}, swatch(line), line.title)));

  // The overview's chart.
  function front(place, own) {
    const { front: lines, looks, given } = data.dynamics;
    const looksOfLines = curves.looks([...lines.keys()], new Map(lines.map((line, n) => [n, line.look])), new Map(), given);
    const drawn = lines.map((line, n) => ({ ...line, ...looks[looksOfLines.get(n) % looks.length], mean: Object.values(line.values.reward.seeds)[0], ...line.values.reward }));
    own.renew();
    place.replaceChildren(named(drawn), panel({ heading: "Reward while training", label: "% right", lines: drawn }, curves.range(drawn, false), { width: 1 }, own, () => {}));
  }

  const choice = (label, values, set, now = values[0][0]) => {
    const options = values.map(([value, text]) => el("option", { value, selected: value === now }, text));
    const select = el("select", { onchange: () => set(select.value) }, ...options);
    return el("label", {}, label, select);
  };

  const SMOOTHING = [["1", "none"], ["3", "mean of last 3"], ["5", "mean of last 5"]];

  const pressed = (button, on) => button.setAttribute("aria-pressed", String(on));

  // Every method of every model under every settings; the reader chooses, and the address keeps the choice.
  function dashboard(place, query) {
    const { panels, lines, models, variants, start, looks } = data.dynamics;
    const key = (line) => `${line.model} ${line.method} ${line.variant}`;
    const methods = [...new Map(lines.map((line) => [line.method, line])).values()].map((line) => [line.method, (lines.find((other) => other.method === line.method && !other.variant) ?? line).title]);
    const has = { model: models.filter(([name]) => lines.some((line) => line.model === name)), method: methods, variant: variants.filter(([name]) => lines.some((line) => line.variant === name)) };
    // Of the first model: those that figures have a look for, then the others, so that a method of one's own is among those shown.
    const there = methods.filter(([name]) => lines.some((line) => line.method === name && line.model === has.model[0]?.[0] && line.variant === has.variant[0]?.[0]));
    const ranked = (there.length ? there : [...methods]).sort(([a], [b]) => [a, b].map((name) => (lines.find((line) => line.method === name).look === null ? 1 : 0)).reduce((x, y) => x - y));
    const usual = { model: has.model.slice(0, 1), method: ranked.slice(0, start), variant: has.variant.slice(0, 1) };
    const chosen = {};
    for (const kind of Object.keys(has)) {
      const given = query.has(kind) ? query.getAll(kind).filter((name) => has[kind].some(([known]) => known === name)) : usual[kind].map(([name]) => name);
      chosen[kind] = new Set(given);
    }
    const all = [...new Set(lines.flatMap((line) => Object.keys(line.runs)))].sort((a, b) => a - b);
    const seed = all.includes(query.get("seed")) ? query.get("seed") : ""; // that seed alone
    const options = { seed, single: false, width: 1, log: false };
    const grid = el("div", { class: "panels dashboard" });
    const legend = el("div", {});
    const values = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Values at the crosshair" });
    let given = new Map();

    function draw() {
      const shown = lines.filter((line) => chosen.model.has(line.model) && chosen.method.has(line.method) && chosen.variant.has(line.variant));
      given = curves.looks(shown.map(key), new Map(shown.map((line) => [key(line), line.look])), given, data.dynamics.given);
      const name = (line) => [line.title, chosen.model.size > 1 && models.find(([model]) => model === line.model)[1], chosen.variant.size > 1 && line.variant && variants.find(([variant]) => variant === line.variant)[1]].filter(Boolean).join(", ");
      const drawn = shown.map((line) => ({ ...line, ...looks[given.get(key(line)) % looks.length], title: name(line) }));
      const of = (line, id) => {
        const numbers = line.values[id];
        if (!numbers) return null;
        if (!options.seed) return { ...line, ...numbers, mean: numbers.mean ?? Object.values(numbers.seeds)[0] };
        const own = numbers.seeds[options.seed];
        return own ? { ...line, seeds: { [options.seed]: own }, mean: own } : null;
      };
      const last = Math.max(0, ...drawn.flatMap((line) => Object.values(line.values).map((one) => (one.mean ?? Object.values(one.seeds)[0]).length))) - 1;
      let told = null;
      const tell = (rollout) => {
        const at = rollout ?? last;
        if (at === told) return;
        told = at;
        for (const [n, line] of drawn.entries())
          for (const [m, one] of panels.entries()) {
            const numbers = of(line, one.id);
            cells[n][m].textContent = numbers ? `${plain(numbers.mean[at])}${spread(numbers, at)}` : "none";
          }
        const what = options.seed ? `seed ${options.seed}.` : "mean over seeds, in brackets its 95 % interval.";
        caption.textContent = `Rollout ${at + 1}${rollout === null ? " (the last)" : ""}: ${what}`;
      };
      const cells = drawn.map(() => panels.map(() => el("td", {})));
      const caption = el("caption", {});
      const seeds = (line) => Object.entries(line.runs).filter(([seed]) => !options.seed || seed === options.seed).flatMap(([seed, run], n) => [n ? ", " : "", el("a", { href: `#${run}` }, seed), line.ended[seed] ? ` (collapsed at ${line.ended[seed]})` : ""]);
      const rows = drawn.map((line, n) => el("tr", {}, el("th", { scope: "row" }, swatch(line), ` ${line.title}`), el("td", {}, ...seeds(line)), ...cells[n]));
      const heads = panels.map(({ title, label }) => el("th", { scope: "col" }, title, el("small", {}, label)));
      values.replaceChildren(el("table", { class: "values" }, caption, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Line"), el("th", { scope: "col" }, "Seeds"), ...heads)), el("tbody", {}, ...rows)));
      if (drawn.length === 0) values.replaceChildren(el("p", { class: "note" }, "No line is chosen."));
      legend.replaceChildren(named(drawn));
      group.renew();
      grid.replaceChildren(...panels.map((one, n) => {
        const content = { ...one, heading: `(${"abcdefghijklmnopqrstuvwxyz"[n]}) ${one.title}`, lines: drawn.map((line) => of(line, one.id)).filter(Boolean) };
        return panel(content, curves.range(content.lines, options.log), options, group, tell);
      }));
      tell(null);
      const address = new URLSearchParams(Object.entries(chosen).flatMap(([kind, names]) => [...names].map((each) => [kind, each])));
      for (const kind of Object.keys(chosen)) if (chosen[kind].size === 0) address.append(kind, "-");
      if (options.seed) address.append("seed", options.seed);
      history.replaceState(null, "", `#dynamics?${address}`);
    }

    function chooser(kind, label) {
      const buttons = has[kind].map(([name, title]) => {
        const button = el("button", { type: "button", class: "line", "aria-pressed": String(chosen[kind].has(name)), "data-name": name }, title);
        button.addEventListener("click", () => {
          if (!chosen[kind].delete(name)) chosen[kind].add(name);
          pressed(button, chosen[kind].has(name));
          draw();
        });
        return button;
      });
      return el("div", { class: buttons.length < 2 ? null : "bar", hidden: buttons.length < 2 }, el("span", { class: "kind" }, label), el("div", { class: "lines", role: "group", "aria-label": label }, ...buttons));
    }
    const set = (changes) => {
      Object.assign(options, changes);
      draw();
    };
    const seeds = [["", "mean and 95 % interval"], ["each", "one line each"], ...all.map((name) => [name, `seed ${name} alone`])];
    place.replaceChildren(
      chooser("model", "Models"),
      chooser("method", "Methods"),
      chooser("variant", "Settings"),
      el(
        "div",
        { class: "bar" },
        all.length > 1 ? choice("Seeds", seeds, (value) => set({ single: value === "each", seed: value === "each" ? "" : value }), seed) : null,
        choice("Smoothing", SMOOTHING, (value) => set({ width: Number(value) })),
        choice("Axes", [["", "linear"], ["1", "logarithmic"]], (value) => set({ log: value === "1" })),
        el("span", { class: "note" }, "Drag over a plot to enlarge a part of it; a double click ends that."),
      ),
      legend,
      grid,
      el("h2", {}, "Values at the crosshair"),
      values,
    );
    place.hidden = false;
    draw();
    redraw.training = draw;
  }

  const first = document.getElementById("front");
  first?.closest(".view").addEventListener("shown", () => {
    redraw.overview ??= front.bind(null, first, plots("front"));
    if (first.childElementCount === 0) redraw.overview();
  });
  const place = document.getElementById("dashboard");
  place?.closest(".view").addEventListener("shown", ({ detail }) => {
    if (place.childElementCount === 0 || String(detail)) dashboard(place, detail);
  });
}
