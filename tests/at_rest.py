"""Faults at rest: a finished checkout, one file damaged, and what the next commands that read it say.

Every file of `KINDS` gets every damage of `DAMAGES` that it can have. The commands run in this process, as typed, each
from the damaged state; then everything is put back. Where a command would train, draw or grade again, it is stopped:
that it makes the same again is for `tests.soak` to show, which lets it. What can come of a fault, worst first:

    silent       other content was taken over: another output, or a damage that `verify` does not see in a result
    traceback    no line, or more than one
    lost         a file that is not the damaged one is gone
    named        one line names the file, or the one that holds its hash, with exit code 2 (`verify`: 1)
    made again   the command makes the file again, or goes on to do so
    harmless     every output has the same bits, and the file is no result
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from records import errors
from records.files import json_text
from records.results_tree import Tree
from report.provenance import manifest

WORST_FIRST = ("silent", "traceback", "lost", "named", "made again", "harmless")
BAD = WORST_FIRST[:3]


class Again(BaseException):
    """A command goes on to train, draw or grade. No Exception: nothing on the way may take it for a failure."""


@dataclass
class Checkout:
    """A folder with a finished `results/<scale>` to be damaged; commands run in it. What it holds at first is right."""

    folder: Path
    scale: str
    readers: Sequence[str]  # those of `READERS` that its tree has all inputs of
    draw: random.Random

    def __post_init__(self) -> None:
        self.root = Path("results") / self.scale
        self.right: dict[str, bytes] = {}
        self.times: dict[str, int] = {}  # the page says when the last run ended

    def settle(self) -> None:
        """Let every command write what it writes, the manifest last. Raises AssertionError unless all goes well."""
        for _ in range(2):  # the second time nothing changes
            self.right = self.now()
            for name in [*(name for name in self.readers if name not in ("manifest", "verify")), "manifest"]:
                ended = self.run(name)
                assert (ended.code, ended.again) == (0, False), f"{name}: {ended}"
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
    """How a command ended. `again`: it went on to train, draw or grade."""

    code: int
    said: str
    failure: str  # a traceback
    again: bool


def typed(reader: Callable[[Checkout], Any], checkout: Checkout) -> Ended:
    out, failure, again = io.StringIO(), "", False
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            errors.run(lambda: reader(checkout))
        except SystemExit as ended:
            code = ended.code or 0
        except Again:
            again = True
        except Exception:
            failure = traceback.format_exc()
    return Ended(code if isinstance(code, int) else 1, out.getvalue(), failure, again)


# --- Commands ---------------------------------------------------------------------------------------------------------


def _command(module: str, *words: object) -> int | None:
    """`python -m MODULE WORDS`"""
    main = __import__(module, fromlist=["main"]).main
    with mock.patch.object(sys, "argv", [module, *map(str, words)]):
        return main()


def _each(run: Callable[[Checkout, Path], int | None], checkout: Checkout, pattern: str) -> int:
    """For each folder that was there; those after a failure as well, since they are other jobs."""
    folders = sorted({Path(name).parent for name in checkout.right if Path(name).match(pattern)})
    assert folders, pattern
    first: BaseException | None = None
    for folder in folders:
        try:
            run(checkout, folder)
        except (errors.BenchError, OSError, SystemExit, Again) as error:
            first = first or error
    if first is not None:
        raise first
    return 0


def _record(checkout: Checkout, path: Path) -> Any:
    """What Snakemake knows of a job, without reading what the job left: from the record as it was."""
    return json.loads(checkout.right[path.as_posix()])


def _train(checkout: Checkout) -> int | None:
    from methods import adapters

    def one(checkout: Checkout, folder: Path) -> int | None:
        spec = _record(checkout, folder / "run.json")["spec"]
        return _command("methods.train", "--spec", json_text(spec), "--out", folder)

    def train(_spec: object, run: Any, _stop: object) -> None:
        run.open()
        raise Again

    adapter = mock.Mock(train=train)
    with mock.patch.object(adapters, "adapter", return_value=adapter), mock.patch("signal.signal"):
        return _each(one, checkout, "results/*/runs/*/*/*/run.json")


def _generate(checkout: Checkout) -> int | None:
    import evals.generate

    def one(checkout: Checkout, folder: Path) -> int | None:
        record = _record(checkout, folder / "samples.json")
        model = Path(record["model"])
        made = (
            model / "base.json" if (model / "base.json").as_posix() in checkout.right else model.parents[1] / "run.json"
        )
        data = Path(next(iter(record["benchmarks"].values()))["data"]["file"]).parent
        return _command(
            "evals.generate", "--model", model, "--record", made, "--benchmarks", *record["benchmarks"],
            "--data", data, "--seed", record["seed"], "--out", folder,
        )  # fmt: skip

    with mock.patch.object(evals.generate, "_fill", side_effect=Again):
        return _each(one, checkout, "results/*/samples/*/*/*/*/samples.json")


def _grade(checkout: Checkout) -> int | None:
    from evals.grading.grader import Grader

    def one(checkout: Checkout, folder: Path) -> int | None:
        samples = Path(folder.as_posix().replace("/grades/", "/samples/"))
        record = _record(checkout, samples / "samples.json")
        data = Path(next(iter(record["benchmarks"].values()))["data"]["file"]).parent
        return _command("evals.grade", "--samples", samples, "--data", data, "--out", folder)

    with mock.patch.object(Grader, "grade", side_effect=Again):
        return _each(one, checkout, "results/*/grades/*/*/*/*/grades.json")


def _score(checkout: Checkout) -> int | None:
    tree = _planned(checkout)
    return _command(
        "evals.score", "--results", checkout.root, "--checkpoints", *(c.path for c in tree.checkpoints),
        "--benchmarks", *(entry["key"] for entry in tree.benchmarks), "--out", checkout.root / "scores.csv",
    )  # fmt: skip


def _planned(checkout: Checkout) -> Tree:
    """The plan as it was: Snakemake hands it to the commands from the configuration."""
    tree = Tree(checkout.root)
    tree.matrix = _record(checkout, checkout.root / "matrix.json")
    return tree


def _build(checkout: Checkout) -> int | None:
    data = [Path(name).parent for name in checkout.right if Path(name).match("results/cache/benchmarks/*.jsonl")]
    return _command(
        "report.build", "--results", checkout.root, *(("--data", data[0]) if "grade" in checkout.readers else ())
    )


def _on_tree(module: str, *words: str) -> Callable[[Checkout], int | None]:
    return lambda checkout: _command(module, *words, "--results", checkout.root)


READERS: dict[str, Callable[[Checkout], int | None]] = {
    "train": _train,
    "generate": _generate,
    "grade": _grade,
    "score": _score,
    "table": _on_tree("report.table", "--table", "1"),
    "show": _on_tree("report.show", "table1"),
    "figure": _on_tree("report.figure", "--figure", "figure2"),
    "convergence": _on_tree("report.convergence"),
    "claims": _on_tree("paper.claims.__main__"),
    "page": _build,
    "manifest": _on_tree("report.provenance.manifest"),
    "verify": _on_tree("report.verify"),
}


# --- Files and damages ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Files of one kind, and the commands that read them. `verify` reads all results, and comes last always."""

    name: str
    patterns: tuple[str, ...]  # for Path.match, below the checkout
    readers: tuple[str, ...]
    result: bool = True  # verify must see every damage
    maker: str = ""  # what Snakemake starts when the file is gone, before any of its readers


