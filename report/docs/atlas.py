"""`docs/atlas.md`, from `docs/atlas.csv`: `python -m report.docs.atlas --out docs/atlas.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from records import errors
from records.errors import Parser
from records.files import read_csv, write_text
from records.provenance import ROOT
from report.docs import table

DATA = ("docs/atlas.csv",)
CSV = ROOT / DATA[0]
COLUMNS = ("name", "framework", "function", "verdict", "apart", "differs", "batches", "defaults", "note")
_HEAD = """\
# Same name: same loss?

What frameworks compute under a method's name when nothing but the name is chosen. Each framework's own loss code ran on
the same batches (on policy, equal and ragged lengths, one token, holes in the mask, ratios far above 3, a group of
equal rewards), in float64, with the same advantages; its gradient by the log-probabilities was compared with this
project's. Where it differs, compositions of this project's parts were tried until one gave the framework's gradient on
every batch: that names the ingredients. Other versions were installed from the package registry, without their
dependencies, on top of one torch.

Made by `python -m benchmarks.atlas`, which says what moved since the kept [atlas.csv](atlas.csv), and
`python -m report.docs.atlas --out docs/atlas.md`. How to make two frameworks agree: [names.md](names.md).

`same`: gradients agree to 1e-5 of the largest entry on every batch. `ours`: the catalog's method at its defaults, which
are the TEPO paper's settings (clip .2/.28), not the frameworks'. A cell without
an entry: the framework has no loss of that name. A whole batch is one micro-batch here: denominators
that differ only between micro-batches look the same ([names.md](names.md), token mean).

"""
_MOVED = """
## What moved between versions

One name in one framework, by version; only names whose loss or defaults are not the same in all.

"""
_CELLS = """
## Every cell

`apart` is the largest difference from ours, relative to the largest entry of the gradient.

"""
_READ = """
## Read, not executed

"""


def page(rows: Sequence[Mapping[str, str]]) -> str:
    """The page as Markdown."""
    ran = [row for row in rows if row["verdict"] != "read"]
    frameworks = list(dict.fromkeys(row["framework"] for row in ran))
    cells = {(row["name"], row["framework"]): row for row in ran}
    matrix = [
        (name, *(_word(cells.get((name, framework))) for framework in frameworks))
        for name in dict.fromkeys(row["name"] for row in ran)
    ]
    details = [
        (row["name"], row["framework"], f"`{row['function']}`", row["verdict"], row["apart"], _why(row))
        for row in sorted(ran, key=lambda row: list(dict.fromkeys(r["name"] for r in ran)).index(row["name"]))
        if row["verdict"] != "same"
    ]
    read = [(row["name"], row["framework"], row["differs"], row["note"]) for row in rows if row["verdict"] == "read"]
    return "".join(
        [
            _HEAD,
            table(["name", *frameworks], matrix),
            _MOVED,
            table(["name", "version", "", "defaults that moved"], _moved(ran)),
            _CELLS,
            table(["name", "framework", "function", "", "apart", "theirs (ours)"], details),
            _READ,
            table(["name", "framework", "says", "where"], read),
        ]
    )


def _word(row: Mapping[str, str] | None) -> str:
    """A cell of the matrix: same, or what is theirs, the first ingredient that differs first."""
    if row is None:
        return ""
    if row["verdict"] != "differs":
        return row["verdict"]
    if row["differs"] == "no composition of ours":
        return "see below"
    return "; ".join(part.partition(" (ours ")[0] for part in row["differs"].split("; "))


def _why(row: Mapping[str, str]) -> str:
    if row["differs"] == "no composition of ours":
        return row["note"] or f"no composition of ours; on the batches {row['batches']}"
    return row["differs"]


def _moved(ran: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Name, version, what it computes and the defaults that are not equal in all versions."""
    lines: list[tuple[str, ...]] = []
    by_line: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in ran:
        by_line.setdefault((row["name"], row["framework"].split()[0]), []).append(row)
    for (name, _), versions in by_line.items():
        defaults = [dict(part.split(" ", 1) for part in row["defaults"].split("; ") if part) for row in versions]
        # an option that an older version did not have is no moved default
        keys = [key for key in defaults[0] if len({d[key] for d in defaults if key in d}) > 1]
        if len({(row["verdict"], row["differs"]) for row in versions}) == 1 and (not keys or name != "default"):
            continue
        for row, values in zip(versions, defaults, strict=True):
            words = ", ".join(f"{key} {values[key]}" for key in keys if key in values)
            lines.append((name, row["framework"], row["verdict"] if row["verdict"] == "same" else _why(row), words))
    return lines


def main() -> None:
    parser = Parser(description="Write the page of the loss atlas.")
    parser.add_argument("--out", type=Path, default=CSV.with_suffix(".md"))
    args = parser.parse_args()
    write_text(args.out, page(read_csv(CSV, "the loss atlas", COLUMNS)))
    print(args.out)


if __name__ == "__main__":
    errors.run(main)
