"""Faults at rest: a finished tree, one file damaged, and what the next commands that read it answer.

Every file of `KINDS` gets every damage of `DAMAGES` that it can have. The commands run in this process, as typed, each
from the damaged state; then everything is put back. What can come of a fault, worst first:

    silent       other content was taken over: another output, or a damage that `verify` does not see in a result
    traceback    no line, or more than one
    lost         a file that is not the damaged one is gone
    named        one line names the file, or the one that holds its hash, with exit code 2 (`verify`: 1)
    harmless     every output has the same bits, and the file is no result
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from core import errors
from core.results_tree import Tree
from report.provenance import manifest

WORST_FIRST = ("silent", "traceback", "lost", "named", "harmless")
BAD = WORST_FIRST[:3]


@dataclass
class Checkout:
    """A folder with a finished `results/<scale>` to be damaged; commands run in it. What it holds at first is right."""

    folder: Path
    scale: str
    draw: random.Random

    def __post_init__(self) -> None:
        self.root = Path("results") / self.scale
        self.right: dict[str, bytes] = {}
        self.times: dict[str, int] = {}  # the page says when the last run ended

    def settle(self) -> None:
        """Let every command write what it writes, the manifest last. Raises AssertionError unless all goes well."""
        for _ in range(2):  # the second time nothing changes
            self.right = self.now()
            for name in list(READERS)[:-1]:
                ended = self.run(name)
                assert ended.code == 0, f"{name}: {ended}"
        self.right = self.now()
        self.times = {name: (self.folder / name).stat().st_mtime_ns for name in self.right}
        ended = self.run("verify")
        assert ended.code == 0, ended
        assert self.now() == self.right

    def now(self) -> dict[str, bytes]:
        """Every file by its path; not events, which say when."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in sorted(self.folder.glob("results/**/*"))
            if path.is_file() and path.name != "events.jsonl"
        }

    def restore(self) -> None:
        for path in sorted(self.folder.glob("results/**/*"), reverse=True):
            name = path.relative_to(self.folder).as_posix()
            if path.is_symlink() or (path.is_dir() and name in self.right):
                path.unlink() if path.is_symlink() else shutil.rmtree(path)
            elif path.is_file() and name not in self.right and path.name != "events.jsonl":
                path.unlink()
        for name, content in self.right.items():
            path = self.folder / name
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.keep_time(name)

    def keep_time(self, name: str) -> None:
        """A damage of a disk changes no time."""
        path = self.folder / name
        if path.is_file() and path.stat().st_mtime_ns != self.times[name]:
            os.utime(path, ns=(self.times[name], self.times[name]))

    def run(self, name: str) -> Ended:
        """A command of `READERS` in this folder, as typed."""
        with contextlib.chdir(self.folder):
            return typed(READERS[name], self)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    said: str
    failure: str  # a traceback


def typed(reader: Callable[[Checkout], Any], checkout: Checkout) -> Ended:
    out, failure = io.StringIO(), ""
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            errors.run(lambda: reader(checkout))
        except SystemExit as ended:
            code = ended.code or 0
        except Exception:
            failure = traceback.format_exc()
    return Ended(code if isinstance(code, int) else 1, out.getvalue(), failure)


# --- Commands ---------------------------------------------------------------------------------------------------------


def _command(module: str, *words: object) -> int | None:
    """`python -m MODULE WORDS`"""
    main = __import__(module, fromlist=["main"]).main
    with mock.patch.object(sys, "argv", [module, *map(str, words)]):
        return main()


def _score(checkout: Checkout) -> int | None:
    tree = Tree(checkout.root)
    return _command(
        "evals.score", "--results", checkout.root, "--checkpoints", *(c.path for c in tree.checkpoints),
        "--benchmarks", *(entry["key"] for entry in tree.benchmarks), "--out", checkout.root / "scores.csv",
    )  # fmt: skip


def _on_tree(module: str, *words: str) -> Callable[[Checkout], int | None]:
    return lambda checkout: _command(module, *words, "--results", checkout.root)


