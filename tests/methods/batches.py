"""What the tests run on: random ragged batches, and every method, every reading of it, every option at another value.

A batch is a plain dict of the fields of `methods.batch.Batch`, so that reference, oracles and methods are all fed the
same numbers. All is drawn in float64 from one seed and cast last: the float32 batch is the float64 batch, rounded.
The methods are asked of the catalog, so that the tests cover a new one as soon as it is there.
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from core.errors import ConfigError
from methods import catalog, options
from methods.batch import Batch
from methods.method import Method

Fields = dict[str, Tensor]
Outcome = tuple[float, Fields]  # a loss and its gradient by each leaf

TOKEN_FIELDS = ("logp", "old_logp", "entropy", "old_entropy", "ref_logp", "sampling_logp", "mask")
MAX_TOKENS = 17  # a trainer's limit on a response: above every length here, and no batch's width
LEAVES = ("logp", "entropy")
ALWAYS = ("logp", "old_logp", "advantage", "mask", "group")
SPECIAL = {"fraction": 0.2, "high": 0.1, "low": 0.1, "kappa": 3.0, "dual-clip": 1.5, "dh-tol": 0.1}
# several options at once, as a method's source or another framework has them
LABELLED = {
    "gspo": ["gspo+low=0.0003+high=0.0004"],
    **{key: [f"{key}+low=0.2+high=0.28"] for key in ("clip_cov", "kl_cov")},
    "cispo": ["cispo+low=10+high=0.2", "cispo+high=3"],
    **{key: [f"{key}+cap=3", f"{key}+cap=none"] for key in ("dppo_tv", "dppo_kl")},
}
NUMBER = re.compile(r"(?<![\w.])\d[\w.+-]*")


# ---- batches ----


def random_fields(
    seed: int,
    *,
    groups: int = 3,
    per_group: int = 3,
    longest: int = 6,
    vocabulary: int = 5,
    drift: float = 0.4,
    jump: float = 0.0,
    sharpness: float = 1.5,
    on_policy: bool = False,
    holes: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Fields:
    """One batch: (B, T) with B = groups * per_group, T = longest + 1 so that even the longest row has padding.

    drift: standard deviation of the logits' difference between old and current policy (about that of a log-ratio);
    1.5 makes ratios above 3, where a dual clip would act. on_policy: old policy = current policy, to the bit.
    jump: added to the log-ratios of every third row, so that whole sequences are far.
    holes: a mask may be False inside a response (tool output). Padding holds noise.
    Tokens are sampled from the old policy; advantages are z-scored random rewards.
    """
    draw, other = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    rows, width = groups * per_group, longest + 1
    logits = sharpness * normal(rows, width, vocabulary)
    old_logits = logits if on_policy else logits + drift * normal(rows, width, vocabulary)
    full, old_full = logits.log_softmax(-1), old_logits.log_softmax(-1)
    ref_full = (old_logits + drift * normal(rows, width, vocabulary)).log_softmax(-1)
    token = torch.multinomial(old_full.exp().flatten(0, 1), 1, generator=draw).view(rows, width, 1)

    lengths = torch.randint(1, longest + 1, (rows,), generator=draw)
    lengths[torch.randint(rows, (1,), generator=draw)] = longest
    mask = torch.arange(width) < lengths[:, None]
    if holes:
        mask = torch.stack([row[torch.randperm(width, generator=draw)] for row in mask])

    reward = normal(groups, per_group)
    advantage = (reward - reward.mean(1, keepdim=True)) / reward.std(1, keepdim=True)

    def pick(log_probabilities: Tensor) -> Tensor:
        return log_probabilities.gather(-1, token).squeeze(-1)

    old = pick(old_full) - jump * (torch.arange(rows) % 3 == 0)[:, None]
    fields = {
        "logp": pick(full),
        "old_logp": old,
        "ref_logp": pick(ref_full),
        "entropy": -(full.exp() * full).sum(-1),
        "old_entropy": -(old_full.exp() * old_full).sum(-1),
        # last, and from a generator of its own: the numbers above are older
        "sampling_logp": old + 0.5 * torch.randn(rows, width, generator=other, dtype=torch.float64),
    }
    fields["sampling_logp"].clamp_(max=0.0)
    for name, value in fields.items():
        fields[name] = value.where(mask, 3 * normal(*value.shape)).to(dtype)
    # a prompt may have any number for a name, and its rows need not be neighbours
    group = 1000 - 7 * torch.arange(groups).repeat_interleave(per_group).roll(1)
    return fields | {"advantage": advantage.flatten().to(dtype), "mask": mask, "group": group}


def rows(fields: Fields, index: Tensor | slice | list[int]) -> Fields:
    """The rows of `index`, in its order: a permutation of the batch or one micro-batch of it."""
    return {name: value[index] for name, value in fields.items()}


def refill(fields: Fields, value: float) -> Fields:
    """The same responses with `value` in every padding cell."""
    mask = fields["mask"]
    out = dict(fields)
    for name in TOKEN_FIELDS[:-1]:
        out[name] = fields[name].where(mask, torch.full_like(fields[name], value))
    return out


def append_empty_rows(fields: Fields) -> Fields:
    """The same batch with two `dropped` rows that hold no token, one of them in a group of its own."""
    extra = rows(fields, [0, 0])
    extra["group"] = torch.stack([fields["group"][0], fields["group"].max() + 1])
    extra["mask"] = torch.zeros_like(extra["mask"])
    both = {name: torch.cat([value, extra[name]]) for name, value in fields.items()}
    return both | {"dropped": ~both["mask"].any(1)}


# ---- methods ----


def other(name: str, default: Any) -> float:
    """A number clearly unlike the default, inside the option's range, that acts on a batch of fifty tokens."""
    if name in SPECIAL:
        return SPECIAL[name]
    return 0.5 * float(default) if default else 0.3


