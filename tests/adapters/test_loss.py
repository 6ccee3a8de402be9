"""C1, C2, C8: what the trainers compute is `Method.loss`, whole, split and over ranks, on tensors of a real rollout."""

import itertools
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ConfigError, CorruptInputError
from core.files import read_growing_csv
from core.provenance import ROOT
from methods import catalog
from methods.adapters import trl
from methods.adapters.trl import shared_prefix
from methods.adapters.trl.microbatches import Rows, join, micro_batches
from methods.adapters.verl.processes import environment
from methods.batch import Batch
from methods.train import STOPPED, StopRequest, execute
from methods.training import rollouts
from methods.training.curve import COLUMNS, Curve
from methods.training.rollouts import choose, deal, derive
from methods.training.spec import check
from tests.adapters import worlds
from tests.adapters.conftest import StopAfter

KEYS = (
    *catalog.keys(),
    "tepo+kl-anchor=ref",
    "grpo+agg-scope=group",
    "tepo+agg-scope=group",
    "grpo+correction=icepop+correction-cap=1.0000001",
    "tepo+correction=seq-tis",
    "tepo+dh-def=cov_sign",
    "tepo+mask-norm=masked",
)
STATISTICS = tuple(key for key in KEYS if catalog.parse(key).parts.statistics)
CLOSE = {"rtol": 1e-12, "atol": 1e-14}


def leaves(batch: Batch, double: bool) -> Batch:
    """A copy whose log-probs and entropies are leaves of the graph."""
    import torch

    tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
    made = {
        name: x.double() if double and isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for name, x in tensors.items()
    }
    for name in ("logp", "entropy"):
        if made[name] is not None:
            made[name] = made[name].detach().clone().requires_grad_()
    return Batch(**made)


def through(trainer: str | None, key: str, batch: Batch, *cut: int, **options: Any) -> list[Any]:
    """The loss by a trainer's own code (None: by the method) and its gradients by what `leaves` made."""
    import torch

    from tests.adapters.trl_conformance import through_trainer, through_workers

    method = catalog.parse(key)
    if trainer is None:
        loss = method.loss(batch, generator=torch.Generator().manual_seed(derive(0, "selection", 0)))
    else:
        loss = {"trl": through_trainer, "verl": through_workers}[trainer](method, batch, *cut, **options)
    wanted = [x for x in (batch.logp, batch.entropy) if x is not None]
    return [loss.detach(), *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)]


def same(one: list[Any], other: list[Any], case: object, **tolerance: float) -> None:
    import torch

    torch.testing.assert_close(one, other, **tolerance, msg=lambda text: f"{case}: {text}")  # type: ignore[arg-type]


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_a_trainers_loss_is_the_methods(trainer: str, captured: list[Batch]) -> None:
    assert any(float((b.logp - b.old_logp).abs().max()) > 0.01 for b in captured), "all minibatches are on-policy"
    for key, batch, double in itertools.product(KEYS, captured, (False, True)):
        ours, theirs = (through(who, key, leaves(batch, double)) for who in (trainer, None))
        same(ours, theirs, key, rtol=0, atol=0)


@pytest.mark.parametrize(("trainer", "cuts"), [("trl", [(2,), (8,)]), ("verl", [(4, 1), (2, 2)])])
def test_a_split_changes_nothing(trainer: str, cuts: list[tuple[int, ...]], captured: list[Batch]) -> None:
    """Over micro-batches, and ranks with verl. For statistics also rows of equal reward side by side, one row alone,
    ranks that hold one prompt: the whole minibatch decides, and by the other reading of R15 the cut does.

    cuts: number of micro-batches, and of ranks.
    """
    batch = captured[-1]
    assert len(set(batch.lengths_B.tolist())) > 2, "with equal lengths each part's own mean would pass"
    by_reward = sorted(range(len(batch.mask)), key=lambda row: float(batch.advantage[row]))
    for key in KEYS:
        whole = through(trainer, key, leaves(batch, True))
        for cut in cuts:
            same(through(trainer, key, leaves(batch, True), *cut), whole, (key, cut), **CLOSE)
        if key not in STATISTICS:
            continue
        for cut in [(8, 1), (1, 8)] if trainer == "verl" else []:
            found = through(trainer, key, leaves(batch, True), *cut, order=by_reward)
            same(found, whole, (key, cut, "by reward"), **CLOSE)
        # agg-scope=microbatch has no statistic and is the other reading by its own name
        one, four = (through(trainer, key, leaves(batch, True), parts, whole=False) for parts in (1, 4))
        assert float(one[0]) != float(four[0]), key


