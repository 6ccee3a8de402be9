"""The first 90 seconds: versions, every loss, the head at a large vocabulary, what repeats bit for bit."""

import os
import platform
import re
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.provenance import ROOT, version
from methods import catalog
from methods.adapters.trl import shared_prefix
from methods.batch import Batch
from methods.parts.entropy import logp_and_entropy
from tests.gpu import models
from tests.gpu.conftest import CHECKS, Check, Place, nvidia_smi

# Packages whose other versions compute or fail otherwise; of the rest any version will do.
PIN = r"^(torch|transformers|tokenizers|trl|verl|tensordict|ray)(?:\[\S+\])?==([^\s\"]+)"


def other_versions() -> dict[str, str]:
    """Installed versions that neither environment pins."""
    lock, pins = ROOT / "requirements/gpu.txt", ROOT / "pyproject.toml"
    text = "\n".join(
        line.strip(' "') for path in (lock, pins) for line in path.read_text(encoding="utf-8").splitlines()
    )
    known = re.findall(PIN, text, re.MULTILINE)
    found = {name: (version(name) or "").partition("+")[0] for name, _ in known}
    return {name: have for name, have in found.items() if have and (name, have) not in known}


@pytest.mark.gpu("machine")
def test_the_machine(check: Check, place: Place) -> None:
    smi, other = nvidia_smi("name", "driver_version"), other_versions()
    check.holds(
        packages_differ=len(other), packages=other, torch_sees_the_gpu=torch.cuda.is_available(),
        gpu=smi and smi[0], driver=smi and smi[1], glibc=platform.libc_ver()[1], cpus=len(os.sched_getaffinity(0)),
        capability=".".join(map(str, torch.cuda.get_device_capability())) if place.cuda else None,
        compiler=any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))),
        disk_free_gb=shutil.disk_usage(place.folder).free / 1e9,
    )  # fmt: skip


# --- Losses -----------------------------------------------------------------------------------------------------------

MORE = (
    "tepo+kl-anchor=ref", "tepo+kl-estimator=full", "grpo+agg-scope=group", "grpo+correction=icepop",
    "tepo+correction=seq-tis", "tepo+dh-def=cov_sign", "tepo+dh-def=positions", "tepo+mask-norm=masked",
    "clip_cov+fraction=0.05", "kl_cov+fraction=0.05",
)  # fmt: skip
ROWS, GROUP, WIDTH, HIDDEN, WORDS = 16, 4, 24, 64, 320


def numbers() -> dict[str, torch.Tensor]:
    """A minibatch in float64 on the CPU; states and head are exact in bfloat16, so that passes alone differ."""
    draw = torch.Generator().manual_seed(20)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    weight, old = ((0.3 * normal(WORDS, HIDDEN)).bfloat16().double(), normal(ROWS, WIDTH, HIDDEN))
    hidden, reference = (old + 0.04 * normal(*old.shape)).bfloat16().double(), old + 0.05 * normal(*old.shape)
    old_full, reference_full = ((x @ weight.T).log_softmax(-1) for x in (old, reference))
    token = torch.multinomial(old_full.exp().flatten(0, 1), 1, generator=draw).view(ROWS, WIDTH)
    old_logp, ref_logp = (full.gather(2, token.unsqueeze(2)).squeeze(2) for full in (old_full, reference_full))
    reward = (torch.rand(ROWS, generator=draw) < 0.5).double()
    reward[::GROUP], reward[1::GROUP] = 1.0, 0.0  # every group is mixed
    return {
        "hidden": hidden, "weight": weight, "token": token, "old_logp": old_logp, "ref_logp": ref_logp,
        "mask": torch.arange(WIDTH) < torch.randint(5, WIDTH + 1, (ROWS, 1), generator=draw),
        "old_entropy": -(old_full.exp() * old_full).sum(-1), "old_full_logp": old_full, "reward": reward,
        "sampling_logp": (old_logp + 0.02 * normal(ROWS, WIDTH)).clamp(max=0.0), "group": torch.arange(ROWS) // GROUP,
    }  # fmt: skip


