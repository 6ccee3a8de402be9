"""From a tiny random model to samples: true, complete, reproducible, never drawn twice."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from core import digests
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from core.files import write_json
from core.provenance import sha256_file
from evals import data, generate, store
from evals.generation import draw
from evals.generation.engine import Settings, engine, per_sample_seed
from evals.generation.hf import HuggingFace
from evals.store import Response
from tests.core.test_digests import flip
from tests.evals.conftest import QUICK, few, read_responses
from tests.evals.generation.tiny import save_tiny

SAMPLED, GREEDY = QUICK


def run(model: Path, folder: Path, out: Path, keys: tuple[str, ...] = QUICK, seed: int = 7, **given: Any) -> Path:
    settings = Settings(str(model), seed=seed, device="cpu", batch_size=given.pop("batch_size", None))
    return generate.generate(settings, [few(key) for key in keys], backend="hf", data=folder, out=out, **given)


@pytest.fixture(scope="module")
def drawn(tiny: Path, quick_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run, read by many tests; none writes into it."""
    out = tmp_path_factory.mktemp("drawn")
    run(tiny, quick_data, out)
    return out


def rows(out: Path, key: str) -> list[Response]:
    return read_responses(out / f"{key}.parquet")


def test_one_row_per_response_in_order_with_the_arithmetic_prompt(drawn: Path, quick_data: Path) -> None:
    for key in QUICK:
        benchmark = few(key)
        asked = [
            (item.item_id, sample, f"<bos>{item.problem}")
            for item in data.load(benchmark, quick_data)
            for sample in range(benchmark.decoding.samples)
        ]
        found = rows(drawn, key)
        assert [(row.item_id, row.sample, row.prompt) for row in found] == asked
        assert all(row.prompt_sha256 == store.prompt_sha256(row.prompt) for row in found)


def test_the_record_is_true(drawn: Path) -> None:
    record = json.loads((drawn / "samples.json").read_text())
    assert record["schema"] == generate.SCHEMA
    assert len(record["weights_sha256"]) == 64
    assert record["engine"]["versions"]["lm-eval"] == "0.4.13"
    for key in QUICK:
        entry, own = record["benchmarks"][key], rows(drawn, key)
        assert entry["rows"] == len(own)
        assert entry["sha256"] == sha256_file(drawn / f"{key}.parquet")
        assert entry["response_tokens"] == sum(row.tokens or 0 for row in own)
        assert entry["cut_at_limit"] == sum(row.stop == "length" for row in own)
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


def test_own_sampling_and_generate_draw_the_same_file(
    drawn: Path,
    tiny: Path,
    quick_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from methods import sampling

    asked: list[dict[str, Any]] = []

    def refuse(_: Any, arguments: dict[str, Any]) -> str:
        asked.append(arguments)
        return "a reason"

    monkeypatch.setattr(sampling, "unsupported", refuse)
    run(tiny, quick_data, tmp_path)
    assert {bool(arguments["do_sample"]) for arguments in asked} == {True, False}
    assert capsys.readouterr().out.count("sampling by transformers' generate: a reason\n") == 1
    for key in QUICK:
        assert (tmp_path / f"{key}.parquet").read_bytes() == (drawn / f"{key}.parquet").read_bytes()


def test_a_benchmark_does_not_depend_on_those_before_it(
    drawn: Path, tiny: Path, quick_data: Path, tmp_path: Path
) -> None:
    run(tiny, quick_data, tmp_path, (GREEDY, SAMPLED))
    assert (tmp_path / f"{SAMPLED}.parquet").read_bytes() == (drawn / f"{SAMPLED}.parquet").read_bytes()


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

    def loaded(self: Any, max_length: int | None) -> Any:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(HuggingFace, "lm", loaded)
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


def test_a_changed_question_is_asked_again(
    finished: Path, tiny: Path, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = shutil.copytree(tiny, tmp_path / "copy")
    (template / "chat_template.jinja").write_text("{{ messages[0].content }}")
    changes: list[dict[str, Any]] = [{"model": save_tiny(tmp_path / "other", seed=1)}, {"model": template}]
    changes += [{"seed": 8}, {"limit": 3}, {"reading": "none"}, {"batch_size": 50}]
    monkeypatch.setattr(draw, "draw", no_draw)
    for change in changes:
        given = {"model": tiny, **change}
        with pytest.raises(DrawnError, match=GREEDY):
            run(given.pop("model"), quick_data, finished, (GREEDY,), **given)


def test_the_models_own_sampling_defaults_do_not_apply(
    drawn: Path, tiny: Path, quick_data: Path, tmp_path: Path
) -> None:
    """Instruct models ship a generation_config with repetition_penalty and top_k: only the task file decides."""
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
        ({"model": tmp_path / "nowhere"}, MissingInputError, "nowhere: no model there"),
        ({"model": empty}, MissingInputError, "no weights there"),
        ({"folder": tmp_path}, MissingInputError, "python -m evals.fetch --benchmarks syn_mix3"),
        ({"reading": "sytem"}, ConfigError, "nearest: system"),
    ]
    for change, kind, said in changes:
        given: dict[str, Any] = {"model": tiny, "folder": quick_data, **change}
        with pytest.raises(kind, match=said):
            run(given.pop("model"), given.pop("folder"), tmp_path / "out", **given)
        assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="allowed: hf, openai, vllm; nearest: vllm"):
        engine("vlm", Settings(str(tiny), seed=1))


