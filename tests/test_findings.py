"""Numbers of a page are those that a command prints: the page names the command, and it is run on the kept trees.

In docs/findings.md and docs/notebook/*.md a table row whose last cell is a command gets its numbers from it. So does
every row of a table whose head ends with one. One line of the output has all numbers of a cell, in their order; the
first cell is a label. A page may round, and its minus may be −.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\|(.+)\| *`(python -m [^`|]+)` *\|$", re.MULTILINE)
TABLE = re.compile(r"^\|.+\| *`(python -m [^`|]+)` *\|\n\|[-:| ]+\|\n((?:\|.+\|\n)+)", re.MULTILINE)  # of one command
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?(?![\w])")


def numbers(text: str) -> list[Decimal]:
    """Those of a text, with their digits; a number inside a word is none."""
    return [Decimal(found.replace(",", "")) for found in NUMBER.findall(text.replace("−", "-"))]


def rounds_to(printed: Decimal, shown: Decimal) -> bool:
    digits = Decimal(1).scaleb(int(shown.as_tuple().exponent))
    if printed.as_tuple().exponent > shown.as_tuple().exponent:  # type: ignore[operator]
        return False  # more digits than were printed
    return shown in {printed.quantize(digits, rule) for rule in (ROUND_HALF_EVEN, ROUND_HALF_UP)}


def on_one_line(cell: str, output: str) -> bool:
    """Whether some line has the numbers of the cell in their order, between others."""

    def has(line: str) -> bool:
        found = iter(numbers(line))
        return all(any(rounds_to(number, shown) for number in found) for shown in numbers(cell))

    return not numbers(cell) or any(has(line) for line in output.splitlines())


def unprinted(page: str, run: Callable[[str], str]) -> Iterator[str]:
    """Cells of a page that its commands do not print."""
    shared = [(row.strip("| "), command) for command, rows in TABLE.findall(page) for row in rows.splitlines()]
    for cells, command in [*ROW.findall(TABLE.sub("", page)), *shared]:
        told = [cell.strip() for cell in cells.split("|")[1:]]
        if not any(map(numbers, told)):
            yield f"{command}: no number in its row"
        yield from (f"{command}: {cell}" for cell in told if not on_one_line(cell, run(command)))


@cache
def printed_by(command: str) -> str:
    python, *words = shlex.split(command)
    assert (python, words[0]) == ("python", "-m"), command
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.slow
def test_numbers_of_pages_are_printed_by_the_commands_beside_them() -> None:
    pages = {
        path.name: path.read_text(encoding="utf-8")
        for path in [ROOT / "docs/findings.md", *sorted((ROOT / "docs/notebook").glob("*.md"))]
    }
    assert len(ROW.findall(pages["findings.md"])) >= 3
    assert TABLE.findall(pages["findings.md"])
    wrong = {name: list(unprinted(page, printed_by)) for name, page in pages.items()}
    assert {name: found for name, found in wrong.items() if found} == {}


OUTPUT = "| tiny | area | 24 (8 + 8) | 0.617 | +0.0914 [+0.0755, -0.106] | 8.8e-12 |\n| tiny | final | 5,901 | 0.5 |"


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        ("+0.0914 [0.0755, −0.106]", True),
        ("0.091 [0.076, -0.106]", True),  # rounded
        ("24 pairs, p 8.8e-12", True),
        ("5,901", True),
        ("no number", True),
        ("0.092", False),
        ("-0.091", False),
        ("0.0755, 0.0914", False),  # in another order
        ("0.617, 0.5", False),  # on two lines
        ("0.06", False),
        ("0.09140", False),  # a digit that nobody printed
    ],
)
def test_a_number_that_is_not_printed_is_found(cell: str, printed: bool) -> None:
    page = f"| area of 12 rollouts | 0.617 | {cell} | `python -m x` |\n"
    assert list(unprinted(page, lambda command: OUTPUT)) == ([] if printed else [f"python -m x: {cell}"])


def test_rows_of_a_table_share_the_command_of_its_head() -> None:
    table = "| row | x | `python -m x` |\n|---|---|---|\n| area | 0.617 | 24 |\n| final | 5,902 | |\n"
    page = f"{table}\n| b | 1 | `python -m y` |\n"
    assert list(unprinted(page, {"python -m x": OUTPUT, "python -m y": "1"}.__getitem__)) == ["python -m x: 5,902"]


def test_a_row_without_a_number_is_found() -> None:
    assert list(unprinted("| x | y | `python -m x` |", lambda command: "")) == ["python -m x: no number in its row"]
