"""C1, C2: the trainer's own loss code equals `Method.loss`, whole and split, on tensors of a real rollout."""

from __future__ import annotations

import itertools
import json
import math
import re
import signal
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ConfigError, CorruptInputError
from core.files import read_growing_csv
from methods import catalog
from methods.adapters import trl, verl
from methods.adapters.trl import shared_prefix
from methods.adapters.trl.microbatches import Rows, join, micro_batches
from methods.batch import Batch
from methods.method import Method
from methods.train import StopRequest
from methods.training import rollouts
from methods.training.curve import COLUMNS, Curve
from methods.training.rollouts import choose, deal, derive, informative
from methods.training.spec import Training
from tests.adapters import worlds
from tests.adapters.conftest import StopAfter

KEYS = (
    *catalog.keys(),
    "tepo+kl-anchor=ref",
    "tepo+kl-estimator=full",
    "grpo+agg-scope=group",
    "tepo+agg-scope=group",
    "grpo+correction=icepop+correction-cap=1.0000001",
    "tepo+correction=seq-tis",
)


def leaves(batch: Batch, double: bool) -> Batch:
    """A copy whose log-probs and entropies are leaves of the graph."""
    import torch

    tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
    made = {
        name: x.double() if double and isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for name, x in tensors.items()
    }
    for name in ("logp", "entropy", "full_logp"):
        if made[name] is not None:
            made[name] = made[name].detach().clone().requires_grad_()
    return Batch(**made)


def loss_and_gradients(method: Method, batch: Batch, parts: int | None) -> list[object]:
    """The loss (through the trainer in `parts`, or None: directly) and its gradients by log-probs and entropies."""
    import torch

    if parts is None:
        from methods.training.rollouts import derive

        loss = method.loss(batch, generator=torch.Generator().manual_seed(derive(0, "selection", 0)))
    else:
        from tests.adapters.trl_conformance import through_trainer

        loss = through_trainer(method, batch, parts)
    wanted = [batch.logp, batch.entropy, batch.full_logp]
    return [loss.detach(), *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)]


SPLITTABLE = (
    *KEYS, "tepo+dh-def=cov_sign", "tepo+mask-norm=masked", "tepo+kl-estimator=full+mask-norm=masked",
)  # fmt: skip
STATISTICS = [key for key in SPLITTABLE if catalog.parse(key).parts.statistics]


def test_the_trainers_loss_is_the_methods(captured: list[Batch]) -> None:
    import torch

    assert any(float((b.logp - b.old_logp).abs().max()) > 0.01 for b in captured), "all minibatches are on-policy"
    for key in KEYS:
        method = catalog.parse(key)
        for batch in captured:
            for double in (False, True):
                ours = loss_and_gradients(method, leaves(batch, double), 1)
                theirs = loss_and_gradients(method, leaves(batch, double), None)
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("key", ["grpo", "opo", "reinforce_pp"])  # the last two weigh responses by their lengths
def test_advantages_are_over_the_rows_that_are_trained_on(key: str) -> None:

    import torch

    from methods.adapters.trl.microbatches import Rows
    from methods.adapters.trl.trainer import MethodTrainer

    trainer: Any = object.__new__(MethodTrainer)
    trainer.method, trainer.num_generations = catalog.parse(key), 2
    lengths = torch.tensor([3, 1, 2, 2, 1, 4])
    mask = (torch.arange(4) < lengths[:, None]).long()
    reward, group = torch.tensor([1.0, 0, 1, 1, 0, 1]), torch.arange(6) // 2
    sampled = Rows(mask[:, :1], mask[:, :1], mask, mask, reward, group)
    kept = trainer._with_advantage(sampled, [0, 2])
    rows = torch.tensor([0, 1, 4, 5])
    assert torch.equal(kept.advantage, trainer.method.advantage(reward[rows], group[rows], lengths[rows]))
    assert len(trainer._with_advantage(sampled, [])) == 0


