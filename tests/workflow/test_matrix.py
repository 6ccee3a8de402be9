"""The paper's rows are planned at both scales, each run once; what is finished stays; a sweep trains nothing twice."""

import copy
import csv
import re
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.files import read_json, to_csv, write_json, write_text
from core.layout import BASE, Checkpoint, Results
from core.provenance import sha256_file
from evals.tree import Tree
from methods import catalog
from methods.training import spec as specs
from models import registry
from tests.merged_config import load
from tests.workflow.conftest import ROOT
from tests.workflow.conftest import finish as write_complete
from tests.workflow.test_config import files_of
from workflow import cost, matrix, sweep, tree
from workflow.matrix import Matrix
from workflow.plan import Plan, plan

CONFIGS = {scale: load(files_of(scale)) for scale in ("embedded", "readings", "paper")}
SLOTS = {
    "q7": "Qwen2.5-7B",
    "q14": "Qwen3-14B",
    "l8": "DeepSeek-R1-Distill-Llama-8B",
    "m7": "Mistral-7B-Instruct-v0.2",
    "dq7": "DeepSeek-R1-Distill-Qwen-7B",
}
STEPS = {"72": "table_step", "132": "long_step"}
with open(ROOT / "paper/tables/rows.csv", encoding="utf-8", newline="") as stream:
    ROWS = {row["row"]: row for row in csv.DictReader(stream) if row["kind"] in ("run", "base")}


def test_a_question_about_methods_leaves_the_controls_out() -> None:
    controls, whole = {"format", "inverted", "shuffled", "again"}, CONFIGS["embedded"]
    for changes, variants in (
        ({"models": ["tiny_qwen2"], "methods": ["grpo", "tepo"], "seeds": [1, 2, 3]}, {None}),
        ({"models": ["tiny_qwen2"], "seeds": [1]}, {None, *controls}),
    ):
        assert {p.run.variant for p in matrix.plan({**whole, **changes})} == variants
    other = matrix.plan({**CONFIGS["readings"], "methods": ["grpo"]})
    assert {p.run.variant for p in other} == {None, "hot"}, "another setting is not a control"


