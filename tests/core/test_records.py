"""Files, records and command lines: written whole, read strictly; whatever a file holds, one line names it."""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core import errors
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError, real, whole
from core.files import (
    atomic,
    read_csv,
    read_growing_csv,
    read_json,
    read_jsonl,
    read_yaml,
    to_csv,
    write_json,
    write_text,
)
from core.layout import Checkpoint, Results, Run
from core.provenance import ROOT
from evals import benchmark as data
from evals import learning_curves, store
from evals.scores import read_rows
from evals.tree import Tree, read_manifest
from methods.training import spec
from models import registry
from paper import verdicts
from report import convergence, page, rows, show, tables
from tests.adapters import worlds
from tests.report import synthetic
from workflow import config


def test_the_old_file_stays_when_its_writer_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")
    with suppress(RuntimeError), atomic(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("half")
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"x": float("nan")})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path], "no temporary file may stay behind"


def test_a_missing_file_is_named_and_a_bad_row_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"a\.json: run record is missing"):
        read_json(tmp_path / "a.json", "run record")
    rows = {'{"a": 1}\n{"a"\n': "line 2", '{"a": 1}\n[1]\n': "line 2 of file must be an object", "\n": "no rows"}
    for text, words in rows.items():
        (tmp_path / "a.jsonl").write_text(text)
        with pytest.raises(CorruptInputError, match=words):
            read_jsonl(tmp_path / "a.jsonl")


@pytest.mark.parametrize("cell", ["a\rb", "a\r\nb", "\r", "a\nb", 'a"b', "a,b", " a ", "plain", ""])
def test_a_table_is_read_as_it_was_written(cell: str, tmp_path: Path) -> None:
    rows = [{"name": cell, "value": "0.1"}] * 2
    write_text(tmp_path / "table.csv", to_csv(("name", "value"), rows))
    assert read_csv(tmp_path / "table.csv", "table", ("name", "value")) == rows
    text = (tmp_path / "table.csv").read_bytes()
    assert text.startswith(b"name,value\n")
    assert text.endswith(b",0.1\n"), "lines end as they always did"


def test_checkpoint_paths_round_trip_and_others_are_refused() -> None:
    for checkpoint in (Checkpoint(Run("m", "tepo+beta=1", 3), 8), Checkpoint.base("tiny_qwen2")):
        assert Checkpoint.parse(Results(Path("results/quick")).samples(checkpoint)) == checkpoint
    for path in ("m/tepo/8", "m/tepo/seed1/rollout3", "tepo/seed1/step2"):
        with pytest.raises(ConfigError, match="not of the form"):
            Checkpoint.parse(path)
    for name in ("../x", "a/b", "", "a b"):
        with pytest.raises(ConfigError, match="folder name"):
            Run("m", name, 1)


LIGHT = (  # read on login nodes without torch, in every job of a cluster, and by commands before they hand over
    "methods.catalog, methods.adapters.trl, models.registry, workflow.plan, evals.placebo, evals.benchmark, "
    "models.build, models.prompts, models.recipe, paper.printed"
)


