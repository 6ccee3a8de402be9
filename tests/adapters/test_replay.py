"""One rollout through both trainers: equal without a fault; with one, the right tensor is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from core import digests
from core.errors import BenchError
from core.files import read_growing_csv
from core.provenance import ROOT
from methods import replay, streams
from tests.adapters import worlds
from tests.adapters.replay_faults import FAULTS, line, replays


def test_a_damaged_record_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{}")
    digests.write_folder(tmp_path)
    (tmp_path / "record.json").write_text("[]")
    with pytest.raises(BenchError, match=r"differs from its sha256 in \S+SHA256SUMS; record it again$"):
        replay.read_record(tmp_path)


def compare(a: Path, b: Path) -> streams.Difference | None:
    return streams.compare(replay.recording(a), replay.recording(b), replay.ROUNDINGS)


# --- Both trainers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of two records, `grpo` and `tepo`: two minibatches, two passes."""
    folder = tmp_path_factory.mktemp("records")
    # decay of weights is an input of the step that one trainer may apply to fewer parameters than the other
    for key, decay in (("grpo", 0.1), ("tepo", 0.0)):
        spec = json.dumps(worlds.spec(world, key, weight_decay=decay))
        assert replay.main(["record", "--spec", spec, "--out", str(folder / key)]) == 0
    return folder