def loss_and_gradient(
    key: str, n: dict[str, torch.Tensor], device: str, dtype: torch.dtype
) -> tuple[float, torch.Tensor]:
    """A method's loss, and its gradient by states and head in float64 on the CPU."""
    method, wide = catalog.parse(key), torch.promote_types(dtype, torch.float32)
    here = {name: x.to(device, wide if x.is_floating_point() else None) for name, x in n.items()}
    hidden, weight = (here.pop(name).to(dtype).clone().requires_grad_() for name in ("hidden", "weight"))
    logp, entropy = logp_and_entropy(hidden, weight, here.pop("token"))
    full = (hidden @ weight.T).to(wide).log_softmax(-1) if "full_logp" in method.needs else None
    if full is None:
        del here["old_full_logp"]
    advantage = method.advantage(here.pop("reward"), here["group"], here["mask"].sum(1))
    batch = Batch(
        logp=logp, entropy=entropy, full_logp=full, advantage=advantage, max_tokens=WIDTH, label=key, **here,
        precision="bfloat16" if dtype == torch.bfloat16 else None,
    )  # fmt: skip
    loss = method.loss(batch, generator=torch.Generator().manual_seed(3))
    loss.backward()
    assert all(value is None or value == value for value in method.diagnostics(batch).values())  # not NaN
    gradient = [x.grad.double().cpu().flatten() for x in (hidden, weight) if x.grad is not None]
    return float(loss.detach()), torch.cat(gradient)


@pytest.mark.gpu("losses")
def test_every_loss_is_that_of_float64(check: Check, place: Place) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False  # ten bits of mantissa: not float32
    n, found = numbers(), {"loss": {}, "gradient": {}, "cosine": {}, "bfloat16 loss": {}}
    for key in (*catalog.keys(), *MORE):
        exact, wanted = loss_and_gradient(key, n, "cpu", torch.float64)
        single, gradient = loss_and_gradient(key, n, place.device, torch.float32)
        half, rounded = loss_and_gradient(key, n, place.device, torch.bfloat16)
        found["loss"][key] = abs(single - exact) / max(abs(exact), 0.01)
        found["bfloat16 loss"][key] = abs(half - exact) / max(abs(exact), 0.01)
        found["gradient"][key] = float((gradient - wanted).abs().max() / wanted.abs().max())
        found["cosine"][key] = float(torch.nn.functional.cosine_similarity(rounded, wanted, dim=0))
    # A method that ranks tokens may take another one after rounding: recorded, without a limit.
    ranking = {key for key in found["cosine"] if catalog.parse(key).scope == "batch"}
    least = min(found["cosine"].keys() - ranking, key=found["cosine"].__getitem__)
    worst = max(found["gradient"], key=found["gradient"].__getitem__)
    check.holds(
        methods=len(found["loss"]), float32_gradient_worst=found["gradient"][worst],
        float32_gradient_worst_method=worst, float32_loss_worst=max(found["loss"].values()), bfloat16_cosine_worst=found["cosine"][least],
        bfloat16_cosine_worst_method=least, bfloat16_loss_worst=max(found["bfloat16 loss"].values()),
        bfloat16_cosine_worst_of_ranking_methods=min(found["cosine"][key] for key in ranking),
    )  # fmt: skip


# --- The head ---------------------------------------------------------------------------------------------------------


def timed(place: Place, function: Callable[[], Any], repeat: int = 2) -> tuple[float, float | None]:
    """Median seconds, and the peak in GB above what was allocated before; None on a CPU."""
    seconds, peak = [], None
    for _ in range(repeat + 1):  # the first warms up
        if place.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        began = time.perf_counter()
        function()
        if place.cuda:
            torch.cuda.synchronize()
            peak = (torch.cuda.max_memory_allocated() - before) / 1e9
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:]), peak


@pytest.mark.gpu("head")
def test_the_head_by_chunk(check: Check, place: Place) -> None:
    """Log-probs, entropies, loss and backward in bfloat16; None is the chunk that a run takes on this device."""
    B, T, V, D = place.size.head
    torch.manual_seed(0)
    weight, hidden = (
        (spread * torch.randn(*shape, device=place.device)).bfloat16().requires_grad_()
        for spread, shape in ((0.02, (V, D)), (1.0, (B, T, D)))
    )
    token, noise = torch.randint(V, (B, T), device=place.device), 0.02 * torch.randn(B, T, device=place.device)
    row = torch.arange(B, device=place.device)
    mask = torch.ones(B, T, dtype=torch.bool, device=place.device)
    gradients = {}

    def whole(key: str, chunk: int | None) -> None:
        hidden.grad = weight.grad = None
        logp, entropy = logp_and_entropy(hidden, weight, token, chunk=chunk)
        batch = Batch(
            logp=logp, old_logp=(logp.detach() + noise).clamp(max=0.0), advantage=torch.where(row % 2 == 0, 1.0, -1.0),
            mask=mask, group=row // 4, entropy=entropy, old_entropy=entropy.detach() + 0.01 * noise,
            ref_logp=logp.detach(), sampling_logp=logp.detach(), max_tokens=T, precision="bfloat16",
        )  # fmt: skip
        catalog.parse(key).loss(batch).backward()

    ratios = []
    for chunk in (128, 1024, 4096, None):
        times = {}
        for key in ("grpo", "tepo"):
            times[key], peak = timed(place, lambda key=key, chunk=chunk: whole(key, chunk))
            check.figures |= {f"{key}_seconds_{chunk}": times[key], f"{key}_gb_{chunk}": peak}
        ratios.append(times["tepo"] / times["grpo"])
        assert weight.grad is not None
        gradients[chunk] = weight.grad.float().cpu()
    gaps = [float((g - gradients[1024]).norm() / gradients[1024].norm()) for g in gradients.values()]
    check.holds(gradient_gap_of_chunks=max(gaps), tepo_over_grpo_head=statistics.median(ratios))


