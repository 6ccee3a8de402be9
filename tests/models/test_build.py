"""Building a base, in seconds: a smaller model, a handful of steps, gates set so that they pass or fail."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, CorruptInputError
from core.files import write_text
from models import build as builder
from models import recipe as cache
from models import tiny
from models.recipe import Aims, Recipe, recipe
from models.registry import Architecture
from models.tiny import IGNORED, fresh, gradients, tensors
from tests.core.test_digests import flip

Built = tuple[Path, dict[str, Any]]
CLASSES = ("llama", "mistral", "qwen2", "qwen3")
ANY = (0.0, 100.0)
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 16}  # fmt: skip


def replace(declared: Any, **changes: Any) -> Any:
    return declared.model_copy(update=changes)


def small(seed: int = 1, aims: Aims | None = None, **clean: Any) -> Recipe:
    """clean: settings of phase 1."""
    whole = recipe("tiny_qwen2", "quick", seed)
    passing = {"gate": -1.0, "cooled_gate": -1.0, "limit": 4, "warmup": 2, "cooling": 2, "check_every": 2}
    start = replace(
        whole.start,
        architecture=Architecture(model_type="qwen2", **SIZES),
        clean=replace(whole.start.clean, **{"batch": 8, "check_answers": 4, **passing, **clean}),
        completion_tokens=8,
    )
    return replace(
        whole,
        start=start,
        noisy=replace(whole.noisy, batch=8, steps=3, warmup=1),
        aims=aims or Aims(**dict.fromkeys(Aims.model_fields, ANY)),
        measured_prompts=2,
        samples_per_prompt=2,
    )


def clean_beside(folder: Path) -> Path:
    return folder.with_name(cache.name_of_clean(small().start))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("bases") / "straight"
    return folder, builder.build(small(), folder)


def test_the_folder_is_an_ordinary_model(built: Built) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, record = built
    model, letters = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert sum(p.numel() for p in model.parameters()) == record["parameters"]
    assert model.generation_config.eos_token_id == letters.eos_token_id == 2
    assert model.generation_config.pad_token_id == letters.pad_token_id == 0
    text = "<bos>42+19?\\boxed{61}  é ∑" + tiny.EOS
    assert letters.decode(letters(text)["input_ids"]) == text
    assert letters(text)["input_ids"] == tiny.tokenizer()(text)["input_ids"]
    assert cache.record(folder) == record
    clean = cache.record(clean_beside(folder), cache.CLEAN_RECORD)
    assert (record["clean"], record["clean_sha256"]) == (clean_beside(folder).name, clean["sha256"][cache.WEIGHTS])


def test_the_same_recipe_gives_the_same_bytes_and_another_seed_others_from_the_same_clean_model(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    torch.manual_seed(999)  # whatever the caller's random state
    again = builder.build(small(), tmp_path / "again", threads=2)
    assert again["sha256"] == built[1]["sha256"]
    assert again["figures"] == built[1]["figures"]
    monkeypatch.setattr(builder, "train_clean", _interrupt)  # would be called if it were not shared
    other = builder.build(small(seed=2), built[0].with_name("other"))
    assert other["clean_sha256"] == built[1]["clean_sha256"]
    assert other["sha256"][cache.WEIGHTS] != built[1]["sha256"][cache.WEIGHTS]


def test_an_interrupted_build_leaves_the_clean_model_and_no_half_base(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "base"
    with monkeypatch.context() as patch:
        patch.setattr(builder, "train_noisy", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            builder.build(small(), out)
    assert not out.exists(), "nothing half-built under the final name"
    assert [path for path in tmp_path.glob(".*") if path.suffix != ".lock"] == []
    with monkeypatch.context() as patch:
        patch.setattr(builder, "train_clean", _interrupt)  # would be called if the phase were redone
        record = builder.build(small(), out)
    assert record["sha256"] == built[1]["sha256"]


def _copy_clean(built: Built, folder: Path) -> Path:
    """`folder` / base, with the clean model beside it: only phase 2 is left to train."""
    shutil.copytree(clean_beside(built[0]), clean_beside(folder / "base"))
    return folder / "base"


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_what_a_workflow_left_is_replaced_and_nothing_else_is_removed(built: Built, tmp_path: Path) -> None:
    out = _copy_clean(built, tmp_path / "left")
    out.mkdir()  # as Snakemake leaves it
    (out / cache.WEIGHTS).write_bytes(b"stale")
    (out / builder.RECIPE).write_text("{}")
    assert builder.build(small(), out)["sha256"] == built[1]["sha256"]
    for name, left in (("mine.txt", [builder.RECIPE]), ("thesis.tex", []), (cache.CLEAN_RECORD, [builder.RECIPE])):
        out = _copy_clean(built, tmp_path / name)
        for file in (*left, name):
            write_text(out / file, "mine")
        with pytest.raises(ConfigError, match=r"move it away|remove it"):
            builder.build(small(), out)
        assert (out / name).read_text() == "mine"


def test_a_finished_base_is_left_alone(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    for phase in ("train_clean", "train_noisy"):
        monkeypatch.setattr(builder, phase, _interrupt)
    assert builder.build(small(), built[0]) == built[1]
    weights = built[0] / cache.WEIGHTS
    content = weights.read_bytes()
    flip(weights, 0.4)
    with pytest.raises(CorruptInputError, match=re.escape(str(weights))):
        builder.build(small(), built[0])
    weights.write_bytes(content)
    with pytest.raises(ConfigError, match=r"base.json: recipe_hash: \w+ is of another recipe than \w+"):
        builder.build(small(seed=2), built[0])


def test_a_base_outside_its_aims_or_gates_is_followed_by_the_next_attempt(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is fixed, the record has what was refused, and all attempts refused is an error; so it is at a gate."""
    where = r"tiny_qwen2.yaml: clean model 0, ladder quick: attempt 2 of 2: accuracy 0.\d+"
    with pytest.raises(ConfigError, match=rf"{where} after 4 steps stays below the gate 0.9"):
        builder.build(small(gate=0.9, attempts=2), tmp_path / "gate" / "base")
    assert not list((tmp_path / "gate").glob("[!.]*"))
    before = replace(small().aims, length=(99.0, 100.0))
    with pytest.raises(ConfigError, match=r"ladder quick, seed 1: attempt 3 of 3: length .* aim 99\.0"):
        builder.build(small(aims=before), _copy_clean(built, tmp_path))
    refused = iter([builder.RefusedError("too long")])
    monkeypatch.setattr(builder, "check_aims", lambda *_: _raise(next(refused, None)))
    made = builder.build(small(), tmp_path / "base")
    assert (made["attempt"], made["refused"], made["clean_sha256"]) == (1, ["too long"], built[1]["clean_sha256"])
    assert made["sha256"][cache.WEIGHTS] != built[1]["sha256"][cache.WEIGHTS]


def _raise(error: Exception | None) -> None:
    if error:
        raise error


PAIRS = [("<bos>7*3?", "\\boxed{1}"), ("<bos>7*3*9?", "7*3=1;1*9=9;\\boxed{9}")]


def test_a_step_learns_from_the_answer_only() -> None:
    """The loss is the mean over the token losses of each sequence alone: padding and neighbours do not leak in."""
    import torch

    letters = tiny.tokenizer()
    for model_type in CLASSES:
        model = fresh(Architecture(model_type=model_type, **SIZES), seed=1)
        losses = []
        for pair in PAIRS:
            ids_BT, target_BT = tensors([pair], letters)
            logits_TV = model(input_ids=ids_BT).logits[0]
            cross_entropy = torch.nn.functional.cross_entropy
            losses.append(cross_entropy(logits_TV, target_BT[0], reduction="none", ignore_index=IGNORED))
        count = sum(int((tensors([pair], letters)[1] != IGNORED).sum()) for pair in PAIRS)
        expected = torch.cat(losses).sum().item() / count
        for threads in (1, 2):
            with gradients(model, letters, threads=threads) as add:
                model.zero_grad()
                assert add(PAIRS) == pytest.approx(expected, rel=1e-5), (model_type, threads)