READERS: dict[str, Callable[[Checkout], int | None]] = {
    "score": _score,
    "table": _on_tree("report.table", "--table", "1"),
    "show": _on_tree("report.show", "table1"),
    "convergence": _on_tree("report.convergence"),
    "page": _on_tree("report.build"),
    "manifest": _on_tree("report.provenance.manifest"),
    "verify": _on_tree("report.verify"),
}


# --- Files and damages ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Files of one kind, and the commands that read them. `verify` reads all results and always comes last."""

    name: str
    patterns: tuple[str, ...]  # for Path.match, below the checkout
    readers: tuple[str, ...]


TREE = "results/*/"
RUN = TREE + "runs/*/*/*/"
OF_CHECKPOINT = "*/*/*/*/"
KINDS = (
    Kind("plan", (TREE + "matrix.json",), ("table", "show", "page")),
    Kind("run record", (RUN + "run.json",), ("convergence", "page")),
    Kind("curve", (RUN + "curve.csv",), ("convergence",)),
    Kind("checkpoint", (RUN + "checkpoints/*/*",), ()),
    Kind("base model", ("results/cache/models/*/*",), ()),
    Kind("samples record", (TREE + f"samples/{OF_CHECKPOINT}samples.json",), ("page",)),
    Kind("samples", (TREE + f"samples/{OF_CHECKPOINT}*.parquet",), ("page",)),
    Kind("grades record", (TREE + f"grades/{OF_CHECKPOINT}grades.json",), ("score", "page")),
    Kind("grades", (TREE + f"grades/{OF_CHECKPOINT}*.parquet",), ("score", "table", "page")),
    Kind("scores", (TREE + "scores.csv*",), ("table", "page")),
    Kind("table", (TREE + "tables/table1.*",), ("show", "page")),
    Kind("figure", (TREE + "figures/figure2.*",), ("page",)),
    Kind("convergence", (TREE + "figures/convergence*",), ("page",)),
    Kind("claims", (TREE + "claims.*",), ("page",)),
    Kind("page", (TREE + "report.html", TREE + "report.sha256"), ()),
    Kind("responses of the page", (TREE + "report.data/*",), ()),
    Kind("manifest", (TREE + "manifest.json",), ()),
)


def flip(path: Path, draw: random.Random, _others: Sequence[bytes]) -> bool:
    content = bytearray(path.read_bytes())
    if content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        write(path, bytes(content))
    return bool(content)


def cut(path: Path, draw: random.Random, _others: Sequence[bytes]) -> bool:
    size = path.stat().st_size
    if size > 1:
        os.truncate(path, draw.randrange(1, size))
    return size > 1


def empty(path: Path, _draw: random.Random, _others: Sequence[bytes]) -> bool:
    size = path.stat().st_size
    os.truncate(path, 0)
    return size > 0


def remove(path: Path, _draw: random.Random, _others: Sequence[bytes]) -> bool:
    path.unlink()
    return True


def digit(path: Path, draw: random.Random, _others: Sequence[bytes]) -> bool:
    """Another digit in a text."""
    content = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if b"\0" in content or not places:
        return False
    place = draw.choice(places)
    content[place] = 48 + (content[place] - 48 + draw.randrange(1, 10)) % 10
    write(path, bytes(content))
    return True


def folder(path: Path, _draw: random.Random, _others: Sequence[bytes]) -> bool:
    path.unlink()
    path.mkdir()
    return True


def other(path: Path, draw: random.Random, others: Sequence[bytes]) -> bool:
    """The content of another file of its kind."""
    if others:
        write(path, draw.choice(others))
    return bool(others)


def write(path: Path, content: bytes) -> None:
    """In place: a second name of the file (samples and what `generate` keeps of them) shows the damage too."""
    with open(path, "r+b") as stream:
        stream.write(content)
        stream.truncate()


Damage = Callable[[Path, random.Random, Sequence[bytes]], bool]  # False: such a file cannot have it
DAMAGES: dict[str, Damage] = {
    "a bit flipped": flip,
    "cut short": cut,
    "emptied": empty,
    "removed": remove,
    "a digit changed": digit,
    "a folder in its place": folder,
    "another of its kind": other,
}


