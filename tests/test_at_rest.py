"""Faults at rest: one file of a finished tree is damaged; every command that reads it names it or changes nothing."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from core import digests, errors
from core.files import read_json, write_json
from core.results_tree import Tree
from report.provenance import manifest
from tests.core.test_digests import flip
from tests.report import synthetic
from tests.report.conftest import write_files
from tests.report.finished import finish

ROOT = "results/quick"
READERS = {
    "score": "evals.score --out results/quick/scores.csv",
    "table": "report.table --table 1",
    "show": "report.show table1",
    "convergence": "report.convergence",
    "page": "report.build",
    "manifest": "report.provenance.manifest",
    "verify": "report.verify",
}
KINDS = {  # pattern of files -> the commands that read them; `verify` reads all
    "matrix.json": "table show page", "runs/*/*/*/run.json": "convergence page", "runs/*/*/*/curve.csv": "convergence",
    "runs/*/*/*/checkpoints/*/*": "", "samples/*/*/*/*/samples.json": "page", "samples/*/*/*/*/*.parquet": "page",
    "grades/*/*/*/*/grades.json": "score page", "grades/*/*/*/*/*.parquet": "score table page",
    "scores.csv": "table page", "tables/table1.tidy.csv": "show page", "figures/figure2.csv": "page",
    "figures/convergence.csv": "page", "claims.csv": "page", "report.html": "", "report.data/**/*": "",
    manifest.NAME: "",
}  # fmt: skip


def run(reader: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code of the command as typed, and what it printed; a traceback goes through."""
    module, *words = READERS[reader].split()
    if reader == "score":
        tree = Tree(Path(ROOT))
        checkpoints, benchmarks = (str(c.path) for c in tree.checkpoints), (entry["key"] for entry in tree.benchmarks)
        words += ["--checkpoints", *checkpoints, "--benchmarks", *benchmarks]
    capsys.readouterr()
    try:
        with mock.patch("sys.argv", [module, *words, "--results", ROOT]):
            errors.run(importlib.import_module(module).main)
    except SystemExit as ended:
        return int(ended.code or 0), "".join(capsys.readouterr())
    return 0, ""


def contents() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}


def put(right: dict[Path, bytes], times: dict[Path, int]) -> None:
    """The tree as it was, times too: the page tells when the last run ended."""
    for path in contents().keys() - right.keys():
        path.unlink()
    for path, content in right.items():
        if not path.is_file() or path.read_bytes() != content:
            with contextlib.suppress(OSError):
                path.rmdir()
            path.write_bytes(content)
        os.utime(path, ns=(times[path],) * 2)


@pytest.mark.slow
def test_no_fault_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = finish(Tree(synthetic.write_tree(Path(ROOT))))
    for pattern in ("matrix.json", "runs/*/*/*/run.json", "samples/**/samples.json", "grades/**/grades.json"):
        for path in tree.root.glob(pattern):
            write_json(path, digests.with_own(read_json(path)))
    write_files(tree)
    for reader in [*READERS, *READERS]:  # the second time nothing changes
        code, said = run(reader, capsys)
        assert code == 0 or reader == "verify", said
    right = contents()
    times = {path: path.stat().st_mtime_ns for path in right}
    assert run("verify", capsys)[0] == 0
    for number, (pattern, readers) in enumerate(KINDS.items()):
        path, *others = sorted(path for path in Path(ROOT).glob(pattern) if path.is_file())
        damages: list[Callable[[Path], object]] = [
            lambda path: flip(path, 0.4), lambda path: os.truncate(path, len(right[path]) // 2), Path.unlink,
            lambda path: (path.unlink(), path.mkdir()),
            lambda path, other=others[-1] if others else None: path.write_bytes(right[other] if other else b""),
        ]  # fmt: skip
        for damage in (damages[number % 5], damages[(number + 2) % 5]):
            for reader in (*readers.split(), "verify"):
                damage(path)
                if path.is_file():
                    os.utime(path, ns=(times[path],) * 2)
                damaged, case = contents(), (pattern, number, reader)
                code, said = run(reader, capsys)
                after = contents()
                if code:
                    assert code == (1 if reader == "verify" and "error: " not in said else 2), (case, said)
                    assert path.name in said or f"{path.parent.name}/" in said or f"{path.parent.name}:" in said, case
                    assert reader == "verify" or said.count("error: ") == 1, (case, said)
                else:  # the damaged file may be written again; nothing follows from the damage
                    assert reader != "verify", case
                    assert {p for p in after if after[p] not in (right.get(p), damaged.get(p))} == set(), case
                put(right, times)