def test_a_run_that_another_follows_is_planned_with_it() -> None:
    """It is that of the configured form of the method, as long as its follower, and not evaluated for it."""
    variants = {
        "as_kl": {"title": "", "training": {"kl_target": {"yoke": "kl_cov"}}},
        "as_hot": {"title": "", "training": {"kl_target": {"yoke": "tepo@hot"}}},
        "twice": {"title": "", "training": {"kl_target": {"yoke": "tepo@as_kl"}}},
        "lost": {"title": "", "training": {"kl_target": {"yoke": "tepo@hit"}}},
        "hot": {"title": "", "training": {"learning_rate": 2e-4}},
        "short": {"title": "", "training": {"rollouts": 6}},
        "as_short": {"title": "", "training": {"kl_target": {"yoke": "tepo@short"}}},
    }
    block = {"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [3], "steps": [5]}

    def planned(variant: str) -> list[matrix.Planned]:
        return matrix.plan(CONFIGS["embedded"] | {"matrix": [block | {"variant": variant}], "variants": variants})

    for variant, leader in (("as_kl", "kl_cov+fraction=0.01"), ("as_hot", "tepo@hot")):
        follower, found = planned(variant)
        assert (follower.run.method, found.run.method, found.run.seed) == (f"grpo@{variant}", leader, 3)
        assert (follower.unevaluated, found.steps, found.unevaluated) == (frozenset(), (5,), {5})
    with pytest.raises(ConfigError, match=r"variants.twice.training.kl_target.yoke: 'tepo@as_kl' follows another run"):
        planned("twice")
    with pytest.raises(ConfigError, match=r"unknown value 'hit'; allowed: .*; nearest: hot"):
        planned("lost")
    with pytest.raises(ConfigError, match=r"'tepo@short' has 6 rollouts, grpo@as_short 12; set as many for both"):
        planned("as_short")
    own = CONFIGS["embedded"]["training"] | {"kl_target": {"yoke": "tepo"}}
    with pytest.raises(ConfigError, match=r"config: training.kl_target.yoke: 'tepo' follows another run itself"):
        matrix.plan(CONFIGS["embedded"] | {"training": own})


def test_the_papers_names_have_its_printed_values() -> None:
    planned = matrix.plan(CONFIGS["paper"])
    methods = {p.row: catalog.parse(p.run.method).params for p in planned}
    assert (methods["entropy_adv"]["alpha"], methods["entropy_adv_original"]["alpha"]) == (4e-4, 0.4)
    assert (methods["clip_cov"]["fraction"], methods["kl_cov"]["fraction"]) == (2e-4, 2e-3)


@pytest.mark.parametrize("scale", ["embedded", "paper"])
def test_every_row_of_the_paper_is_a_planned_checkpoint(scale: str) -> None:
    config = CONFIGS[scale]
    planned = matrix.plan(config)
    stands_for = {registry.model(p.run.model).stands_for: p.run.model for p in planned}
    lacking = []
    for row, wanted in ROWS.items():
        found = [p for p in planned if p.run.model == stands_for[SLOTS[wanted["model"]]]]
        if wanted["kind"] == "run":
            step, seed = config["evaluation"][STEPS[wanted["steps"]]], int(wanted["seed"])
            found = [p for p in found if (p.row, p.run.seed) == (wanted["method"], seed) and step in p.steps]
        if len(found) != 1 and (wanted["kind"] == "run" or not found):
            lacking.append(f"{row}: {wanted['method']} on {wanted['model']}: {len(found)} runs")
    assert lacking == []


def test_the_papers_sizes_reach_every_run() -> None:
    """Section 4.1, as a specification of methods.train."""
    paper = Matrix(CONFIGS["paper"])
    for planned in paper.planned:
        t = specs.check(paper.specification(planned, "base", "prompts")).training
        rows = (t.prompts_per_rollout, t.samples_per_prompt, t.rows_per_minibatch, t.updates_per_rollout)
        assert rows == (64, 8, 128, 4)
        assert (t.learning_rate, t.weight_decay, t.temperature, t.filter) == (5e-7, 0.0, 1.0, "refill")
        assert (t.max_prompt_tokens, t.max_completion_tokens, t.precision) == (2048, 8192, "bfloat16")
        assert (t.nodes, t.gpus_per_node, t.tensor_parallel) == ((2, 8, 2) if "14b" in planned.run.model else (1, 8, 1))
        assert t.rollouts == max(planned.steps)


def test_names_in_the_cache_follow_what_decides_the_content() -> None:
    def prompts(config: dict[str, Any], **changes: Any) -> set[str]:
        made = Matrix(config | {"prompts": config["prompts"] | changes})
        return {made.prompts_name(planned.run) for planned in made.planned}

    paper, embedded = CONFIGS["paper"], CONFIGS["embedded"]
    names = prompts(paper)
    assert len(names) == 5, "each model has its own chat template"
    assert any(name.endswith("/qwen2.5_7b-unpinned.jsonl") for name in names)
    for changes in ({"count": 64}, {"seed": 1}, {"revision": "0" * 40}):
        assert not prompts(paper, **changes) & names, changes
    assert [name.partition("-")[0] for name in prompts(embedded)] == ["taught"]
    assert [name.partition("-")[0] for name in prompts(embedded, ladder=None)] == ["wide"]


HOT = {"matrix": [{"variant": "hot", "models": ["tiny_qwen2"], "methods": ["gpg"], "seeds": [1], "steps": [4]}]}


def asked(results: Results, **options: Any) -> dict[str, Any]:
    """The matrix.json that a question leads to."""
    return dict(plan(files_of("quick"), copy.deepcopy(options) | {"results": str(results.root.parent)}).matrix)


def finish(results: Results, content: dict[str, Any], *methods: str) -> None:
    """Write the tree's matrix.json, and what marks runs of these methods, and the base models, as finished."""
    write_json(results.matrix, content)
    for entry in content["checkpoints"]:
        if entry["method"] in (*methods, BASE):
            checkpoint = Checkpoint.parse(f"{entry['model']}/{entry['method']}/seed{entry['seed']}/step{entry['step']}")
            write_json(Path(results.grades(checkpoint)) / "grades.json", {})
            write_json(Path(results.run(checkpoint.run)) / "run.json", {})


def planned(content: dict[str, Any]) -> list[str]:
    return [f"{entry['method']}/seed{entry['seed']}: {entry['steps']}" for entry in content["runs"]]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """The quick tree, where GRPO and TEPO are finished, and GSPO is not."""
    results = Results(tmp_path / "quick")
    finish(results, asked(results, methods="grpo,tepo,gspo"), "grpo", "tepo")
    return results


def test_what_is_finished_stays_beside_what_is_asked_for(results: Results) -> None:
    content = asked(results, methods="gpg", seeds="3")
    assert planned(content) == ["gpg/seed3: [4]", "grpo/seed1: [4]", "tepo/seed1: [4]"]
    assert [entry["key"] for entry in content["methods"]] == ["gpg", "grpo", "tepo"]
    assert content["seeds"] == [1, 3]
    assert [(entry["method"], entry["seed"]) for entry in content["checkpoints"]] == [
        (BASE, 3), ("gpg", 3), (BASE, 1), ("grpo", 1), ("tepo", 1)
    ]  # fmt: skip
    write_json(results.matrix, content)
    assert len(Tree(results.root).runs) == 3
    again = plan(files_of("quick"), {"methods": "gpg", "seeds": "3", "results": str(results.root.parent)})
    assert again.matrix == content, "asking again changes nothing"
    (note,) = again.notes
    assert note.startswith(f"{results.root}: 2 finished runs of earlier questions stay in its tables; a tree of ")


def test_a_model_and_a_variant_of_an_earlier_question_stay_with_its_settings(results: Results) -> None:
    finish(results, asked(results, **HOT, models="tiny_llama"), "gpg@hot")
    content = asked(results, methods="grpo")
    assert planned(content) == ["grpo/seed1: [4]", "gpg@hot/seed1: [4]", "tepo/seed1: [4]"]
    assert [entry["key"] for entry in content["models"]] == ["tiny_qwen2", "tiny_llama"]
    assert content["variants"]["hot"]["changes"] == {"training.learning_rate": 2e-4}
    assert {"model": "tiny_llama", "method": BASE, "seed": 1, "step": 0} in content["checkpoints"]
    finish(results, content)
    again = {"matrix": [HOT["matrix"][0] | {"seeds": [2]}]}
    assert "gpg@hot/seed1: [4]" in planned(asked(results, **again))
    for setting, message in (
        ({"learning_rate": "3e-4"}, r"training\.learning_rate: 0\.0003, but .*quick holds .* with 0\.0002; "),
        ({"passes": "3"}, r"training\.passes: 3, but .*quick holds .* with None; "),
    ):
        with pytest.raises(ConfigError, match=rf"variants\.hot\.{message}"):
            asked(results, **again, variants={"hot": {"training": setting}})


def test_a_run_keeps_its_other_checkpoints(results: Results) -> None:
    block = {"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [1]}
    finish(results, asked(results, matrix=[block | {"steps": [4, 12]}]), "grpo")
    assert "grpo/seed1: [4, 12]" in planned(asked(results, methods="grpo"))


REFUSED = [
    ({"training": {"learning_rate": "3e-5"}}, r"training.learning_rate: 3e-05, but .*quick holds .* with 0\.0001; "),
    ({"training": {"rollouts": "14"}}, "training.rollouts: 14, but .* with 12; a tree of its own: --config name="),
    ({"evaluation": {"benchmarks": "syn_mix3"}}, "evaluation.benchmarks: syn_mix3, but .* with syn_mix3, syn_inv2"),
    ({"base": {"ladder": "wide"}}, "base.ladder: wide, but .* with quick"),
    ({"trainer": "verl"}, "trainer: verl, but .* with trl"),
]


def test_other_settings_are_refused(results: Results) -> None:
    for options, message in REFUSED:
        with pytest.raises(ConfigError, match=rf"^command line \(--config\): {message}.*$") as caught:
            asked(results, methods="gpg", **options)
        assert "\n" not in str(caught.value)


def test_one_more_benchmark_is_for_all_runs_of_the_tree(results: Results) -> None:
    every = load(files_of("quick"))["evaluation"]["benchmarks"]
    more = {"evaluation": {"benchmarks": [*reversed(every), "syn_iter3"]}}
    assert len(asked(results, methods="grpo,tepo,gspo", **more)["benchmarks"]) == len(every) + 1
    with pytest.raises(ConfigError, match=r"evaluation\.benchmarks: .*syn_iter3, but"):
        asked(results, methods="grpo", **more)


def test_a_method_that_is_gone_is_named_and_a_damaged_list_is_not_in_the_way(results: Results) -> None:
    content = asked(results)
    for part in ("runs", "checkpoints", "methods"):
        for entry in content[part]:
            for key in ("method", "key"):
                entry |= {key: "mine"} if entry.get(key) == "tepo" else {}
    finish(results, content, "mine", "gspo")
    assert tree.gone(tree.recorded(results)[0]) == ["mine"]
    assert planned(asked(results, methods="grpo")) == ["grpo/seed1: [4]", "gspo/seed1: [4]"]
    results.matrix.write_text(results.matrix.read_text()[:300])
    before, problem = tree.recorded(results)
    assert before == tree.NOTHING
    assert re.search(r"^[^\n]*matrix\.json[^\n]*$", problem or "")
    assert planned(asked(results, methods="grpo")) == ["grpo/seed1: [4]"]


RATES = {"training.learning_rate": [5e-5, 1e-4, 2e-4]}


def expanded(tmp_path: Path, config: dict[str, Any]) -> dict[str, Any]:
    config |= {"matrix": matrix.blocks(config), "methods": None, "seeds": None}
    return config | sweep.expanded(config, Results(tmp_path), lambda path: "config")


def planned_sweep(tmp_path: Path, swept: dict[str, Any], methods: list[str], seeds: list[int]) -> dict[str, Any]:
    return expanded(tmp_path, load(files_of("quick")) | {"sweep": swept, "methods": methods, "seeds": seeds})


def runs(config: dict[str, Any]) -> list[str]:
    return [f"{p.run.method} {p.run.seed}" for p in matrix.plan(config)]


def choose(tmp_path: Path, config: dict[str, Any], chosen: set[str]) -> None:
    points, question = config["swept"]["points"], config["swept"]["question"]
    rows = [p | {"chosen": "yes" if p["method"] in chosen else "no", "question": question} for p in points]
    columns = ("model", "row", "method", "chosen", "question")
    write_text(tmp_path / sweep.CHOICE, to_csv(columns, [{c: row[c] for c in columns} for row in rows]))


def test_every_method_has_every_rate_and_the_scales_own_is_the_plain_run(tmp_path: Path) -> None:
    config = planned_sweep(tmp_path, RATES, ["grpo", "tepo"], [1, 2])
    names = ["@learning_rate-5e-5", "", "@learning_rate-2e-4"]
    assert runs(config) == [f"{m}{name} {s}" for m in ("grpo", "tepo") for name in names for s in (1, 2)]
    hot = next(p for p in matrix.plan(config) if p.run.method == "tepo@learning_rate-2e-4")
    assert Matrix(config).training(hot)["learning_rate"] == 2e-4
    content = Matrix(config).content()
    assert content["variants"]["learning_rate-2e-4"]["changes"] == {"training.learning_rate": 2e-4}
    assert content["sweep"]["test_seeds"] == [3, 4], "as many fresh seeds as select"
    config = planned_sweep(tmp_path, {"beta": [0.1, 1]}, ["grpo", "tepo"], [1])
    assert runs(config) == ["grpo 1", "tepo+beta=0.1 1", "tepo+beta=1 1"], "an option, where a method has it"


def test_the_chosen_values_alone_are_trained_on_the_fresh_seeds(tmp_path: Path) -> None:
    asked = RATES | {"select_seeds": [1, 2], "test_seeds": [7, 8, 9]}
    config = planned_sweep(tmp_path, asked, ["grpo", "clip_cov"], [1, 2])
    clip = "clip_cov+fraction=0.01@learning_rate-5e-5"
    choose(tmp_path, config, {"grpo@learning_rate-2e-4", clip})
    again = planned_sweep(tmp_path, asked, ["grpo", "clip_cov"], [1, 2])
    fresh = [f"{method} {seed}" for method in ("grpo@learning_rate-2e-4", clip) for seed in (7, 8, 9)]
    assert runs(again) == runs(config) + fresh
    assert sweep.chosen(again["swept"], Results(tmp_path))
    other = planned_sweep(tmp_path, asked | {"by": ["area"]}, ["grpo", "clip_cov"], [1, 2])
    assert runs(other) == runs(config), "what another measure chose is no choice of this sweep"


def test_runs_that_select_by_area_are_not_evaluated(tmp_path: Path) -> None:
    asked = RATES | {"select_seeds": [1, 2], "test_seeds": [7, 8], "by": ["area"]}
    first = planned_sweep(tmp_path, asked, ["grpo", "tepo"], [1, 2])
    content = Matrix(first).content()
    assert {c["method"] for c in content["checkpoints"]} == {"base"}
    run = next(p for p in matrix.plan(first) if p.run.method == "tepo")
    assert Matrix(first).specification(run, "b", "p")["checkpoints"] == [4], "trained as it is without a sweep"
    choose(tmp_path, first, {"grpo@learning_rate-2e-4", "tepo"})
    again = Matrix(planned_sweep(tmp_path, asked, ["grpo", "tepo"], [1, 2])).content()
    trained = {(c["method"], c["seed"]) for c in again["checkpoints"] if c["method"] != "base"}
    assert trained == {(method, seed) for method in ("grpo@learning_rate-2e-4", "tepo") for seed in (7, 8)}


@pytest.mark.parametrize(
    ("swept", "error"),
    [
        (RATES | {"select_seeds": [1, 2], "test_seeds": [2, 3]}, "test_seeds: 2 also selects"),
        (RATES | {"by": ["reward"]}, "sweep.by: unknown value 'reward'; allowed: area, score"),
        (RATES | {"test_seeds": ["a"]}, "'a' is not a whole number"),
        ({"bata": [1, 2]}, "unknown value 'bata'"),
        ({"select_seeds": [1]}, "no values to try"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(tmp_path: Path, swept: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        planned_sweep(tmp_path, swept, ["grpo", "tepo"], [1, 2])


def test_what_is_damaged_or_of_other_code_is_made_again_with_what_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And counted by `snakemake plan`; with `accept_code` what is of other code stays."""
    monkeypatch.chdir(tmp_path)
    options = {"methods": "grpo,tepo,gspo", "evaluation": {"benchmarks": "syn_seq1"}}

    def made(**more: str) -> Plan:
        return plan(files_of("quick"), options | more)

    of = made()
    write_complete(of, {path for _, path, _ in of._codes()})
    results = of.results
    for path, text in {results.scores: "a\n", results.report: "b", results.companions / "c.js": "c"}.items():
        write_text(path, text)
    listed = {path.relative_to(results.root).as_posix(): sha256_file(path) for path in
              (results.scores, results.report, results.companions / "c.js")}  # fmt: skip
    write_json(results.root / "manifest.json", {"files": listed, "weights": {}, "inputs": {}, "left_out": []})
    assert (made().forced, made().reasons) == (set(), [])

    grpo, tepo, gspo = (planned.run for planned in of.planned)
    last = {run: Checkpoint(run, 4) for run in (grpo, tepo, gspo)}
    write_text(of.record(of.planned[0]).with_name("curve.csv"), "rollout")  # of GRPO: cut
    record = of.record(of.planned[1])  # of TEPO: other code
    write_json(record, read_json(record) | {"inputs": {"code": "0", "method_code": "0"}})
    (of.grades(last[gspo]).with_name("syn_seq1.parquet")).unlink()
    write_text(results.scores, "")
    (results.companions / "c.js").unlink()
    again = made()
    needed = {path for run in (grpo, tepo) for path in (of.samples(last[run]), of.grades(last[run]))}
    needed |= {of.record(of.planned[0]), record, of.grades(last[gspo]), results.scores, results.report}
    assert again.forced == {path.as_posix() for path in needed}
    *reasons, page, scores = again.reasons
    assert reasons == [
        "training: 1 of 3 in results/quick are damaged or lack a file, and are made again",
        "grading: 1 of 4 in results/quick are damaged or lack a file, and are made again",
        "training: 1 of 3 in results/quick are of other code than today's, and are made again; to keep them: "
        "--config accept_code=true",
    ]
    lists = "is not as manifest.json lists it; its rule makes it again, remove it if it has none"
    assert page == f"{results.report}: {lists}"
    assert scores.startswith(f"{results.scores}: is not as manifest.json lists it")
    results.report.unlink()  # a file that is gone and that no rule makes leaves the manifest
    assert made().forced - again.forced == {f"{results.root}/manifest.json"}
    assert list(cost.jobs(again)["done"][:3]) == [False, False, True]
    # Folders that are moved keep their runs.
    Path("results").rename("moved")
    assert not made(results="moved").forced & {f"moved/quick/runs/tiny_qwen2/{m}/seed1/run.json" for m in ("gspo",)}
    Path("moved").rename("results")
    # A run of another specification, of which Snakemake has no note.
    other = of.record(of.planned[2])
    write_json(other, read_json(other) | {"spec": read_json(other)["spec"] | {"base": "elsewhere"}})
    assert other.as_posix() in made().forced - again.forced
    assert other.as_posix() not in made(accept_code="true").forced
    write_json(other, read_json(other) | {"spec": read_json(other)["spec"] | {"checkpoints": []}})
    assert other.as_posix() in made(accept_code="true").forced, "its checkpoints are not there"
    write_json(results.matrix, made().matrix)  # a tree of which Snakemake has no notes: what is cheap
    cheap = {path.as_posix() for path in (results.matrix, results.scores, results.root / "manifest.json")}
    assert cheap <= made(accept_code="true").forced
    write_text(results.matrix, "{")
    with pytest.raises(ConfigError, match=r"matrix\.json: .* finished runs have another specification than is planned"):
        made()
    results.matrix.unlink()
    accepted = made(accept_code="true")
    assert record.as_posix() not in accepted.forced
    assert accepted.matrix["accepted_code"] == accepted.of_other_code
    write_text(of.record(of.planned[0]), "{")  # no error: it is made again
    assert of.record(of.planned[0]).as_posix() in made(accept_code="true").forced
