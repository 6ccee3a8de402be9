"""Model files: the ten that ship, and one-line errors for those that do not parse."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BenchError, ConfigError
from core.files import json_text
from core.provenance import ROOT, sha256_bytes
from core.results_tree import Tree, read_manifest
from models import recipe, registry

TINY = tuple(filter(lambda key: registry.model(key).made_here, registry.keys()))
PAPER = {
    "Qwen2.5-7B",
    "Qwen3-14B",
    "DeepSeek-R1-Distill-Llama-8B",
    "Mistral-7B-Instruct-v0.2",
    "DeepSeek-R1-Distill-Qwen-7B",
}
GOOD = """
title: mine
stands_for: Qwen2.5-7B
made_here:
  recipe: standard
  seed: 1
  starts: 2
  architecture: {model_type: qwen2, hidden_size: 64, intermediate_size: 176, num_hidden_layers: 3,
                 num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16}
"""


def test_each_model_of_the_paper_has_one_stand_in_and_one_hub_entry() -> None:
    models = list(map(registry.model, registry.keys()))
    papers_own = [m for m in models if m.hub and m.title == m.stands_for]
    # of the default scale; `stopped` bases are another family of tiny_qwen2, for a scale of their own
    default = [m for m in models if m.made_here and m.made_here.recipe != "stopped"]
    for of in (default, papers_own):
        assert sorted(m.stands_for for m in of) == sorted(PAPER)
    assert all("/" in (m.hub or "/") for m in models)
    assert all(m.stands_for in PAPER for m in models)


def test_seeds_differ_between_tiny_models() -> None:
    own = [made.seed for key in TINY if (made := registry.model(key).made_here) and made.continues is None]
    assert len(set(own)) == len(own) == len(TINY) - 1


WRONG = {  # (a piece of GOOD, what stands in its place) -> the error
    ("starts: 2", "starts: 0"): r"mine.yaml: made_here\.starts: ",
    ("seed: 1", "seed: one"): r"mine.yaml: made_here\.seed: must be a whole number, got 'one'",
    ("recipe: standard", "recipi: standard"): r"mine.yaml: made_here\.recipi: unknown key; .*nearest: recipe",
    ("qwen2,", "qwen,"): r"mine.yaml: made_here\.architecture\.model_type: unknown value 'qwen'.*nearest: qwen",
    (", head_dim: 16", ""): r"mine.yaml: made_here\.architecture\.head_dim: is missing",
    ("  seed: 1\n", ""): r"mine.yaml: made_here: seed: is missing; only a model that continues",
    ("  seed: 1", "  seed: 1\n  continues: tiny_qwen2"): r"made_here: seed: is that of tiny_qwen2, whose",
    ("value_heads: 2", "value_heads: 3"): r"num_key_value_heads: 3 does not divide 4 heads",
    ("title: mine", "title: mine\nhub: a/b"): r"mine.yaml: exactly one of made_here, hub and wheel",
    ("title: mine", ""): r"mine.yaml: title: is missing",
    ("seed: 1", "seed: ["): r"mine.yaml: not valid YAML",
    (GOOD, "title: a\nstands_for: b\nhub: c/d\n"): "revision: is missing; write null",
}


def test_a_wrong_file_is_named_with_its_key(tmp_path: Path) -> None:
    for number, ((old, new), message) in enumerate(WRONG.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert old in GOOD
        (folder / "mine.yaml").write_text(GOOD.replace(old, new))
        with pytest.raises(BenchError, match=message) as caught:
            registry.model("mine", folder)
        assert "\n" not in str(caught.value)


def test_a_model_of_ones_own_stands_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("title: a\nhub: c/d\nrevision: null\nsize: 7B\n")
    assert registry.model("mine", tmp_path).stands_for is None


def test_recipe_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.model
    for continues in ("tiny_qwen2_distilled", "qwen2.5_7b"):
        mine = registry.Model(title="mine", made_here=registry.MadeHere(recipe="standard", continues=continues))
        with monkeypatch.context() as patch:
            patch.setattr(registry, "model", lambda key, mine=mine: mine if key == "mine" else known(key))
            with pytest.raises(ConfigError, match=rf"continues: {continues} has no clean models of its own"):
                recipe.recipe("mine", "wide", 1)
    for asked, message in (
        (("tiny_lama", "quick", 1), r"config/models: model: unknown value 'tiny_lama'.*nearest: tiny_llama"),
        (("qwen2.5_7b", "quick", 1), "made_here: missing; qwen2.5_7b comes from the hub"),
        (("tiny_qwen2", "quik", 1), "ladder: unknown value 'quik'.*nearest: quick"),
        (("tiny_qwen2", "quick", -1), "seed: -1 is not a whole number from 0 on"),
    ):
        with pytest.raises(ConfigError, match=message):
            recipe.recipe(*asked)


def test_each_seed_has_a_base_of_its_own_from_few_clean_models() -> None:
    """Whatever numbers are chosen. As many consecutive ones as there are clean models share none."""
    for model in TINY:
        made_here = registry.model(model).made_here
        assert made_here is not None
        starts = made_here.starts or 8  # the distilled model's are tiny_qwen2's
        for seeds in (range(17, 34), [2, 3, 5, 7, 11, 13], [10**6, 10**9, 2**31, 2**63]):
            made = [recipe.recipe(model, "wide", seed) for seed in seeds]
            assert len({recipe.hash_of(one) for one in made}) == len(made)
            clean = [recipe.name_of_clean(one.start) for one in made]
            assert len(set(clean)) <= starts
            if isinstance(seeds, range):
                assert all(len(set(clean[at : at + starts])) == starts for at in range(len(seeds) - starts))
            for one in made:  # the number of a clean model, as a seed, names the same one, whatever model continues it
                assert one.start.number in range(starts)
                assert recipe.recipe(model, "wide", one.start.number).start == one.start
                assert recipe.recipe(one.start.model, "wide", one.seed).start == one.start
    distilled, plain = (recipe.recipe(model, "wide", 3) for model in ("tiny_qwen2_distilled", "tiny_qwen2"))
    assert distilled.start == plain.start
    assert recipe.hash_of(distilled) != recipe.hash_of(plain)
    assert len({recipe.name_of_clean(recipe.recipe("tiny_qwen2", "quick", seed).start) for seed in range(5)}) == 1


def test_recipes_are_consistent() -> None:
    for made in (recipe.recipe(model, ladder, 1) for model in TINY for ladder in ("quick", "wide")):
        assert sum(share for _, share in made.noisy.styles) == pytest.approx(1.0)
        assert made.start.clean.warmup < made.start.clean.limit
        assert all(low < high for _, (low, high) in made.aims)


@pytest.mark.parametrize("name", ["embedded", "embedded_models"])
def test_a_kept_tree_names_the_clean_models_that_its_bases_continue(name: str) -> None:
    """The hashes of its bases' recipes say so: they are those of clean model number seed modulo `starts`."""
    tree = Tree(ROOT / "results/reference" / name)
    hashes = {Path(path).parent.name: entry["sha256"] for path, entry in read_manifest(tree.root)["inputs"].items()
              if path.endswith("/recipe.json")}  # fmt: skip
    bases = {
        (run.model, run.seed): Path((tree.record(run) or {})["spec"]["base"]).name
        for run in tree.runs
        if run.method == "grpo"
    }
    for (model, seed), base in bases.items():
        made = recipe.recipe(model, "wide", seed)
        clean = tree.clean_models(model)
        assert clean is not None
        seeds = made.start.seed, made.start.seed + 10  # embedded_models was made with those
        starts = [made.start.model_copy(update={"number": clean[seed], "seed": own}) for own in seeds]
        made_by = [made.model_copy(update={"start": start}).model_dump(mode="json") for start in starts]
        assert hashes[base] in [sha256_bytes(json_text(one).encode()) for one in made_by], (model, seed)


def test_an_older_matrix_that_records_no_clean_models_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    tree = Tree(ROOT / "results/reference/tuned")
    assert tree.clean_models("tiny_qwen2") == {seed: seed % 4 for seed in range(1, 13)}
    old = Tree(tree.root)
    del old.matrix["models"][0]["starts"]
    assert old.clean_models("tiny_qwen2") is old.clean_models("tiny_qwen2") is None
    assert capsys.readouterr().err.count("matrix.json: models: tiny_qwen2: starts: not recorded") == 1
