"""What the pages hold: commands that work, links and files that exist, numbers that commands print; and the examples in
docstrings.

A section of `docs/extend.md` or `docs/usage.md` is typed into a copy of the repository. A block
with info string `<language> file=<path>` is a file, and `<language> append=<path>` is added to one. In a `console`
block a line that starts with `$ ` is a command, and every other line must be printed by the command above it.
"""

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests import house
from tests.evals.generation.tiny import save_tiny
from tests.workflow.conftest import checkout

ROOT = Path(__file__).resolve().parent.parent
TYPED = {
    f"{page}: {section.splitlines()[0]}": section
    for page in ("extend", "usage")
    for section in re.split(r"^## ", (ROOT / f"docs/{page}.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    if "\n$ " in section
}
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE = re.compile(r"\b(file|append)=(\S+)")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)]*))?\)")
MARKDOWN = sorted(
    path for folder in (".", "docs", "docs/notebook", "config", "results") for path in ROOT.glob(f"{folder}/*.md")
)
PACKAGES = "core|methods|tepo_bench|evals|models|paper|report|workflow|tests"
COMMAND = re.compile(r"python -m ([a-z_]+(?:\.[a-z_]+)+)")
FILE = re.compile(rf"(?<![\w./-])((?:{PACKAGES}|docs|config|profiles)/[\w./-]+\.(?:py|md|yaml|smk))(?!\w)")


