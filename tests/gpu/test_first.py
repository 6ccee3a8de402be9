"""The first 90 seconds: versions, every loss, the head at a large vocabulary, what repeats bit for bit."""

import os
import re
import shutil
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from core.provenance import ROOT, version
from methods import catalog
from methods.adapters.trl import shared_prefix
from methods.batch import Batch
from methods.parts.entropy import logp_and_entropy
from tests.gpu import models
from tests.gpu.conftest import CHECKS, Check, Place, worst_of

# Packages whose other versions compute or fail otherwise; of the rest any version will do.
PIN = r"^[ \"]*(torch|transformers|tokenizers|trl|verl|tensordict|ray)(?:\[\S+\])?==([^\s\"]+)"


def other_versions() -> dict[str, str]:
    """Installed versions that neither environment pins."""
    files = ROOT / "requirements/gpu.txt", ROOT / "pyproject.toml"
    known = [pin for path in files for pin in re.findall(PIN, path.read_text(encoding="utf-8"), re.MULTILINE)]
    found = {name: (version(name) or "").partition("+")[0] for name, _ in known}
    return {name: have for name, have in found.items() if have and (name, have) not in known}


@pytest.mark.gpu("machine")
def test_the_machine(check: Check, place: Place) -> None:
    other = other_versions()
    check.holds(
        packages_differ=len(other), packages=other, torch_sees_the_gpu=torch.cuda.is_available(),
        gpu=str(torch.cuda.get_device_properties(0)) if place.cuda else None, cpus=len(os.sched_getaffinity(0)),
        compiler=any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))),
        disk_free_gb=shutil.disk_usage(place.folder).free / 1e9,
    )  # fmt: skip


MORE = (
    "tepo+kl-anchor=ref", "grpo+agg-scope=group", "tepo+correction=seq-tis",
    "tepo+dh-def=cov_sign",
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
        "old_entropy": -(old_full.exp() * old_full).sum(-1), "reward": reward,
        "sampling_logp": (old_logp + 0.02 * normal(ROWS, WIDTH)).clamp(max=0.0), "group": torch.arange(ROWS) // GROUP,
    }  # fmt: skip


def outcome(key: str, n: dict[str, torch.Tensor], device: str, dtype: torch.dtype) -> tuple[float, torch.Tensor]:
    """A method's loss, and its gradient by states and head in float64 on the CPU."""
    method, wide = catalog.parse(key), torch.promote_types(dtype, torch.float32)
    here = {name: x.to(device, wide if x.is_floating_point() else None) for name, x in n.items()}
    hidden, weight = (here.pop(name).to(dtype).clone().requires_grad_() for name in ("hidden", "weight"))
    logp, entropy = logp_and_entropy(hidden, weight, here.pop("token"))
    advantage = method.advantage(here.pop("reward"), here["group"], here["mask"].sum(1))
    batch = Batch(
        logp=logp, entropy=entropy, advantage=advantage, max_tokens=WIDTH, label=key, **here,
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
    n, single, half = numbers(), dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    for key in (*catalog.keys(), *MORE):
        exact, wanted = outcome(key, n, "cpu", torch.float64)
        loss, gradient = outcome(key, n, place.device, torch.float32)
        _, rounded = outcome(key, n, place.device, torch.bfloat16)
        error = float((gradient - wanted).abs().max() / wanted.abs().max())
        single[key] = {"loss": abs(loss - exact) / max(abs(exact), 0.01), "gradient": error}
        half[key] = {"cosine": float(torch.nn.functional.cosine_similarity(rounded, wanted, dim=0))}
    check.holds(**worst_of(single, half))


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
    row, mask = torch.arange(B, device=place.device), token >= 0

    def whole(key: str, chunk: int | None) -> None:
        hidden.grad = weight.grad = None
        logp, entropy = logp_and_entropy(hidden, weight, token, chunk=chunk)
        batch = Batch(
            logp=logp, old_logp=(logp.detach() + noise).clamp(max=0.0), advantage=torch.where(row % 2 == 0, 1.0, -1.0),
            mask=mask, group=row // 4, entropy=entropy, old_entropy=entropy.detach() + 0.01 * noise,
            ref_logp=logp.detach(), sampling_logp=logp.detach(), max_tokens=T, precision="bfloat16",
        )  # fmt: skip
        catalog.parse(key).loss(batch).backward()

    ratios, gaps, times, wanted = list[float](), list[float](), dict[str, float](), None
    for chunk in (1024, 128, 4096, None):
        for key in ("grpo", "tepo"):
            times[key], peak = timed(place, lambda key=key, chunk=chunk: whole(key, chunk))
            check.figures |= {f"{key}_seconds_{chunk}": times[key], f"{key}_gb_{chunk}": peak}
        ratios.append(times["tepo"] / times["grpo"])
        wanted = weight.grad.clone() if wanted is None else wanted
        gaps.append(float((weight.grad - wanted).float().norm() / wanted.float().norm()))
    check.holds(gradient_gap_of_chunks=max(gaps), tepo_over_grpo_seconds=statistics.median(ratios))


@pytest.mark.gpu("determinism")
def test_what_repeats_bit_for_bit(check: Check, place: Place) -> None:
    """The same weights and rows in bfloat16: again, and with gradient; with a shared prefix and without."""
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
    changed, passes, repeats = list[float](), list[bool](), list[bool]()
    for shared in (False, True):

        def score(shared: bool = shared) -> tuple[torch.Tensor, ...]:
            with torch.autocast(place.device, torch.bfloat16):
                return shared_prefix.score(model, ids, mask, width, 1.0, shared=shared)

        with torch.no_grad():
            first, again = score(), score()
        gradients = []
        for _ in range(2):
            model.zero_grad()
            logp, entropy = score()
            (logp.sum() + entropy.square().sum()).backward()
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        changed.append(float(((entropy.detach() - first[1]).abs() > 1e-6)[mask[:, -width:].bool()].double().mean()))
        passes.append(all(map(torch.equal, first, again)))
        repeats.append(torch.equal(*gradients))
    check.holds(passes_repeat=all(passes), gradient_repeats=all(repeats), changed_with_gradient=max(changed))


def test_the_page_has_the_list_and_it_takes_eight_minutes() -> None:
    text = (ROOT / "docs/scale.md").read_text(encoding="utf-8").partition("### What make gpu")[2]
    rows = {name: line for line in text.splitlines() for name in line.partition(" | ")[0].lstrip("| ").split(", ")}
    for name, one in CHECKS.items():
        assert all(criterion in rows[name] for criterion in (*one.criteria, *one.on_gpu)), name
    assert sum(one.minutes for name, one in CHECKS.items() if "vllm" not in name) <= 8
    assert sum(CHECKS[name].minutes for name in ("machine", "losses", "head", "determinism")) <= 1.5


def test_a_criterion_that_does_not_hold_fails_and_one_of_a_gpu_is_not_asked_of_a_cpu() -> None:
    with pytest.raises(AssertionError, match=r"float32_loss_worst <= 0.0001: 0.5; bfloat16_cosine_worst >= 0.98: None"):
        Check(CHECKS["losses"], cuda=False).holds(float32_gradient_worst=0.0, float32_loss_worst=0.5)
    Check(CHECKS["head"], cuda=False).holds(gradient_gap_of_chunks=0.0, tepo_over_grpo_seconds=9.0)
    with pytest.raises(AssertionError, match=r"^tepo_over_grpo_seconds <= 1.1: 9.0"):
        Check(CHECKS["head"], cuda=True).holds(gradient_gap_of_chunks=0.0, tepo_over_grpo_seconds=9.0)
