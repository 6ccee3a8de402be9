"""One rollout through both trainers: equal without a fault; with one, the right tensor is named."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from core import digests
from core.errors import BenchError
from core.files import read_growing_csv
from core.provenance import ROOT, sha256_file
from methods import replay, streams
from methods.training.curve import COLUMNS
from methods.training.movement import MOVEMENT
from tests.adapters import worlds
from tests.adapters.conftest import StopAfter
from tests.adapters.replay_faults import FAULTS, line, replays


def test_a_damaged_record_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{}")
    digests.write_folder(tmp_path)
    (tmp_path / "record.json").write_text("[]")
    with pytest.raises(BenchError, match=r"differs from its sha256 in \S+SHA256SUMS; record it again$"):
        replay.main(line("trl", tmp_path, tmp_path / "out"))


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
    written = [float(f"{float(tensors['loss']):.7g}") for tensors in updates]  # curve.csv has seven digits
    assert written == [float(row["loss"]) for row in curve]


@pytest.mark.slow
def test_a_changed_model_is_not_replayed(records: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(records / "grpo", copy)
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


def recorded(folder: Path, *, checkpoint: str = "a", left_out: Sequence[str] = (), **last: float) -> Path:
    """A finished run of one rollout with two updates, without a trace; `last`: of the last update's row."""
    folder.mkdir()
    names = [name for name in COLUMNS if name not in left_out]
    rows = [dict.fromkeys(names, 0.5) | {"rollout": 1, "update": update} for update in range(2)]
    rows[1] |= last
    lines = [names, *([row[name] for name in names] for row in rows)]
    curve = folder / "curve.csv"
    curve.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    outputs = {"curve.csv": sha256_file(curve), "checkpoints/step1": checkpoint}
    record = {"spec": {}, "environment": {}, "inputs": {}, "outputs": outputs}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def test_how_far_an_update_moved_and_the_checkpoint_are_compared_last(tmp_path: Path) -> None:
    runs = {
        "a": recorded(tmp_path / "a"),
        "gradient": recorded(tmp_path / "gradient", grad_norm=0.25, update_norm=0.25, checkpoint="b"),
        "update": recorded(tmp_path / "update", update_norm=0.25, checkpoint="b"),
        "checkpoint": recorded(tmp_path / "checkpoint", checkpoint="b"),
        "old": recorded(tmp_path / "old", left_out=MOVEMENT),  # trained before curves had these columns
    }
    sides = {name: streams.recording(folder) for name, folder in runs.items()}
    for name, place in (
        ("gradient", "grad_norm (update 1): 0.5 in A, 0.25 in B"),
        ("update", "update_norm (update 1): 0.5 in A, 0.25 in B"),
        ("checkpoint", "sha256 of checkpoints/step1, character 0: 'a' in A, 'b' in B"),
    ):
        found = streams.compare(sides["a"], sides[name])
        assert found is not None, name
        assert (found.number, found.stream, found.place) == (1, name, place)
    assert found.equal[-2:] == ("gradient", "update")
    # a hash knows no rounding
    assert streams.compare(sides["a"], sides["checkpoint"], roundings=64) is None
    assert streams.compare(sides["a"], sides["a"]) is None
    assert streams.compare(sides["a"], sides["old"]) is None
    assert "  not recorded in B: base, prompts, order, " in "\n".join(streams.report(sides["a"], sides["old"], None))
    assert [line.endswith(", update") for line in streams.report(sides["a"], sides["old"], None)[1:3]] == [False, True]


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


NOWHERE = Path("/nowhere")


def recording_of(spec: dict[str, Any]) -> list[str]:
    return ["record", "--spec", json.dumps(spec), "--out", "o"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--trainer", "trll", "--record", "r", "--out", "o"], "unknown value 'trll'; allowed: trl, verl"),
        (["run", "--trainer", "trl", "--record", "nowhere", "--out", "o"], "nowhere"),
        (["only_a"], "command line: "),
        (["a", "b", "--roundings", "0"], "--roundings: must be a whole number from 1"),
        (recording_of({}), "spec"),
        # what is not replayed
        (recording_of(worlds.spec(NOWHERE, device="cuda", gpus_per_node=2)), "training.gpus_per_node"),
        (recording_of(worlds.spec(NOWHERE, device="cuda", precision="bfloat16")), "training.precision: 'bfloat16'"),
    ],
)
def test_a_wrong_command_is_one_line(words: list[str], expected: str) -> None:
    with pytest.raises(BenchError) as error:
        replay.main(words)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


SECTION = re.search(r"## Which stream moved\?\n(.*?)\n## ", (ROOT / "docs/own-responses.md").read_text("utf-8"), re.S)


