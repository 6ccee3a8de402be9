"""The pure functions of the page's scripts, called in the page: what is selected, smoothed, sorted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.conftest import Visit

pytestmark = pytest.mark.slow

INDEX = {
    "items": ["a", "b", "c"],
    "per": [2, 1, 1],
    "begins": [0, 2],
    "verdicts": "cwcw",
    "stops": "slss",
    "tokens": [5, 9, 7, None],
    "extracted": ["1", "2", "3", None],
    "rules": [0, 1, 0, 0],
    "rule_names": ["string", "number"],
    "graders": {
        name: {"verdicts": verdicts, "extracted": ["1", None, "3", "4"]}
        for name, verdicts in {"ours": "cwcw", "other": "cwww", "tool": "c--c"}.items()
    },
}
OTHER = INDEX | {"items": ["c", "b", "a"], "per": [1, 1, 2], "verdicts": "cwcc"}
FILTER = {"show": "all", "verdict": "", "least": None, "most": None}
JOIN = f"pairs.join('k', pairs.items({json.dumps(INDEX)}), pairs.items({json.dumps(OTHER)}), ['b', 'a'])"


def select(**filter: object) -> str:
    return f"pairs.select({JOIN}, {json.dumps(FILTER | filter)}).map(pair => pair.id)"


LINE = {
    "title": "t",
    "seeds": {"1": [1, 2, 3], "2": [3, 4, None]},
    "mean": [2, 3, None],
    "low": [1, 2, None],
    "high": [3, 4, None],
}
OTHER_LINE = {"title": "u", "seeds": {"1": [0.1, 40]}}
COLUMNS = f"curves.columns({json.dumps(LINE)}, %s).map(column => [column.role, column.values])"
CASES: dict[str, tuple[str, Any]] = {
    "shares of an item's samples": (
        f"[...pairs.items({json.dumps(INDEX)}).values()].map(item => item.share)",
        [0.5, 1, 0],
    ),
    "rules by name": (f"pairs.items({json.dumps(INDEX)}).get('a').rules", ["string", "number"]),
    "which text file, and where in it": (
        f"[0, 1, 2].map(n => pairs.whereabouts({json.dumps(INDEX)}, n))",
        [[0, 0], [0, 1], [1, 0]],
    ),
    "items are joined by id, in the benchmark's order": (
        f"{JOIN}.map(pair => [pair.id, pair.gap])",
        [["b", 1], ["a", -0.5], ["c", -1]],
    ),
    "the largest disagreement first": (select(), ["b", "c", "a"]),
    "left better": (select(show="left"), ["b"]),
    "right better": (select(show="right"), ["c", "a"]),
    "never right": (select(show="neither"), []),
    "a verdict on either side": (select(verdict="w"), ["b", "c", "a"]),
    "a verdict nobody has": (select(verdict="t"), []),
    "graders differ, where they are known": (
        f"[...pairs.items({json.dumps(INDEX)}).values()].map(item => pairs.hits(item, "
        f"{json.dumps(FILTER | {'verdict': 'graders'})}))",
        [[], [0], [0]],
    ),
    "from so many tokens": (select(least=8), ["b", "a"]),
    "up to so many tokens": (select(most=5), ["c", "a"]),
    "right of all": (
        f"['left', 'right'].map(side => pairs.tally({JOIN}, side))",
        [{"right": 2, "all": 4}, {"right": 3, "all": 4}],
    ),
    "a mean of the last three, never of what is to come": ("curves.smooth([1, 2, 3, 10], 3)", [1, 1.5, 2, 5]),
    "a gap stays a gap": ("curves.smooth([1, null, 3], 2)", [1, None, 3]),
    "two seeds have no interval": (
        f"curves.columns({json.dumps(LINE | {'low': None})}, {{single: false, width: 1}}).map(one => one.role)",
        ["raw", "raw", "mean"],
    ),
    "mean and interval": (
        COLUMNS % "{single: false, width: 1}",
        [["low", LINE["low"]], ["high", LINE["high"]], ["mean", LINE["mean"]]],
    ),
    "single seeds": (COLUMNS % "{single: true, width: 1}", [["seed", [1, 2, 3]], ["seed", [3, 4, None]]]),
    "a collapsed seed": (
        f"curves.columns({json.dumps(LINE | {'ended': {'2': 2}})}, {{single: false, width: 1}}).map(one => one.role)",
        ["seed", "seed"],
    ),
    "smoothed, with what was measured behind": (
        COLUMNS % "{single: false, width: 2}",
        [["raw", LINE["mean"]], ["mean", [2, 2.5, None]]],
    ),
    "an axis from nought": (f"curves.range({json.dumps([LINE])}, false)", [0, 4.2]),
    "a logarithmic axis": (
        f"curves.range({json.dumps([LINE, OTHER_LINE])}, true).map(n => Math.round(n * 100))",
        [9, 4400],
    ),
    "a look that a figure gives, then the first that is free": (
        "[...curves.looks(['a', 'b', 'c'], new Map([['b', 0], ['c', 0]])).values()]",
        [0, 1, 2],
    ),
    "a line that stays keeps its look": (
        "[...curves.looks(['c', 'd'], new Map([['d', 1]]), new Map([['c', 1]]))]",
        [["c", 1], ["d", 0]],
    ),
    "missing numbers last either way": (
        "[true, false].map(down => [null, 2, 10].sort((a, b) => sorting.compare(a, b, down)))",
        [[10, 2, None], [2, 10, None]],
    ),
    "hidden characters": ("typeset.visible('a\\u202eb\\u0000\\n')", "a⟨U+202E⟩b⟨U+0000⟩\n"),
}


def test_functions(visit: Visit, report: str) -> None:
    page = visit(report).page
    found = {name: page.evaluate(script) for name, (script, _) in CASES.items()}
    assert found == {name: wanted for name, (_, wanted) in CASES.items()}
