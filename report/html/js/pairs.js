// Two checkpoints' answers to the same problems, side by side. Pure functions: no page, no files.
"use strict";

const pairs = (() => {
  const VERDICTS = { c: "correct", w: "wrong", n: "no answer", t: "truncated", u: "gold not readable", o: "timed out", e: "grading failed", "-": "unknown", graders: "graders differ" };
  const STOPS = { s: "ended by itself", l: "cut at the limit", u: "unknown" };

  // An index file as one entry per problem: id -> {id, place, right, verdicts, ...}
  function items(index) {
    const found = new Map();
    let first = 0;
    index.items.forEach((id, place) => {
      const end = first + index.per[place];
      found.set(id, {
        id,
        place,
        count: end - first,
        verdicts: index.verdicts.slice(first, end),
        stops: index.stops.slice(first, end),
        tokens: index.tokens.slice(first, end),
        extracted: index.extracted.slice(first, end),
        graders: Object.entries(index.graders ?? {}).map(([name, of]) => [name, of.verdicts.slice(first, end), of.extracted.slice(first, end)]),
        rules: index.rules.slice(first, end).map((rule) => index.rule_names[rule]),
        share: [...index.verdicts.slice(first, end)].filter((letter) => letter === "c").length / (end - first),
      });
      first = end;
    });
    return found;
  }

  // The number of the text file that holds the problem at `place`, and the problem's place in it.
  function whereabouts(index, place) {
    let number = index.begins.length - 1;
    while (index.begins[number] > place) number -= 1;
    return [number, place - index.begins[number]];
  }

  // Problems that either side answered, in the order of `order` (ids); `right` may be null.
  function join(benchmark, left, right, order) {
    const ids = new Set([...order, ...left.keys(), ...(right ? right.keys() : [])]);
    return [...ids]
      .filter((id) => left.has(id) || right?.has(id))
      .map((id) => {
        const [a, b] = [left.get(id) ?? null, right?.get(id) ?? null];
        return { benchmark, id, left: a, right: b, gap: a && b ? a.share - b.share : 0 };
      });
  }

  const SHOWN = {
    all: () => true,
    differ: (pair) => pair.gap !== 0,
    left: (pair) => pair.gap > 0,
    right: (pair) => pair.gap < 0,
    neither: (pair) => sides(pair).every((side) => side.share === 0),
    both: (pair) => sides(pair).every((side) => side.share === 1),
  };

  const sides = (pair) => [pair.left, pair.right].filter(Boolean);

  // Whether graders of response `n` differ in calling it correct; one whose verdict is unknown does not count.
  const differ = (side, n) => new Set(side.graders.filter(([, letters]) => letters[n] !== "-").map(([, letters]) => letters[n] === "c")).size > 1;

  // Which responses of a side a filter is about; a problem is shown when one of either side is.
  function hits(side, filter) {
    const found = [];
    for (let n = 0; n < side.count; n += 1) {
      const tokens = side.tokens[n];
      const long = filter.least !== null || filter.most !== null;
      if (filter.verdict === "graders" ? !differ(side, n) : filter.verdict && side.verdicts[n] !== filter.verdict) continue;
      if (long && tokens === null) continue;
      if (filter.least !== null && tokens < filter.least) continue;
      if (filter.most !== null && tokens > filter.most) continue;
      found.push(n);
    }
    return found;
  }

  function select(list, filter) {
    return list
      .filter((pair) => SHOWN[filter.show](pair) && sides(pair).some((side) => hits(side, filter).length > 0))
      .sort((a, b) => Math.abs(b.gap) - Math.abs(a.gap));
  }

  // Right responses over all of one side.
  function tally(list, side) {
    let right = 0;
    let all = 0;
    for (const pair of list) {
      if (!pair[side]) continue;
      all += pair[side].count;
      right += Math.round(pair[side].share * pair[side].count);
    }
    return { right, all };
  }

  return { VERDICTS, STOPS, SHOWN, items, whereabouts, join, hits, select, tally };
})();
