"""The frame around the formulas: keys, options, bad input, diagnostics, generated pages."""

import dataclasses
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from core.errors import BenchError, ConfigError, CorruptInputError
from core.provenance import ROOT
from methods import catalog
from methods.batch import Batch
from methods.diagnostics import check_unchanged
from methods.parts.entropy import LOGITS, default_chunk, logp_and_entropy
from tests.methods.batches import random_fields, variants
from workflow import cost


def fields(**changes: Any) -> dict[str, Any]:
    """Two prompts x two responses of 3, 2, 1 and 3 tokens."""
    drawn = random_fields(37, groups=2, per_group=2, longest=3)
    cut = {name: x[:, :3] if x.ndim > 1 else x for name, x in drawn.items()}
    return cut | {"group": torch.tensor([0, 0, 1, 1]), "max_tokens": 3} | changes


def whole(logp: torch.Tensor, **more: Any) -> Batch:
    """A batch of one prompt; without padding and with a policy that has not moved, unless told otherwise."""
    rows = {"advantage": torch.ones(len(logp), dtype=logp.dtype), "group": torch.zeros(len(logp), dtype=torch.long)}
    return Batch(**{"logp": logp, "old_logp": logp, "mask": torch.ones_like(logp, dtype=torch.bool)} | rows | more)


def with_value(name: str, index: tuple[int, ...], value: float) -> dict[str, Any]:
    x = fields()[name].clone()
    x[index] = value
    return {name: x}


@contextmanager
def refused(*words: str, error: type[BenchError] = BenchError) -> Iterator[None]:
    """An error of one line that holds all these words."""
    with pytest.raises(error) as caught:
        yield
    assert "\n" not in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


# ---- imports ----


def test_the_catalog_needs_no_torch() -> None:
    code = (
        "import sys; from methods import catalog; "
        "[catalog.parse(k) for k in catalog.keys()]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# ---- keys ----


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tepo+beta=0.001", "tepo"),
        ("tepo+beta=1.0", "tepo+beta=1"),
        ("tepo+kl-estimator=k1+beta=1", "tepo+beta=1+kl-estimator=k1"),
        ("tepo+dh-tol=auto+dual-clip=off", "tepo"),
        ("gspo+low=3e-4+high=4e-4", "gspo+high=0.0004+low=0.0003"),
        ("tepo_line21+beta=1", "tepo+beta=1+gradient=alg1_line21"),
        ("dapo", "grpo"),
        ("tepo+correction=tis+correction-cap=2.0", "tepo+correction=tis"),
    ],
)
def test_a_key_has_one_spelling(text: str, key: str) -> None:
    assert catalog.parse(text).key == key


