// The page's data, elements made of text, and companion files: everything else stands on these three.
"use strict";

const bench = (() => {
  const KEPT = 300; // unpacked companion files
  const data = JSON.parse(document.getElementById("data").textContent);
  const waiting = new Map(); // name -> resolve
  const files = new Map(); // name -> promise of its value, oldest first

  // An element. Strings become text, never markup: whatever a model wrote, it is shown and does nothing.
  function el(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function address(name) {
    return `${data.folder}/${name.split("/").map(encodeURIComponent).join("/")}`;
  }

  function missing(name) {
    return new Error(
      `${address(name)} cannot be read. The folder ${data.folder} has to lie beside this file; ` +
        "run snakemake report to write both.",
    );
  }

  // It was read and is not what was written: cut, or a byte changed (gzip carries a checksum).
  function damaged(name) {
    return new Error(`${address(name)} is damaged: run snakemake report to write it again.`);
  }

  // A page opened from disk may not fetch a file beside it, but may add it as a script.
  function script(name, done, failed) {
    const tag = el("script", { src: address(name), onload: done, onerror: () => failed(missing(name)) });
    document.head.append(tag);
  }

  function packed(name) {
    return new Promise((resolve, reject) => {
      waiting.set(name, resolve);
      const check = () => waiting.delete(name) && reject(damaged(name));
      script(`${name}.js`, check, reject);
    });
  }

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }

  // The value of a companion file.
  function load(name) {
    if (!files.has(name)) {
      const value = packed(name).then((text) => unpack(text).catch(() => Promise.reject(damaged(name))));
      value.catch(() => files.delete(name));
      files.set(name, value);
      if (files.size > KEPT) files.delete(files.keys().next().value);
    }
    return files.get(name);
  }

  // What a companion file calls.
  function arrived(name, text) {
    const resolve = waiting.get(name);
    if (waiting.delete(name)) resolve(text);
  }

  return { data, el, load, arrived, script, address, damaged };
})();
