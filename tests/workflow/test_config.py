"""A wrong configuration is one line that names file, key, value, what is allowed and the nearest match."""

from __future__ import annotations

import copy
import re
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from methods.training import spec
from records.declared import Declared
from records.errors import BenchError, ConfigError
from tests.merged_config import load, merge
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
            {"base": {"ladder": "wid"}},
            "over.yaml: base.ladder: unknown value 'wid'; allowed: quick, wide; nearest: wide",
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
        (
            {"variants": {"warm": {"title": "warm", "reward": "coins"}}},
            "over.yaml: variants.warm.reward: unknown value 'coins'; allowed: coin, format, .*; nearest: coin",
        ),
        ({"variants": {"warm": {"title": "warm", "stream": 0}}}, "over.yaml: variants.warm.stream: must be greater"),
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
        (("methods",), ["gsppo"], "methods: .*'gsppo'.*nearest: gspo"),
        (
            ("evaluation", "benchmarks"),
            ["syn_mix33"],
            "evaluation.benchmarks: unknown value 'syn_mix33'.*nearest: syn_mix",
        ),
    ],
)
def test_unknown_names_before_any_job(quick: dict[str, Any], where: tuple, value: Any, message: str) -> None:
    config = copy.deepcopy(quick)
    inner: Any = config
    for part in where[:-1]:
        inner = inner[part]
    inner[where[-1]] = value

    def parse() -> None:
        matrix.plan(config, lambda path: "here.yaml")
        matrix.check_benchmarks(config, lambda path: "here.yaml")

    with pytest.raises(BenchError, match=f"here.yaml: .*{message}"):
        parse()


def test_runs_are_deduplicated_by_content(quick: dict[str, Any]) -> None:
    quick["matrix"] += [{"models": ["tiny_qwen2"], "methods": ["tepo+beta=0.001"], "seeds": [1], "steps": [4]}]
    runs = [p for p in matrix.plan(quick) if p.run.method.startswith("tepo") and p.row == "tepo"]
    assert [p.steps for p in runs] == [(4, 12)], "beta's default written out is the same run, with one more checkpoint"


def test_settings_of_a_scale_show_in_the_key(quick: dict[str, Any]) -> None:
    quick["methods"] = ["clip_cov", "clip_cov+fraction=0.5"]
    keys = {p.row: p.run.method for p in matrix.plan(quick)}
    assert keys == {"clip_cov": "clip_cov+fraction=0.01", "clip_cov+fraction=0.5": "clip_cov+fraction=0.5"}


def runs(config: dict[str, Any]) -> set[str]:
    return {f"{p.run.path.as_posix()}: {','.join(map(str, p.steps))}" for p in matrix.plan(config)}


@pytest.mark.parametrize(
    ("scale", "options", "expected"),
    [
        ("quick", {"methods": "gpg, cispo"}, {"tiny_qwen2/gpg/seed1: 12", "tiny_qwen2/cispo/seed1: 12"}),
        ("quick", {"methods": "tepo+beta=0.001"}, {"tiny_qwen2/tepo/seed1: 12"}),
        ("quick", {"models": "tiny_llama", "methods": "gpg"}, {"tiny_llama/gpg/seed1: 12"}),
        (
            "quick",
            {"seeds": "4,5", "methods": ["tepo"]},
            {"tiny_qwen2/tepo/seed4: 12", "tiny_qwen2/tepo/seed5: 12"},
        ),
        # The paper's TEPO of this model is another one than Qwen2.5's.
        (
            "paper",
            {"methods": "grpo,tepo", "models": "qwen3_14b,mistral_7b_instruct_v0.2"},
            {
                "qwen3_14b/grpo/seed2: 72", "qwen3_14b/tepo+beta=1/seed2: 72",
                "mistral_7b_instruct_v0.2/grpo/seed2: 72", "mistral_7b_instruct_v0.2/tepo/seed2: 72",
            },
        ),
        (
            "paper",
            {"methods": "grpo,tepo", "models": "qwen2.5_7b"},
            {
                "qwen2.5_7b/grpo/seed1: 72,132", "qwen2.5_7b/grpo/seed2: 18,72,132",
                "qwen2.5_7b/tepo/seed1: 72", "qwen2.5_7b/tepo/seed2: 18,72",
            },
        ),
        (
            "embedded",
            {"methods": "sapo,tepo_kl_all+beta=0.5", "models": "tiny_qwen2", "seeds": 1, "training": {"rollouts": "4"}},
            {"tiny_qwen2/sapo/seed1: 4", "tiny_qwen2/tepo_kl_all+beta=0.5/seed1: 4"},
        ),
    ],
)  # fmt: skip
def test_the_command_line_chooses_from_the_matrix_and_adds_to_it(
    scale: str, options: dict[str, Any], expected: set[str]
) -> None:
    paths = [EMBEDDED] if scale == "embedded" else [EMBEDDED, ROOT / f"config/{scale}.yaml"]
    assert runs(load(paths, options)) == expected


