"""`python -m studies.atlas`: run every framework's own loss code on the same batches, and compare with ours.

Writes docs/notebook/atlas.csv, one line for each framework and name, and prints what moved since the kept file; the
page beside it is written by hand. `--only NAME` runs one framework and keeps the others' lines. `--microbatches` takes
the frameworks' own update in place of the loss, split in several ways, and writes docs/notebook/microbatches.csv.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core import errors
from core.errors import BenchError, Parser, unknown
from core.files import read_csv, read_json, read_yaml, to_csv, write_text
from core.provenance import ROOT
from studies.atlas import explain, microbatches
from studies.atlas.explain import SAME, Answer, Ingredients, batches, packed

KEPT = ROOT / "docs" / "notebook" / "atlas.csv"
COLUMNS = ("name", "framework", "function", "verdict", "apart", "differs", "batches", "defaults", "note")
HERE = Path(__file__).parent
DECLARED = HERE / "frameworks.yaml"
RUNNER_SECONDS = 1800  # a guard: importing a trainer takes most of a minute on a busy machine


def installed(framework: Mapping[str, Any], folder: Path) -> Path | None:
    """The folder that holds the framework's version; None: this environment. Installed once."""
    if framework.get("installed"):
        return None
    target = folder / framework["package"].replace("==", "-")
    if not (target / ".complete").is_file():
        packages = [framework["package"], *framework.get("with", ())]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), *packages]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode:
            raise BenchError(f"{framework['name']}: cannot install {' '.join(packages)}: {done.stderr.strip()[-300:]}")
        (target / ".complete").touch()
    return target


def answers(
    framework: Mapping[str, Any], front: Path | None, work: Path
) -> tuple[dict[str, dict[str, Answer]], dict[str, Any]]:
    """name -> batch -> answer, and the runner's facts, of one framework. front: a folder that is imported first."""
    work.mkdir(parents=True, exist_ok=True)
    stem = framework["name"].replace(" ", "-")
    asked, told = work / "batches.npz", work / f"{stem}.npz"
    np.savez(asked, **packed(batches()))  # type: ignore[arg-type]
    environment = {"PYTHONPATH": str(front or ""), "PYTHONUTF8": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    command = [sys.executable, str(HERE / f"runners/{framework['runner']}.py"), str(asked), str(told)]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=RUNNER_SECONDS,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"{framework['name']}: {' '.join(done.stderr.split())[-400:]}")
    found: dict[str, dict[str, Answer]] = {}
    with np.load(told) as stored:
        for key in stored.files:
            name, batch, what = key.split("|")
            if what == "gradient":
                value = float(stored[f"{name}|{batch}|value"])
                found.setdefault(name, {})[batch] = (value, torch.from_numpy(stored[key]))
    return found, read_json(told.with_suffix(".json"))


def lines(
    framework: str,
    found: Mapping[str, Mapping[str, Answer]],
    facts: Mapping[str, Any],
    notes: Sequence[Mapping[str, str]],
) -> Iterator[dict[str, str]]:
    """One line a name: same loss as ours, or the ingredients that differ, the first one first."""
    named = batches()
    for name, fact in facts.items():
        theirs = found.get(name, {})
        distances = {batch: explain.apart(explain.ours(name, named[batch]), there) for batch, there in theirs.items()}
        differs, other = "", [batch for batch, distance in distances.items() if not distance <= SAME]
        if not theirs:
            verdict, differs = "refuses", next(iter(fact["refused"].values()))
        elif not other:
            verdict = "same"
        else:
            verdict, mine = "differs", explain.own_ingredients(name, named)
            there = explain.ingredients(name, theirs, named, mine)
            differs = _changes(mine, there)
        yield {
            "name": name,
            "framework": framework,
            "function": fact["function"],
            "verdict": verdict,
            "apart": f"{max(distances.values()):.1e}" if distances else "",
            "differs": differs,
            "batches": " ".join(batch.replace(" ", "-") for batch in other),
            "defaults": "; ".join(f"{key} {value}" for key, value in fact["defaults"].items()),
            "note": next((n["says"] for n in notes if n["name"] == name and framework.startswith(n["framework"])), ""),
        }  # fmt: skip


def _changes(mine: Ingredients | None, there: Ingredients | None) -> str:
    if there is None:
        return "no composition of ours"
    if there.other:
        return there.other
    if mine is None:
        return "; ".join(f"{name} {value}" for name, value in vars(there).items() if value)
    return "; ".join(f"{name}: {theirs} (ours {ours})" for name, (ours, theirs) in mine.changes(there).items())


def moved(before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]) -> list[str]:
    """One sentence for every cell that is new, gone or not what it was."""
    old, new = ({(row["name"], row["framework"]): row for row in rows} for rows in (before, after))
    said = []
    for key in dict.fromkeys([*old, *new]):
        label = " of ".join(key)
        if key not in new:
            said.append(f"gone: {label}")
        elif key not in old:
            said.append(f"new: {label}: {new[key]['verdict']} {new[key]['differs']}".rstrip())
        else:
            was, now = ((row["verdict"], row["differs"]) for row in (old[key], new[key]))
            if was != now:
                said.append(f"moved: {label}: {' '.join(was).strip()} -> {' '.join(now).strip()}")
            elif old[key]["defaults"] != new[key]["defaults"]:
                said.append(f"defaults of {label}: {old[key]['defaults']} -> {new[key]['defaults']}")
    return said


def main() -> None:
    parser = Parser(description="Run every framework's own loss code on the same batches.")
    parser.add_argument("--out", type=Path, help="default: the kept file")
    parser.add_argument("--microbatches", action="store_true", help="splits over micro-batches, generations and ranks")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a framework of frameworks.yaml; may be repeated"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build/atlas", help="where versions are installed")
    args = parser.parse_args()
    declared = read_yaml(DECLARED, "frameworks of the atlas")
    frameworks = declared["microbatches" if args.microbatches else "frameworks"]
    names = [framework["name"] for framework in frameworks]
    for name in args.only or ():
        if name not in names:
            raise unknown("--only", "framework", name, names)
    columns = microbatches.COLUMNS if args.microbatches else COLUMNS
    out = args.out or (microbatches.KEPT if args.microbatches else KEPT)
    kept = read_csv(out, "the kept answers", columns) if out.is_file() else []
    rows: list[dict[str, str]] = []
    for framework in frameworks:
        name = framework["name"]
        before = [row for row in kept if name == " ".join(filter(None, (row["framework"], row.get("version"))))]
        if args.only and name not in args.only:  # keeps its lines
            rows += before
            continue
        print(f"{name}: running", flush=True)
        front, work = installed(framework, args.folder), args.folder / "answers"
        if args.microbatches:
            now = list(microbatches.lines(name, microbatches.gradients(framework, front, work)))
            said = microbatches.table(now) + ["moved since the kept file"] * (now != before)
            print(*said, sep="\n", flush=True)
        else:
            now = list(lines(name, *answers(framework, front, work), declared["notes"]))
        rows += now
    departing = ""
    if args.microbatches:
        departing = f", {sum(map(microbatches.departs, rows))} not the whole batch's gradient"
    else:
        for r in declared["read"]:
            cells = {"name": r["name"], "framework": r["framework"], "differs": r["says"], "note": r["where"]}
            rows.append({**dict.fromkeys(COLUMNS, ""), "verdict": "read", **cells})
        print(*moved(kept, rows) or ["nothing moved"], sep="\n")
    write_text(out, to_csv(columns, rows))
    print(f"{out}  {len(rows)} lines{departing}")


if __name__ == "__main__":
    errors.run(main)