@pytest.fixture(scope="module")
def runs(train: Callable[..., int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traced runs of two rollouts; `bare` has no trace."""
    folder = tmp_path_factory.mktemp("runs")
    rare = {"reward": "tests.adapters.worlds:rarely"}
    changes: dict[str, dict[str, Any]] = {"a": {}, "again": {}, "b": {"seed": 2}, "reward": rare}
    changes |= {"temperature": {"temperature": 0.9}, "rate": {"learning_rate": 1e-3}}
    for name, change in changes.items():
        assert train(folder / name, trace=True, **change) == 0
    assert train(folder / "bare") == 0
    return folder


def answer(a: Path, b: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    return replay.main([str(a), str(b)]), capsys.readouterr().out


FIRST = "first difference: rollout 1 of 2, "


@pytest.mark.parametrize(
    ("other", "first"),
    [
        ("again", r"equal up to rollout 2 \(the last in A is 2, in B 2\)\n$"),
        (
            "bare",
            r"equal up to rollout 2 .*\n  not recorded in B: order, sampled tokens \(but its mean\), .*advantage\n",
        ),
        ("b", FIRST + r"order, .*row 0: \d+ in A, \d+ in B\n"),
        ("temperature", FIRST + r"sampled tokens, .*row \d+, token \d+: \d+ in A, \d+ in B\n"),
        ("reward", FIRST + r"rewards, reward, row \d+: 1 in A, 0 in B\n.*by up to 1 "),
        ("rate", FIRST + r"gradient, learning_rate \(update 0\): 0\.003 in A, 0\.001 in B"),
    ],
)
def test_the_changed_stream_is_named(other: str, first: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = answer(runs / "a", runs / other, capsys)
    assert re.match(first, out), out
    assert code == (not out.startswith("equal"))


def test_a_trace_holds_what_the_curve_is_made_of(runs: Path) -> None:
    for rollout in (1, 2):
        x = load_file(runs / f"a/trace/rollout{rollout:06d}.safetensors")
        rows = [row for row in worlds.numbers(runs / "a") if row["rollout"] == str(rollout)]
        assert float(rows[0]["reward"]) == x["reward"].mean()
        assert float(rows[0]["reward_kept"]) == x["reward"][x["row"]].mean()
        assert float(rows[0]["response_tokens"]) == x["length"].mean() == len(x["token"]) / len(x["length"])
        lengths = x["length"][x["row"]]
        assert [int(row["tokens"]) for row in rows[:2]] == [lengths[:8].sum(), lengths[8:].sum()]
        assert len(x["old_logp"]) == lengths.sum()
        assert len(x["advantage"]) == 16


def test_a_resumed_run_has_the_same_trace(runs: Path, train: Callable[..., int], tmp_path: Path) -> None:
    out, trace = tmp_path / "run", "trace/rollout000001.safetensors"
    for damage in (lambda: None, lambda: (out / trace).write_bytes(b"x")):  # a damaged one is made again
        assert train(out, stop=StopAfter(1), trace=True) == 75
        assert (out / trace).is_file()
        damage()
        assert train(out, trace=True) == 0
        for path in sorted((runs / "a/trace").iterdir()):
            assert (out / "trace" / path.name).read_bytes() == path.read_bytes()
        shutil.rmtree(out)


def dumps(folder: Path, change: Callable[[dict[str, list[Any]]], object] = lambda columns: None) -> Path:
    """Two steps of rollouts by verl's own writer; `change` acts on the second. Groups lie in random order in verl's."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    for step in (1, 2):
        columns: dict[str, list[Any]] = {
            "inputs": ["1+1=", "1+1=", "2+3=", "2+3="],
            "outputs": [f"{step}", "2", "5", "\\boxed{5}"],
            "gts": ["2", "2", "5", "5"],
            "scores": [0.0, 1.0, 1.0, 1.0],
        }
        if step == 2:
            change(columns)
        PPOTrainer._write_generations(*columns.values(), {"uid": list("abcd")}, str(folder), step)
    return folder


@pytest.mark.slow
def test_traces_of_verl_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = dumps(tmp_path / "a")
    turned = dumps(
        tmp_path / "turned", lambda c: [column.extend([column.pop(0), column.pop(0)]) for column in c.values()]
    )
    code, out = answer(a, turned, capsys)
    assert (code, out.splitlines()[0]) == (0, "equal up to rollout 2 (the last in A is 2, in B 2)")
    assert out.splitlines()[1] == "  not recorded in A: base, order, old log-probs, advantage, loss, gradient"
    prompt = dumps(tmp_path / "prompt", lambda c: c["inputs"].__setitem__(0, "1+2="))
    assert answer(a, prompt, capsys)[1].startswith("first difference: rollout 2 of 2, prompts, input, row 1 (0 in B)")
    assert SECTION  # what the page types
    dumps(tmp_path / "dumps/b", lambda c: c["scores"].__setitem__(3, 0.5)).with_name("a").mkdir()
    shutil.copytree(a, tmp_path / "dumps/a", dirs_exist_ok=True)
    command, printed = re.search(r"```console\n\$ (.*?)\n(.*?)```", SECTION[1], re.S).groups()  # type: ignore[union-attr]
    done = subprocess.run(
        ["env", f"PYTHONPATH={ROOT}", *command.split()], cwd=tmp_path, capture_output=True, encoding="utf-8"
    )
    assert (done.stdout, done.returncode) == (printed, 1), done.stderr


@pytest.mark.slow
def test_traces_of_trl_are_compared(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stock TRL, one seed and another."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rows = [json.loads(line) for line in (world / "prompts.jsonl").read_text("utf-8").splitlines()]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 6, "max_steps": 2}
        off = {"use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "disable_tqdm": True}
        config = GRPOConfig(str(tmp_path / name), seed=seed, logging_steps=1, log_completions=True, **sizes, **off)
        reward = lambda completions, **_: worlds.even([], completions, [])  # noqa: E731
        GRPOTrainer(str(world / "base"), reward, config, Dataset.from_list(rows)).train()
    assert answer(tmp_path / "a", tmp_path / "b", capsys)[1].startswith("equal up to rollout 2 ")
    code, out = answer(tmp_path / "a", tmp_path / "c", capsys)
    assert (code, out.split(",")[1]) == (1, " prompts"), out  # of two steps' prompts none is in the other run
    path = tmp_path / "c/completions/completions_00002.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BenchError, match=r"^[^\n]*completions_00002.parquet: not completions of TRL \([^\n]*\)$"):
        replay.main([str(tmp_path / "b"), str(tmp_path / "c")])
