"""Time and memory of loss + backward: every catalog method against verl's and TRL's loss of the same name.

    python -m studies.loss_speed                      64 x 2048 tokens, float32, CPU
    python -m studies.loss_speed --device cuda

All losses take turns in one process and one thread, round after round. A loss's time is its fastest round, which other
work on the machine disturbs least. Each is called as its trainer calls it: ours with the validation of `Batch` and the
check that the loss is finite, verl's and TRL's with the metrics they compute inside. `saved` is the size of the
distinct storages that autograd keeps for the backward pass beyond the inputs: what a loss adds to the peak of a
training step.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from core.errors import Parser, run, whole
from methods import catalog

if TYPE_CHECKING:
    from torch import Tensor

Loss = Callable[[], "Tensor"]
TARGET = 1.1  # times the faster of the other two
WARM_UP = 3  # rounds not timed: allocator, caches, lazy imports
VERL = {  # our key: verl's name, reducer, settings
    "grpo": ("vanilla", "token-mean", {}),
    "tepo_nokl": ("gspo", "token-mean", {}),
    "gspo": ("gspo", "seq-mean-token-mean", {}),
    "tepo_seqsum": ("gspo", "seq-mean-token-sum", {}),
    "gpg": ("gpg", "token-mean", {}),
    "cispo": ("cispo", "token-mean", {}),
    "clip_cov": ("clip_cov", "token-mean", {"clip_cov_ratio": 2e-4, "clip_cov_lb": 1.0, "clip_cov_ub": 5.0}),
    "kl_cov": ("kl_cov", "token-mean", {"kl_cov_ratio": 2e-3, "ppo_kl_coef": 1.0}),
    "dr_grpo": ("vanilla", "seq-mean-token-sum-norm", {}),
    "sapo": ("sapo", "seq-mean-token-mean", {}),
    "gmpo": ("geo_mean", "seq-mean-token-mean", {}),
    "dppo_tv": ("dppo_tv", "token-mean", {}),
    "dppo_kl": ("dppo_kl", "token-mean", {}),
    "dro": ("dro", "token-mean", {"dro_beta": 0.05}),
    # these differ from GRPO in the advantage, which comes before the loss
    "reinforce_pp": ("vanilla", "token-mean", {}),
    "reinforce_pp_baseline": ("vanilla", "token-mean", {}),
    "rloo": ("vanilla", "token-mean", {}),
    "opo": ("vanilla", "token-mean", {}),
}
TRL = {  # our key: loss type, level of the ratio, beta, share of the tokens of highest entropy
    "grpo": ("dapo", "token", 0.0, 1.0),
    "tepo_nokl": ("dapo", "sequence", 0.0, 1.0),
    "gspo": ("grpo", "sequence", 0.0, 1.0),
    "tepo_seqsum": ("luspo", "sequence", 0.0, 1.0),
    "cispo": ("cispo", "token", 0.0, 1.0),
    "grpo_2024": ("grpo", "token", 0.04, 1.0),
    "dr_grpo": ("dr_grpo", "token", 0.0, 1.0),
    "top_entropy": ("dapo", "token", 0.0, 0.2),
    "sapo": ("sapo", "token", 0.0, 1.0),
    "vespo": ("vespo", "token", 0.0, 1.0),
}


def fields(rows: int, width: int, device: str, dtype: str) -> dict[str, Tensor]:
    """One ragged minibatch, off-policy by a few per cent."""
    import torch

    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(width // 8, width + 1, (rows,), generator=draw)
    old = -torch.rand(rows, width, generator=draw) * 3
    values = {
        "logp": (old + 0.1 * torch.randn(rows, width, generator=draw)).clamp(max=0.0),
        "old_logp": old,
        "ref_logp": (old + 0.1 * torch.randn(rows, width, generator=draw)).clamp(max=0.0),
        "entropy": torch.rand(rows, width, generator=draw),
        "old_entropy": torch.rand(rows, width, generator=draw),
        "advantage": torch.randn(rows, generator=draw),
    }
    moved = {name: x.to(device, getattr(torch, dtype)) for name, x in values.items()}
    mask = torch.arange(width) < lengths[:, None]
    return {**moved, "mask": mask.to(device), "group": (torch.arange(rows) // 8).to(device)}


def ours(key: str, tensors: dict[str, Any]) -> Loss:
    """Checks of `Batch`, loss, finiteness check."""
    from methods.batch import Batch

    # in half precision the entropy change has no default tolerance
    half = tensors["logp"].element_size() == 2 and "old_entropy" in catalog.parse(key).needs
    method = catalog.parse(f"{key}+dh-tol=0.01" if half else key)
    always = ("logp", "old_logp", "advantage", "mask", "group")
    read = {name: tensors[name] for name in (*always, *method.needs - {"max_tokens"})}
    limit = tensors["mask"].shape[1]  # of a response, for the methods that divide by it
    return lambda: method.loss(Batch(**read, max_tokens=limit if "max_tokens" in method.needs else None))


def verl(key: str, tensors: dict[str, Tensor]) -> Loss:
    """verl's registered policy loss, as its actor calls it: advantages (B, T), mask in the log-probs' dtype."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import ActorConfig
    from verl.workers.config.actor import PolicyLossConfig

    name, reduce, settings = VERL[key]
    config = ActorConfig(
        strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1, clip_ratio=0.2, clip_ratio_low=0.2,
        clip_ratio_high=0.28, clip_ratio_c=1e9, policy_loss=PolicyLossConfig(loss_mode=name, **settings),
    )  # fmt: skip
    function, mask = get_policy_loss_fn(name), tensors["mask"].to(tensors["logp"].dtype)
    advantages = tensors["advantage"][:, None] * mask
    return lambda: function(
        old_log_prob=tensors["old_logp"], log_prob=tensors["logp"], advantages=advantages, response_mask=mask,
        loss_agg_mode=reduce, config=config,
    )[0]  # fmt: skip