@dataclass(frozen=True)
class Fault:
    kind: Kind
    path: str
    damage: str
    outcome: str
    by: str  # the command whose outcome it is, or ""
    said: str


def faults(checkout: Checkout, most: int) -> Iterator[Fault]:
    """So many faults, in an order that takes each kind with each damage once before any twice."""
    paths = {
        kind: sorted(
            n for n in checkout.right if any(Path(n).match(p) and n.count("/") == p.count("/") for p in kind.patterns)
        )
        for kind in KINDS
    }
    for kind, found in paths.items():
        if not found:
            raise AssertionError(f"no file of the kind {kind.name!r}: {kind.patterns}")
    done = 0
    while done < most:
        pairs = [(kind, damage) for kind in paths for damage in DAMAGES]
        checkout.draw.shuffle(pairs)
        for kind, damage in pairs:
            fault = _fault(checkout, kind, checkout.draw.choice(paths[kind]), damage, paths[kind])
            if fault is not None:
                yield fault
                done += 1
                if done == most:
                    return


def _fault(checkout: Checkout, kind: Kind, name: str, damage: str, same_kind: Sequence[str]) -> Fault | None:
    path, right = checkout.folder / name, checkout.right[name]
    others = [
        checkout.right[n] for n in same_kind
        if n != name and Path(n).suffix == path.suffix and checkout.right[n] != right
    ]  # fmt: skip
    results: list[tuple[str, str, str]] = []
    state = checkout.draw.getstate()
    for reader in (*kind.readers, "verify"):
        checkout.draw.setstate(state)  # the same damage for each
        if not DAMAGES[damage](path, checkout.draw, others):
            checkout.restore()
            return None
        checkout.keep_time(name)
        damaged = checkout.now()
        ended = checkout.run(reader)
        came = _outcome(checkout, name, reader, ended, damaged)
        now = checkout.now()
        other_files = [n for n in damaged.keys() | now.keys() if damaged.get(n) != now.get(n)]
        said = f"{ended.failure or ended.said}{len(other_files)} files changed: {', '.join(sorted(other_files)[:4])}"
        results.append((came, reader, said))
        checkout.restore()
    outcome, by, said = min(results, key=lambda result: WORST_FIRST.index(result[0]))
    return Fault(kind, name, damage, outcome, by, said)


def _outcome(checkout: Checkout, name: str, reader: str, ended: Ended, damaged: dict[str, bytes]) -> str:
    after = checkout.now()
    if ended.failure:
        return "traceback"
    if checkout.right.keys() - after.keys() - {name}:
        return "lost"
    if ended.code:
        lines = [line for line in ended.said.splitlines() if line.startswith("error: ")]
        told = ended.said if reader == "verify" and ended.code == 1 else "".join(lines)
        right_code = ended.code == (1 if reader == "verify" and not lines else 2)
        if not right_code or (reader != "verify" and len(lines) != 1) or not _names(told, name):
            return "traceback"
        return "named"
    # A command may write the damaged file again, as it was; every other file must be as it was.
    rewritten = {n for n, content in after.items() if content != checkout.right.get(n) and damaged.get(n) != content}
    return "silent" if rewritten or reader == "verify" else "harmless"


def _names(said: str, name: str) -> bool:
    """Whether it names the file, one of its folder, which holds its hash, or grades and samples that do not agree."""
    path = Path(*Path(name).parts[2:])  # a manifest's names are relative to the tree
    if path.name == manifest.NAME and f"{path.stem} has" in said:  # it and a file do not agree
        return True
    folder = path.parents[2] if ".work" in path.parts else path.parent
    places = [str(path), *([f"{folder}/", f"{folder}:"] if folder.parts else [])]
    pairs = {"samples/": "grades/", "grades/": "samples/"}
    places += [pairs[kind] + place.removeprefix(kind) for place in places for kind in pairs if place.startswith(kind)]
    return any(place in said for place in places)
