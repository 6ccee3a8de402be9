// Text of a model or a benchmark: shown as it is, mathematics in it set by KaTeX, invisible characters made visible.
"use strict";

const typeset = (() => {
  const { el, script, address, damaged } = bench;
  const DELIMITERS = [
    ["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false],
    ["\\begin{align}", "\\end{align}", true], ["\\begin{align*}", "\\end{align*}", true],
    ["\\begin{equation}", "\\end{equation}", true], ["\\begin{cases}", "\\end{cases}", true],
  ].map(([left, right, display]) => ({ left, right, display }));
  const LONGEST = 60_000; // characters; above, setting mathematics would hold the page up
  // Controls, and marks that change the direction of what stands around them.
  const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;
  let library = null;

  function visible(text) {
    return text.replace(HIDDEN, (letter) => `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  }

  function katex() {
    library ??= new Promise((resolve, reject) => {
      document.head.append(el("link", { rel: "stylesheet", href: address("math.css") }));
      const check = () => (window.renderMathInElement ? resolve() : reject(damaged("math.js")));
      script("math.js", check, reject);
    });
    return library;
  }

  // A box outside of mathematics is set too: tiny models write nothing else.
  function boxes(text) {
    return text.includes("$") || text.includes("\\(") || text.includes("\\[")
      ? text
      : text.replace(/\\boxed\{[^{}]*\}/g, (box) => `\\(${box}\\)`);
  }

  // Fill `element` with `text`; with `math` its formulas are set, and what KaTeX refuses stays as written.
  async function fill(element, text, math) {
    element.textContent = visible(text);
    if (!math || text.length > LONGEST || !/[$\\]/.test(text)) return;
    await katex();
    element.textContent = boxes(visible(text));
    renderMathInElement(element, {
      delimiters: DELIMITERS, throwOnError: false, trust: false, strict: "ignore", maxExpand: 500, maxSize: 20, errorColor: "inherit",
    });
  }

  return { fill, visible };
})();
