"""From a tiny random model to samples: complete, reproducible, never drawn twice; plans, prompts, and `evals.run`."""

import copy
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from transformers import AutoTokenizer

from core.code import Code
from core.errors import BenchError, ConfigError
from core.files import write_text
from core.layout import Results
from core.provenance import sha256_bytes, sha256_file
from evals import arithmetic, benchmark, generate
from evals import run as evals_run
from evals.generation import engine as drawing
from evals.generation import prompts
from evals.generation.engine import Settings, engine
from evals.generation.hf import HuggingFace
from evals.generation.prompts import INSTRUCTION
from evals.scores import read_rows
from methods import sampling
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


def texts(out: Path, key: str) -> list[str]:
    return [row.response for row in rows(out, key)]


def test_the_rows_are_those_asked_for_in_order_and_the_record_is_true(drawn: Path, quick_data: Path) -> None:
    record = json.loads((drawn / "samples.json").read_text())
    assert len(record["weights_sha256"]) == 64
    assert record["engine"]["versions"]["lm-eval"] == "0.4.13"
    for key in QUICK:
        found, entry = rows(drawn, key), record["benchmarks"][key]
        assert [(row.item_id, row.sample, row.prompt) for row in found] == [
            (item.item_id, sample, f"<bos>{item.problem}")
            for item in benchmark.load(few(key), quick_data)
            for sample in range(few(key).decoding.samples)
        ]
        assert all(row.prompt_sha256 == sha256_bytes(row.prompt.encode()) for row in found)
        assert (entry["rows"], entry["sha256"]) == (len(found), sha256_file(drawn / f"{key}.parquet"))
        assert (entry["seed"], entry["prompts_cut"]) == (7, 0)


def test_greedy_responses_are_the_models_own(drawn: Path, tiny: Path) -> None:
    """Against `generate` one prompt at a time: no padding, no batch, no lm-eval."""
    import torch
    from transformers import AutoModelForCausalLM

    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    for row in rows(drawn, GREEDY)[:10]:
        ids = torch.tensor([tokenizer.encode(row.prompt)])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=64)
        out = out[0, ids.shape[1] :]
        assert row.response == tokenizer.decode(out, skip_special_tokens=True)
        assert row.tokens == int((out != tokenizer.eos_token_id).sum())