def test_imports_are_light() -> None:
    heavy = ("torch", "transformers", "trl", "lm_eval", "pandas", "matplotlib", "numpy")
    code = f"import sys, {LIGHT}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_users_error_and_what_the_system_refuses_are_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that cannot be written: as root nearly all can, so a file stands where a folder is needed."""
    (tmp_path / "file").touch()

    def fail(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    commands: dict[Path, Callable[[Path], None]] = {
        tmp_path / "file" / "a.json": lambda path: write_json(path, {}),
        tmp_path / ("x" * 300): lambda path: write_json(path, {}),
        tmp_path / "none": read_json,
        tmp_path / "full": fail,
    }
    for path, command in commands.items():
        with pytest.raises(SystemExit) as stop:
            errors.run(lambda path=path, command=command: command(path))
        said = capsys.readouterr().err
        assert stop.value.code == 2
        assert said.startswith(f"error: {path}: ")
        assert said.count("\n") == 1
    assert "bytes, or files: df -i); free some space, then run the same command again" in said


def test_a_closed_pipe_is_no_error() -> None:
    """`... | head`, which closes it."""
    code = "from core import errors; errors.run(lambda: [print('x' * 1000, flush=True) for _ in range(1000)] and None)"
    command = ["bash", "-c", 'set -o pipefail; "$0" -c "$1" | head -c 1', sys.executable, code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "x", "")


DEEP = b"[" * 200 + b"]" * 200
BAD_JSON = (
    b'{"a": NaN}', b'{"a": 1e999}', b'{"a": 9223372036854775808}', b'{"a": ' + b"1" * 5000 + b"}", b"[" * 100_000,
    b'{"a": "\\ud800"}', b'{"a": "\xff"}', b'{"a": ', b"",
)  # fmt: skip
BAD_YAML = (
    b"a: " + b"[" * 100_000, b"{a: " * 100_000, b"a: " + DEEP, b"a: 2001-99-99", b"a: !!timestamp x", b"? [a]\n: b",
    b"a: " + b"1" * 5000, b"a: 9223372036854775808", b'a: "\\ud800"', b"a: \xff", b"a: !!python/object:os.system x",
    b"- a", b"a: 1\na: 2", b"a: [1,", b"",
)  # fmt: skip


def test_json_and_yaml_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    kinds = ((BAD_JSON, read_json, CorruptInputError), (BAD_JSON, read_jsonl, CorruptInputError))
    for bad, read, kind in (*kinds, (BAD_YAML, read_yaml, ConfigError)):
        for raw in bad:
            path.write_bytes(raw)
            with pytest.raises(kind, match=rf"^{path}: [^\n]*$"):
                read(path)
    path.write_bytes(b"a: 3e-5\nb: 0x1F")
    assert read_yaml(path) == {"a": 3e-5, "b": 31}, "an exponent without a dot is a number"


def test_a_growing_table_may_end_anywhere_and_a_ragged_line_is_named(tmp_path: Path) -> None:
    for text in ("a,b\n1\n", 'a,b\n1,"x\n', "a,b\n1,2,3\n"):
        (tmp_path / "curve.csv").write_text(text, encoding="utf-8")
        with pytest.raises(CorruptInputError, match=r"curve\.csv: "):
            read_growing_csv(tmp_path / "curve.csv")
    (tmp_path / "curve.csv").write_bytes(b"a,b\n1,2\n3\xff")
    assert read_growing_csv(tmp_path / "curve.csv") == [{"a": "1", "b": "2"}]


def test_what_is_no_number_or_out_of_bounds_is_refused():
    kinds = (whole(1, 60), real(least=0, most=1e9), real(above=0, most=60))
    wrong = [(kind, text) for kind in kinds for text in ("nan", "-inf", "1e999", "-1", "x", "", "9" * 5000, "0x1")]
    for kind, text in [*wrong, (whole(1, 60), "61"), (whole(1), "1.0"), (real(above=0, most=60), "0")]:
        with pytest.raises(argparse.ArgumentTypeError, match="must be a"):
            kind(text)
    assert (whole(1, 60)("1"), whole(1, 60)("60"), real(least=0, most=60)("0")) == (1, 60, 0)


RUN = Run("tiny_qwen2", "tepo", 1)
REFERENCE = ROOT / "results/reference/embedded"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Invented results, and beside them a copy of what the kept reference has of every other file."""
    root = synthetic.write_tree(tmp_path_factory.mktemp("results") / "quick")
    (root / "spec.json").write_text(json.dumps(worlds.spec(Path("world"))), encoding="utf-8")
    (root / "items.jsonl").write_text('{"problem": "1+1", "answer": "2", "level": 3}\n' * 3, encoding="utf-8")
    (root / "claims.csv").write_bytes((Tree(REFERENCE).root / "claims.csv").read_bytes())
    (root / "manifest.json").write_text(json.dumps(read_manifest(Tree(REFERENCE).root)), encoding="utf-8")
    made = Tree(root)
    tables.write(made, "1")
    convergence.write(made)
    shutil.copyfile(ROOT / "config/embedded.yaml", root / "embedded.yaml")
    shutil.copyfile(ROOT / "config/models/tiny_qwen2.yaml", root / "tiny_qwen2.yaml")
    shutil.copyfile(ROOT / "report/tables.yaml", root / "tables.yaml")
    return Tree(root)


def page_of_runs(path: Path) -> None:
    """Everything that the page says of run records."""
    found = Tree(path.parents[4])
    for run in found.runs:
        record = found.record(run)
        if record is not None:
            page.facts(found), page.warnings(found, [])


AT = Checkpoint(RUN, 12).path.as_posix()
READERS: dict[str, Callable[[Path], Any]] = {  # file in the tree -> what reads it
    f"runs/{RUN.path.as_posix()}/run.json": page_of_runs,
    f"runs/{RUN.path.as_posix()}/curve.csv": learning_curves.read_curve,
    "matrix.json": lambda path: show.progress(Tree(path.parent)),
    f"samples/{AT}/samples.json": store.read_record,
    f"grades/{AT}/grades.json": lambda path: store.entry_of(store.read_record(path), path, "syn_as3"),
    "manifest.json": lambda path: read_manifest(path.parent),
    "scores.csv": read_rows,
    "claims.csv": verdicts.read,
    "spec.json": lambda path: spec.read(str(path)),
    "items.jsonl": lambda path: data.content_sha256(data.items(read_jsonl(path), str(path))),
    "embedded.yaml": lambda path: config.resolved([path]),
    "tiny_qwen2.yaml": lambda path: (registry._of_file.cache_clear(), registry.model("tiny_qwen2", path.parent)),
    "tables.yaml": rows.tables,
    "figures/convergence.csv": lambda path: [*show.learnt(Tree(path.parents[1]), {"blocks": []})],
    "tables/table1.tidy.csv": lambda path: tables.read(Tree(path.parents[1]), "1"),
}

STRANGE = (
    b"null", b"true", b"-1", b"2.5", b"1e300", b'""', b'"x"', b'"../../x"', b'"a\\nb"', b"[]", b"[[1]]", b"{}",
    b'{"x": null}', b"NaN", b"1e999", b"1" * 30, b"1" * 5000, b'"\\ud800"', b"[" * 100_000, b"{a: " * 50_000, b"\xff",
    b"\0", b"",
)  # fmt: skip
VALUE = re.compile(rb'(?<=[:,\[]) *("[^"]*"|[^\s",{}\[\]]+)|(?<=[,\n])[^,\n]+')  # of JSON and YAML; a cell of a table


def damages(content: bytes, count: int) -> Iterator[bytes]:
    """Yield the content cut, with something strange in it, and with a value that is another one."""
    draw, values = random.Random(0), [found.span() for found in VALUE.finditer(content)][:2000]
    for _ in range(count):
        place, strange, (start, end) = draw.randrange(len(content)), draw.choice(STRANGE), draw.choice(values)
        yield content[:place]
        yield content[:place] + strange + content[place + 1 :]
        yield content[:start] + b" " + strange + content[end:]


@pytest.mark.parametrize("name", READERS)
def test_a_reader_works_or_names_the_file_in_one_line(name: str, tree: Tree) -> None:
    path, said = (tree.root / name).resolve(), []
    content, reader = path.read_bytes(), READERS[name]
    reader(path)  # as it is, it can be read
    count = 5 if len(content) > 10_000 else 20  # long files take long to read; their places are much alike
    try:
        for damaged in damages(content, count):
            path.write_bytes(damaged)
            try:
                reader(path)
            except BenchError as error:
                said.append(str(error))
        path.unlink()
        path.mkdir()
        with pytest.raises((BenchError, OSError)):
            reader(path)
        path.rmdir()
    finally:
        path.write_bytes(content)
    assert said, "nothing was refused"
    assert [line for line in said if "\n" in line or line in ("", "None")] == []