def test_rows_that_only_fill_up_count_for_nothing_and_each_update_draws_its_own_selection(
    captured: list[Batch],
) -> None:
    """verl's filling, a whole micro-batch of it: the same loss as without. Updates are counted by the rows seen."""
    import torch

    from methods.adapters.verl.worker import RESULT, MethodLoss
    from tests.adapters.trl_conformance import as_verl

    for key in KEYS:
        whole = leaves(captured[-1], True)
        rows = len(whole.mask)
        filled = torch.cat([whole.mask, torch.zeros_like(whole.mask)])
        names = "logp", "old_logp", "advantage", "group", "entropy", "old_entropy", "ref_logp", "sampling_logp"
        values = {name: getattr(whole, name) for name in names}
        twice = {name: torch.cat([x, x]) if isinstance(x, torch.Tensor) else x for name, x in values.items()}
        twice["group"][rows:] = -1
        padded = Batch(**twice, mask=filled, dropped=~filled.any(1), max_tokens=whole.max_tokens)
        loss, logp, entropy = through("verl", key, leaves(padded, True), 2)
        same([loss, logp[:rows], entropy[:rows]], through("verl", key, whole)[:3], key, **CLOSE)
        assert not logp[rows:].any(), key
    draw = MethodLoss("clip_cov", 0, 4, 6, whole_minibatch=True)
    assert [draw(*as_verl(batch, slice(None)))[1][RESULT].update for batch in captured] == [0, 1, 2, 3]


# --- verl's engine ----------------------------------------------------------------------------------------------------