def test_the_command_line_is_typed_as_the_files_are() -> None:
    config = load(
        [EMBEDDED, QUICK],
        {
            "seeds": "1,2,3", "models": "tiny_qwen2", "methods": "grpo,tepo", "name": "007", "baseline": "tepo",
            "training": {"learning_rate": "3e-5", "rollouts": "4", "passes": 1, "filter": "none"},
            "sweep": {"training": {"learning_rate": "5e-5,1e-4", "passes": ["1", "2"]}, "beta": "0.1,1"},
        },
    )  # fmt: skip
    assert (config["seeds"], config["models"], config["methods"]) == ([1, 2, 3], ["tiny_qwen2"], ["grpo", "tepo"])
    training = config["training"]
    assert (training["learning_rate"], training["rollouts"], training["passes"]) == (3e-5, 4, 1)
    assert (config["scale"], config["title"], config["note"]) == ("007", "007", "Settings of the scale quick.")
    assert (config["evaluation"]["table_step"], matrix.matrix(config)["baseline"]) == (4, "tepo")
    assert config["sweep"] == {
        "training.learning_rate": [5e-5, 1e-4], "training.passes": [1, 2], "beta": [0.1, 1]
    }  # fmt: skip
    assert configuration.resolved(config)[0] == config, "a job checks again what it got"


def test_an_exponent_without_a_dot_is_a_number_in_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "over.yaml").write_text(
        "training: {learning_rate: 3e-5}\nsweep: {training.learning_rate: [1e-4, 2E-4]}\n"
    )
    config = load([EMBEDDED, tmp_path / "over.yaml"])
    assert config["training"]["learning_rate"] == 3e-5
    assert config["sweep"] == {"training.learning_rate": [1e-4, 2e-4]}


def test_seeds_are_typed_as_a_list_or_a_range() -> None:
    for text, seeds in (("1-4", [1, 2, 3, 4]), ("7", [7]), ("1-3,9,11-12", [1, 2, 3, 9, 11, 12])):
        assert load([EMBEDDED, QUICK], {"seeds": text})["seeds"] == seeds