def test_the_canonical_key_parses_to_itself() -> None:
    for text in variants():
        key = catalog.parse(text).key
        assert catalog.parse(key).key == key, text
        assert not {"/", " "} & set(key), text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tepoo", ["tepoo", "nearest: tepo"]),
        ("tepo+bta=1", ["tepo", "bta", "nearest: beta"]),
        ("tepo+kl-estimator=k4", ["tepo", "kl-estimator", "k4", "k3", "nearest: k"]),
        ("tepo+beta=much", ["tepo", "beta", "'much'", "number"]),
        ("tepo+beta", ["'beta'", "name=value"]),
        ("tepo+beta=1+beta=2", ["beta", "twice"]),
        ("tepo+dual-clip=0.5", ["dual-clip", "0.5", "at least 1"]),
        (["tepo"], ["method: got list", "expected a text"]),
        ("grpo+correction-cap=3", ["grpo", "correction-cap", "correction=none"]),
        ("grpo+correction=tis+correction-cap=1+correction-floor=1", ["correction-floor", "1", "correction-cap"]),
        ("dppo_tv+dppo-anchor=sampler+correction=tis", ["correction=tis", "dppo-anchor=sampler"]),
        ("tepo+clip-form=eq4+dual-clip=3", ["dual-clip", "clip-form=eq4"]),
        ("tepo+clip-form=none+low=0.1", ["low", "clip-form=none"]),
        ("tepo+dh-def=theorem+dh-tol=0.1", ["dh-tol", "dh-def=theorem"]),
        ("tepo_eq4+clip-form=none", ["clip-form", "twice"]),
    ],
)
def test_a_key_that_does_not_parse(text: Any, parts: list[str]) -> None:
    with refused(*parts):
        catalog.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from methods.options import method\n@method(kee='mine')\ndef mine(s): ...", "cannot be imported: TypeError"),
        ("from methods.catalog.tepo import tepo", "defines no method; put @method"),
    ],
)
def test_a_catalog_file_of_ones_own_that_is_wrong_is_one_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_and_wrong.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(catalog, "__path__", [*catalog.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "methods.catalog.mine_and_wrong", raising=False)
    with refused("methods/catalog/mine_and_wrong.py: ", said, "kee" * ("kee" in text), error=ConfigError):
        catalog.entries.__wrapped__()  # not the cached ones


# ---- options, pages ----


def test_the_page_of_methods_has_every_method_with_its_options() -> None:
    page = (ROOT / "docs/methods.md").read_text("utf-8")
    sections = dict(section.split("\n", 1) for section in page.split("\n## ")[1:])
    for key, entry in catalog.entries().items():
        for option in entry.options:
            default = re.escape(option.spell(option.default))
            found = rf"- .*`{option.name}`.* = `{default}`|[ `]{option.name}={default}[ `]"
            assert re.search(found, sections.get(key, "")), f"docs/methods.md: {key}: {option.name} = {default}"
            assert [word for word in option.choices if f"`{word}`" not in page] == []


# ---- bad input ----


GOOD = fields()
TOKENS = ("old_logp", "entropy", "old_entropy", "ref_logp", "sampling_logp", "mask")
CONSTANT = ("old_logp", "old_entropy", "ref_logp", "sampling_logp", "advantage")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"logp": torch.zeros(4)}, ["logp", "(4,)", "(B, T)"]),
        # too narrow, or one row, which would broadcast
        *(
            ({name: x}, [name, str(tuple(x.shape)), "(4, 3)"])
            for name in TOKENS
            for x in (GOOD[name][:, :-1], GOOD[name][:1])
        ),
        *(({name: GOOD[name][:-1]}, [name, "(3,)"]) for name in ("advantage", "group")),
        ({"advantage": torch.tensor([1, -1, 1, -1])}, ["advantage", "torch.int64", "torch.float32"]),
        ({"mask": torch.ones(4, 3)}, ["mask", "torch.float32", "torch.bool"]),
        ({"old_logp": GOOD["old_logp"].half()}, ["old_logp", "torch.float16", "torch.float32"]),
        ({"mask": torch.tensor([[1, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 1]]).bool()}, ["mask", "row 1", "dropped"]),
        ({"dropped": torch.tensor([True, False, False, False])}, ["mask", "row 0", "has tokens"]),
        ({"max_tokens": 2}, ["mask", "row 0", "3 tokens", "max_tokens is 2"]),
        *(
            (with_value(name, (3, 2), bad), [name, "[3, 2]"])
            for name in ("logp", *TOKENS[:-1])
            for bad in (math.nan, math.inf, -math.inf)
        ),
        (with_value("advantage", (2,), math.nan), ["advantage", "nan", "[2]"]),
        (with_value("logp", (0, 1), 1.0), ["logp", "1.0 at [0, 1]", "at most 0"]),
        (with_value("sampling_logp", (1, 1), 0.01), ["sampling_logp", "0.01 at [1, 1]", "at most 0"]),
        *(({name: GOOD[name].clone().requires_grad_()}, [name, "carries gradient"]) for name in CONSTANT),
    ],
)
def test_a_bad_batch_is_refused_by_name_and_index(changes: dict[str, Any], words: list[str]) -> None:
    with refused("tepo: ", *words, error=CorruptInputError):
        Batch(**GOOD | changes, label="tepo")


NO_TOKEN = {"mask": torch.zeros(4, 3, dtype=torch.bool), "dropped": torch.ones(4, dtype=torch.bool)}
HALF = {name: fields()[name].bfloat16() for name in ("entropy", "old_entropy")}
PAIR, TWO = torch.tensor([0, 0]), torch.tensor([1.0, 0.0])
HEAD = {"hidden": torch.zeros(2, 3, 4), "weight": torch.zeros(5, 4), "token": torch.zeros(2, 3, dtype=torch.long)}
Call = Callable[[], Any]


def loss(key: str, changes: dict[str, Any], **counts: Any) -> Call:
    return lambda: catalog.parse(key).loss(Batch(**fields(**changes)), **counts)