TREE = "results/*/"
RUN = TREE + "runs/*/*/*/"
CACHE = "results/cache/"
KINDS = (
    Kind("plan", (TREE + "matrix.json",), ("table", "show", "page")),
    Kind("run record", (RUN + "run.json",), ("train", "generate", "convergence", "page"), maker="train"),
    Kind("curve", (RUN + "curve.csv",), ("train", "figure", "convergence"), maker="train"),
    Kind("checkpoint", (RUN + "checkpoints/*/*",), ("train", "generate")),
    Kind("copies to restore from", (RUN + "state/run.json*", RUN + "state/curve.csv"), ("train",), result=False),
    Kind("identity of a run", (RUN + "state/identity.json*",), ("train",), result=False),
    Kind("base model", (CACHE + "models/*/*",), ("train", "generate")),
    Kind("training prompts", (CACHE + "prompts/*.jsonl",), ("train",)),
    Kind("benchmark", (CACHE + "benchmarks/*.jsonl",), ("generate", "grade", "page")),
    # Of no result, and without it its file is somebody's own.
    Kind("hash beside prompts", (CACHE + "prompts/*.sha256",), ("train",), result=False),
    Kind("hash beside a benchmark", (CACHE + "benchmarks/*.sha256",), ("generate", "grade"), result=False),
    Kind("samples record", (TREE + "samples/*/*/*/*/samples.json",), ("generate", "grade", "page"), maker="generate"),
    Kind("samples", (TREE + "samples/*/*/*/*/*.parquet",), ("generate", "grade", "page"), maker="generate"),
    Kind("kept samples", (TREE + "samples/*/*/*/*/.work/*/*",), ("generate",), result=False),
    Kind("grades record", (TREE + "grades/*/*/*/*/grades.json",), ("grade", "score", "page"), maker="grade"),
    Kind("grades", (TREE + "grades/*/*/*/*/*.parquet",), ("grade", "score", "table", "page"), maker="grade"),
    Kind("scores", (TREE + "scores.csv*",), ("table", "claims", "page"), maker="score"),
    Kind("table", (TREE + "tables/table1.*",), ("show", "page")),
    Kind("figure", (TREE + "figures/figure2.*",), ("page",)),
    Kind("convergence", (TREE + "figures/convergence*",), ("page",)),
    Kind("claims", (TREE + "claims.*",), ("page",)),
    Kind("audit", (TREE + "paper/*",), ("page",)),
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


def faults(checkout: Checkout, most: int, *, skip: Sequence[str] = ()) -> Iterator[Fault]:
    """So many faults, in an order that takes each kind with each damage once before any twice."""
    paths = {
        kind: sorted(
            n for n in checkout.right if any(Path(n).match(p) and n.count("/") == p.count("/") for p in kind.patterns)
        )
        for kind in KINDS
        if kind.name not in skip
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
    readers = (kind.maker,) if damage == "removed" and kind.maker else kind.readers
    for reader in [*(reader for reader in readers if reader in checkout.readers), "verify"]:
        checkout.draw.setstate(state)  # the same damage for each
        if not DAMAGES[damage](path, checkout.draw, others):
            checkout.restore()
            return None
        checkout.keep_time(name)
        damaged = checkout.now()
        ended = checkout.run(reader)
        came = _outcome(checkout, kind, name, reader, ended, damaged)
        now = checkout.now()
        other_files = [n for n in damaged.keys() | now.keys() if damaged.get(n) != now.get(n)]
        said = f"{ended.failure or ended.said}{len(other_files)} files changed: {', '.join(sorted(other_files)[:4])}"
        results.append((came, reader, said))
        checkout.restore()
    outcome, by, said = min(results, key=lambda result: WORST_FIRST.index(result[0]))
    return Fault(kind, name, damage, outcome, by, said)


def _outcome(checkout: Checkout, kind: Kind, name: str, reader: str, ended: Ended, damaged: dict[str, bytes]) -> str:
    after = checkout.now()
    # What the command may write; a samples file and what `generate` keeps of it may be one file.
    mine = {name} | {n for n in checkout.right if damaged.get(n) != checkout.right[n]}
    gone = checkout.right.keys() - after.keys() - mine
    if ended.failure:
        return "traceback"
    if ended.again:  # into the folder of its output: what lies there is replaced
        return "lost" if any(not n.startswith(_job(name)) for n in gone) else "made again"
    if gone:
        return "lost"
    if ended.code:
        lines = [line for line in ended.said.splitlines() if line.startswith("error: ")]
        told = ended.said if reader == "verify" and ended.code == 1 else "".join(lines)
        right_code = ended.code == (1 if reader == "verify" and not lines else 2)
        if not right_code or (reader != "verify" and len(lines) != 1) or not _names(told, name):
            return "traceback"
        return "named"
    other_output = {n for n in checkout.right.keys() - mine if after[n] != checkout.right[n]}
    if other_output or (set(after) - set(checkout.right) - {name}):
        return "silent"
    if all(after.get(n) == checkout.right[n] for n in mine):
        return "made again"
    if reader == "verify" and kind.result:
        return "silent"
    return "harmless"


def _job(name: str) -> str:
    """The folder of the job that made a file: of a run, of an evaluation."""
    parts = name.split("/")
    return "/".join(parts[: {"runs": 6, "samples": 7, "grades": 7}.get(parts[2], 3)])


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


def table(found: Sequence[Fault]) -> list[str]:
    """Markdown: one line per kind with its faults by outcome."""
    lines = ["| damaged file | faults | " + " | ".join(WORST_FIRST) + " |", "|---|" + "---|" * (len(WORST_FIRST) + 1)]
    for kind in KINDS:
        counts = Counter(fault.outcome for fault in found if fault.kind is kind)
        if counts:
            cells = " | ".join(str(counts[outcome]) for outcome in WORST_FIRST)
            lines.append(f"| {kind.name} | {counts.total()} | {cells} |")
    counts = Counter(fault.outcome for fault in found)
    cells = " | ".join(f"{counts[outcome]}" for outcome in WORST_FIRST)
    return [*lines, f"| all | {counts.total()} | {cells} |"]


def damages(found: Sequence[Fault]) -> list[str]:
    return [f"{count:6d}  {name}" for name, count in Counter(fault.damage for fault in found).most_common()]


def run(folder: Path, scale: str, most: int, seed: int) -> list[Fault]:
    """So many faults in a checkout with a finished tree, printed with their table; those that must not be, at once."""
    began = time.monotonic()
    checkout = Checkout(folder, scale, tuple(READERS), random.Random(seed))
    checkout.settle()
    found = []
    for fault in faults(checkout, most):
        found.append(fault)
        if fault.outcome in BAD:
            print(f"{fault.outcome}: {fault.path}: {fault.damage}: {fault.by}: {fault.said[-800:]}", flush=True)
        if len(found) % 20 == 0:
            print(f"{len(found)} faults, {time.monotonic() - began:.0f} s", flush=True)
    print("\n".join([*table(found), *damages(found)]))
    print(f"{len(found)} faults at rest, seed {seed}, {time.monotonic() - began:.0f} s", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkout", type=Path, required=True, help="a copy of results/ of a finished tree: its parent"
    )
    parser.add_argument("--scale", default="small")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = run(given.checkout, given.scale, given.faults, given.seed)
    return int(any(fault.outcome in BAD for fault in found))


if __name__ == "__main__":
    sys.exit(main())
