"""From a tiny random model to samples: true, complete, reproducible, never drawn twice; their plans and prompts."""

import copy
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from core import digests
from core.code import Code
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from core.files import write_json
from core.layout import Results
from core.provenance import ROOT, sha256_bytes, sha256_file
from evals import arithmetic, benchmark, data, generate, store
from evals import run as evals_run
from evals.generation import draw, prompts
from evals.generation.engine import Settings, arguments, engine, per_sample_seed
from evals.generation.hf import HuggingFace
from evals.generation.prompts import INSTRUCTION
from evals.scores import read_rows, read_scores
from report import markdown
from report import page as report_page
from tests.core.test_digests import flip
from tests.evals.conftest import QUICK, few, read_responses
from tests.evals.generation.tiny import save_tiny

SAMPLED, GREEDY = QUICK


def run(model: Path, folder: Path, out: Path, keys: tuple[str, ...] = QUICK, seed: int = 7, **given: Any) -> Path:
    settings = Settings(str(model), seed=seed, device="cpu", batch_size=given.pop("batch_size", None))
    return generate.generate(engine("hf", settings), [few(key) for key in keys], data=folder, out=out, **given)


@pytest.fixture(scope="module")
def drawn(tiny: Path, quick_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run, read by many tests; none writes into it."""
    out = tmp_path_factory.mktemp("drawn")
    run(tiny, quick_data, out)
    return out


def rows(out: Path, key: str) -> list[Any]:
    return read_responses(out / f"{key}.parquet")


def test_the_rows_are_those_asked_for_in_order_and_the_record_is_true(drawn: Path, quick_data: Path) -> None:
    record = json.loads((drawn / "samples.json").read_text())
    assert len(record["weights_sha256"]) == 64
    assert record["engine"]["versions"]["lm-eval"] == "0.4.13"
    for key in QUICK:
        asked = [
            (item.item_id, sample, f"<bos>{item.problem}")
            for item in data.load(few(key), quick_data)
            for sample in range(few(key).decoding.samples)
        ]
        found, entry = rows(drawn, key), record["benchmarks"][key]
        assert [(row.item_id, row.sample, row.prompt) for row in found] == asked
        assert all(row.prompt_sha256 == sha256_bytes(row.prompt.encode()) for row in found)
        assert (entry["rows"], entry["sha256"]) == (len(found), sha256_file(drawn / f"{key}.parquet"))
        assert entry["response_tokens"] == sum(row.tokens or 0 for row in found)
        assert entry["cut_at_limit"] == sum(row.stop == "length" for row in found)
        assert (entry["seed"], entry["deviations"]) == (7, [])


def test_greedy_responses_are_the_models_own(drawn: Path, tiny: Path) -> None:
    """Against `generate` one prompt at a time: no padding, no batch, no lm-eval."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    for row in rows(drawn, GREEDY)[:10]:
        ids = torch.tensor([tokenizer.encode(row.prompt)])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=64)[
            0, ids.shape[1] :
        ]
        assert row.response == tokenizer.decode(out, skip_special_tokens=True)
        assert row.tokens == int((out != tokenizer.eos_token_id).sum())