def test_only_the_model_the_seed_and_our_arguments_decide_a_sample(
    drawn: Path, tiny: Path, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the order of benchmarks, nor who samples, nor a generation_config as instruct models have it."""
    model = shutil.copytree(tiny, tmp_path / "tuned")
    own = json.loads((model / "generation_config.json").read_text())
    own |= {"repetition_penalty": 1.5, "top_k": 3, "do_sample": True, "no_repeat_ngram_size": 2}
    (model / "generation_config.json").write_text(json.dumps(own))
    run(model, quick_data, tmp_path / "out")
    run(tiny, quick_data, tmp_path / "8", seed=8)
    monkeypatch.setattr(sampling, "unsupported", lambda *_: "a reason")  # so that transformers' generate draws
    run(tiny, quick_data, tmp_path / "generate", (GREEDY, SAMPLED))
    for key in QUICK:
        assert texts(tmp_path / "out", key) == texts(drawn, key)
        assert (tmp_path / f"generate/{key}.parquet").read_bytes() == (drawn / f"{key}.parquet").read_bytes()
    pairs = zip(texts(drawn, SAMPLED), texts(tmp_path / "8", SAMPLED), strict=True)
    assert sum(a == b for a, b in pairs) < 8  # a few empty or one-byte responses may coincide


def test_an_interrupted_run_goes_on_with_the_next_benchmark_and_a_finished_one_loads_no_model(
    drawn: Path, tiny: Path, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outputs may be deleted, as Snakemake does before it reruns a job: finished benchmarks are kept."""
    real, asked = drawing.draw, []

    def killed(engine: Any, plan: Any, *given: Any) -> Any:
        asked.append(plan.benchmark.key)
        if asked == [SAMPLED, GREEDY]:
            raise KeyboardInterrupt
        return real(engine, plan, *given)

    monkeypatch.setattr(drawing, "draw", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tiny, quick_data, tmp_path)
    assert not (tmp_path / "samples.json").exists()
    run(tiny, quick_data, tmp_path)
    assert asked == [SAMPLED, GREEDY, GREEDY]
    for name in (f"{SAMPLED}.parquet", f"{GREEDY}.parquet", "samples.json"):
        (tmp_path / name).unlink()
    monkeypatch.setattr(HuggingFace, "load", None)
    run(tiny, quick_data, tmp_path)
    assert all((tmp_path / f"{k}.parquet").read_bytes() == (drawn / f"{k}.parquet").read_bytes() for k in QUICK)


def test_what_is_damaged_or_answers_another_question_is_drawn_again(
    drawn: Path, tiny: Path, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other code, too: its responses must not be published as those of this call."""
    finished = Path(shutil.copytree(drawn, tmp_path / "out"))
    template = shutil.copytree(tiny, tmp_path / "copy")
    (template / "chat_template.jinja").write_text("{{ messages[0].content }}")
    changes: list[dict[str, Any]] = [{"model": save_tiny(tmp_path / "other", seed=1)}, {"model": template}]
    changes += [{"seed": 8}, {"limit": 3}, {"reading": "none"}, {"batch_size": 50}, {"changes": {"max_tokens": 9}}]

    def no_draw(_: Any, plan: Any, *given: Any) -> Any:
        raise KeyboardInterrupt(plan.benchmark.key)

    def drawn_again(**change: Any) -> None:
        with pytest.raises(KeyboardInterrupt, match=GREEDY):
            run(change.pop("model", tiny), quick_data, finished, (GREEDY,), **change)

    monkeypatch.setattr(drawing, "draw", no_draw)
    for change in changes:
        drawn_again(**change)
    run(tiny, quick_data, finished, (GREEDY,))  # alone, as it was drawn beside another benchmark
    with monkeypatch.context() as patch:
        patch.setattr(Code, "hash", "0" * 12)
        drawn_again()
    slot = next((finished / ".work").glob(f"{GREEDY}-*"))
    for name, content in ((generate.PARQUET, b"PAR1"), (generate.DONE, b"{"), (generate.DONE, b"{}")):
        before = (slot / name).read_bytes()
        (slot / name).write_bytes(content)
        drawn_again()
        (slot / name).write_bytes(before)


# Plans and prompts


def test_a_short_model_leaves_the_response_what_its_longest_prompt_does_not_need(tiny: Path, quick_data: Path) -> None:
    items = benchmark.load(few(SAMPLED), quick_data)
    asked = engine("hf", Settings(str(tiny), seed=1))
    for positions, response in ((None, 64), (73, 64), (72, 63), (10, 1)):  # the longest prompt has 9 tokens
        vars(asked)["positions"] = positions
        found = drawing.make_plan(asked, few(SAMPLED), items)
        assert found.decoding.max_tokens == response, positions
    vars(asked)["positions"] = 9
    with pytest.raises(ConfigError, match="syn_mix3: a prompt of 9 tokens, the model has 9 positions"):
        drawing.make_plan(asked, few(SAMPLED), items)


PROBLEM = "What is $3+4$?"
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT
READINGS = (  # reading, chat template, text, how
    ("system", CHAT, f"<system>{INSTRUCTION}</><user>{PROBLEM}</><assistant>", "chat template"),
    ("user", CHAT, f"<user>{PROBLEM}\n{INSTRUCTION}</><assistant>", "chat template"),
    ("none", CHAT, f"<user>{PROBLEM}</><assistant>", "chat template"),
    ("system", NO_SYSTEM, f"<user>{INSTRUCTION}\n\n{PROBLEM}</><assistant>", "chat template without system role"),
    ("system", None, f"{INSTRUCTION}\n\n{PROBLEM}\n\n", "no chat template"),
    ("arithmetic", CHAT, arithmetic.prompt_string(PROBLEM), "no chat template"),
)


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny)


def test_each_reading_is_what_its_name_promises(tokenizer: Any) -> None:
    """A begin token is there once where the tokenizer adds one, as Llama's do to every text, and else never."""
    from tokenizers.processors import TemplateProcessing

    changed, begin, number = copy.deepcopy(tokenizer), tokenizer.bos_token, tokenizer.bos_token_id
    for reading, changed.chat_template, text, how in READINGS:
        found = prompts.build(changed, reading, PROBLEM, None)
        assert (found.text, found.how, found.cut) == (text, f"{reading}, {how}", 0)
        with pytest.raises(ConfigError, match="allowed: "):
            prompts.build(changed, "sytem", PROBLEM, None)
    assert number not in prompts.ids(changed, prompts.build(changed, "system", PROBLEM, None).text)
    adds = TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, number)])
    changed.backend_tokenizer.post_processor = adds
    for changed.chat_template, limit in itertools.product((None, CHAT, "{{ bos_token }}" + CHAT), (None, 20)):
        ids = prompts.ids(changed, prompts.build(changed, "system", PROBLEM, limit).text)
        assert (ids.count(number), ids[0]) == (1, number)
        assert limit is None or len(ids) <= limit


