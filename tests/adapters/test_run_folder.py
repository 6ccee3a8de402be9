"""What damages a run's folder between two processes: it is named, and the run ends with the same bytes.

The trainer here computes a chain of hashes: each update follows from the one before it, as weights do, in microseconds.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core import digests
from core.code import Code
from core.errors import BenchError, CorruptInputError
from core.files import read_json, write_json, write_text
from methods.training.curve import COLUMNS
from methods.training.run_folder import RunFolder, identity
from methods.training.spec import Spec, check
from tests.adapters import worlds
from tests.core.test_digests import flip

HASH = cache(Code.hash.fget)  # type: ignore[attr-defined]
ROLLOUTS, CHECKPOINTS, UPDATES = 6, (2, 4, 6), 4  # updates per rollout, as worlds.TRAINING has them


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    """Of a run on a base that no library could load: nothing here does."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "base").mkdir()
    for name, content in {"config.json": "{}", "tokenizer.json": "[]", "model.safetensors": "weights"}.items():
        (folder / "base" / name).write_text(content)
    digests.write_folder(folder / "base")
    write_text(folder / "prompts.jsonl", '{"prompt": "1+1", "answer": "2"}\n')
    return check(worlds.spec(folder, checkpoints=CHECKPOINTS, rollouts=ROLLOUTS))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash the code once, not once per run; wait for no disk, since no power is cut here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(Code, "hash", property(HASH))


def train(out: Path, spec: Spec, *, until: int = ROLLOUTS + 1, code: str = "") -> RunFolder:
    """Train, or go on; a kill after `until` rollouts and two updates of the next. code: another hash of the code."""
    run = RunFolder(out, spec)
    run.identity |= {"code": code} if code else {}
    if run.finished():
        return run
    start = run.open()
    weights = (start / "weights.bin").read_bytes() if start else b""
    for rollout in range(run.start.rollout + 1, ROLLOUTS + 1):
        for update in range(UPDATES):
            if rollout > until and update == 2:
                run.curve.close()
                return run
            weights = hashlib.sha256(weights).digest()
            value = int.from_bytes(weights[:4], "big") / 2**32
            agreeing = {"sampling_gap_mean": 0.0}  # any other number would be an alarm
            row = dict.fromkeys(COLUMNS, value) | agreeing
            run.curve.append(row | {"rollout": rollout, "update": len(run.curve.rows)})
        if rollout in CHECKPOINTS:
            run.publish(rollout, lambda folder, content=weights: write_model(folder, content))  # type: ignore[misc]
        state = run.state / f"checkpoint-{rollout * UPDATES}"
        state.mkdir()
        (state / "weights.bin").write_bytes(weights)
        (state / "trainer_state.json").write_text(json.dumps({"step": rollout}))
        run.save(state, update=rollout * UPDATES, rollout=rollout, refill_position=rollout)
    run.curve.close()
    run.finish({}, ROLLOUTS * UPDATES, None)
    return run


def write_model(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}')


def outputs(out: Path) -> dict[str, bytes]:
    paths = [out / "curve.csv", *(path for path in (out / "checkpoints").rglob("*") if path.is_file())]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def straight(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("straight") / "run"
    train(out, spec)
    return out


DAMAGES: dict[str, Callable[[Path, float], object]] = {
    "a bit flipped": flip,
    "cut short": lambda path, share: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)]),
    "emptied": lambda path, _: path.write_bytes(b""),
    "gone": lambda path, _: path.unlink(),
}