def test_own_sampling_and_generate_draw_the_same_in_any_order_of_benchmarks(
    drawn: Path,
    tiny: Path,
    quick_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from methods import sampling

    monkeypatch.setattr(sampling, "unsupported", lambda *_: "a reason")
    run(tiny, quick_data, tmp_path, (GREEDY, SAMPLED))
    assert capsys.readouterr().out.count("sampling by transformers' generate: a reason\n") == 1
    for key in QUICK:
        assert (tmp_path / f"{key}.parquet").read_bytes() == (drawn / f"{key}.parquet").read_bytes()


def test_another_seed_draws_other_samples_and_the_same_greedy(
    drawn: Path, tiny: Path, quick_data: Path, tmp_path: Path
) -> None:
    run(tiny, quick_data, tmp_path, seed=8)
    pairs = zip(rows(drawn, SAMPLED), rows(tmp_path, SAMPLED), strict=True)
    assert sum(a.response == b.response for a, b in pairs) < 8  # a few empty or one-byte responses may coincide
    assert [r.response for r in rows(drawn, GREEDY)] == [r.response for r in rows(tmp_path, GREEDY)]
    assert {row.seed for row in rows(tmp_path, SAMPLED)} == {8}


@pytest.fixture
def finished(drawn: Path, tmp_path: Path) -> Path:
    shutil.copytree(drawn, tmp_path / "out")
    return tmp_path / "out"


class DrawnError(Exception):
    """Raised in place of a draw."""


def no_draw(_: Any, plan: Any, *given: Any) -> Any:
    raise DrawnError(plan.benchmark.key)


def test_what_is_finished_is_neither_drawn_nor_loaded(
    finished: Path, tiny: Path, quick_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The declared outputs may be deleted, as a workflow does before it reruns a job: the store still has them."""
    for key in QUICK:
        (finished / f"{key}.parquet").unlink()
    (finished / "samples.json").unlink()

    monkeypatch.setattr(HuggingFace, "load", None)
    run(tiny, quick_data, finished)
    assert len(rows(finished, SAMPLED)) == 20 * 8


def test_an_interrupted_run_goes_on_with_the_next_benchmark(
    tiny: Path, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, drawn = draw.draw, []

    def killed(engine: Any, plan: Any, *given: Any) -> Any:
        drawn.append(plan.benchmark.key)
        if drawn == [SAMPLED, GREEDY]:
            raise KeyboardInterrupt
        return real(engine, plan, *given)

    monkeypatch.setattr(draw, "draw", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tiny, quick_data, tmp_path)
    assert not (tmp_path / "samples.json").exists()
    run(tiny, quick_data, tmp_path)
    assert drawn == [SAMPLED, GREEDY, GREEDY]


def test_a_damaged_store_is_drawn_again(
    finished: Path, drawn: Path, tiny: Path, quick_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = next((finished / ".work").glob(f"{GREEDY}-*"))
    stored = slot / "samples.parquet"
    for path, content in ((stored, stored.read_bytes()[:-9]), (slot / generate.DONE, None), (stored, None)):
        before = path.read_bytes()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with monkeypatch.context() as patch:
            patch.setattr(draw, "draw", no_draw)
            with pytest.raises(DrawnError, match=GREEDY):
                run(tiny, quick_data, finished)
        path.unlink(missing_ok=True)
        path.write_bytes(before)
    stored.unlink()
    run(tiny, quick_data, finished)
    assert (finished / f"{GREEDY}.parquet").read_bytes() == (drawn / f"{GREEDY}.parquet").read_bytes()


def test_another_question_other_code_and_other_threads_draw_again(
    finished: Path, tiny: Path, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier code left in the store would else be published under the hash of the present one."""
    template = shutil.copytree(tiny, tmp_path / "copy")
    (template / "chat_template.jinja").write_text("{{ messages[0].content }}")
    changes: list[dict[str, Any]] = [{"model": save_tiny(tmp_path / "other", seed=1)}, {"model": template}]
    changes += [{"seed": 8}, {"limit": 3}, {"reading": "none"}, {"batch_size": 50}, {"changes": {"max_tokens": 9}}]
    monkeypatch.setattr(draw, "draw", no_draw)
    for change in changes:
        given = {"model": tiny, **change}
        with pytest.raises(DrawnError, match=GREEDY):
            run(given.pop("model"), quick_data, finished, (GREEDY,), **given)
    run(tiny, quick_data, finished, (GREEDY,))  # alone, as it was drawn beside another benchmark
    for name in generate.THREADS:
        with monkeypatch.context() as patch:
            patch.setenv(name, "7")
            with pytest.raises(DrawnError, match=GREEDY):
                run(tiny, quick_data, finished, (GREEDY,))
    monkeypatch.setattr(Code, "hash", "0" * 12)
    with pytest.raises(DrawnError, match=GREEDY):
        run(tiny, quick_data, finished, (GREEDY,))


def test_the_models_own_sampling_defaults_do_not_apply(
    drawn: Path, tiny: Path, quick_data: Path, tmp_path: Path
) -> None:
    """Instruct models ship a generation_config with repetition_penalty and top_k: only our arguments decide."""
    model = shutil.copytree(tiny, tmp_path / "tuned")
    own = json.loads((model / "generation_config.json").read_text())
    own |= {"repetition_penalty": 1.5, "top_k": 3, "do_sample": True, "no_repeat_ngram_size": 2}
    (model / "generation_config.json").write_text(json.dumps(own))
    run(model, quick_data, tmp_path / "out")
    for key in QUICK:
        assert [r.response for r in rows(tmp_path / "out", key)] == [r.response for r in rows(drawn, key)]


def test_bad_input_is_said_before_anything_is_written(tiny: Path, quick_data: Path, tmp_path: Path) -> None:
    empty = shutil.copytree(tiny, tmp_path / "empty")
    (empty / "model.safetensors").unlink()
    changes: list[tuple[dict[str, Any], type[BenchError], str]] = [
        ({"model": empty}, MissingInputError, "no weights there"),
        ({"folder": tmp_path}, MissingInputError, "python -m evals.fetch --benchmarks syn_mix3"),
        ({"reading": "sytem"}, ConfigError, "nearest: system"),
    ]
    for change, kind, said in changes:
        given: dict[str, Any] = {"model": tiny, "folder": quick_data, **change}
        with pytest.raises(kind, match=said):
            run(given.pop("model"), given.pop("folder"), tmp_path / "out", **given)
        assert not (tmp_path / "out").exists()


def test_sample_seeds_differ_within_and_between_seeds() -> None:
    for seed in (0, 1234, 2**31):
        own = {per_sample_seed(seed, sample) for sample in range(32)}
        assert len(own) == 32
        assert own.isdisjoint(per_sample_seed(seed + 1, sample) for sample in range(32))


def copies(items: int, equal: bool, samples: int = 8) -> list[draw.Row]:
    return [
        {"item_id": f"i{item}", "response": f"{item}" if equal else f"{item} {sample}"}
        for item in range(items)
        for sample in range(samples)
    ]


def test_equal_samples_are_suspected(
    tiny: Path, items: list[data.Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model with one answer left is not a broken seed: its greedy response is the same."""
    for responses, fraction, probed in (
        (copies(5, equal=True), 0.0, 5),
        (copies(5, equal=False), 1.0, 0),
        (copies(30, equal=True), 0.0, draw.PROBED),
        (copies(2, equal=True, samples=1), None, 0),
    ):
        assert draw.distinct_fraction(responses) == fraction
        assert len(draw.suspects(responses)) == probed
    model = engine("hf", Settings(str(tiny), seed=1))
    plan = draw.make_plan(model, few(SAMPLED), items[:5])
    greedy = [{"item_id": item.item_id, "response": "4"} for item in items[:5]]
    monkeypatch.setattr(draw, "draw", lambda engine, probe, *_: greedy if probe.decoding.greedy else [])
    draw.check_draws(greedy * 8, model, plan, tmp_path, "label")
    with pytest.raises(CorruptInputError, match="copies of one draw: on 5 of 5"):
        draw.check_draws([row | {"response": "5"} for row in greedy * 8], model, plan, tmp_path, "label")


def test_any_text_can_be_stored(tmp_path: Path) -> None:
    texts = ["plain", "\x00 nul", "half \ud83d pair", "\ufffd", "日本"]
    row = dict.fromkeys(store.SAMPLES, "") | {"sample": 0, "tokens": None, "seed": 1}
    store.write_samples(tmp_path / "x.parquet", [row | {"response": store.clean(text)} for text in texts])
    found = [row.response for row in read_responses(tmp_path / "x.parquet")]
    assert found == [text.replace("\ud83d", "\ufffd") for text in texts]


def test_a_removed_file_is_named_with_the_command_that_makes_it_again(finished: Path) -> None:
    path = finished / f"{GREEDY}.parquet"
    path.unlink()
    with pytest.raises(MissingInputError, match=f"{path}: file is missing; .*; run: python -m evals.generate, or"):
        store.read_samples(path, store.read_record(finished / "samples.json")[GREEDY])


def test_a_damaged_checkpoint_is_not_evaluated(tmp_path: Path) -> None:
    """By its run's record."""
    folder, record = tmp_path / "seed1/checkpoints/step4", tmp_path / "seed1/run.json"
    folder.mkdir(parents=True)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (folder / name).write_bytes(b"{} " + name.encode())
    write_json(record, {"outputs": {"checkpoints/step4": digests.tree(digests.of_folder(folder))}})
    assert engine("hf", Settings(str(folder), 1, str(record))).identity["weights_sha256"]
    flip(folder / "model.safetensors", 0.3)
    assert engine("hf", Settings(str(folder), 1)).identity["weights_sha256"]  # without a record nothing can differ
    with pytest.raises(CorruptInputError, match=f"{folder}"):
        _ = engine("hf", Settings(str(folder), 1, str(record))).identity


# Plans and prompts.


@pytest.fixture(scope="module")
def items(quick_data: Path) -> list[data.Item]:
    return data.load(few(SAMPLED), quick_data)


POSITIONS = (  # of the model, most tokens -> tokens of a response, prompts cut
    (None, 64, 64, 0),
    (73, 64, 64, 0),
    (72, 64, 63, 0),
    (18, 64, 9, 0),
    (16, 64, 8, 20),
    (12, 4, 4, 20),
)


def test_a_short_model_reserves_its_longest_prompt_and_no_more(tiny: Path, items: list[data.Item]) -> None:
    """Not the limit of 2,048 tokens, and at most half of its positions where the response could use the others."""
    asked = engine("hf", Settings(str(tiny), seed=1))
    for positions, most, response, cut in POSITIONS:
        vars(asked)["positions"] = positions
        found = draw.make_plan(asked, few(SAMPLED), items, changes={"max_tokens": most})
        assert found.decoding.max_tokens == response, positions
        assert max(prompt.tokens or 0 for prompt in found.prompts) == (8 if cut else 9), positions
        assert sum(prompt.cut > 0 for prompt in found.prompts) == cut, positions
        assert any(text.startswith("at most") for text in found.deviations) == (response < most), positions
    vars(asked)["positions"] = 1
    with pytest.raises(ConfigError, match="no room"):
        draw.make_plan(asked, few(SAMPLED), items)


def test_every_deviation_is_recorded(tiny: Path, items: list[data.Item], monkeypatch: pytest.MonkeyPatch) -> None:
    model = engine("hf", Settings(str(tiny), seed=1))
    plan = draw.make_plan(model, few(SAMPLED), items)
    assert plan.deviations == ()
    assert plan.task_hash != draw.make_plan(model, few(SAMPLED), items[::-1]).task_hash, "order is part of the question"
    monkeypatch.setattr(draw, "PROMPT_LIMIT", 8)
    assert [
        text.split(",")[0] for text in draw.make_plan(model, few(SAMPLED), items[:3], reading="none").deviations
    ] == [
        "prompt reading none",
        "the first 3 of 20 items",
        "3 prompts cut on the left to 8 tokens",
    ]


def test_arguments_never_hold_a_seed_and_greedy_ones_never_a_temperature() -> None:
    """A seed among the generation arguments made 4 repeats 1 sample (measured)."""
    greedy = {"do_sample": False, "max_gen_toks": 64, "until": []}
    assert arguments(few(GREEDY).decoding) == greedy
    assert arguments(few(SAMPLED).decoding) == greedy | {
        "do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0
    }  # fmt: skip


PROBLEM = "What is $3+4$?"
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT
WITH_BEGIN = "{{ bos_token }}" + CHAT


@pytest.fixture(scope="module")
def tiny_tokenizer(tiny: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny)


@pytest.fixture
def tokenizer(tiny_tokenizer: Any) -> Any:
    """A copy, to be changed."""
    return copy.deepcopy(tiny_tokenizer)


def build(tokenizer: Any, reading: str, limit: int | None = None) -> prompts.Prompt:
    return prompts.build(tokenizer, reading, PROBLEM, limit)


READINGS = [  # reading, chat template -> text, how
    ("system", CHAT, f"<system>{INSTRUCTION}</><user>{PROBLEM}</><assistant>", "system, chat template"),
    ("user", CHAT, f"<user>{PROBLEM}\n{INSTRUCTION}</><assistant>", "user, chat template"),
    ("none", CHAT, f"<user>{PROBLEM}</><assistant>", "none, chat template"),
    (
        "system", NO_SYSTEM, f"<user>{INSTRUCTION}\n\n{PROBLEM}</><assistant>",
        "system, chat template without system role",
    ),
    ("system", None, f"{INSTRUCTION}\n\n{PROBLEM}\n\n", "system, no chat template"),
    ("user", None, f"{PROBLEM}\n{INSTRUCTION}\n\n", "user, no chat template"),
    ("none", None, f"{PROBLEM}\n\n", "none, no chat template"),
    ("arithmetic", CHAT, arithmetic.prompt_string(PROBLEM), "arithmetic, no chat template"),
]  # fmt: skip


def test_each_reading_is_what_it_says_and_an_unknown_one_names_the_allowed(tokenizer: Any) -> None:
    for reading, chat, text, how in READINGS:
        tokenizer.chat_template = chat
        found = build(tokenizer, reading)
        assert (found.text, found.how, found.cut) == (text, how, 0)
    for tokenizer.chat_template in (None, CHAT):
        with pytest.raises(ConfigError, match="allowed: "):
            build(tokenizer, "sytem")


def adds_begin(tokenizer: Any) -> Any:
    """The tokenizer as Llama's behave: a begin token in front of every text it encodes."""
    from tokenizers.processors import TemplateProcessing

    begin = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.bos_token_id)]
    )
    return tokenizer


def test_a_begin_token_is_there_once_when_the_tokenizer_adds_one_and_else_never(tokenizer: Any) -> None:
    assert tokenizer.bos_token_id not in prompts.ids(tokenizer, build(tokenizer, "system").text)
    tokenizer = adds_begin(tokenizer)
    for chat, limit in itertools.product((None, CHAT, WITH_BEGIN), (None, 20)):
        tokenizer.chat_template = chat
        ids = prompts.ids(tokenizer, build(tokenizer, "system", limit=limit).text)
        assert ids.count(tokenizer.bos_token_id) == 1, (chat, limit)
        assert ids[0] == tokenizer.bos_token_id, (chat, limit)
        assert limit is None or len(ids) <= limit


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS, limit=st.integers(4, 40))
def test_a_cut_prompt_fits_and_is_the_end_of_the_whole(tiny_tokenizer: Any, text: str, limit: int) -> None:
    whole = prompts.plain("none", text)
    found = prompts.build(tiny_tokenizer, "none", text, limit)
    length = len(prompts.ids(tiny_tokenizer, whole))
    assert whole.endswith(found.text)
    assert found.tokens == len(prompts.ids(tiny_tokenizer, found.text)) <= limit
    assert found.cut == length - (found.tokens or 0)
    assert (found.cut > 0) == (length > limit)