def advantage(key: str, *given: torch.Tensor) -> Call:
    return lambda: catalog.parse(key).advantage(*given)


def head(**changes: Any) -> Call:
    return lambda: logp_and_entropy(**HEAD | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (loss("grpo", {"old_logp": torch.full((4, 3), -2000.0).double()}), CorruptInputError,
         ["grpo: loss is ", "inf; largest |log ratio|"]),
        (loss("tepo_maxent", {"logp": fields()["logp"].requires_grad_()}), ConfigError,
         ["entropy: carries no gradient"]),
        (loss("grpo", NO_TOKEN), CorruptInputError, ["no token count"]),
        (loss("gspo", NO_TOKEN), CorruptInputError, ["no sequence count"]),
        (loss("grpo+agg-scope=group", {}, tokens=20), ConfigError, ["group_tokens"]),
        (loss("tepo", HALF), ConfigError, ["dh-tol: no default for entropies in torch.bfloat16"]),
        # the precision of the passes counts, not the dtype of what they return
        (loss("tepo", {"precision": "float16"}), ConfigError, ["in torch.float64 of passes in float16; measure it"]),
        # also where the method divides by the other one: a sign that flips is found nowhere else
        *(
            (loss(key, {}, **{name: count}), CorruptInputError, [f"{key}: {name}: got ", "expected", "above 0"])
            for key in ("grpo", "gspo")
            for name in ("tokens", "sequences")
            for count in (-5, 0, math.nan, math.inf, torch.tensor(-5))
        ),
        (advantage("opo", TWO.to(torch.complex64), PAIR, PAIR), CorruptInputError, ["reward", "complex64", "float32"]),
        (advantage("opo", TWO, PAIR.float(), PAIR + 1), CorruptInputError, ["group", "float32", "int64"]),
        (advantage("grpo", TWO, torch.tensor([3, 7])), CorruptInputError, ["group: 3 holds one response"]),
        (advantage("grpo", TWO * math.nan, PAIR), CorruptInputError, ["reward: not finite at 0"]),
        (advantage("reinforce_pp", TWO, PAIR), ConfigError, ["lengths: needed by the advantage"]),
        (advantage("opo", TWO, PAIR, PAIR), CorruptInputError, ["lengths: expected 2 numbers of at least 1"]),
        (advantage("opo", TWO, PAIR, TWO / 0), CorruptInputError, ["lengths: expected 2 numbers of at least 1"]),
        (head(hidden=torch.zeros(2, 3, 4).bfloat16()), CorruptInputError, ["hidden", "bfloat16", "float32", "weight"]),
        (head(token=HEAD["token"] - 100), CorruptInputError, ["token: -100 at [0, 0]", "0 to 4"]),
        (head(token=torch.tensor([[0, 1, 5], [2, 3, 4]])), CorruptInputError, ["token: 5 at [0, 2]", "0 to 4"]),
        (head(temperature=math.nan), ConfigError, ["temperature", "nan", "above 0"]),
    ],
)  # fmt: skip
def test_what_would_give_a_wrong_number_is_refused_in_a_line(
    call: Call, error: type[BenchError], words: list[str]
) -> None:
    with refused(*words, error=error):
        call()


# ---- diagnostics, worked by hand ----