def changes(key: str) -> list[str]:
    """`key+option=word`, `key+option=number`: one thing changed, everything once, as far as the method takes it."""
    texts = LABELLED.get(key, [])[:]
    for option in catalog.entries()[key].options:
        values = option.choices or (f"{other(option.name, option.default):g}",)
        texts += [f"{key}+{option.name}={value}" for value in values]
    return [text for text in dict.fromkeys(texts) if not refused(text)]


def refused(text: str) -> bool:
    """Whether the catalog refuses it: a value that this method does not take."""
    try:
        catalog.parse(text)
    except ConfigError:
        return True
    return False


def corrections() -> tuple[str, ...]:
    """Every rollout correction on a method of token and one of sequence scope, and with other bounds."""
    narrow = {"icepop": "icepop+correction-cap=1.5"}  # no ratio of our batches reaches its 5
    kinds = [narrow.get(kind, kind) for kind in options.CORRECTION[0].choices[1:]]
    some = [f"{key}+correction={kind}" for key in ("grpo", "gspo") for kind in kinds]
    more = [
        "icepop+correction-cap=1.4+correction-floor=0.6",
        "tis+correction-floor=0.6",
        "seq-mis+correction-cap=none+correction-floor=0.5",
        "tis+correction-cap=none",
    ]
    return (*some, *(f"grpo+correction={text}" for text in more))


@cache
def variants() -> tuple[str, ...]:
    """Every method at its defaults and with one thing changed, each resolved method once."""
    texts = [text for key in catalog.entries() for text in (key, *changes(key))]
    by_key: dict[str, str] = {}
    for text in (*texts, *corrections()):
        by_key.setdefault(catalog.parse(text).key, text)
    return tuple(by_key.values())


@cache
def shapes() -> tuple[str, ...]:
    """The variants whose parts differ in kind: numbers and the advantage's deviation leave a loss's structure alone."""
    by_skeleton: dict[str, str] = {}
    for text in variants():
        filled = catalog.parse(text).parts.filled()
        parts = [NUMBER.sub("#", str(part)) for slot, part in filled.items() if slot != "advantage"]
        by_skeleton.setdefault(" ".join([text.split("+")[0], *parts]), text)
    return tuple(by_skeleton.values())


def of_method(key: str, texts: Iterable[str]) -> list[str]:
    """Those of `texts` that are variants of one catalog method."""
    return [text for text in texts if text.split("+")[0] == key]


def check_each(texts: Iterable[str], *checks: Callable[[str], object]) -> None:
    """Run every check on every text; a test for each would cost more than most of these comparisons."""
    for text in texts:
        for check in checks:
            try:
                check(text)
            except (Exception, pytest.fail.Exception) as error:
                error.add_note(f"{check.__name__}: {text}")
                raise


def batch_of(method: Method, fields: Fields, **extra: Any) -> Batch:
    """The batch with exactly the fields the method says it needs, so that `needs` is proven with every loss."""
    tensors: dict[str, Any] = {name: fields[name] for name in (*ALWAYS, *sorted(method.needs - {"max_tokens"}))}
    if "max_tokens" in method.needs:
        tensors["max_tokens"] = MAX_TOKENS
    for name in LEAVES:
        if name in tensors:
            tensors[name] = tensors[name].detach().clone().requires_grad_()
    if "dropped" in fields:
        tensors["dropped"] = fields["dropped"]
    return Batch(**tensors, **extra)


def evaluate(
    method: Method, fields: Fields, *, seed: int = 0, extra: Any = None, **totals: Any
) -> tuple[float, Fields]:
    """Loss and its gradient by each leaf that the method reads."""
    batch = batch_of(method, fields, **(extra or {}))
    loss = method.loss(batch, generator=torch.Generator().manual_seed(seed), **totals)
    leaves = {name: getattr(batch, name) for name in LEAVES if getattr(batch, name) is not None}
    gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return float(loss.detach()), dict(zip(leaves, gradients, strict=True))


def distance(a: Tensor, b: Tensor) -> float:
    """Largest difference relative to the largest entry of either; 0 for two zeros."""
    top = max(float(a.abs().max()), float(b.abs().max()))
    return float((a - b).abs().max()) / top if top else 0.0


def assert_same(got: Outcome, wanted: Outcome, dtype: torch.dtype, roundings: int = 32) -> None:
    """Loss and every gradient agree up to `roundings` units of the dtype.

    The loss is a sum with cancellation: its unit is the size of what was summed, read off the gradient.
    """
    unit = roundings * torch.finfo(dtype).eps
    mass = 1 + sum(float(g.abs().sum()) for g in wanted[1].values())
    assert math.isclose(got[0], wanted[0], rel_tol=0, abs_tol=unit * mass), f"loss {got[0]!r} != {wanted[0]!r}"
    for name, gradient in wanted[1].items():
        off = distance(got[1][name], gradient)
        assert off <= unit, f"gradient by {name}: relative difference {off:.2e} > {unit:.1e}"