# The command that draws, grades and scores.


def test_the_pages_of_benchmarks_name_every_benchmark() -> None:
    page = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    keys = benchmark.keys()
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_models_and_benchmarks_add_rows_and_drop_none(tiny: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    shutil.copytree(tiny, other)

    def add(model: Path, *keys: str, seed: int = 1) -> set[tuple[str, str]]:
        benchmarks = [few(key) for key in keys]
        evals_run.collect(benchmarks, out / "data", None, download=False)
        settings = Settings(str(model), seed=seed, device="cpu")
        path = evals_run.evaluate(engine("hf", settings), benchmarks, out, limit=2)
        rows = read_scores(path)
        return {(r["model"], r["benchmark"]) for r in rows.to_dict("records") if r["how"] != "not run"}

    first = {(tiny.name, "syn_mix3"), (tiny.name, "avg_pooled"), (tiny.name, "avg_macro")}
    assert add(tiny, "syn_mix3") == first
    samples = (Results(out).samples(evals_run.checkpoint(tiny)) / "syn_mix3.parquet").read_bytes()
    assert {("other", "syn_as3"), *first} <= add(other, "syn_as3")
    every = add(tiny, "syn_as3")
    table = read_scores(Results(out).scores)
    assert list(table["benchmark"])[:2] == ["syn_as3", "syn_mix3"]
    assert table[table["how"] != "not run"]["low"].notna().any()
    assert {(tiny.name, "syn_as3"), ("other", "syn_as3"), *first} <= every
    assert ("other", "syn_mix3") not in every, "it was not asked"
    assert (Results(out).samples(evals_run.checkpoint(tiny)) / "syn_mix3.parquet").read_bytes() == samples
    assert str(tiny.name) in evals_run.table(Results(out).scores)
    page = report_page.build(out)
    assert all(text in page for text in (tiny.name, "other", "synthetic mix k=3, modulo 10", "not run", 'id="samples"'))
    before = Results(out).scores.read_bytes()
    with pytest.raises(ConfigError, match=r"drawn with .* --seed 1, not .* --seed 2; choose another --out"):
        add(tiny, "syn_as3", seed=2)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"initializer_range": 0.5}))
    with pytest.raises(ConfigError, match="another model of this name"):
        add(other, "syn_mix3")
    assert Results(out).scores.read_bytes() == before