def test_diagnostics_by_hand() -> None:
    log_ratio = torch.tensor([[math.log(2.0), 0.0], [math.log(0.5), 9.0]], dtype=torch.float64)
    batch = whole(
        log_ratio - 3,
        old_logp=torch.full((2, 2), -3.0, dtype=torch.float64),
        advantage=torch.tensor([1.0, -1.0], dtype=torch.float64),
        mask=torch.tensor([[True, True], [True, False]]),
        entropy=torch.tensor([[1.0, 2.0], [3.0, 9.0]], dtype=torch.float64),
        old_entropy=torch.tensor([[2.0, 1.0], [2.0, 9.0]], dtype=torch.float64),
    )
    got = catalog.parse("grpo").diagnostics(batch)
    weights = [math.sqrt(2.0), 0.5]
    k3 = [1 / r + math.log(r) - 1 for r in (2.0, 1.0, 0.5)]
    assert got == pytest.approx(
        {
            "entropy": 2.0,
            "clip_fraction_tokens": 2 / 3,  # 2 > 1.28 with A > 0, 0.5 < 0.8 with A < 0
            "clip_fraction_sequences": 1 / 2,  # of the first row one token is left
            "ratio_spread": math.log(2.0) * math.sqrt(2 / 3),
            "kl_old": sum(k3) / 3,
            "mask_fraction": None,
            "theorem_sign_agreement": 2 / 3,  # the second token has A > 0 and rising entropy
            "effective_sample_size": sum(weights) ** 2 / (2 * sum(w * w for w in weights)),
            "sampling_gap_mean": None,
            "sampling_gap_p99": None,
            "sampling_correlation": None,
        }
    )
    assert catalog.parse("tepo").diagnostics(batch)["mask_fraction"] == pytest.approx(1 / 3)
    assert catalog.parse("tepo_kl_both").diagnostics(batch)["mask_fraction"] == pytest.approx(2 / 3)
    assert catalog.parse("gpg").diagnostics(batch)["ratio_spread"] is None
    assert catalog.parse("cispo").diagnostics(batch)["clip_fraction_tokens"] == 0
    gmpo = catalog.parse("gmpo+low=0.7").diagnostics(batch)  # log 2 > .4 with A > 0, log .5 > -.7 with A < 0
    assert gmpo["clip_fraction_tokens"] == pytest.approx(1 / 3)
    assert catalog.parse("dppo_tv+high=0.04").diagnostics(batch)["mask_fraction"] == pytest.approx(1 / 3)  # p .05 to .1


def test_the_samplers_diagnostics_by_hand() -> None:
    """200 tokens, of which two are off by 1 and one by 3, each on one side: the 99th percentile is 1."""
    draw = torch.Generator().manual_seed(3)
    old = torch.rand(20, 10, generator=draw, dtype=torch.float64).log()
    gap = torch.zeros(20, 10, dtype=torch.float64)
    gap[3, 4], gap[7, 0], gap[9, 9] = 1.0, -1.0, 3.0
    batch = whole(old - 0.3, old_logp=old, sampling_logp=old - gap)  # the current policy does not matter
    got = catalog.parse("grpo").diagnostics(batch)
    both = torch.stack([old.exp().flatten(), (old - gap).exp().flatten()])
    assert got["sampling_gap_mean"] == pytest.approx(5 / 200)
    assert got["sampling_gap_p99"] == pytest.approx(1.0)
    assert got["sampling_correlation"] == pytest.approx(float(torch.corrcoef(both)[0, 1]))
    assert catalog.parse("grpo").diagnostics(batch.rows(slice(0, 1)))["sampling_correlation"] == pytest.approx(1.0)
    constant = dataclasses.replace(batch, old_logp=torch.zeros_like(old))
    assert catalog.parse("grpo").diagnostics(constant)["sampling_correlation"] is None


# ---- chunked entropies ----


def with_gradients(logp: torch.Tensor, entropy: torch.Tensor, *leaves: torch.Tensor) -> list[torch.Tensor]:
    weights_N = torch.linspace(0.5, 1.5, len(logp))
    return [logp, entropy, *torch.autograd.grad((weights_N * (logp + 0.3 * entropy)).sum(), leaves)]


@pytest.mark.parametrize(
    ("dtype", "tokens", "chunk", "allowed"),
    [
        (torch.float64, 8, 3, 1e-13),  # the last chunk is not full
        # Summed in bfloat16 over 2,048 chunks, the head's gradient would be off by several percent of its maximum.
        # 2 ** -7: half a unit in the last place of the largest logits, between 2 and 4
        (torch.bfloat16, 4096, 2, 2**-7),
    ],
)
def test_chunked_entropies_and_their_gradient(dtype: torch.dtype, tokens: int, chunk: int, allowed: float) -> None:
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(tokens, 16, generator=draw).to(dtype).requires_grad_()
    weight = (torch.randn(64, 16, generator=draw) / 4).to(dtype).requires_grad_()
    token = torch.randint(64, (tokens,), generator=draw)
    found = with_gradients(*logp_and_entropy(hidden, weight, token, temperature=0.8, chunk=chunk), hidden, weight)
    wide = torch.promote_types(dtype, torch.float32)
    assert [x.dtype for x in found] == [wide, wide, dtype, dtype]
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    logp = (exact[0] @ exact[1].T / 0.8).log_softmax(-1)
    by_hand = with_gradients(logp.gather(1, token[:, None])[:, 0], -(logp.exp() * logp).sum(1), *exact)
    for ours, other in zip(found, by_hand, strict=True):
        assert (ours.double() - other).abs().max() <= allowed * max(1, other.abs().max())