def engines_figures(world: Path, folder: Path, ranks: int, *others: Path) -> dict[str, Any]:
    """The worker's figures with so many ranks; others: see `verl_worker`."""
    variables = environment(check(worlds.spec(world, trainer="verl")).training, folder)
    port = str(random.randrange(20_000, 32_768))  # Linux gives connections higher ones
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0"}
    out = folder / "figures.json"
    line = [sys.executable, "-m", "tests.adapters.verl_worker", *map(str, (world, out, *others))]
    outputs: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [
        subprocess.Popen(line, cwd=ROOT, env={**os.environ, **variables, **address, "RANK": str(rank)}, **outputs)
        for rank in range(ranks)
    ]
    said = []
    try:
        said = [process.communicate(timeout=1800)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert out.is_file(), "\n".join(said)[-3000:]
    return dict(json.loads(out.read_text()))


OTHERS = ("qwen3", "llama", "mistral")  # beside the world's own qwen2


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_engine_computes_the_methods_losses(ranks: int, world: Path, tmp_path: Path) -> None:
    others = []
    for model_type in OTHERS if ranks == 1 else ():
        (tmp_path / model_type).mkdir()
        others.append(worlds.build(tmp_path / model_type, prompts=1, model_type=model_type))
    figures = engines_figures(world, tmp_path, ranks, *others)
    # Loss and gradient of every method are the plain model's: packed, over micro-batches too, with the paper's four
    # architectures. Float32: another order of summation.
    expected = {f"{key} in {parts}" for key in KEYS for parts in (1, 2)}
    expected |= {f"{key} in 4" for key in KEYS if key in STATISTICS}
    assert set(figures["gradient"]) == {world.name, *(path.name for path in others)}
    for name, found in figures["gradient"].items():
        assert set(found) == (expected if name == world.name else {f"{key} in 2" for key in KEYS})
        assert max(found.values()) < 1e-5, (name, found)
        # relative to 0.01 where a loss is smaller: half a unit in the last place of a log-prob between 8 and 16 is 5e-7
        assert max(figures["loss"][name].values()) < 5e-5, (name, figures["loss"][name])

    # at the first minibatch nothing has changed
    assert figures["dH"] == 0.0
    first = figures["first"]
    assert (first["mask_fraction"], first["kl_old"], first["ratio_spread"]) == (0.0, 0.0, 0.0)
    assert first["effective_sample_size"] == 1.0

    # in bfloat16 too, because the old pass has the update's micro-batches: cut by tokens over all minibatches, as verl
    # would do it, the same weights give other entropies
    same, other = figures["unchanged"]["True"], figures["unchanged"]["False"]
    assert (same["share"], same["largest"]) == (0.0, 0.0)
    assert other["share"] > 0.01

    assert figures["tokens with logits"] == 5  # a chunk; the micro-batch has 61 tokens on one rank
    assert figures["merged"] is True  # a state merges to the trained weights


# --- TRL's trainer ----------------------------------------------------------------------------------------------------


def bare(**attributes: Any) -> Any:
    """A trainer that has these attributes only: no model, no data."""
    from methods.adapters.trl.trainer import MethodTrainer

    made = object.__new__(MethodTrainer)
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_ends_the_run_before_the_step(norm: float) -> None:
    import torch

    from methods.adapters.trl.trainer import Recorder

    recorder: Any = object.__new__(Recorder)
    recorder.training, recorder.run = SimpleNamespace(updates_per_rollout=4), SimpleNamespace(folder=Path("run"))
    clip = SimpleNamespace(clip_grad_norm_=lambda *_: torch.tensor(norm))
    arguments = {"state": SimpleNamespace(global_step=6), "args": SimpleNamespace(fp16=False, max_grad_norm=1.0)}
    line = rf"^run: rollout 2: update 6: the gradient's norm is {norm}: .*; lower training\.learning_rate$"
    with pytest.raises(CorruptInputError, match=line):
        bare(recorder=recorder, accelerator=clip, **arguments)._clip_grad_norm(SimpleNamespace(parameters=list))
    # verl has left such a step out by itself, and hands the norm over with the update's row
    with pytest.raises(CorruptInputError, match=line):
        recorder.write_row({"rollout": 2}, 2, None, norm)


def ungraded(prompts: list[str], responses: list[str], answers: list[str]) -> list[float | None]:
    """None for the first response of a draw."""
    return [None, *worlds.even(prompts, responses, answers)[1:]]


@pytest.mark.parametrize(("filtering", "key"), [("none", "opo"), ("oversample", "reinforce_pp")])
def test_a_group_with_a_response_without_a_reward_is_dropped_whole_and_counted(
    filtering: str, key: str, train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advantages are over the rows that are trained on; these methods weigh responses by their lengths."""
    import torch

    from methods.adapters.trl.trainer import MethodTrainer

    seen: list[Any] = []
    original = MethodTrainer._figures
    monkeypatch.setattr(MethodTrainer, "_figures", lambda self, *of: seen.extend((self, *of)) or original(self, *of))
    changes = {"filter": filtering, "reward": "tests.adapters.test_loss:ungraded", "rollouts": 1, "checkpoints": (1,)}
    assert train(tmp_path / "run", key, **changes) == 0
    trainer, sampled, groups = seen
    rewards, kept = sampled.reward.view(-1, 4), trainer.present.kept
    usable = [n for n in range(1, len(rewards)) if filtering == "none" or rewards[n].unique().numel() > 1]
    assert (rewards.isnan().nonzero().tolist(), groups) == ([[0, 0]], usable[:4])
    index = torch.cat([torch.arange(4 * group, 4 * group + 4) for group in groups])
    expected = catalog.parse(key).advantage(sampled.reward[index], sampled.group[index], sampled.lengths[index])
    assert torch.equal(kept.reward, sampled.reward[index])
    assert torch.equal(kept.advantage, expected)
    row = worlds.numbers(tmp_path / "run")[0]
    assert float(row["reward"]) == pytest.approx(float(sampled.reward[1:].mean()))
    assert (row["reward_timeouts"], row["groups_sampled"], row["groups_kept"]) == (
        "1",
        str(len(rewards)),
        str(len(groups)),
    )


def test_a_tokenizer_that_adds_a_begin_token_leaves_the_prompts_as_they_are(world: Path) -> None:
    """As verl and evaluation read them: the prompt's text holds the token already."""
    from tokenizers.processors import TemplateProcessing

    from models.tiny import tokenizer

    made: Any = tokenizer()
    begin = ("<bos>", made.bos_token_id)
    made.backend_tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[begin])
    prompt = "<bos>1+1\n"
    assert made(prompt)["input_ids"].count(made.bos_token_id) == 2
    (ids,), *others = bare(processing_class=made)._tokenize_prompts([prompt])
    assert (made.decode(ids), ids.count(made.bos_token_id), others) == (prompt, 1, [None, {}])
    rollouts.check_readable(check(worlds.spec(world, max_prompt_tokens=len(ids))), [prompt], made)


MODELS = ("qwen2", "llama", "qwen3", "mistral")


@pytest.fixture(scope="module", params=MODELS)
def trainer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer after a real run, with its last rollout: 4 prompts of several lengths, 4 responses to each."""
    world = worlds.build(tmp_path_factory.mktemp(request.param), model_type=request.param)
    seen: list[Any] = []
    build = trl.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trl, "build", lambda *of: seen.append(build(*of)) or seen[-1])
        spec = worlds.spec(world, "tepo+kl-anchor=ref", filter="none", learning_rate=1e-2)
        assert execute(json.dumps(spec), world / "run", StopRequest()) == 0
    return seen[-1]


def gradient(trainer: Any, key: str, parts: int, shared: bool) -> Any:
    """The gradient of a minibatch of two groups, over all parameters, with the policy moved since it was sampled."""
    import torch

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
        logp, entropy = trainer._score(trainer.model, rows)
        trainer.old = replace(rows, old_logp=logp, old_entropy=entropy)
        generator = torch.Generator().manual_seed(0)
        for p in trainer.model.parameters():
            p += 0.02 * torch.randn(p.shape, generator=generator)
        found = []
        for shared in (False, True):
            trainer.training_sizes = trainer.training_sizes.model_copy(update={"shared_prefix": shared})
            whole = trainer._full_logp(trainer.model, *rows.inputs)
            found.append((*trainer._score(trainer.model, rows), whole))
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


def test_states_that_several_responses_read_have_one_gradient_on_two_threads() -> None:
    import torch

    ids, draw = torch.ones(256, 3, dtype=torch.long), torch.Generator().manual_seed(0)
    states = torch.randn(1, 257, 256, generator=draw, requires_grad=True)  # 256 responses read the prompt's
    weights = torch.randn(512, 256, generator=draw)
    hidden = SimpleNamespace(last_hidden_state=states)
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation="sdpa"), base_model=lambda **_: hidden)
    torch.set_num_threads(2)
    losses = [(shared_prefix.states(model, ids, torch.ones_like(ids), 2) * weights).sum() for _ in range(20)]
    first, *others = (torch.autograd.grad(loss, states)[0] for loss in losses)
    torch.set_num_threads(1)
    assert first[0, 0].any()
    assert all(torch.equal(first, other) for other in others)


def test_a_run_goes_on_to_the_same_bits_and_begins_at_the_old_policy(train: Callable[..., int], tmp_path: Path) -> None:
    changes: dict[str, Any] = {"filter": "none", "micro_batches": 2, "shared_prefix": True}
    assert train(tmp_path / "whole", "tepo+kl-anchor=ref", **changes) == 0
    assert train(tmp_path / "cut", "tepo+kl-anchor=ref", StopAfter(4), **changes) == STOPPED
    assert train(tmp_path / "cut", "tepo+kl-anchor=ref", **changes) == 0
    worlds.assert_same(tmp_path / "cut", tmp_path / "whole", 2)
    assert {float(row["kl_old"]) for row in worlds.numbers(tmp_path / "whole")[::4]} == {0.0}


OTHER_MODELS: dict[str, dict[str, Any]] = {
    "'GPT2LMHeadModel': allowed: Llama.*set training.shared_prefix to": {"architectures": ["GPT2LMHeadModel"]},
    "sliding_window: 4096: training.shared": {"architectures": ["MistralForCausalLM"], "sliding_window": 4096},
    "sliding_window: None: ": {"layer_types": ["full_attention", "sliding_attention"]},
}


def test_a_model_without_shared_prompts_is_one_line(world: Path, tmp_path: Path) -> None:
    config = json.loads((world / "base" / "config.json").read_text())
    own = {"architectures": ["Qwen2ForCausalLM"], "layer_types": [], "use_sliding_window": False}
    spec = check(worlds.spec(world, shared_prefix=True))
    trl.preflight(spec)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    for line, changes in OTHER_MODELS.items():
        (tmp_path / "config.json").write_text(json.dumps(config | own | changes))
        with pytest.raises(ConfigError, match=line):
            trl.preflight(spec.model_copy(update={"base": str(tmp_path)}))


def test_order_refill_choose_and_deal() -> None:
    taken = rollouts.order(7, 17, seed=3)
    assert sorted(taken[:7]) == sorted(taken[7:14]) == list(range(7))
    assert taken[:7] != taken[7:14]
    assert taken == rollouts.order(7, 17, seed=3) != rollouts.order(7, 17, seed=4)
    assert taken[:10] == rollouts.order(7, 10, seed=3), "a longer run begins like a shorter one"
    # a refill goes on where it was left, and ends when every prompt is used
    one = rollouts.Refill(9, seed=1)
    drawn = [one.draw(4, {0, 1}) for _ in range(2)]
    resumed = rollouts.Refill(9, seed=1, position=one.position)
    assert [one.draw(4, {0, 1}) for _ in range(3)] == [resumed.draw(4, {0, 1}) for _ in range(3)]
    assert all(len(set(d)) == 4 and not {0, 1} & set(d) for d in drawn)
    assert sorted(resumed.draw(9, {0, 1})) == [2, 3, 4, 5, 6, 7, 8]
    assert rollouts.Refill(5, seed=1).draw(1, set(range(5))) == []
    # two different rewards make a group informative; a reward None drops its group whole
    rewards = [0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.5, 0.0, None, 1.0, 0.0, 1.0]
    cases = {(3, "oversample"): [0, 2, 3], (5, "mask"): [0, 2, 3, 5], (5, "none"): [0, 1, 2, 3, 5]}
    assert {case: choose(rewards, 2, *case) for case in cases} == cases
    assert choose(rewards[2:], 2, 3, "refill") == [1, 2, 4]
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
    return Rows(prompt_mask * 5, prompt_mask, ids * mask, mask, reward, group, true_reward=reward, advantage=reward)


def test_micro_batches_keep_groups_whole_and_draws_join() -> None:
    made = micro_batches(rows([3, 1, 2, 2, 5, 4], [0, 1, 0, 1, 0, 1]), samples=2, minibatches=2, parts=2)
    assert [s.rows.group.tolist() for s in made] == [[0, 0], [2, 2], [1], [1]]
    assert [(s.tokens, s.sequences, s.groups) for s in made] == [(13, 4, 2), (13, 4, 2), (4, 2, 1), (4, 2, 1)]
    assert [s.group_tokens.tolist() for s in made] == [[4, 4], [9, 9], [4], [4]]
    assert [s.rows.completion_ids.shape[1] for s in made] == [3, 5, 2, 2], "padding nobody uses is cut"
    joined = join([rows([3, 1], [0, 1], prompt=2), rows([4, 4], [1, 1], prompt=3)], pad=9)
    assert joined.group.tolist() == [0, 0, 1, 1]
    assert (joined.prompt_ids.tolist()[0], joined.completion_ids.tolist()[0]) == ([9, 5, 5], [0, 1, 2, 9])
    assert joined.completion_mask.sum(1).tolist() == [3, 1, 4, 4]


def test_curve_reads_back_to_the_same_bits_and_goes_on(tmp_path: Path) -> None:
    path, same = tmp_path / "curve.csv", dict.fromkeys(COLUMNS, 0.1 + 0.2)
    curve = Curve(path)
    for update in range(3):
        curve.append(same | {"rollout": 1, "update": update, "mask_fraction": None, "reward_given": 0.5})
    curve.close()
    again = Curve(path, path.read_text())
    assert again.rewards == {1: 0.5}
    again.append(same | {"rollout": 1, "update": 3, "reward_given": 0.25})
    again.close()
    found = read_growing_csv(path)
    assert path.read_text() == again.text
    assert [r["update"] for r in found] == ["0", "1", "2", "3"]
    assert (float(found[0]["reward"]), found[0]["mask_fraction"]) == (0.1 + 0.2, "")
    assert again.rewards == {1: 0.25}, "a run collapses by what its method is given"


FLOAT32, HALF = (5e-7, 1 - 1e-12), (0.01, 0.998)  # of engines that compute one policy
ALARMS: dict[str, tuple[list[tuple[float | None, float | None]], bool]] = {
    # gap and correlation of the rollouts 1, 2, ...; whether the last one is an alarm
    "wrong from the start": ([(0.5, 0.8)], True),
    "old weights in float32": ([FLOAT32, (0.031, 0.997)], True),
    "half precision goes on": ([HALF, (0.02, 0.99)], False),
    "old weights in half precision": ([HALF, (0.11, 0.97)], True),
    "a few tokens far off": ([FLOAT32, (0.5, 1 - 1e-7)], False),
    "certain of everything: the correlation is noise": ([FLOAT32, (1e-5, 0.5)], False),
    "unknown": ([FLOAT32, (None, None)], False),
}


def test_the_alarm_for_a_sampler_with_another_policy(tmp_path: Path) -> None:
    path, message = tmp_path / "curve.csv", r"curve.csv: rollout \d: the sampler has another policy .* weights updated"
    for case, (figures, alarm) in ALARMS.items():
        rows = [
            dict.fromkeys(COLUMNS, 1.0) | {"rollout": n, "sampling_gap_mean": gap, "sampling_correlation": correlation}
            for n, (gap, correlation) in enumerate(figures, 1)
        ]
        for checked, resumed in itertools.product((False, True), repeat=2):
            curve = Curve(path, sampler_check=checked)
            for row in rows[:-1]:
                curve.append(row)
            if resumed:
                curve = Curve(path, curve.text, sampler_check=checked)
            with pytest.raises(rollouts.SamplerError, match=message) if alarm and checked else nullcontext():
                curve.append(rows[-1])
            curve.close()
            assert read_growing_csv(path)[-1]["rollout"] == str(len(rows)), case
