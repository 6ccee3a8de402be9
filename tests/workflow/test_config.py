"""A wrong configuration is one line that names file, key, value, what is allowed and the nearest match."""

from __future__ import annotations

import copy
import re
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from records.declared import Declared
from records.errors import BenchError, ConfigError
from tests.merged_config import load
from workflow import config as configuration
from workflow import matrix

ROOT = Path(__file__).resolve().parents[2]
EMBEDDED, QUICK = ROOT / "config/embedded.yaml", ROOT / "config/quick.yaml"


PAPER = ROOT / "config/paper.yaml"
CLUSTER = yaml.safe_load(PAPER.read_text())["cluster"]


@pytest.fixture
def quick() -> dict[str, Any]:
    return load([EMBEDDED, QUICK])


@pytest.mark.parametrize(
    "paths", [[EMBEDDED], [EMBEDDED, QUICK], [EMBEDDED, PAPER]], ids=["embedded", "quick", "paper"]
)
def test_shipped_configurations_are_valid(paths: list[Path]) -> None:
    config = load(paths)
    matrix.check_benchmarks(config)
    assert matrix.plan(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainning": {}}, "over.yaml: trainning: unknown key; allowed: .*; nearest: training"),
        (
            {"training": {"rollout": 3}},
            "over.yaml: training.rollout: unknown key; .*; nearest: rollouts",
        ),
        ({"trainer": "trll"}, "over.yaml: trainer: unknown value 'trll'; allowed: trl, verl; nearest: trl"),
        (
            {"base": {"ladder": "fulll"}},
            "over.yaml: base.ladder: unknown value 'fulll'; allowed: full, quick; nearest: full",
        ),
        ({"training": {"rollouts": "3"}}, r"over.yaml: training.rollouts: must be a whole number, got '3'"),
        ({"evaluation": {"table_step": 5}}, "over.yaml: evaluation.table_step: unknown value 5; allowed: 12"),
        ({"training": {"rollouts": 3}}, r"matrix.0.steps: 12 lies beyond training.rollouts = 3"),
        ({"training": {"cov_scope": "batch"}}, "over.yaml: training.cov_scope: unknown value 'batch'; allowed: micro"),
        ({"variants": {"warm": {"training": {"passes": 1}}}}, "over.yaml: variants.warm.title: is missing"),
        (
            {"variants": {"warm": {"title": "warm", "training": {"learning_rat": 1}}}},
            "over.yaml: variants.warm.training.learning_rat: unknown key; .*; nearest: learning_rate",
        ),
        ({"variants": {"a@b": {"title": "x"}}}, "over.yaml: variants.a@b: must match pattern .*, got 'a@b'"),
        (
            {"prompts": {"source": "dapo"}},
            "over.yaml: prompts.source: unknown value 'dapo'; allowed: arithmetic",
        ),
        ({"prompts": {"source": "dapo_math_17k"}}, "over.yaml: prompts: count: is missing"),
        ({"prompts": {"count": 9}}, "over.yaml: prompts: count: has no meaning with source: arithmetic"),
        ({"cluster": {"gpus": 8}}, "over.yaml: cluster.gpu: is missing"),
        (
            {"cluster": CLUSTER | {"rollout_memory": 1}},
            "over.yaml: cluster.rollout_memory: must be less than 1, got 1",
        ),
        (
            {"cluster": CLUSTER | {"sizes": {"7B": {"nodes": 0, "tensor_parallel": 1}}}},
            "over.yaml: cluster.sizes.7B.nodes: must be greater than or equal to 1, got 0",
        ),
    ],
)
def test_errors_name_everything(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    over = tmp_path / "over.yaml"
    over.write_text(yaml.safe_dump(change))
    with pytest.raises(ConfigError, match=message) as caught:
        load([EMBEDDED, QUICK, over])
    assert "\n" not in str(caught.value)


def test_every_key_is_documented() -> None:
    text = (ROOT / "config/README.md").read_text()
    models: list[Any] = [configuration.Config]
    for model in models:
        for name, field in model.model_fields.items():
            assert re.search(rf"`([\w.]+\.)?{name}(\.\w+)?`", text), f"{model.__name__}: {name}"
            kinds = [field.annotation, *typing.get_args(field.annotation)]
            models += [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Declared)]