def test_a_split_changes_nothing(captured: list[Batch]) -> None:
    """And by the other reading of R15 it decides."""
    import torch

    from tests.adapters.trl_conformance import through_trainer

    batch = captured[-1]
    assert len(set(batch.lengths_B.tolist())) > 2, "with equal lengths each part's own mean would pass"
    for key in SPLITTABLE:
        method = catalog.parse(key)
        whole = loss_and_gradients(method, leaves(batch, True), 1)
        for parts in (2, 8):
            split = loss_and_gradients(method, leaves(batch, True), parts)
            torch.testing.assert_close(
                split, whole, rtol=1e-12, atol=1e-14, msg=lambda text, case=(key, parts): f"{case}: {text}"
            )
        if key in STATISTICS:
            cut = [through_trainer(method, leaves(batch, True), parts, "microbatch") for parts in (1, 4)]
            assert not torch.equal(*cut), key


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_ends_the_run_before_the_step(norm: float) -> None:
    import torch

    from methods.adapters.trl.recorder import Recorder
    from methods.adapters.trl.trainer import MethodTrainer

    recorder: Any = object.__new__(Recorder)
    recorder.training, recorder.run = SimpleNamespace(updates_per_rollout=4), SimpleNamespace(folder=Path("run"))
    trainer: Any = object.__new__(MethodTrainer)
    trainer.recorder, trainer.state = recorder, SimpleNamespace(global_step=6)
    trainer.args = SimpleNamespace(fp16=False, max_grad_norm=1.0)
    trainer.accelerator = SimpleNamespace(clip_grad_norm_=lambda *_: torch.tensor(norm))
    line = rf"^run: rollout 2: update 6: the gradient's norm is {norm}: .*; lower training\.learning_rate$"
    with pytest.raises(CorruptInputError, match=line):
        trainer._clip_grad_norm(SimpleNamespace(parameters=list))
    # verl has left such a step out by itself, and hands the norm over with the update's row
    with pytest.raises(CorruptInputError, match=line):
        recorder.write_row(SimpleNamespace(rollout=2), 2, None, norm)


