"""The room everything stands on: atomic writes, layout, errors, hashes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from records import errors, provenance
from records.errors import ConfigError, CorruptInputError, MissingInputError, unknown
from records.files import atomic, read_json, read_jsonl, write_json, write_text
from records.layout import Checkpoint, Results, Run
from records.progress import Progress


def test_atomic_leaves_the_old_file_when_the_writer_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def fail_halfway() -> None:
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("half")

    with pytest.raises(RuntimeError, match="half"):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path], "no temporary file may stay behind"


def test_json_refuses_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()


def test_reading_missing_and_broken_files_names_them(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"a\.json: run record is missing"):
        read_json(tmp_path / "a.json", "run record")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(CorruptInputError, match=r"a\.json: file is not valid JSON"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a"\n')
    with pytest.raises(CorruptInputError, match="line 2"):
        read_jsonl(tmp_path / "a.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(CorruptInputError, match="no rows"):
        read_jsonl(tmp_path / "empty.jsonl")


@pytest.mark.parametrize("checkpoint", [Checkpoint(Run("m", "tepo+beta=1", 3), 8), Checkpoint.base("tiny_qwen2")])
def test_checkpoint_paths_round_trip(checkpoint: Checkpoint) -> None:
    assert Checkpoint.parse(Results(Path("results/quick")).samples(checkpoint)) == checkpoint


@pytest.mark.parametrize("path", ["m/tepo/8", "m/tepo/seed1/rollout3", "tepo/seed1/step2"])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="not of the form"):
        Checkpoint.parse(path)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a b"])
def test_a_run_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(ConfigError, match="folder name"):
        Run("m", name, 1)


def test_unknown_names_everything() -> None:
    message = str(unknown("f.yaml", "methods", "gspoo", ["tepo", "gspo"]))
    assert message == "f.yaml: methods: unknown value 'gspoo'; allowed: gspo, tepo; nearest: gspo"
    assert "nearest" not in str(unknown("f", "k", "zzzz", ["tepo"]))


def test_a_users_error_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise ConfigError("f.yaml: wrong")

    with pytest.raises(SystemExit) as stop:
        errors.run(main)
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: f.yaml: wrong\n"


def test_environment_says_none_for_what_it_does_not_know() -> None:
    environment = provenance.environment()
    assert environment["packages"]["vllm"] is None or isinstance(environment["packages"]["vllm"], str)
    assert environment["packages"]["torch"]
    json.dumps(environment, allow_nan=False)


def test_progress_always_prints_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("job", 3, every=1e9)
    for done in (1, 2, 3):
        progress.update(done, reward=0.5, missing=None)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["[job] 1/3", "[job] 3/3"]
    assert "reward 0.5" in lines[-1]
    assert "missing" not in lines[-1]


@pytest.mark.parametrize(
    "module",
    [
        "records",
        "methods.catalog",
        "methods.readings",
        "evals.benchmark",
        "models.registry",
        "workflow.matrix",
    ],
)
def test_what_snakemake_parses_imports_no_torch(module: str) -> None:
    """The Snakefile is parsed in every job and on login nodes without torch."""
    heavy = ("torch", "transformers", "trl", "lm_eval", "pandas", "matplotlib", "numpy")
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