MISTAKES = {
    "--model nowhere --benchmarks all": "nowhere: no model there",
    "--model Qwen/Qwen2.5-0.5B --benchmarks all": "python -m models.fetch --hub Qwen/Qwen2.5-0.5B",
    "--model TINY --benchmarks all": "no --data: nothing was downloaded; add --download",
    "--model TINY --benchmarks syn_as3 --data no/such/folder": "--data: no/such/folder: no folder",
    "--model TINY,TINY --benchmarks syn_as3": "two of one name",
    "--model TINY --benchmarks syn_as3 --backend vlm": "allowed: hf, openai, vllm; nearest: vllm",
    "--model TINY --benchmarks syn_as3 --engine x": "expected NAME=VALUE",
    "--model TINY --benchmarks syn_as3 --samples 0": "--samples: must be a whole number from 1",
    "--model TINY --benchmarks syn_as3 --temperature nan": "--temperature: must be a number from 0",
    "--model TINY --benchmarks syn_as3 --max-tokens 1.5": "--max-tokens: must be a whole number",
    "--model TINY --benchmarks syn_mix3 --temperature 0": "syn_mix3: decoding: 32 greedy .*; set --samples 1, or",
    "--model TINY --benchmarks syn_as3 --samples 4": "syn_as3: decoding: 4 greedy .*; set --samples 1, or",
}