def test_a_cut_prompt_fits_and_is_the_end_of_the_whole(tokenizer: Any) -> None:
    whole = prompts.plain("none", "Was ist größer: 2 日 oder 3 本?")
    length = len(prompts.ids(tokenizer, whole))
    for limit in (4, 11, length - 1, length):
        found = prompts.build(tokenizer, "none", "Was ist größer: 2 日 oder 3 本?", limit)
        assert whole.endswith(found.text)
        assert found.tokens == len(prompts.ids(tokenizer, found.text)) <= limit
        assert found.cut == length - (found.tokens or 0)


# The command that draws, grades and scores

GIVEN = "--max-tokens 5 --samples 3 --temperature 1.5"
OUT = "o[1]$HOME"  # a name like any other
Call = Callable[..., None]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`python -m evals.run` on two items of a benchmark."""

    def run(model: Path | str, key: str, options: str = GIVEN) -> None:
        words = f"--model {model} --benchmarks {key} --limit 2 --device cpu --out {tmp_path / OUT} {options}"
        monkeypatch.setattr("sys.argv", ["run", *words.split()])
        evals_run.main()

    return run


def test_models_and_benchmarks_add_rows_and_other_responses_never_share_a_table(
    tiny: Path, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    other, results = shutil.copytree(tiny, tmp_path / "other"), Results(tmp_path / OUT)
    samples = results.samples(evals_run.checkpoint(tiny))
    own = [tmp_path / place / "mine.jsonl" for place in "ab"]
    for number, file in enumerate(own):
        write_text(file, json.dumps({"problem": f"{number}+1?", "answer": "1"}))
    call(tiny, SAMPLED)
    first = (samples / f"{SAMPLED}.parquet").read_bytes()
    entry = json.loads((samples / "samples.json").read_text())["benchmarks"][SAMPLED]
    assert entry["decoding"] == {"samples": 3, "temperature": 1.5, "max_tokens": 5, "top_p": 1.0}
    call(other, "syn_inv2")
    call(tiny, f"syn_inv2,{own[0]}")
    scores = [(row["model"], row["benchmark"]) for row in read_rows(results.scores) if row["how"] != "not run"]
    assert {(model, key) for model, key in scores if not key.startswith("avg")} == {
        (tiny.name, SAMPLED), (tiny.name, "syn_inv2"), (tiny.name, "mine"), ("other", "syn_inv2"),
    }  # fmt: skip
    assert (samples / f"{SAMPLED}.parquet").read_bytes() == first
    assert f"python -m report.show details --results {quote(str(results.root))}" in capsys.readouterr().out

    before = results.scores.read_bytes()
    del benchmark._registry()["mine"]  # another process
    for model, key, options, message in (
        (tiny, SAMPLED, "", r"drawn with decoding {'max_tokens': 5, .*}, not {}; choose another --out"),
        (other, SAMPLED, f"{GIVEN} --prompt none", "drawn with reading None, not none; choose another --out"),
        (tiny, SAMPLED, f"{GIVEN} --seed 2", "drawn with seed 1234, not 2; choose another --out"),
        (other, own[1], GIVEN, f"{own[1]}: .* holds other problems of this name; choose another --out"),
    ):
        with pytest.raises(ConfigError, match=message):
            call(model, key, options)
    del benchmark._registry()["mine"]
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"initializer_range": 0.5}))
    with pytest.raises(ConfigError, match=r"drawn with files_sha256 \w+, not \w+; choose another --out"):
        call(other, SAMPLED)
    assert results.scores.read_bytes() == before


MISTAKES = (  # model, benchmark, options, error
    ("nowhere/checkpoints/step4", "all", "", "nowhere/checkpoints/step4: no folder there; give the folder of a check"),
    ("EMPTY", GREEDY, "", "no weights there"),
    ("served", GREEDY, "--backend openai --endpoint http://127.0.0.1:9/v1 --chat", "set --prompt system, user or none"),
    ("Qwen/Qwen2.5-0.5B", "all", "", "python -m models.fetch --hub Qwen/Qwen2.5-0.5B"),
    ("TINY", "aime24,amc", "", "no --data: aime24, amc: add --download to get them"),
    ("TINY", GREEDY, "--data no/such/folder", "--data: no/such/folder: no folder"),
    ("TINY", GREEDY, "--backend vlm", "allowed: hf, openai, vllm; nearest: vllm"),
    ("TINY", GREEDY, "--engine x", "expected NAME=VALUE"),
    ("TINY", SAMPLED, "--temperature 0", "syn_mix3: decoding: 32 greedy .*; set --samples 1, or"),
)


def test_a_users_mistake_is_named_and_nothing_written(tiny: Path, tmp_path: Path, call: Call) -> None:
    write_text(tmp_path / "empty/config.json", "")
    for model, key, options, message in MISTAKES:
        with pytest.raises(BenchError, match=message) as caught:
            call(model.replace("TINY", str(tiny)).replace("EMPTY", str(tmp_path / "empty")), key, options)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / OUT).exists(), options
