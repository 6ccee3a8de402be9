"""Real two-rollout runs: what they write, what they have in common, what the filters do."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from methods import catalog
from methods.training.run_folder import COLUMNS
from records import digests
from records.errors import CorruptInputError
from records.files import read_growing_csv
from records.provenance import sha256_file
from tests.adapters import worlds

pytestmark = pytest.mark.slow

Train = Callable[..., int]


def numbers(out: Path, name: str = "curve.csv") -> list[dict[str, str]]:
    """The curve without timings."""
    return [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in read_growing_csv(out / name)]


def weights(out: Path, step: int = 2) -> str:
    return sha256_file(out / "checkpoints" / f"step{step}" / "model.safetensors")


@pytest.fixture(scope="module")
def runs(train: Train, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished runs of three methods with one seed, and of one method again."""
    folder = tmp_path_factory.mktemp("runs")
    made = {}
    for name, method in (("tepo", "tepo"), ("again", "tepo"), ("grpo", "grpo"), ("tepo_nokl", "tepo_nokl")):
        made[name] = folder / name
        assert train(made[name], method) == 0
    return made


def test_rerun_is_bit_equal(runs: dict[str, Path]) -> None:
    assert numbers(runs["tepo"]) == numbers(runs["again"])
    assert weights(runs["tepo"]) == weights(runs["again"])