def test_a_chunk_on_a_gpu_is_bounded_by_memory_and_on_a_cpu_as_ever() -> None:
    assert [default_chunk("cpu", words) for words in (256, 151_936)] == [128, 128]
    assert cost.HEAD_CHUNK == LOGITS, "the plan's estimate has the number of the head"
    assert [default_chunk("cuda", words) for words in (256, 49_152, 151_936)] == [4096, 3178, 1028]
    given = [torch.randn(300, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)]
    token = torch.randint(20, (300,))
    default, by_hand = (logp_and_entropy(*given, token, **more) for more in ({}, {"chunk": 128}))
    assert all(map(torch.equal, default, by_hand))


def test_under_autocast_backward_computes_the_same_logits_as_forward() -> None:
    draw = torch.Generator().manual_seed(1)
    hidden, weight = (torch.randn(n, 16, generator=draw).requires_grad_() for n in (32, 64))
    token = torch.randint(64, (32,), generator=draw)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp, entropy = logp_and_entropy(hidden, weight, token)
    assert logp.dtype == entropy.dtype == torch.float32
    halves = [x.detach().bfloat16().requires_grad_() for x in (hidden, weight)]
    expected = with_gradients(*logp_and_entropy(*halves, token), *halves)  # type: ignore[misc]
    for ours, other in zip(with_gradients(logp, entropy, hidden, weight), expected, strict=True):
        assert torch.equal(ours, other.float())


# ---- dH in half precision ----


def rounded(share: float) -> Batch:
    """A first minibatch in which so many of 200 tokens have another entropy than before, by 0.05 nats."""
    entropy = torch.linspace(1, 2, 200).view(4, 50)
    noise = torch.where(torch.arange(200) < 200 * share, 0.05, 0.0).view(4, 50)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    more = {"advantage": advantage, "entropy": entropy, "old_entropy": entropy + noise, "precision": "bfloat16"}
    return whole(torch.full((4, 50), -1.0), **more)


def test_rounding_that_would_fill_the_mask_ends_a_run() -> None:
    with pytest.raises(ConfigError, match=r"dh-tol: 10.0% .* rounding in bfloat16; allowed: 1%, which dh-tol=5.5e-02"):
        check_unchanged(catalog.parse("tepo").parts, rounded(0.1))
    assert check_unchanged(catalog.parse("tepo+dh-tol=0.055").parts, rounded(0.1)) is not None
    found = check_unchanged(catalog.parse("tepo").parts, rounded(0.01))
    assert found == {"precision": "bfloat16", "share": 0.01, "p99": 0.0}

    for key in ("grpo", "tepo+dh-def=theorem"):  # these take no difference of entropies
        assert check_unchanged(catalog.parse(key).parts, rounded(1.0)) is None
    assert math.isfinite(loss("tepo+dh-tol=0.01", HALF)())  # a tolerance of one's own is taken at any precision


@pytest.mark.parametrize(
    ("dtype", "precision", "change", "inside"),
    [
        (torch.float64, None, 1e-12, True),
        (torch.float32, None, 5e-7, False),  # rounding of two passes over the same state
        (torch.float32, "bfloat16", 5e-7, False),  # of passes in bfloat16 in the same micro-batch, which repeat
        (torch.float32, "bfloat16", 5e-6, True),
    ],
)
def test_the_tolerance_of_the_entropy_change_follows_the_dtype_and_the_passes(
    dtype: torch.dtype, precision: str | None, change: float, inside: bool
) -> None:
    """At Qwen2.5-7B's width one AdamW step at the paper's rate, 5e-7, moves entropies by 1e-6 to 1e-5 nats.

    With a tolerance of 1e-3 none would count as moved, and TEPO's KL would act on no token without anybody being told.
    """
    before = torch.zeros(2, 3, dtype=dtype)
    batch = whole(before - 1, entropy=before - change, old_entropy=before, precision=precision)
    assert catalog.parse("tepo").diagnostics(batch)["mask_fraction"] == float(inside)
