"""`python -m report.compare A B`: did any number move beyond noise between two results trees (or references)?

Exit code 0: equal, or nothing beyond noise; 1: something moved; 2: the two cannot be compared. Which noise, and what
the intervals mean: `report.provenance.moved` and docs/provenance.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from records import errors
from records.errors import Parser, whole
from records.files import to_csv, write_text
from records.results_tree import open_or_kept

if TYPE_CHECKING:
    from report.provenance.moved import Overlap
    from report.provenance.seed_noise import Cell

WIDTH = 118
LISTED = 12  # names of what only one side has
HEADER = (
    "where", "figure", "unit", "a", "b", "difference", "low", "high", "p", "p_holm", "moved", "detectable", "level",
    "how", "n",
)  # fmt: skip


def text(common: Overlap, cells: Sequence[Cell], largest: int) -> str:
    """What is printed: the two sides, what is equal, the largest differences, the verdict."""
    parts = [_sides(common), _equal(common), _table(cells, largest), _wrapped(verdict(cells))]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="   ")


def verdict(cells: Sequence[Cell]) -> str:
    """The last line: what it means for somebody who changed the code."""
    tested = [cell for cell in cells if cell.tested]
    moved = sum(cell.moved for cell in cells)
    if not cells:
        return "verdict: no figure differs"
    blind = f"; {len(cells) - len(tested)} more differ, for which no noise is known" if len(tested) < len(cells) else ""
    if any(cell.moved and cell.retrained and cell.gain.level == "problem" for cell in cells):
        blind += "; trained again with one seed, and another seed of the same code may have moved as far"
    if moved:
        return f"verdict: MOVED: {moved} of {len(tested)} figures that differ do so beyond noise{blind}"
    return f"verdict: nothing beyond noise: {len(tested)} figures differ, none by more than chance would{blind}"


def csv_text(cells: Sequence[Cell]) -> str:
    """Every figure that differs, one row each, least like chance first."""
    rows = []
    for cell in _sorted(cells):
        gain = cell.gain
        rows.append({
            "where": cell.where, "figure": cell.figure, "unit": "share of the mean" if cell.relative else "as is",
            "a": cell.a, "b": cell.b, "difference": gain.difference, "low": gain.low, "high": gain.high, "p": gain.p,
            "p_holm": cell.p_holm, "moved": "yes" if cell.moved else "no", "detectable": gain.detectable,
            "level": gain.level, "how": gain.how, "n": gain.n,
        })  # fmt: skip
    return to_csv(HEADER, rows)


def _sorted(cells: Sequence[Cell]) -> list[Cell]:
    """What moved first, then by how much of its interval's half width a difference is."""

    def place(cell: Cell) -> tuple[bool, float, str, str]:
        gain = cell.gain
        reach = 0.0
        if gain.difference is not None and gain.low is not None and gain.high is not None:
            reach = abs(gain.difference) / (gain.high - gain.low)
        return not cell.moved, -reach, cell.where, cell.figure

    return sorted(cells, key=place)


def _sides(common: Overlap) -> list[str]:
    lines = []
    facts_a, facts_b = common.made_by()
    for name, tree, facts in (("A", common.a, facts_a), ("B", common.b, facts_b)):
        commits = ", ".join(commit[:7] for commit in facts.get("commit", ["unknown"]))
        dirty = " with uncommitted changes" if "True" in facts.get("dirty", []) else ""
        lines.append(f"{name}  {tree.root}: {len(tree.checkpoints)} checkpoints planned; commit {commits}{dirty}")
    for name in facts_a | facts_b:
        a, b = facts_a.get(name, ["-"]), facts_b.get(name, ["-"])
        if a != b and name not in ("commit", "dirty"):
            lines.append(f"   {name}: A {', '.join(a)}; B {', '.join(b)}")
    settings = common.changed_settings()
    lines.append("other run settings, A -> B:" if settings else "same run settings")
    lines += [f"   {line}" for line in settings]
    for name, only in (("A", common.only_a), ("B", common.only_b)):
        if only:
            more = f" and {len(only) - LISTED} more" if len(only) > LISTED else ""
            lines += _wrapped(f"only in {name} ({len(only)}): {', '.join(only[:LISTED])}{more}")
    return lines


def _equal(common: Overlap) -> list[str]:
    trained = [c for c in common.checkpoints if c.run in common.runs]
    counts = {
        "curves (apart from times)": (sum(map(common.same_curve, common.runs)), len(common.runs)),
        "checkpoints' weights": (sum(map(common.same_weights, trained)), len(trained)),
        "checkpoints' scores": (sum(map(common.same_scores, common.checkpoints)), len(common.checkpoints)),
    }
    return ["equal bit for bit: " + ", ".join(f"{name} {n} of {of}" for name, (n, of) in counts.items())]


def _table(cells: Sequence[Cell], largest: int) -> list[str]:
    if not cells:
        return ["no figure differs"]
    shown = _sorted(cells)[:largest]
    grid = [("where", "figure", "A", "B", "B - A", "95 % interval", "p (Holm)", "")] + [_row(cell) for cell in shown]
    widths = [max(len(row[column]) for row in grid) for column in range(len(grid[0]))]
    lines = [f"{len(cells)} figures differ; those least like chance:"]
    for row in grid:
        names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join([*names, *numbers]).rstrip())
    for kind in dict.fromkeys(f"{cell.gain.level}: {cell.gain.how}" for cell in shown):
        lines += _wrapped(f"noise by {kind}")
    return lines


def _row(cell: Cell) -> tuple[str, ...]:
    gain = cell.gain
    a, b = (f"{value:.4g}" if cell.relative else f"{value * 100:.1f} %" for value in (cell.a, cell.b))
    unit = " %" if cell.relative else " pp"
    assert gain.difference is not None
    known = gain.low is not None and gain.high is not None
    interval = f"{gain.low * 100:+.1f} to {gain.high * 100:+.1f}" if known else "-"  # type: ignore[operator]
    p = "-" if cell.p_holm is None else f"{cell.p_holm:.2g}"
    return (cell.where, cell.figure, a, b, f"{gain.difference * 100:+.1f}{unit}", interval, p, "moved" * cell.moved)


def main() -> int:
    parser = Parser(description="Compare two results trees: equal, inside noise, or moved.")
    parser.add_argument("a", type=Path, help="results/<scale> or a reference")
    parser.add_argument("b", type=Path, help="another one of the same scale")
    parser.add_argument("--largest", type=whole(0), default=12, metavar="N", help="rows of the table (12)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every figure that differs")
    args = parser.parse_args()
    from report.provenance import moved  # imports scipy: not for --help

    common = moved.overlap(open_or_kept(args.a), open_or_kept(args.b))
    cells = moved.cells(common)
    print(text(common, cells, args.largest))
    if args.csv:
        write_text(args.csv, csv_text(cells))
    return 1 if any(cell.moved for cell in cells) else 0


if __name__ == "__main__":
    errors.run(main)