@pytest.mark.parametrize("filtering", ["none", "oversample"])
def test_a_group_with_a_response_that_nobody_judged_is_dropped_whole_and_counted(filtering: str) -> None:
    import torch

    from methods.adapters.trl.trainer import MethodTrainer, RolloutState

    sizes = {"samples_per_prompt": 2, "filter": filtering}
    figures: list[Any] = []
    trainer: Any = object.__new__(MethodTrainer)
    trainer.training_sizes, trainer.num_generations = Training(**worlds.TRAINING | sizes), 2
    trainer.method, trainer.placebo, trainer.run_seed = catalog.parse("grpo"), None, 0
    trainer.state, trainer.eos_token_ids = SimpleNamespace(global_step=0), [0]
    trainer._tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.recorder = SimpleNamespace(run=SimpleNamespace(trace=None), rollout=lambda of, _: figures.append(of))
    sampled = rows([3, 1, 2, 2, 5, 4], [0, 1, 0, math.nan, 1, 1 / 2])
    trainer._draw = lambda *_: ({}, sampled)
    trainer._generate_and_score_completions([{"index": row // 2} for row in range(6)])
    assert trainer.present.kept.reward.tolist() == [0, 1, 1, 1 / 2]
    (found,) = figures
    assert (found.reward, found.reward_given, found.reward_kept) == (1 / 2, 1 / 2, 5 / 8)
    assert (found.reward_timeouts, found.groups_sampled, found.groups_kept) == (1, 3, 2)
    sampled = replace(sampled, reward=sampled.reward * math.nan)
    with pytest.raises(CorruptInputError, match="trl: rollout 1: none of 6 responses has a reward"):
        trainer._generate_and_score_completions([{"index": row // 2} for row in range(6)])
    # a placebo gives the response a number: what nobody judged stays so
    trainer.present = RolloutState(rewards=torch.tensor([1.0, math.nan]), responses=["a", "b"])
    trainer.placebo = lambda true, *_: [1.0 - reward for reward in true]
    assert str(trainer._given(0).tolist()) == "[0.0, nan]"


def test_a_rollout_that_changes_nothing_is_not_lengthened_to_the_target() -> None:
    import torch

    from methods.adapters.trl.trainer import MethodTrainer, RolloutState
    from methods.training import movement

    trainer: Any = object.__new__(MethodTrainer)
    trainer.model = torch.nn.Linear(2, 2)
    trainer.present = RolloutState(weights=movement.copies(trainer.model.parameters()))
    trainer._move_by(0.02, torch.zeros(1), torch.zeros(1))  # would measure, for which there is nothing here


def test_a_tokenizer_that_adds_a_begin_token_leaves_the_prompts_as_they_are(world: Path) -> None:
    """As verl and evaluation read them: the prompt's text holds the token already."""
    from tokenizers.processors import TemplateProcessing

    from methods.adapters.trl.trainer import MethodTrainer
    from methods.training.spec import check
    from models.tiny import tokenizer

    made: Any = tokenizer()
    begin = ("<bos>", made.bos_token_id)
    made.backend_tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[begin])
    prompt = "<bos>1+1\n"
    assert made(prompt)["input_ids"].count(made.bos_token_id) == 2
    trainer: Any = object.__new__(MethodTrainer)
    trainer.processing_class = made
    (ids,), *others = trainer._tokenize_prompts([prompt])
    assert (made.decode(ids), ids.count(made.bos_token_id), others) == (prompt, 1, [None, {}])
    rollouts.check_readable(check(worlds.spec(world, max_prompt_tokens=len(ids))), [prompt], made)


MODELS = ("qwen2", "llama", "qwen3", "mistral")


@pytest.fixture(scope="module", params=MODELS)
def trainer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer after a real run, with its last rollout: 4 prompts of several lengths, 4 responses to each."""
    from methods.adapters.trl.trainer import MethodTrainer
    from methods.train import StopRequest, execute

    world = worlds.build(tmp_path_factory.mktemp(request.param), model_type=request.param)
    seen: list[Any] = []
    original = MethodTrainer._compute_loss

    def spy(self: Any, model: Any, inputs: Any) -> Any:
        seen.append(self)
        return original(self, model, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MethodTrainer, "_compute_loss", spy)
        spec = worlds.spec(world, "tepo+kl-anchor=ref", filter="none", learning_rate=1e-2)
        assert execute(json.dumps(spec), world / "run", StopRequest()) == 0
    return seen[-1]


def gradient(trainer: Any, key: str, parts: int, shared: bool) -> Any:
    """The gradient of a minibatch of two groups, over all parameters, with the policy moved since it was sampled."""
    import torch

    from methods.adapters.trl.microbatches import micro_batches
    from methods.adapters.trl.trainer import RolloutState

    trainer.method = catalog.parse(key)
    trainer.training_sizes = trainer.training_sizes.model_copy(update={"shared_prefix": shared})
    trainer.recorder = SimpleNamespace(micro_batch=lambda *_: None)
    rows = trainer.old
    rows = replace(rows, advantage=trainer.method.advantage(rows.reward, rows.group, rows.lengths))
    trainer.present = RolloutState(parts=micro_batches(rows, 4, 2, parts)[:parts])
    trainer.model.zero_grad()
    for part in trainer.present.parts:
        trainer._compute_loss(trainer.model, part).backward()
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).double()


def test_every_method_and_cut_has_the_gradient_of_plain_rows(trainer: Any) -> None:
    import torch

    rows = trainer.present.kept
    with torch.no_grad():
        trainer.method = catalog.parse("tepo+kl-estimator=full")
        logp, entropy, full = trainer._score(trainer.model, rows)
        trainer.old = replace(rows, old_logp=logp, old_entropy=entropy, old_full_logp=full)
        generator = torch.Generator().manual_seed(0)
        for p in trainer.model.parameters():
            p += 0.02 * torch.randn(p.shape, generator=generator)
        found = []
        for shared in (False, True):
            trainer.training_sizes = trainer.training_sizes.model_copy(update={"shared_prefix": shared})
            found.append(trainer._score(trainer.model, rows))
    valid = rows.completion_mask.bool()
    for plain, one_row in zip(*found, strict=True):
        torch.testing.assert_close(one_row[valid], plain[valid], rtol=1e-5, atol=1e-5)
    assert float((found[0][0] - logp)[valid].abs().max()) > 0.05, "the policy has not moved"
    assert len(set(rows.prompt_mask.sum(1).tolist())) > 1
    assert len(set(rows.lengths.tolist())) > 2
    for key in KEYS[MODELS.index(trainer.model.config.model_type) :: len(MODELS)]:  # four models share the methods
        for parts in (1, 2, 8) if catalog.parse(key).splittable else (1,):
            plain, one_row = (gradient(trainer, key, parts, shared) for shared in (False, True))
            assert float(plain.norm()) > 0, key
            error = float((one_row - plain).norm() / plain.norm())
            assert error < 5e-6, f"{key} in {parts} parts: {error}"


def test_a_row_holds_a_prompt_once_and_hides_responses_from_each_other() -> None:
    import torch

    # two groups of two and one response alone: prompts 1 2, 3, 3 4; the second prompt is padded with its own token
    ids = torch.tensor([[1, 2, 5, 6], [1, 2, 7, 0], [3, 3, 5, 6], [3, 3, 8, 9], [3, 4, 5, 6]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]])
    packed = shared_prefix.pack(ids, mask, 2)
    assert packed.ids.tolist() == [[1, 2, 5], [3, 5, 8], [3, 4, 5]]
    assert packed.positions.tolist() == [[0, 1, 2], [0, 1, 1], [0, 1, 2]]
    assert packed.state.tolist() == [[1, 2], [1, 0], [3, 4], [3, 5], [7, 8]]
    assert packed.seen[1].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]


def test_a_run_goes_on_to_the_same_bits_and_begins_at_the_old_policy(train: Callable[..., int], tmp_path: Path) -> None:
    changes: dict[str, Any] = {"filter": "none", "micro_batches": 2}
    assert train(tmp_path / "plain", "tepo+kl-anchor=ref", **changes) == 0
    assert train(tmp_path / "whole", "tepo+kl-anchor=ref", shared_prefix=True, **changes) == 0
    train(tmp_path / "cut", "tepo+kl-anchor=ref", StopAfter(4), shared_prefix=True, **changes)
    assert not (tmp_path / "cut" / "run.json").exists()
    assert train(tmp_path / "cut", "tepo+kl-anchor=ref", shared_prefix=True, **changes) == 0
    assert worlds.weights(tmp_path / "cut") == worlds.weights(tmp_path / "whole") != worlds.weights(tmp_path / "plain")
    whole, plain = (worlds.numbers(tmp_path / name) for name in ("whole", "plain"))
    assert whole == worlds.numbers(tmp_path / "cut")
    assert {float(row["kl_old"]) for row in (whole[0], whole[4])} == {0.0}
    for name in ("loss", "grad_norm", "entropy"):
        assert float(whole[1][name]) == pytest.approx(float(plain[1][name]), rel=1e-4), name


def test_a_model_or_trainer_that_cannot_is_one_line(world: Path, tmp_path: Path) -> None:
    from methods.training.spec import check

    config = json.loads((world / "base" / "config.json").read_text())
    own = {"architectures": ["Qwen2ForCausalLM"], "layer_types": [], "use_sliding_window": False}
    refused = {
        r"architectures: 'GPT2LMHeadModel': allowed: Llama.*set training\.shared_prefix to false": {
            "architectures": ["GPT2LMHeadModel"]
        },
        r"sliding_window: 4096: training\.shared_prefix needs": {
            "architectures": ["MistralForCausalLM"],
            "sliding_window": 4096,
        },
        r"sliding_window: 8: ": {"use_sliding_window": True, "sliding_window": 8},
        r"sliding_window: None: ": {"layer_types": ["full_attention", "sliding_attention"]},
    }
    spec = check(worlds.spec(world, shared_prefix=True))
    assert trl.preflight(spec).updates == 8
    base = tmp_path / "base"
    base.mkdir()
    (base / "tokenizer_config.json").write_text("{}")
    for line, changes in refused.items():
        (base / "config.json").write_text(json.dumps(config | own | changes))
        with pytest.raises(ConfigError, match=line):
            trl.preflight(spec.model_copy(update={"base": str(base)}))
    training = Training(**worlds.TRAINING, shared_prefix=True)
    with pytest.raises(ConfigError, match=r"training\.shared_prefix: True: verl"):
        verl.plan(training, catalog.parse("tepo"))


def test_order_is_passes_over_all_prompts() -> None:
    taken = rollouts.order(7, 17, seed=3)
    assert sorted(taken[:7]) == sorted(taken[7:14]) == list(range(7))
    assert taken[:7] != taken[7:14]
    assert taken == rollouts.order(7, 17, seed=3) != rollouts.order(7, 17, seed=4)
    assert taken[:10] == rollouts.order(7, 10, seed=3), "a longer run begins like a shorter one"


def test_refill_goes_on_where_it_was_left() -> None:
    one = rollouts.Refill(9, seed=1)
    drawn = [one.draw(4, {0, 1}) for _ in range(5)]
    other = rollouts.Refill(9, seed=1)
    assert [other.draw(4, {0, 1}) for _ in range(2)] == drawn[:2]
    resumed = rollouts.Refill(9, seed=1, position=other.position)
    assert [resumed.draw(4, {0, 1}) for _ in range(3)] == drawn[2:]
    assert all(len(set(d)) == 4 and not {0, 1} & set(d) for d in drawn)


def test_refill_ends_when_every_prompt_is_used() -> None:
    assert sorted(rollouts.Refill(5, seed=1).draw(9, {0, 1})) == [2, 3, 4]
    assert rollouts.Refill(5, seed=1).draw(1, set(range(5))) == []


def test_seeds_differ_by_every_part_of_the_name() -> None:
    names = [(1, "rollout", 0, 0), (1, "rollout", 0, 1), (1, "rollout", 1, 0), (2, "rollout", 0, 0), (1, "x", 0, 0)]
    seeds = [derive(*name) for name in names]
    assert len(set(seeds)) == len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_choose_and_deal() -> None:
    mixed = [True, False, True, True, False, True]
    assert choose(mixed, 3, "oversample") == [0, 2, 3]
    assert choose(mixed, 5, "mask") == [0, 2, 3, 5]
    assert choose(mixed, 5, "none") == [0, 1, 2, 3, 4]
    assert choose(mixed, 3, "refill", ungraded={0, 1}) == [2, 3, 5]
    assert choose(mixed, 5, "none", ungraded={0, 1}) == [2, 3, 4, 5]
    assert deal([0, 2, 3, 5], 4) == [[0], [2], [3], [5]]
    assert deal([0, 2, 3], 2) == [[0, 3], [2]]
    assert deal([7], 2) == [[7], []]


def rows(lengths: list[int], rewards: list[float], prompt: int = 2) -> Rows:
    """Two rows per group; token ids say row and place."""
    import torch

    width = max(lengths)
    mask = torch.tensor([[int(t < n) for t in range(width)] for n in lengths])
    ids = torch.arange(len(lengths)).unsqueeze(1) * 100 + torch.arange(width)
    prompt_mask = torch.ones(len(lengths), prompt, dtype=torch.long)
    group = torch.arange(len(lengths)) // 2
    reward = torch.tensor(rewards)
    return Rows(prompt_mask * 5, prompt_mask, ids * mask, mask, reward, group, advantage=reward)


def test_informative_groups_have_two_rewards() -> None:
    import torch

    assert informative(torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0]), 2) == [False, True, False]


def test_micro_batches_keep_groups_whole_and_know_their_minibatch() -> None:
    made = micro_batches(rows([3, 1, 2, 2, 5, 4], [0, 1, 0, 1, 0, 1]), samples=2, minibatches=2, parts=2)
    assert [s.rows.group.tolist() for s in made] == [[0, 0], [2, 2], [1], [1]]
    assert [(s.tokens, s.sequences, s.groups) for s in made] == [(13, 4, 2), (13, 4, 2), (4, 2, 1), (4, 2, 1)]
    assert [s.group_tokens.tolist() for s in made] == [[4, 4], [9, 9], [4], [4]]
    assert [s.rows.completion_ids.shape[1] for s in made] == [3, 5, 2, 2], "padding nobody uses is cut"


def test_join_pads_and_renumbers() -> None:
    joined = join([rows([3, 1], [0, 1], prompt=2), rows([4, 4], [1, 1], prompt=3)], pad=9)
    assert joined.group.tolist() == [0, 0, 1, 1]
    assert joined.prompt_ids.tolist()[0] == [9, 5, 5]
    assert joined.completion_ids.tolist()[0] == [0, 1, 2, 9]
    assert joined.completion_mask.sum(1).tolist() == [3, 1, 4, 4]


def row(update: int, **values: float | None) -> dict[str, float | int | None]:
    return {**dict.fromkeys(COLUMNS, 0.1 + 0.2), "rollout": 1, "update": update, **values}


def test_curve_reads_back_to_the_same_bits_and_goes_on(tmp_path: Path) -> None:
    curve = Curve(tmp_path / "curve.csv", 0)
    for update in range(3):
        curve.append(row(update, mask_fraction=None, reward_given=0.5))
    curve.close()
    with open(tmp_path / "curve.csv", "a", encoding="utf-8") as stream:
        stream.write("1,3,0.30")  # killed while writing
    again = Curve(tmp_path / "curve.csv", 2)
    assert again.rewards == {1: 0.5}
    again.append(row(2, reward_given=0.25))
    again.close()
    found = read_growing_csv(tmp_path / "curve.csv")
    assert [r["update"] for r in found] == ["0", "1", "2"]
    assert float(found[0]["reward"]) == 0.1 + 0.2
    assert found[0]["mask_fraction"] == ""
    assert again.rewards == {1: 0.25}, "a run collapses by what its method is given"


def test_curve_refuses_other_columns(tmp_path: Path) -> None:
    curve = Curve(tmp_path / "curve.csv", 0)
    with pytest.raises(CorruptInputError, match="a row with columns"):
        curve.append({"rollout": 1})
    curve.close()
    (tmp_path / "old.csv").write_text("rollout,reward\n1,2\n")
    with pytest.raises(CorruptInputError, match="are not those of a curve"):
        Curve(tmp_path / "old.csv", 1)


FLOAT32, HALF = (5e-7, 1 - 1e-12), (0.01, 0.998)  # of engines that compute one policy
ALARMS: dict[str, tuple[list[tuple[float | None, float | None]], bool]] = {
    # gap and correlation of the rollouts 1, 2, ...; whether the last one is an alarm
    "wrong from the start": ([(0.5, 0.8)], True),
    "half precision from the start": ([HALF], False),
    "old weights in float32": ([FLOAT32, (0.031, 0.997)], True),
    "half precision goes on": ([HALF, (0.02, 0.99)], False),
    "old weights in half precision": ([HALF, (0.11, 0.97)], True),
    "a few tokens far off": ([FLOAT32, (0.5, 1 - 1e-7)], False),
    "certain of everything: the correlation is noise": ([FLOAT32, (1e-5, 0.5)], False),
    "rounding grows": ([FLOAT32, (1e-4, 1 - 1e-7)], False),
    "unknown": ([FLOAT32, (None, None)], False),
    "without spread": ([FLOAT32, (0.5, None)], False),
}


def test_the_alarm_for_a_sampler_with_another_policy(tmp_path: Path) -> None:
    """Within one process, and in one that resumes after the first rollout; off if the run says so."""
    path, message = tmp_path / "curve.csv", r"curve.csv: rollout \d: the sampler has another policy .* weights updated"
    for case, (figures, alarm) in ALARMS.items():
        rows = [
            dict.fromkeys(COLUMNS, 1.0) | {"rollout": n, "sampling_gap_mean": gap, "sampling_correlation": correlation}
            for n, (gap, correlation) in enumerate(figures, 1)
        ]
        for check, resumed in itertools.product((False, True), repeat=2):
            curve = Curve(path, 0, sampler_check=check)
            for row in rows[:-1]:
                curve.append(row)
            if resumed:
                curve.close()
                curve = Curve(path, len(rows) - 1, sampler_check=check)
            try:
                curve.append(rows[-1])
                found = ""
            except rollouts.SamplerError as error:
                found = str(error)
            assert bool(re.search(message, found)) == (alarm and check), (case, check, resumed)
            curve.close()
            assert read_growing_csv(path)[-1]["rollout"] == str(len(rows)), "the row that says so stands there"


def test_the_first_of_two_signals_is_the_reason_of_a_stop() -> None:
    """Near a time limit Slurm's SIGTERM may come before the update ends that SIGUSR1 is to be the last of."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    stop = StopRequest()
    try:
        stop.install()
        assert not stop()
        for number in before:
            signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert stop()
    assert stop.signal == signal.SIGUSR1