def test_a_title_given_with_the_name_stays(tmp_path: Path) -> None:
    (tmp_path / "over.yaml").write_text("name: mine\ntitle: My question\n")
    config = load([EMBEDDED, QUICK, tmp_path / "over.yaml"])
    assert (config["scale"], config["title"], config["note"]) == ("mine", "My question", "Settings of the scale quick.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": "1,x"}, "seeds.1: must be a whole number, got 'x'"),
        ({"seeds": "-1"}, "seeds.0: must be greater than or equal to 0, got -1"),
        ({"seeds": 1.5}, "seeds.0: must be a whole number, got 1.5"),
        ({"methods": None}, "methods: is empty"),
        ({"training": {"rollouts": "many"}}, "training.rollouts: must be a whole number, got 'many'"),
        ({"training": {"learning_rate": "0"}}, r"training.learning_rate: must be greater than 0, got 0\.0"),
        ({"training": {"lr": "1"}}, "training.lr: unknown key; .*nearest: learning_rate"),
        ({"training": "fast"}, "training: must be keys and values, got 'fast'"),
        ({"name": "My run"}, "name: must match pattern"),
        ({"name": "cache"}, "name: results/cache holds something else"),
        ({"scale": "reference"}, "scale: results/reference holds something else"),
        ({"seed": "1"}, "seed: unknown key; .*nearest: seeds"),
        (
            {"sweep": {"training": {"lr": "1,2"}}},
            "sweep: unknown value 'training.lr'; .*nearest: training.learning_rate",
        ),
        ({"sweep": {"training": {"passes": "1,x"}}}, "sweep.training.passes: must be a whole number, got 'x'"),
        ({"sweep": {"beta": "1,1"}}, "sweep.beta: a value is given twice"),
    ],
)
def test_the_command_line_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^command line \(--config\): {message}") as caught:
        load([EMBEDDED, QUICK], options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"methods": ["tpeo"]}, {}, "over.yaml: methods: .*'tpeo'.*nearest: tepo"),
        ({}, {"methods": "tpeo"}, r"command line \(--config\): methods: .*'tpeo'.*nearest: tepo"),
        ({}, {"models": "qwen"}, r"command line \(--config\): models: unknown value 'qwen'"),
        ({"models": ["qwen"]}, {"methods": "tepo"}, "over.yaml: models: unknown value 'qwen'"),
        ({"baseline": "grppo"}, {}, "over.yaml: baseline: .*'grppo'.*nearest: grpo"),
        (
            {"evaluation": {"benchmarks": ["syn_mix33"]}},
            {},
            "over.yaml: evaluation.benchmarks: unknown value 'syn_mix33'",
        ),
        (
            {"matrix": [{"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [1], "steps": [40]}]},
            {},
            "over.yaml: matrix.0.steps: 40 lies beyond training.rollouts = 12",
        ),
        ({"training": {"rollouts": 3}}, {}, "over.yaml: matrix.0.steps: 12 lies beyond training.rollouts = 3"),
        (
            {"matrix": [{"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [1], "steps": [4]}]},
            {},
            "over.yaml: evaluation.table_step: unknown value 12; allowed: 4",
        ),
    ],
)
def test_errors_name_who_holds_the_wrong_word(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    over = tmp_path / "over.yaml"
    over.write_text(yaml.safe_dump(change))
    paths = [EMBEDDED, QUICK, over]

    def parse() -> None:
        merged: dict[str, Any] = {}
        for path in paths:
            merged = merge(yaml.safe_load(path.read_text()), merged)
        config, where = configuration.resolved(merge(options, merged), paths, options)
        matrix.check_benchmarks(config, where)
        matrix.baseline(config, where)
        matrix.plan(config, where)

    with pytest.raises(ConfigError, match=message):
        parse()


def test_files_in_the_wrong_order_are_said(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("scale: mine\ntraining: {passes: 1}\nmethods: [gpg]\n")
    (line,) = configuration.replaced([tmp_path / "bad.yaml", QUICK])
    assert re.search(r"config/quick.yaml replaces scale of .*bad.yaml: the last --configfile wins", line)
    assert configuration.replaced([EMBEDDED]) == []


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


def test_a_control_is_in_the_specification_and_in_the_record_of_the_matrix(quick: dict[str, Any]) -> None:
    """And nowhere else: the specification of every other run has not one key more."""
    block = quick["matrix"][0] | {"methods": ["grpo"]}
    quick["matrix"] += [block | {"variant": name} for name in ("coin", "format", "again")]
    given = {
        p.run.method: matrix.specification(quick, p, "base", "prompts")
        for p in matrix.plan(quick)
        if p.run.key == "grpo"
    }
    plain = given["grpo"]
    assert not {"placebo", "stream", "variant"} & plain.keys()
    assert given["grpo@coin"] == plain | {"placebo": "evals.placebo:coin", "variant": "coin"}
    assert given["grpo@format"] == plain | {"placebo": "evals.placebo:boxes", "variant": "format"}
    assert given["grpo@again"] == plain | {"stream": 1, "variant": "again"}
    for document in given.values():
        spec.check(document)
    written = matrix.matrix(quick)
    changes = {name: body["changes"] for name, body in written["variants"].items()}
    assert changes == {"coin": {"reward": "coin"}, "format": {"reward": "format"}, "again": {"stream": 1}}
    assert written["settings"]["variants.coin.reward"] == "coin"


def test_a_placebo_with_verl_is_refused_when_it_is_planned(quick: dict[str, Any]) -> None:
    quick["matrix"] += [quick["matrix"][0] | {"variant": "coin"}]
    quick["trainer"] = "verl"
    with pytest.raises(ConfigError, match=r"variants\.coin\.reward: coin: has no meaning with trainer: verl"):
        matrix.plan(quick)
    quick["variants"]["coin"] = quick["variants"]["coin"] | {"trainer": "trl"}
    assert matrix.plan(quick)


def test_a_block_of_an_unknown_variant_names_the_nearest(quick: dict[str, Any]) -> None:
    quick["matrix"][0]["variant"] = "hott"
    with pytest.raises(
        ConfigError, match=r"matrix\.variant: unknown value 'hott'; allowed: again, .*hot, .*; nearest: hot"
    ):
        matrix.plan(quick)