@pytest.fixture(scope="module")
def interrupted(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed after four rollouts: two states, two checkpoints, and two rows of the fifth rollout."""
    out = tmp_path_factory.mktemp("interrupted") / "run"
    train(out, spec, until=4)
    assert sorted(path.name for path in out.glob("state/checkpoint-*")) == ["checkpoint-12", "checkpoint-16"]
    return out


def resumed_at(said: str) -> int:
    """Updates of the state that the last process resumed from; 0: the beginning."""
    found = re.findall(r"run: (?:resuming from \S+checkpoint-(\d+)|starting from the beginning) \(", said)
    return int(found[-1] or 0)


def copied(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder / "run")
    return folder / "run"


# Updates of the state that is resumed from if a file of this folder is damaged; of any other: the newest.
FALLBACK = {"state/checkpoint-16/": 12, "checkpoints/step4/": 12, "checkpoints/step2/": 0}


@pytest.mark.parametrize("how", DAMAGES)
def test_whatever_is_damaged_the_run_ends_with_the_same_bytes(
    how: str, interrupted: Path, straight: Path, spec: Spec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in sorted(path for path in interrupted.rglob("*") if path.is_file()):
        name = path.relative_to(interrupted).as_posix()
        out = copied(interrupted, tmp_path / name)
        DAMAGES[how](out / name, 0.4)
        train(out, spec)
        said = capsys.readouterr().out
        assert outputs(out) == outputs(straight), name
        expected = next((update for folder, update in FALLBACK.items() if name.startswith(folder)), 16)
        assert resumed_at(said) == expected, (name, said)
        assert said.count(": not resumed from: ") == {16: 0, 12: 1, 0: 2}[expected], (name, said)
        if expected != 16 and how not in ("gone", "emptied"):
            assert name.split("/")[1 if name.startswith("checkpoints/") else -1] in said, name


def test_without_a_whole_state_or_with_the_checkpoint_of_another_run(
    interrupted: Path, straight: Path, spec: Spec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for update, line in {0: "trainer_state.json", 12: "step4 is not the one that was published before it"}.items():
        out = copied(interrupted, tmp_path / str(update))
        if update:
            (out / "checkpoints/step4/model.safetensors").write_bytes(b"others")
            digests.write_folder(out / "checkpoints/step4")
        else:
            for name in ("checkpoint-16/weights.bin", "checkpoint-12/trainer_state.json"):
                flip(out / "state" / name, 0.3)
        train(out, spec)
        said = capsys.readouterr().out
        assert (resumed_at(said), line in said) == (update, True)
        assert outputs(out) == outputs(straight)
    out = copied(interrupted, tmp_path / "another")
    document = {**spec.document, "training": spec.document["training"] | {"learning_rate": 1e-3}}
    train(out, check(document), until=2)
    said = capsys.readouterr().out
    assert said.count("not resumed from: belongs to a run with other spec") == 2
    train(out, spec)
    assert outputs(out) == outputs(straight)


def test_a_checkpoint_damaged_before_the_end_is_no_result(
    spec: Spec, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, before = tmp_path / "run", RunFolder.finish

    def finish(run: RunFolder, *facts: Any) -> None:
        flip(out / "checkpoints/step2/model.safetensors", 0.6)
        before(run, *facts)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", finish)
        with pytest.raises(CorruptInputError, match=r"step2: is not .*; run the same command to have it made again$"):
            train(out, spec)
    assert not (out / "run.json").exists()
    train(out, spec)
    assert outputs(out) == outputs(straight)


@pytest.mark.parametrize("name", ["run.json", "curve.csv", "checkpoints/step6/generation_config.json"])
def test_a_finished_run_is_verified_by_its_hashes(
    name: str, straight: Path, spec: Spec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged curve comes back from its copy; without an intact copy, as with other damages, the run trains again."""
    for how, damage in DAMAGES.items():
        if (name, how) == ("run.json", "a bit flipped"):
            continue  # a record has no hash of itself
        out = copied(straight, tmp_path / how)
        damage(out / name, 0.4)
        if name == "curve.csv":
            train(out, spec)
            assert capsys.readouterr().out == f"{out / name}: was damaged; restored from {out / 'state' / name}\n"
            assert outputs(out) == outputs(straight), how
            for path in (out / name, out / "state" / name):
                damage(path, 0.4)
        train(out, spec)
        said = capsys.readouterr().out
        assert outputs(out) == outputs(straight), how
        if (name, how) != ("run.json", "gone"):  # Snakemake itself removes it
            assert str(out / name.rpartition("/")[0]) in said, how
            assert ("training again" in said, "restored" in said) == (True, False), how
    # what a desktop or a network file system adds to a folder is no damage
    for hidden in (".DS_Store", ".nfs0001"):
        (out / "checkpoints/step2" / hidden).touch()
    assert RunFolder(out, spec).finished()


def test_a_base_is_verified_by_its_record_or_identifies_the_run(spec: Spec, tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        base = tmp_path / name
        shutil.copytree(spec.base, base)
        (base / digests.SUMS).unlink()
        own = spec.model_copy(update={"base": str(base)})
        write_json(base / "base.json", {"sha256": digests.of_folder(base)})
        first = identity(own)
        flip(base / name, 0.3)
        with pytest.raises(BenchError, match=f"^{base}[^\n]*$"):
            RunFolder(tmp_path / "run", own)
        (base / "base.json").unlink()  # a user's own folder
        key = "base" if name == "model.safetensors" else "base_files"
        assert {key} == {k for k, v in identity(own).items() if v != first[k]}


def test_what_only_looks_like_a_state_is_neither_resumed_from_nor_removed(spec: Spec, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(out, spec, until=3)
    state = out / "state"
    names = ["checkpoint-8.copy", "checkpoint-", "checkpoint-best", "checkpoint--4", "checkpoint-04", "checkpoint-4 "]
    for name in names:
        shutil.copytree(state / "checkpoint-8", state / name)
    (state / "checkpoint-99").symlink_to("checkpoint-8.copy")
    (state / "checkpoint-98").write_text("a file")
    train(out, spec)
    assert (out / "run.json").is_file()
    assert {path.name for path in state.glob("checkpoint-*")} == {*names, "checkpoint-98", "checkpoint-99"}
    assert all((state / name / "weights.bin").is_file() for name in [*names, "checkpoint-99"])


def test_a_run_whose_reward_changed_goes_on_unless_it_had_finished_or_more_has_changed(
    interrupted: Path, straight: Path, spec: Spec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = "reward tests.adapters.worlds:even: its code changed after rollout 4"
    warnings = {}
    for case, before, update in (("mended", interrupted, 16), ("trainer", interrupted, 0), ("finished", straight, 0)):
        out = copied(before, tmp_path / case)
        for state in out.glob("state/checkpoint-*") if case == "trainer" else ():
            write_json(state / "position.json", read_json(state / "position.json") | {"trainer_code": "another"})
            digests.write_folder(state)
        if case == "finished":  # killed before it could remove its states
            shutil.copytree(interrupted / "state", out / "state", dirs_exist_ok=True)
        train(out, spec, code="mended", until=5)
        said = capsys.readouterr().out
        assert (resumed_at(said), f"{changed}; the run goes on" in said) == (update, update == 16)
        train(out, spec, code="mended")
        assert changed not in capsys.readouterr().out
        assert outputs(out) == outputs(straight)
        warnings[case] = changed in read_json(out / "run.json").get("code_warning", "")
    assert warnings == {"mended": True, "trainer": False, "finished": False}