def test_sample_seeds_differ_within_and_between_seeds() -> None:
    for seed in (0, 1234, 2**31):
        own = {per_sample_seed(seed, sample) for sample in range(32)}
        assert len(own) == 32
        assert own.isdisjoint(per_sample_seed(seed + 1, sample) for sample in range(32))


def fake(item: str, sample: int, response: str) -> Response:
    return Response(item, sample, "p", "h", response, "stop", 1, 1)


def copies(items: int, equal: bool) -> list[Response]:
    return [fake(f"i{i}", s, f"{i}" if equal else f"{i} {s}") for i in range(items) for s in range(8)]


def test_equal_samples_are_suspected() -> None:
    for responses, fraction, probed in (
        (copies(5, equal=True), 0.0, 5),
        (copies(5, equal=False), 1.0, 0),
        (copies(30, equal=True), 0.0, draw.PROBED),
        ([fake("a", 0, "x"), fake("b", 0, "x")], None, 0),
    ):
        assert draw.distinct_fraction(responses) == fraction
        assert len(draw.suspects(responses)) == probed


def test_a_model_with_one_answer_left_is_no_broken_seed() -> None:
    responses = copies(5, equal=True)
    draw.check("set", responses, {f"i{i}": f"{i}" for i in range(5)})
    with pytest.raises(CorruptInputError, match="copies of one draw: on 5 of 5"):
        draw.check("set", responses, {f"i{i}": "another" for i in range(5)})


def test_any_text_can_be_stored(tmp_path: Path) -> None:
    for text in ("plain", "\x00 nul", "half \ud83d pair", "\ufffd", "日本"):
        row = dataclasses.replace(fake("a", 0, ""), response=store.clean(text))
        store.write_samples(tmp_path / "x.parquet", [row])
        assert read_responses(tmp_path / "x.parquet")[0].response == text.replace("\ud83d", "\ufffd")


def test_a_damaged_checkpoint_is_not_evaluated(tmp_path: Path) -> None:
    """By its own list of hashes where nothing else is given, and by its run's record."""
    folder, record = tmp_path / "seed1/checkpoints/step4", tmp_path / "seed1/run.json"
    folder.mkdir(parents=True)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (folder / name).write_bytes(b"{} " + name.encode())
    digests.write_folder(folder)
    write_json(record, {"outputs": {"checkpoints/step4": digests.tree(digests.check_folder(folder))}})
    for path in sorted(folder.iterdir()):
        before = path.read_bytes()
        flip(path, 0.3)
        for given in (None, str(record)):
            with pytest.raises(BenchError) as caught:
                engine("hf", Settings(str(folder), 1, given)).identity()
            assert str(folder) in str(caught.value), path.name
            assert "\n" not in str(caught.value)
        path.write_bytes(before)
        engine("hf", Settings(str(folder), 1, str(record))).identity()


def test_a_flipped_bit_of_a_benchmarks_file_is_named(quick_data: Path, tmp_path: Path) -> None:
    """Also in a field that nothing is computed from, which the registry's hash does not cover."""
    shutil.copytree(quick_data, tmp_path / "data")
    path = tmp_path / "data" / f"{GREEDY}.jsonl"
    for share in (0.01, 0.5, 0.999):
        before = path.read_bytes()
        flip(path, share)
        with pytest.raises(CorruptInputError, match=str(path)):
            data.load(few(GREEDY), path.parent)
        path.write_bytes(before)
    assert data.load(few(GREEDY), path.parent)