@pytest.fixture(scope="module")
def both(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of all replays of both trainers, see `replays`."""
    out = tmp_path_factory.mktemp("replays")
    replays("trl", records, out)
    command = [sys.executable, "-m", "tests.adapters.replay_faults", str(records), str(out)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, encoding="utf-8", timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.mark.slow
def test_the_trainers_agree_and_a_fault_in_one_is_named(
    both: Path, train: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("grpo", "tepo"):
        assert replay.main([str(both / f"trl-{key}"), str(both / f"verl-{key}")]) == 0
        said = capsys.readouterr().out
        assert said.startswith("equal up to update 4 (the last in A is 4, in B 4)\n"), key
        assert "trainer: 'trl 1.16.0' in A, 'verl 0.9.1' in B" in said
    for plant, (update, tensor) in FAULTS.items():
        for trainer, other in (("trl", "verl"), ("verl", "trl")):
            faulty, right = both / f"{trainer}-{plant.__name__}", both / f"{other}-grpo"
            # TRL's first minibatch is not scored by the old policy: its own training pass is that score.
            first = 2 if (plant.__name__, trainer) == ("stale_weights", "trl") else update
            for a, b in ((faulty, right), (right, faulty)):
                found = compare(a, b)
                assert found is not None, plant
                assert (found.number, found.stream) == (first, tensor), plant
                assert found.largest > found.tolerance, plant
                assert found.differing > 0, plant
    # a replay is what the run did, bit for bit: the first rollout of the run that the record was made from
    assert train(tmp_path / "run", "tepo", rollouts=1, checkpoints=(1,)) == 0
    curve = read_growing_csv(tmp_path / "run" / "curve.csv")
    updates = [load_file(both / f"trl-tepo/update{u}.safetensors") for u in range(4)]
    assert [float(tensors["loss"]) for tensors in updates] == [float(row["loss"]) for row in curve]


@pytest.mark.slow
def test_a_changed_model_or_record_is_not_replayed(records: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(records / "grpo", copy)
    with open(copy / "rollout.safetensors", "ab") as stream:
        stream.write(b" ")
    with pytest.raises(BenchError, match=r"rollout.safetensors"):
        replay.main(line("trl", copy, tmp_path / "out"))
    shutil.copyfile(records / "grpo/rollout.safetensors", copy / "rollout.safetensors")
    content = json.loads((copy / "record.json").read_text()) | {"base_sha256": "0" * 64}
    (copy / "record.json").write_text(json.dumps(content))
    digests.write_folder(copy)
    with pytest.raises(BenchError, match=r"base: is not the model that .*record.json names"):
        replay.main(line("trl", copy, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


# --- The comparison ---------------------------------------------------------------------------------------------------


def made(folder: Path, change: Callable[[dict[str, Any]], object] = lambda tensors: None, update: int = 0) -> Path:
    """A replay of four updates with tensors out of a generator; `change` acts on those of one update."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    draw = torch.Generator().manual_seed(0)
    for number in range(4):
        mask = torch.arange(3) < torch.tensor([[3], [1], [2], [3]])
        tensors = {
            "mask": mask,
            "group": torch.tensor([0, 0, 1, 1]),
            "advantage": torch.randn(4, generator=draw),
            **{name: torch.randn(4, 3, generator=draw) for name in ("old_logp", "old_entropy", "logp", "entropy")},
            "loss": torch.tensor(0.25, dtype=torch.float64),
            "gradient/a": torch.randn(5, generator=draw),
            "gradient/b": torch.randn(2, 2, generator=draw),
        }
        if number == update:
            change(tensors)
        save_file(tensors, folder / f"update{number}.safetensors")
    spec = worlds.spec(Path("/nowhere"), "grpo", checkpoints=(1,), rollouts=1)
    values = {"trainer": "trl 0", "record": "0", "spec": spec}
    (folder / "replay.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def difference(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], update: int = 0
) -> streams.Difference | None:
    a, b = made(tmp_path / "a"), made(tmp_path / "b", change, update)
    return compare(a, b)


STAGES = ("mask", "group", "advantage", "old_logp", "old_entropy", "logp", "entropy", "loss", "gradient/b")


@pytest.mark.parametrize("nth", range(len(STAGES)))
def test_the_first_of_several_differences_is_named_with_its_size(nth: int, tmp_path: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        for name in STAGES[nth:]:
            at = (0,) * tensors[name].ndim
            tensors[name][at] = not tensors[name][at] if name == "mask" else tensors[name][at] + 1

    found = difference(tmp_path, change, update=2)
    kinds = [name.partition("/")[0] + "/" * ("/" in name) for name in STAGES]
    assert found is not None
    assert (found.number, found.stream, found.equal) == (
        3,
        replay.NAMES[kinds[nth]],
        tuple(replay.NAMES[kind] for kind in kinds[:nth]),
    )
    assert (round(found.largest, 5), found.differing) == (1.0, 1)
    named = STAGES[nth].partition("/")[2]
    assert (f"row {named}, number" in found.place) is bool(named)
    sides = [replay.recording(tmp_path / side) for side in "ab"]
    lines = [line.strip().split(":")[0] for line in streams.report(*sides, found)]
    assert (lines[0], *lines[2:4]) == ("first difference", "updates before it", "equal before it")


def scaled(name: str, roundings: float) -> Callable[[dict[str, Any]], None]:
    """Add so many roundings of the tensor's largest value to its largest value."""

    def change(tensors: dict[str, Any]) -> None:
        x = tensors[name].double().flatten()
        at = int(x.abs().argmax())
        tensors[name].view(-1)[at] += float(x[at]) * roundings * 2**-23

    return change


@pytest.mark.parametrize("name", ["advantage", "logp"])
def test_rounding_is_no_difference(name: str, tmp_path: Path) -> None:
    # the largest log-prob of these lies on a token; what lies on padding is no difference, see below
    for roundings, differs in ((32, False), (128, True)):
        (tmp_path / str(roundings)).mkdir()
        assert (difference(tmp_path / str(roundings), scaled(name, roundings)) is not None) is differs


@pytest.mark.parametrize("name", ["entropy", "gradient/a"])
def test_nan_and_a_missing_tensor_are_differences(name: str, tmp_path: Path) -> None:
    def broken(tensors: dict[str, Any]) -> None:
        tensors[name].view(-1)[0] = float("nan")

    a, b = made(tmp_path / "a"), made(tmp_path / "b", broken)
    c = made(tmp_path / "c", lambda tensors: tensors.pop(name))
    for one, other in ((a, b), (b, a), (a, c), (c, a)):
        found = compare(one, other)
        assert found is not None
        assert found.stream == replay.NAMES[name.removesuffix("a")]


# --- Bad input --------------------------------------------------------------------------------------------------------


def _replaced(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda b: (b / "replay.json").unlink(), "b/replay.json"),
        (lambda b: _replaced(b / "replay.json", '"record"', '"recrod"'), "recrod"),
        (lambda b: _replaced(b / "replay.json", '"grpo"', "7"), "method"),
        (lambda b: _replaced(b / "replay.json", '"record": "0"', '"record": "1"'), "are of two kinds"),
        (lambda b: (b / "update3.safetensors").unlink(), "update3.safetensors: is missing"),
        (lambda b: (b / "update1.safetensors").write_bytes(b"no"), "update1.safetensors: cannot be read"),
    ],
)
def test_a_spoiled_replay_is_one_line(spoil: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    a, b = made(tmp_path / "a"), made(tmp_path / "b")
    spoil(b)
    with pytest.raises(BenchError) as error:
        replay.main([str(a), str(b)])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--trainer", "trll", "--record", "r", "--out", "o"], "unknown value 'trll'; allowed: trl, verl"),
        (["run", "--trainer", "trl", "--record", "nowhere", "--out", "o"], "nowhere"),
        (["only_a"], "command line: "),
        (["a", "b", "--roundings", "0"], "--roundings: must be a whole number from 1"),
        (["record", "--spec", "{}", "--out", "o"], "spec"),
    ],
)
def test_a_wrong_command_is_one_line(words: list[str], expected: str) -> None:
    with pytest.raises(BenchError) as error:
        replay.main(words)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"device": "cuda", "gpus_per_node": 2}, "training.gpus_per_node"),
        ({"device": "cuda", "precision": "bfloat16"}, "training.precision: 'bfloat16'"),
    ],
)
def test_what_is_not_replayed_is_refused(change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=expected):
        replay.one_rollout(worlds.spec(tmp_path, **change))