def test_curve_has_a_row_per_update(runs: dict[str, Path]) -> None:
    rows = read_growing_csv(runs["tepo"] / "curve.csv")
    assert tuple(rows[0]) == COLUMNS
    assert [(int(r["rollout"]), int(r["update"]), int(r["minibatch"])) for r in rows] == [
        (1 + u // 4, u, u % 4) for u in range(8)
    ]
    for row in rows:
        assert float(row["seconds_update"]) > 0
        assert (row["seconds_rollout"] != "") == (row["minibatch"] == "0")
        assert int(row["groups_sampled"]) == int(row["groups_kept"]) + int(row["groups_discarded"]) == 6


def test_sampler_and_trainer_agree_on_the_log_probs_at_any_temperature(train: Train, tmp_path: Path) -> None:
    """Generation with a cache and a full pass: rounding apart, and the temperature counted once."""
    assert train(tmp_path / "warm", "tepo", temperature=0.7) == 0
    rows = [row for row in read_growing_csv(tmp_path / "warm" / "curve.csv") if row["sampling_gap_mean"]]
    assert rows
    for row in rows:
        assert 0 < float(row["sampling_gap_mean"]) <= float(row["sampling_gap_p99"]) < 1e-5
        assert float(row["sampling_correlation"]) > 0.9999999


def test_a_correction_acts_in_training(runs: dict[str, Path], train: Train, tmp_path: Path) -> None:
    """Sampler and trainer agree, so that a cap of a half halves every term, and a smaller bound rejects every token."""
    assert train(tmp_path / "half", "grpo+correction=tis+correction-cap=0.5") == 0
    assert train(tmp_path / "none", "grpo+correction=token-rs+correction-cap=0.5") == 0
    plain, half, none = (
        read_growing_csv(path / "curve.csv") for path in (runs["grpo"], tmp_path / "half", tmp_path / "none")
    )
    assert float(half[0]["grad_norm"]) == pytest.approx(float(plain[0]["grad_norm"]) / 2, rel=1e-5)
    assert {float(row["grad_norm"]) for row in none if row["grad_norm"]} == {0.0}


def test_first_minibatch_of_every_rollout_is_on_policy(runs: dict[str, Path]) -> None:
    """C3, live: ratio exactly 1, dH exactly 0, so an empty mask and nothing clipped."""
    for name in ("tepo", "grpo", "tepo_nokl"):
        for row in read_growing_csv(runs[name] / "curve.csv"):
            if row["minibatch"] == "0":
                assert float(row["ratio_spread"]) == float(row["kl_old"]) == float(row["clip_fraction_tokens"]) == 0
                assert float(row["effective_sample_size"]) == 1
                assert name != "tepo" or float(row["mask_fraction"]) == 0
            else:
                assert float(row["ratio_spread"]) > 0


def test_methods_share_weights_prompts_and_sampling_noise(runs: dict[str, Path]) -> None:
    """The first rollout and first update of all methods are the same numbers: TEPO = TEPO without KL = GRPO."""
    same = ("reward", "groups_kept", "response_tokens", "entropy", "tokens", "sequences", "loss")
    first = {name: read_growing_csv(runs[name] / "curve.csv")[0] for name in runs}
    for name in runs:
        assert [first[name][k] for k in same[:-1]] == [first["tepo"][k] for k in same[:-1]]
        assert float(first[name]["loss"]) == pytest.approx(float(first["tepo"]["loss"]), abs=1e-6)
    assert numbers(runs["grpo"]) != numbers(runs["tepo"])


def test_run_json_records_what_was_done(runs: dict[str, Path]) -> None:
    record = json.loads((runs["tepo"] / "run.json").read_text())
    assert record["outputs"] == {
        "curve.csv": sha256_file(runs["tepo"] / "curve.csv"),
        "checkpoints/step2": digests.tree(digests.check_folder(runs["tepo"] / "checkpoints/step2")),
    }
    assert record["spec"]["training"] == worlds.TRAINING
    assert (record["updates"], record["collapsed_at"]) == (8, None)
    assert record["method"]["key"] == "tepo"
    assert record["cpu_seconds"] > 0 < record["wall_seconds"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reward": "evals.reward:boxed"}, r"every group had equal rewards; \d+ % truncated, 100 % without a box"),
        ({"method": "grpo+correction=token-rs+correction-cap=0.5"}, r"every gradient was zero; \d+ % truncated"),
        ({}, None),
    ],
    ids=["no right answer", "nothing left of the gradient", "trained"],
)
def test_a_run_that_nothing_changed_says_so(
    changes: dict[str, Any], said: str | None, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", changes.pop("method", "tepo"), **changes) == 0
    found = json.loads((tmp_path / "run/run.json").read_text())["no_update"]
    assert (found is None) if said is None else re.fullmatch(f"no update: {said}", found)
    assert ("no update" in capsys.readouterr().err) == (said is not None)


BEYOND = [key for key, entry in catalog.entries().items() if not entry.paper_rows]


@pytest.mark.parametrize("key", BEYOND)
def test_every_method_beyond_the_paper_trains(key: str, runs: dict[str, Path], train: Train, tmp_path: Path) -> None:
    """Two rollouts, as long as GRPO/DAPO's from the same samples; other weights, so that it is not GRPO/DAPO's loss."""
    assert train(tmp_path / "run", key) == 0
    rows, grpo = numbers(tmp_path / "run"), numbers(runs["grpo"])
    assert len(rows) == len(grpo)
    assert rows[0]["reward"] == grpo[0]["reward"]
    assert all(math.isfinite(float(row["loss"])) for row in rows if row["loss"])
    assert any(float(row["grad_norm"] or 0) > 0 for row in rows)
    assert weights(tmp_path / "run") != weights(runs["grpo"])


def test_checkpoint_is_an_ordinary_model_folder(runs: dict[str, Path], world: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = runs["tepo"] / "checkpoints" / "step2"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.use_cache
    assert tokenizer.eos_token_id in model.generation_config.eos_token_id
    assert (
        tokenizer("<bos>1+1\n")["input_ids"] == AutoTokenizer.from_pretrained(world / "base")("<bos>1+1\n")["input_ids"]
    )


def test_finished_run_is_left_alone(runs: dict[str, Path], train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    before = (runs["tepo"] / "run.json").stat().st_mtime_ns
    assert train(runs["tepo"]) == 0
    assert "finished already" in capsys.readouterr().out
    assert (runs["tepo"] / "run.json").stat().st_mtime_ns == before


def test_deleted_outputs_come_back_without_training(runs: dict[str, Path], train: Train) -> None:
    out = runs["again"]
    before = (out / "run.json").read_text()
    (out / "run.json").unlink()
    (out / "curve.csv").unlink()
    assert train(out) == 0
    assert (out / "run.json").read_text() == before


def test_prompts_reach_the_model_token_by_token(
    train: Train, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer

    from methods.adapters.trl.trainer import MethodTrainer

    seen: list[tuple[list[str], Any]] = []
    original = MethodTrainer._draw

    def spy(self: Any, examples: Any, nth: int) -> Any:
        output, rows = original(self, examples, nth)
        seen.append(([e["prompt"] for e in examples], rows))
        return output, rows

    monkeypatch.setattr(MethodTrainer, "_draw", spy)
    assert train(tmp_path / "run", rollouts=1, checkpoints=(1,)) == 0
    tokenizer = AutoTokenizer.from_pretrained(world / "base")
    (prompts, rows) = seen[0]
    assert len(set(prompts)) == 6
    for prompt, ids, mask in zip(prompts, rows.prompt_ids, rows.prompt_mask, strict=True):
        assert ids[mask.bool()].tolist() == tokenizer(prompt)["input_ids"]


def test_sampling_does_not_depend_on_the_generators_state(
    train: Train, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from methods.adapters.trl.trainer import MethodTrainer

    original = MethodTrainer._prepare_inputs

    def disturbed(self: Any, batch: Any) -> Any:
        torch.rand(17)
        return original(self, batch)

    monkeypatch.setattr(MethodTrainer, "_prepare_inputs", disturbed)
    assert train(tmp_path / "run") == 0
    assert numbers(tmp_path / "run") == numbers(runs["tepo"])


@pytest.mark.parametrize("key", ["grpo", "dr_grpo", "reinforce_pp"])  # another divisor; statistics over all rows
def test_gradient_accumulation_is_the_same_update(key: str, train: Train, tmp_path: Path) -> None:
    """C2, live: two micro-batches with exact denominators against one minibatch."""
    for parts in (1, 2):
        assert train(tmp_path / str(parts), key, micro_batches=parts, rollouts=1, checkpoints=(1,)) == 0
    one, two = (read_growing_csv(tmp_path / name / "curve.csv") for name in ("1", "2"))
    first, again = one[0], two[0]  # later ones drift apart: AdamW divides rounding by its own size
    for column in ("loss", "grad_norm", "entropy", "kl_old", "ratio_spread", "clip_fraction_tokens"):
        assert float(first[column]) == pytest.approx(float(again[column]), rel=4e-6, abs=4e-7), column
    assert [(a["tokens"], a["sequences"]) for a in one] == [(b["tokens"], b["sequences"]) for b in two]


def test_own_sampling_and_generate_train_the_same_run(
    world: Path,
    train: Train,
    runs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Curve and weights bit for bit, the sampler's log-probs too; and why `generate` was asked is said once.

    Where a row's logits depend on its place in the batch, the sampler's log-probs are compared to rounding: a prompt
    that is read once has another place than in `generate`'s batch.
    """
    from methods import sampling

    monkeypatch.setattr(sampling, "unsupported", lambda *_: "a reason")
    assert train(tmp_path / "run") == 0
    assert capsys.readouterr().out.count("sampling by transformers' generate: a reason\n") == 1
    own, theirs = numbers(runs["tepo"]), numbers(tmp_path / "run")
    if place_in_the_batch_matters(world / "base"):
        for a, b in zip(own, theirs, strict=True):
            for column in [name for name in a if name.startswith("sampling_")]:
                assert float(a.pop(column)) == pytest.approx(float(b.pop(column)), rel=0, abs=1e-6), column
    assert own == theirs
    assert weights(tmp_path / "run") == weights(runs["tepo"])


def place_in_the_batch_matters(base: Path) -> bool:
    """Do equal rows get unequal logits, or others in a smaller batch? Nothing of ours takes part.

    So it is where MKL takes its kernels for AMD processors: they round by where in memory a matrix lies, as its manual
    allows. With MKL_CBWR=COMPATIBLE in the environment they do not.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager").eval()
    made = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for width in range(1, 17):
            row = torch.randint(3, model.config.vocab_size, (1, width), generator=made)
            seen = []
            for rows in (16, 24):
                prompt = model(row.expand(rows, -1), use_cache=True)
                token = model(row[:, :1].expand(rows, -1), past_key_values=prompt.past_key_values)
                seen.append(torch.cat([prompt.logits, token.logits], 1))
            if not all(bool((logits == seen[0][0]).all()) for logits in seen):
                return True
    return False


FILTERS = {"mask": 4, "none": 4, "oversample": 6}


@pytest.mark.parametrize("filtering", FILTERS)
def test_filter_decides_what_is_drawn_and_kept(train: Train, tmp_path: Path, filtering: str) -> None:
    out = tmp_path / "run"
    assert train(out, "grpo", filter=filtering, reward="tests.adapters.worlds:rarely") == 0
    rows = read_growing_csv(out / "curve.csv")
    drawn = FILTERS[filtering]
    for row in rows:
        assert int(row["groups_sampled"]) == drawn
        kept = int(row["groups_kept"])
        assert kept == 4 if filtering == "none" else kept < 4, "the reward is too dense for this test"
        if int(row["tokens"]) == 0:
            assert row["loss"] == row["grad_norm"] == row["entropy"] == ""
    per_rollout = [sum(int(r["sequences"]) for r in rows[i : i + 2]) for i in (0, 4)]
    assert per_rollout == [4 * int(rows[i]["groups_kept"]) for i in (0, 4)]


def test_empty_minibatches_do_not_move_the_weights(train: Train, tmp_path: Path, world: Path) -> None:
    out = tmp_path / "run"
    assert train(out, "grpo", reward="tests.adapters.worlds:never") == 0
    from safetensors.torch import load_file

    before = load_file(world / "base" / "model.safetensors")
    after = load_file(out / "checkpoints" / "step2" / "model.safetensors")
    assert all(bool((before[name] == after[name]).all()) for name in before)


def test_refill_draws_until_the_rollout_is_full(train: Train, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(out, "grpo", filter="refill", reward="tests.adapters.worlds:rarely", refill_rounds=8) == 0
    rows = read_growing_csv(out / "curve.csv")
    assert {int(r["groups_kept"]) for r in rows} == {4}
    assert all(int(r["groups_sampled"]) > 4 for r in rows)


def test_refill_draws_so_many_times_the_prompts_at_first(train: Train, tmp_path: Path) -> None:
    """Half of all rewards are 1, so that twice the prompts leave nothing missing; without oversampling something is."""
    sampled: dict[float, list[int]] = {}
    for factor in (1.0, 2.0):
        out = tmp_path / str(factor)
        assert train(out, "grpo", filter="refill", oversample=factor) == 0
        rows = read_growing_csv(out / "curve.csv")
        assert {int(r["groups_kept"]) for r in rows} == {4}
        sampled[factor] = [int(r["groups_sampled"]) for r in rows]
    assert set(sampled[2.0]) == {8}
    assert min(sampled[1.0]) >= 4
    assert max(sampled[1.0]) < 8


def test_collapse_stops_and_is_measured_at_every_checkpoint(train: Train, tmp_path: Path) -> None:
    out = tmp_path / "run"
    small = {"prompts_per_rollout": 2, "minibatches": 1, "passes": 1, "oversample": 1.0, "max_completion_tokens": 2}
    code = train(out, "grpo", checkpoints=(3, 7, 9), rollouts=9, reward="tests.adapters.worlds:never", **small)
    assert code == 0
    record = json.loads((out / "run.json").read_text())
    assert (record["collapsed_at"], record["updates"]) == (5, 5)
    assert sorted(record["outputs"]) == ["checkpoints/step3", "checkpoints/step7", "checkpoints/step9", "curve.csv"]


@pytest.mark.parametrize(
    ("reward", "message"), [("one_short", "returned 23 values for 24"), ("one_none", "returned None")]
)
def test_reward_of_the_wrong_shape_names_the_function(train: Train, tmp_path: Path, reward: str, message: str) -> None:
    with pytest.raises(CorruptInputError, match=f"reward tests.adapters.worlds:{reward}: {message}"):
        train(tmp_path / "run", reward=f"tests.adapters.worlds:{reward}")