def test_a_key_given_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("scale: a\nscale: b\n")
    with pytest.raises(ConfigError, match=r"scale: given twice \('a', 'b'\)"):
        load([tmp_path / "twice.yaml"])


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (
            ("matrix", 0, "models"),
            ["tiny_qwen"],
            "matrix.models: unknown value 'tiny_qwen'.*nearest: tiny_qwen",
        ),
        (("matrix", 0, "methods"), ["tepoo"], "methods: .*'tepoo'.*nearest: tepo"),
        (("matrix", 0, "methods"), ["tepo+bta=1"], "methods: .*'bta'.*nearest: beta"),
        (("methods",), "gsppo", "methods: .*'gsppo'.*nearest: gspo"),
        (
            ("evaluation", "benchmarks"),
            ["syn_mix33"],
            "evaluation.benchmarks: unknown value 'syn_mix33'.*nearest: syn_mix",
        ),
        (("evaluation", "benchmarks"), ["syn_mix3", "syn_mix3"], "syn_mix3 is given twice"),
    ],
)
def test_unknown_names_before_any_job(quick: dict[str, Any], where: tuple, value: Any, message: str) -> None:
    config = copy.deepcopy(quick)
    inner: Any = config
    for part in where[:-1]:
        inner = inner[part]
    inner[where[-1]] = value

    def parse() -> None:
        matrix.plan(config, "here.yaml")
        matrix.check_benchmarks(config, "here.yaml")

    with pytest.raises(BenchError, match=message):
        parse()


def test_runs_are_deduplicated_by_content(quick: dict[str, Any]) -> None:
    quick["matrix"] += [{"models": ["tiny_qwen2"], "methods": ["tepo+beta=0.001"], "seeds": [1], "steps": [4]}]
    runs = [p for p in matrix.plan(quick) if p.run.method.startswith("tepo") and p.row == "tepo"]
    assert [p.steps for p in runs] == [(4, 12)], "beta's default written out is the same run, with one more checkpoint"


def test_settings_of_a_scale_show_in_the_key(quick: dict[str, Any]) -> None:
    quick["methods"] = "clip_cov,clip_cov+fraction=0.5"
    keys = {p.row: p.run.method for p in matrix.plan(quick)}
    assert keys == {"clip_cov": "clip_cov+fraction=0.01", "clip_cov+fraction=0.5": "clip_cov+fraction=0.5"}


def test_methods_on_the_command_line_replace_every_block(quick: dict[str, Any]) -> None:
    quick["methods"] = "gpg, cispo"
    assert [p.run.method for p in matrix.plan(quick)] == ["gpg", "cispo"]


def test_every_catalog_key_is_accepted_by_name(quick: dict[str, Any]) -> None:
    from methods import catalog

    quick["methods"] = list(catalog.keys())
    assert [p.row for p in matrix.plan(quick)] == list(catalog.keys())


def test_a_variant_trains_under_its_own_settings_and_name(quick: dict[str, Any]) -> None:
    quick["variants"]["slow"] = {"title": "slow", "trainer": "verl", "training": {"learning_rate": 1e-6}}
    quick["matrix"] += [quick["matrix"][0] | {"variant": "slow", "methods": ["tepo"]}]
    own, varied = (p for p in matrix.plan(quick) if p.run.key == "tepo")
    assert (own.run.method, varied.run.method, varied.row) == ("tepo", "tepo@slow", "tepo@slow")
    given = matrix.specification(quick, varied, "base", "prompts")
    assert (given["variant"], given["trainer"], given["training"]["learning_rate"]) == ("slow", "verl", 1e-6)
    assert matrix.specification(quick, own, "base", "prompts")["training"]["learning_rate"] == 1e-4


def test_a_block_of_an_unknown_variant_names_the_nearest(quick: dict[str, Any]) -> None:
    quick["matrix"][0]["variant"] = "hott"
    with pytest.raises(ConfigError, match=r"matrix\.variant: unknown value 'hott'; allowed: hot; nearest: hot"):
        matrix.plan(quick)