def test_a_users_mistake_is_named_and_nothing_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in MISTAKES.items():
        given = words.replace("TINY", str(tiny)).split()
        monkeypatch.setattr("sys.argv", ["run", *given, "--out", str(tmp_path / "out")])
        with pytest.raises(BenchError, match=said) as caught:
            evals_run.main()
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists(), words
    printed = capsys.readouterr().out.splitlines()  # what would be downloaded
    for key in benchmark.PAPER:
        found = benchmark.benchmark(key)
        (line,) = (line for line in printed if line.startswith(f"{key} "))
        assert f"  {found.licence}; " in line
        assert line.endswith(f" @ {found.revision[:8]}")


def test_responses_of_another_decoding_never_stand_in_one_table(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    shutil.copytree(tiny, other)

    def call(model: Path, key: str, options: str) -> str:
        given = ["--model", str(model), "--benchmarks", key, "--limit", "2", "--out", str(out), *options.split()]
        monkeypatch.setattr("sys.argv", ["run", *given])
        evals_run.main()
        return capsys.readouterr().out

    drawn = "--max-tokens 5 --samples 3 --temperature 1.5"
    assert f"python -m report.show details --results {out}" in call(tiny, "syn_mix3", drawn)
    printed = markdown.details(read_rows(Results(out).scores))
    samples = Results(out).samples(evals_run.checkpoint(tiny))
    record = json.loads((samples / "samples.json").read_text())
    assert record["decoding"] == {"samples": 3, "temperature": 1.5, "max_tokens": 5}
    entry = record["benchmarks"]["syn_mix3"]
    assert entry["decoding"] == record["decoding"] | {"top_p": 1.0}
    assert entry["deviations"] == [
        "samples 3, the registry's is 32",
        "temperature 1.5, the registry's is 1",
        "max_tokens 5, the registry's is 64",
        "the first 2 of 20 items",
    ]
    rows = read_responses(samples / "syn_mix3.parquet")
    assert len(rows) == 2 * 3
    assert max(row.tokens or 0 for row in rows) == 5
    (score,) = (row for row in read_rows(Results(out).scores) if row["benchmark"] == "syn_mix3")
    figures = [f"{100 * score[name]:.2f}" for name in ("score", "pass_at_k", "maj_at_k")]
    cut = f"{100 * score['truncated'] / 6:.2f}"
    shown = next(line.split() for line in printed.splitlines() if line.split()[1:3] == ["syn_mix3", "3"])
    assert shown[3:] == [*figures, f"{score['response_tokens']:.1f}", cut, f"{100 * score['no_answer'] / 6:.2f}"]
    before = Results(out).scores.read_bytes()
    for model, key in ((tiny, "syn_mix3"), (other, "syn_mix3"), (tiny, "syn_as3")):
        for options, said in (("", "the registry's decoding"), (f"{drawn} --samples 2", "--samples 2 --temp")):
            with pytest.raises(ConfigError, match=f"drawn with {drawn}.*, not .*{said}.*; choose another --out"):
                call(model, key, options)
    for model in (tiny, other):
        with pytest.raises(ConfigError, match=f"{drawn}.*, not .*--prompt none.*; choose another --out"):
            call(model, "syn_mix3", f"{drawn} --prompt none")
    assert Results(out).scores.read_bytes() == before
    assert "other/base" in call(other, "syn_mix3", drawn)
    page = report_page.build(out)
    assert " / ".join(shown[4:]) in page