EXAMPLES = [
    pytest.param(name, marks=[pytest.mark.slow] if "verl" in name else [])  # importing verl takes ten seconds
    for name, path in house.python_files(ROOT).items()
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings_are_right(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.attempted > found.failed == 0


def _copy(target: Path) -> Path:
    """What a clone plus the current edits would hold."""
    shutil.copytree(ROOT / "results/reference", checkout(target) / "results/reference")
    return target


def _type(section: str, root: Path) -> int:
    """Write the files and type the commands of a section; the number of commands."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "1000",
    }
    typed, printed = 0, ""
    for info, body in BLOCK.findall(section):
        if match := MADE.search(info):
            path = root / match[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            old = path.read_text(encoding="utf-8") if match[1] == "append" else ""
            path.write_text(old + body, encoding="utf-8")
        elif info.strip() == "console":
            for line in body.splitlines():
                if line.startswith("$ "):
                    done = subprocess.run(
                        ["bash", "-euo", "pipefail", "-c", line[2:]],
                        cwd=root, env=environment, capture_output=True, text=True, timeout=1800, check=False,
                    )  # fmt: skip
                    assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
                    typed, printed = typed + 1, done.stdout
                else:
                    assert line in printed, f"{line!r} is not in\n{printed[-4000:]}"
    return typed


@pytest.mark.slow
@pytest.mark.parametrize("section", TYPED.values(), ids=TYPED)
def test_a_section_works_as_typed(section: str, tmp_path: Path) -> None:
    assert _type(section, _copy(tmp_path)), "no command was typed"


# Pages with commands outside `console` blocks. What a reader has to fill in, what needs a network or another machine,
# and what takes minutes is not typed.
FRONT = (
    "README.md",
    "config/README.md",
    *(f"docs/{name}.md" for name in ("architecture", "methods", "usage")),
)
COMMAND_LINE = re.compile(r"^    ((?:python -[mc]|snakemake)\b.*?)(?: {2,}.*)?$", re.MULTILINE)
NOT_TYPED = re.compile(r" [A-Z_]{3,}\b|microbatches|--scale quick|python -m (?:models|pytest)")


@pytest.mark.slow
@pytest.mark.parametrize("page", FRONT)
def test_commands_of_a_page_work(page: str, tmp_path: Path) -> None:
    """In a fresh copy, without the demo's results; Snakemake's as dry runs."""
    lines = COMMAND_LINE.findall((ROOT / page).read_text(encoding="utf-8"))
    typed = [re.sub(r"^snakemake\b", "snakemake -n --cores 1", line) for line in lines if not NOT_TYPED.search(line)]
    assert _type("```console\n" + "".join(f"$ {line}\n" for line in typed) + "```", _copy(tmp_path))


@pytest.mark.slow
def test_every_snakemake_line_for_larger_models_is_a_plan(tmp_path: Path) -> None:
    """docs/scale.md, as dry runs, offline and without a GPU; other tests type its `console` blocks."""
    text, root = (ROOT / "docs/scale.md").read_text(encoding="utf-8"), _copy(tmp_path)
    save_tiny(tmp_path / "My-7B", seed=0)
    rows = "".join(f'{{"problem": "{n}+1?", "answer": {n + 1}}}\n' for n in range(99))
    (tmp_path / "my.jsonl").write_text(rows, encoding="utf-8")
    lines = re.findall(r"^    (?:\S+/)?(snakemake\b.*?)(?: {2,}#.*)?$", text, re.MULTILINE)
    assert len(lines) == len(re.findall(r"^    (?:\S+/)?snakemake ", text, re.MULTILINE)) == 7
    for line in lines:  # `plan` itself fails where a disk is too small
        line = re.sub(r"^snakemake(?: plan)?", "snakemake -n -q rules", line).replace("/models/", f"{tmp_path}/")
        line = line.replace("/data/", f"{tmp_path}/")
        assert _type(f"```console\n$ HF_HUB_OFFLINE=1; CARD=config/one_gpu_48gb.yaml; {line}\n```", root)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them, and its own `<a id=...>`."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(
        re.findall(r'<a id="([^"]+)"', text)
    )


def test_links_lead_somewhere() -> None:
    dead = []
    for page in MARKDOWN:
        for target, anchor in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
            to = page.parent / target if target else page
            if "://" in target or target.startswith("mailto:"):
                continue
            if not to.exists() or (anchor and to.suffix == ".md" and anchor not in _anchors(to)):
                dead.append(f"{page.relative_to(ROOT)}: link to {target}#{anchor}")
    assert dead == []


def test_what_a_page_names_is_there() -> None:
    """Commands and files; a how-to page may also name what it makes. The notebook keeps names of its time."""
    dead = []
    for page in (page for page in MARKDOWN if page.name != "CHANGELOG.md" and page.parent.name != "notebook"):
        text = page.read_text(encoding="utf-8")
        made = [match[2] for info, _ in BLOCK.findall(text) if (match := MADE.search(info))]
        made += re.findall(r"^\$ cp \S+ (\S+)$", text, re.MULTILINE)
        named = FILE.findall(LINK.sub("", text))  # links are tested above
        named += [f"{name.replace('.', '/')}.py" for name in COMMAND.findall(text) if re.match(PACKAGES, name)]
        dead += [f"{page.name}: {name}" for name in named if not ((ROOT / name).exists() or name in made)]
    assert dead == []


# --- Numbers ----------------------------------------------------------------------------------------------------------

# Numbers of a page are those that a command prints: the page names the command, and it is run on the kept trees.
#
# In docs/findings.md and docs/notebook/*.md a table row whose last cell is a command gets its numbers from it. So does
# every row of a table whose head ends with one. One line of the output has all numbers of a cell, in their order; the
# first cell is a label. A page may round, and its minus may be −.

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
        shown = [cell.strip() for cell in cells.split("|")[1:]]
        if not any(map(numbers, shown)):
            yield f"{command}: no number in its row"
        yield from (f"{command}: {cell}" for cell in shown if not on_one_line(cell, run(command)))


@cache
def printed_by(command: str) -> str:
    python, *words = shlex.split(command)
    assert (python, words[0]) == ("python", "-m"), command
    variables = {**os.environ, "COLUMNS": "1000"}  # pytest's readline exports the terminal's
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=600, check=False
    )
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
    correlations = re.findall(r"r = (-?\d\.\d\d)\b[^`;]*?\(`(python -m [^`]+)`\)", pages["findings.md"])
    assert len(correlations) >= 3
    assert [r for r, command in correlations if f"r = {r}" not in " ".join(printed_by(command).split())] == []
    # The intervals in the README are there too, as fractions or in points.
    commands = re.findall(r"`(python -m report[^`]+)` *\|", pages["findings.md"])
    lines = [line for command in commands for line in printed_by(command).splitlines()]
    lines += [" ".join(str(100 * number) for number in numbers(line)) for line in lines]
    found = re.findall(r"[-+]?\d+\.\d+ \[-?\d+\.\d+, -?\d+\.\d+\]", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) >= 9
    assert [triple for triple in found if not on_one_line(triple, "\n".join(lines))] == []
