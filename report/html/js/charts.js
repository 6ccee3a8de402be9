// Figures one can point at: choose lines, seed band or single seeds, smoothing. The printed figure stays below for paper.
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

  // Columns for the chart: what is drawn for one line under the chosen options, back to front.
  function columns(line, { single, width }) {
    const seeds = Object.entries(line.seeds);
    const found = [];
    if (single && seeds.length > 1) {
      for (const [seed, values] of seeds) found.push({ name: `${line.title}, seed ${seed}`, values: smooth(values, width), role: "seed" });
      return found;
    }
    if (width > 1) found.push({ name: `${line.title}, as measured`, values: line.mean, role: "raw" });
    else if (seeds.length > 1) found.push({ values: line.low, role: "low" }, { values: line.high, role: "high" });
    found.push({ name: line.title, values: smooth(line.mean, width), role: "mean" });
    return found;
  }

  // Lowest and highest value that the panels of one quantity show: they share an axis. From 0 unless something is below.
  function range(panels, hidden, log) {
    const shown = panels.flatMap(({ lines }) => lines.filter((line) => !hidden.has(line.title)));
    const values = shown.flatMap((line) => Object.values(line.seeds).flat()).filter((value) => value !== null && !(log && value <= 0));
    if (values.length === 0) return log ? [0.1, 1] : [0, 1];
    const [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
    if (log) return [low / 1.1, high * 1.1];
    return [low < 0 ? low * 1.05 : 0, high > 0 ? high * 1.05 : low < 0 ? 0 : 1];
  }

  return { smooth, columns, range };
})();

{
  const { data, el } = bench;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toString());

  const faded = (text, share) => {
    const [red, green, blue] = [1, 3, 5].map((n) => Number.parseInt(text.slice(n, n + 2), 16));
    return `rgba(${red}, ${green}, ${blue}, ${share})`;
  };

  function panel({ title, label, bands: ranges, log, lines }, scale, options, hidden) {
    const shown = lines.filter((line) => !hidden.has(line.title));
    const rollouts = Math.max(1, ...lines.map((line) => line.mean.length));
    const table = [Array.from({ length: rollouts }, (_, n) => n + 1)];
    const series = [{}];
    const bands = [];
    for (const line of shown) {
      const stroke = colour(line.colour);
      for (const { values, role } of curves.columns(line, { ...options, single: options.single || !ranges })) {
        table.push(Array.from({ length: rollouts }, (_, n) => values[n] ?? null));
        const edge = role === "low" || role === "high";
        series.push({
          stroke: edge ? "transparent" : role === "mean" ? stroke : faded(stroke, role === "raw" ? 0.35 : 0.8),
          width: role === "mean" ? line.width : 1,
          dash: role === "raw" ? [2, 3] : line.dashes,
          points: { show: false },
        });
        if (role === "high") bands.push({ series: [series.length - 1, series.length - 2], fill: faded(stroke, 0.15) });
      }
    }
    const box = el("div", { class: "plot", tabindex: "0", role: "img", "aria-label": `${title}: ${shown.map((line) => line.title).join(", ") || "no line chosen"}. Left and right arrow read values.` });
    const readout = el("output", { class: "readout" });
    const say = (place) => {
      readout.textContent = place === null ? "" : `rollout ${place + 1}: ${shown.map((line) => `${line.title} ${plain(curves.smooth(line.mean, options.width)[place])}`).join(" · ")}`;
    };
    say(null);
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 0.6 }, ticks: { stroke: colour("--grid"), width: 0.6, size: 4 }, font: "12px system-ui, sans-serif" };
    let chart = null;
    const draw = () => {
      chart?.destroy();
      chart = new uPlot(
        {
          width: Math.max(240, box.clientWidth),
          height: box.closest(".many") ? 160 : 240,
          legend: { show: false },
          cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
          scales: { x: { time: false }, y: { distr: log ? 3 : 1, range: () => scale } },
          axes: [{ ...axis, grid: { show: false }, space: 40, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] }, { ...axis, size: 52, values: (_, ticks) => ticks.map((value) => plain(value)) }],
          series,
          bands,
          hooks: { setCursor: [({ cursor }) => say(cursor.idx ?? null)] },
        },
        table,
        box,
      );
    };
    let reading = -1;
    box.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || !chart) return;
      event.preventDefault();
      reading = Math.min(rollouts - 1, Math.max(0, reading + step));
      chart.setCursor({ left: chart.valToPos(reading + 1, "x"), top: 10 });
    });
    new ResizeObserver(() => box.clientWidth > 0 && draw()).observe(box);
    return el("div", { class: "panel" }, el("h3", {}, title, el("small", {}, ` ${label}`)), box, readout);
  }

  function figure(place) {
    const content = data.figures[place.dataset.figure];
    for (const line of content.panels.flatMap((one) => one.lines)) line.mean ??= Object.values(line.seeds)[0];
    const hidden = new Set();
    const options = { single: false, width: 1 };
    const grid = el("div", { class: content.panels.length > 4 ? "panels many" : "panels" });
    const draw = () => grid.replaceChildren(...content.panels.map((one) => {
        const alike = content.panels.filter((other) => other.quantity === one.quantity);
        return panel(one, curves.range(alike, hidden, one.log), options, hidden);
      }));
    const lines = content.panels.flatMap((one) => one.lines);
    const names = new Map(lines.filter((line) => !line.alone).map((line) => [line.title, line]));
    const several = content.panels.some((one) => one.bands) && lines.some((line) => Object.keys(line.seeds).length > 1);
    const toggles = [...names.values()].map((line) => {
      const button = el("button", { type: "button", class: "line", "aria-pressed": "true", style: `--c: var(${line.colour})` }, line.title);
      button.addEventListener("click", () => {
        const off = hidden.delete(line.title) === false;
        if (off) hidden.add(line.title);
        button.setAttribute("aria-pressed", String(!off));
        draw();
      });
      return button;
    });
    const choice = (label, values, set) => {
      const select = el("select", {}, ...values.map(([value, text]) => el("option", { value }, text)));
      select.addEventListener("change", () => {
        set(select.value);
        draw();
      });
      return el("label", {}, label, select);
    };
    const bar = el(
      "div",
      { class: "bar" },
      el("div", { class: "lines", role: "group", "aria-label": "Lines shown" }, ...toggles),
      several ? choice("Seeds", [["", "mean and range"], ["1", "one line each"]], (value) => Object.assign(options, { single: value === "1" })) : null,
      choice("Smoothing", [["1", "none"], ["3", "mean of last 3"], ["5", "mean of last 5"]], (value) => Object.assign(options, { width: Number(value) })),
    );
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    place.replaceChildren(bar, grid);
    place.hidden = false;
  }

  for (const place of document.querySelectorAll(".chart")) {
    const view = place.closest(".view");
    view.addEventListener("shown", () => place.childElementCount || figure(place));
  }
}