def trl(key: str, tensors: dict[str, Tensor]) -> Loss:
    """`GRPOTrainer._compute_loss`, unbound, with the forward pass replaced by these log-probs."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    loss_type, level, beta, share = TRL[key]
    same = SimpleNamespace(
        gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x,
        pad_across_processes=lambda x, **_: x,
    )  # fmt: skip
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (tensors["logp"], tensors["entropy"], None),
        _entropy_bonus_enabled=False, _metrics={"train": defaultdict(list)}, aux_loss_enabled=False, beta=beta,
        accelerator=SimpleNamespace(num_processes=1, sync_gradients=True, **vars(same)),
        args=SimpleNamespace(
            use_bias_correction_kl=False, delta=None, steps_per_generation=1, sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05, vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0, vespo_lambda_neg=2.0,
        ),
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        current_gradient_accumulation_steps=1, entropy_coef=0.0, epsilon_low=0.2, epsilon_high=0.28,
        importance_sampling_level=level, loss_type=loss_type, max_completion_length=tensors["mask"].shape[1],
        model=SimpleNamespace(training=True), off_policy_mask_threshold=None, router_aux_loss_coef=0.0,
        top_entropy_quantile=share, use_adaptive_entropy=False, use_vllm=False,
        vllm_importance_sampling_correction=False,
    )  # fmt: skip
    trainer.get_high_entropy_mask = lambda *given: GRPOTrainer.get_high_entropy_mask(trainer, *given)
    mask = tensors["mask"].to(tensors["logp"].dtype)
    ids = tensors["mask"].long()
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1], "completion_ids": ids, "completion_mask": mask,
        "advantages": tensors["advantage"], "old_per_token_logps": tensors["old_logp"],
        "ref_per_token_logps": tensors["ref_logp"], "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    return lambda: GRPOTrainer._compute_loss(trainer, None, inputs)


def milliseconds(loss: Loss, leaves: list[Tensor], wait: Callable[[], Any]) -> float:
    for leaf in leaves:
        leaf.grad = None
    wait()
    began = time.perf_counter()
    loss().backward()
    wait()
    return 1000 * (time.perf_counter() - began)


def saved_megabytes(loss: Loss, tensors: dict[str, Tensor]) -> float:
    """Distinct storages kept for backward, the inputs' own left out."""
    import torch

    inputs = {x.untyped_storage().data_ptr() for x in tensors.values()}
    saved: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in inputs:
            saved[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        result = loss()
    del result
    return sum(saved.values()) / 2**20


def compare(rows: int, width: int, rounds: int, threads: int, device: str, dtype: str, keys: list[str]) -> None:
    """Print the table."""
    import torch

    torch.set_num_threads(threads)

    tensors = fields(rows, width, device, dtype)
    leaves = [tensors["logp"].requires_grad_(), tensors["entropy"].requires_grad_()]
    sides = [("ours", ours, keys), ("verl", verl, VERL), ("trl", trl, TRL)]
    losses: dict[tuple[str, str], Loss] = {}
    for side, make, available in sides:
        losses |= {(key, side): make(key, tensors) for key in keys if key in available}
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for turn in range(WARM_UP + rounds):
        for name, loss in losses.items():
            elapsed = milliseconds(loss, leaves, wait)
            if turn >= WARM_UP:
                times[name].append(elapsed)
    print(f"{rows} x {width} tokens, {dtype}, {device}, torch {torch.__version__}, {torch.get_num_threads()} threads,")
    print(f"fastest of {rounds} rounds, loss + backward in ms, saved for backward in MiB\n")
    print(f"{'method':<14}{'ours':>8}{'verl':>8}{'trl':>8}{'ratio':>8}   {'saved':>7}{'verl':>7}{'trl':>7}")
    slow = 0
    for key in keys:
        best = {s: min(times[key, s]) for s in ("ours", "verl", "trl") if (key, s) in times}
        memory = {s: saved_megabytes(losses[key, s], tensors) for s in best}
        rivals = [best[s] for s in ("verl", "trl") if s in best]
        ratio = best["ours"] / min(rivals) if rivals else None
        slow += ratio is not None and ratio > TARGET
        times_shown = "".join(f"{best[s]:8.2f}" if s in best else f"{'-':>8}" for s in ("ours", "verl", "trl"))
        memory_shown = "".join(f"{memory[s]:7.1f}" if s in memory else f"{'-':>7}" for s in ("ours", "verl", "trl"))
        ratio_shown = "       -" if ratio is None else f"{ratio:8.2f}"
        print(f"{key:<14}{times_shown}{ratio_shown}   {memory_shown}")
    print(f"\nslower than {TARGET} x the faster rival: {slow}")


def main() -> None:
    parser = Parser(description="Time and memory of loss and backward, beside verl and TRL.")
    parser.add_argument("--rows", type=whole(1), default=64)
    parser.add_argument("--width", type=whole(1), default=2048)
    parser.add_argument("--rounds", type=whole(1), default=25)
    parser.add_argument("--threads", type=whole(1), default=1)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--methods", nargs="+", default=list(catalog.keys()), metavar="KEY")
    args = parser.parse_args()
    compare(args.rows, args.width, args.rounds, args.threads, args.device, args.dtype, args.methods)


if __name__ == "__main__":
    run(main)