# --- What repeats -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu("determinism")
def test_what_repeats_bit_for_bit(check: Check, place: Place) -> None:
    """The same weights and rows in bfloat16: again, with gradient, in parts; with a shared prefix and without."""
    shape = place.size.small
    model = models.build(shape, spread=0.1).to(place.device).train()
    draw = torch.Generator().manual_seed(1)
    rows, prompt, width = 16, 24, 16
    ids = torch.randint(3, shape.vocab_size, (rows, prompt + width), generator=draw)
    ids[:, :prompt] = ids[::4, :prompt].repeat_interleave(4, 0)
    mask = torch.ones_like(ids)
    mask[:, prompt:] = torch.arange(width) < torch.randint(2, width + 1, (rows, 1), generator=draw)
    mask[:8, :5] = 0  # shorter prompts, padded on the left
    ids, mask = ids.to(place.device), mask.to(place.device)
    found: dict[str, list[float]] = {"changed_with_gradient": [], "changed_in_parts": [], "logp_gap_in_parts": []}
    repeats = []
    for shared in (False, True):

        def score(at: slice = slice(None), shared: bool = shared) -> tuple[torch.Tensor, ...]:
            with torch.autocast(place.device, torch.bfloat16):
                return shared_prefix.score(model, ids[at], mask[at], width, 1.0, shared=shared)

        with torch.no_grad():
            first, again = score(), score()
            parts = [torch.cat(x) for x in zip(*(score(slice(at, at + 8)) for at in (0, 8)), strict=True)]
        assert all(map(torch.equal, first, again))
        gradients = []
        for _ in range(2):
            model.zero_grad()
            logp, entropy = score()
            (logp.sum() + entropy.square().sum()).backward()
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        valid = mask[:, -width:].bool()
        for name, other in (("with_gradient", entropy.detach()), ("in_parts", parts[1])):
            found[f"changed_{name}"].append(float(((other - first[1]).abs() > 1e-6)[valid].double().mean()))
        found["logp_gap_in_parts"].append(float((parts[0] - first[0]).abs()[valid].max()))
        repeats.append(torch.equal(*gradients))
    check.holds(gradient_repeats=all(repeats), **{name: max(values) for name, values in found.items()})


# --- The list ---------------------------------------------------------------------------------------------------------


def test_the_page_has_the_list_and_it_takes_eight_minutes() -> None:
    text = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    for name, one in CHECKS.items():
        assert f"| {name} | {one.title} | {'; '.join((*one.criteria, *one.on_gpu))} |" in text
    assert sum(one.minutes for name, one in CHECKS.items() if "vllm" not in name and name != "verl resumed") <= 8
    assert sum(CHECKS[name].minutes for name in ("machine", "losses", "head", "determinism")) <= 1.5


def test_a_package_of_another_version_is_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert other_versions() == {}
    given = {"ray": "1.0", "verl": None, "torch": "2.11.0+cu130"}
    monkeypatch.setitem(globals(), "version", lambda name: given.get(name, version(name)))
    assert other_versions() == {"ray": "1.0"}


def test_a_criterion_that_does_not_hold_fails_and_one_of_a_gpu_is_not_asked_of_a_cpu() -> None:
    with pytest.raises(AssertionError, match=r"float32_loss_worst <= 0.0001: 0.5; bfloat16_cosine_worst >= 0.98: None"):
        Check(CHECKS["losses"], cuda=False).holds(float32_gradient_worst=0.0, float32_loss_worst=0.5)
    speed = replace(Check(CHECKS["head"], cuda=True))
    Check(CHECKS["head"], cuda=False).holds(gradient_gap_of_chunks=0.0, tepo_over_grpo_head=9.0)
    with pytest.raises(AssertionError, match=r"tepo_over_grpo_head <= 1.1: 9.0"):
        speed.holds(gradient_gap_of_chunks=0.0, tepo_over_grpo_head=9.0)
    assert speed.criteria == {"gradient_gap_of_chunks <= 0.01": True, "tepo_over_grpo_head <= 1.1": False}
