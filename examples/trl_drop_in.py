"""Run any method of the catalog in TRL: `CatalogTrainer` is `GRPOTrainer` with one additional argument.

    trainer = CatalogTrainer(method="tepo+beta=0.5", model=..., reward_funcs=..., args=GRPOConfig(...), ...)

Sampling, rewards, reference model, accumulation, processes, saving and logging are TRL's (written for 1.16.0);
advantages and loss are the method's. Options of GRPOConfig that shape TRL's loss are refused, since they would have no
effect. Sums are divided as in TRL's `dapo`: by the tokens of the whole rollout, in equal shares for its updates.
Methods of scope "batch" (Clip-Cov, KL-Cov, STEER) take their statistics over one per-device batch. As in TRL, a
response whose reward is None has advantage 0, and its group's baseline leaves it out.

    python examples/trl_drop_in.py tepo       # a tiny random model learns a toy reward on a CPU; nothing is downloaded
"""

import sys
import tempfile
from inspect import signature
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer

import tepo_bench

# Fields of GRPOConfig that define TRL's loss and advantage.
UNREAD = (
    "loss_type", "epsilon", "epsilon_high", "delta", "importance_sampling_level", "scale_rewards",
    "multi_objective_aggregation", "top_entropy_quantile", "off_policy_mask_threshold", "use_bias_correction_kl",
    "entropy_coef", "use_adaptive_entropy", "sapo_temperature_pos", "sapo_temperature_neg", "vespo_k_pos",
    "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg",
)  # fmt: skip
READ_LENGTHS = ("whitened", "length_weighted_baseline")  # advantages that weight a response by its tokens
PASS_TAKES = tuple(signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)


class CatalogTrainer(GRPOTrainer):
    """Trainer of `method`, a key of the catalog. Raises `tepo_bench.ConfigError` for unsupported settings."""

    def __init__(self, *trainer: Any, method: str, args: GRPOConfig, **options: Any) -> None:
        self.method = tepo_bench.parse(method)
        self.check(args)
        # of the responses being scored; `_old_pass`: whether the next pass without gradient is the old policy's
        self._rewards: Any = None
        self._old_entropy: Any = None
        self._old_pass = False
        super().__init__(*trainer, args=args, **options)
        if self.aux_loss_enabled:
            raise tepo_bench.ConfigError(
                f"{method}: output_router_logits: the router's loss is not added; allowed: False"
            )

    def check(self, args: GRPOConfig) -> None:
        key, needs = self.method.key, self.method.needs
        allowed = {name: GRPOConfig.__dataclass_fields__[name].default for name in UNREAD}
        # any value except 0 loads the reference model, and has no other effect
        allowed["beta"] = (args.beta or 1.0) if "ref_logp" in needs else 0.0
        if args.use_vllm:
            allowed["vllm_importance_sampling_correction"] = False  # a key's option: correction
        for name, value in allowed.items():
            if (found := getattr(args, name)) != value:
                raise tepo_bench.ConfigError(f"GRPOConfig: {name}: {found!r} is not for {key}; allowed: {value!r}")
        if self.method.parts.reduce.name == "token_mean_group":
            raise tepo_bench.ConfigError(f"method: {key}: needs whole groups, which TRL has not")

    # --- TRL's hooks: private methods, which TRL recommends overriding ---

    def _calculate_rewards(self, *args: Any, **options: Any) -> torch.Tensor:
        """Return rewards (N, functions) of all processes; stored, because TRL passes on only its advantages."""
        rewards_NF = super()._calculate_rewards(*args, **options)
        reward_N = (rewards_NF * self.reward_weights.to(rewards_NF.device)).nansum(1)
        # a missing score is not a reward of 0: `_advantages` leaves the response out
        self._rewards = reward_N.masked_fill(rewards_NF.isnan().all(1), float("nan"))
        return rewards_NF

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **options: Any) -> Any:
        """Compute and store entropies in TRL's pass over the old policy, which omits them."""
        if not self._old_pass or model is not self.model:
            return super()._get_per_token_logps_and_entropies(model, *args, **options)
        scored = super()._get_per_token_logps_and_entropies(model, *args, **options | {"compute_entropy": True})
        self._old_entropy, self._old_pass = scored[1], False
        return scored

    def _advantages(self, group_N: torch.Tensor, lengths_N: torch.Tensor) -> torch.Tensor:
        """Return the method's advantages (N,), 0 for responses that are left out."""
        used = ~self._rewards.isnan()
        if self.method.parts.advantage.name in READ_LENGTHS:
            used &= lengths_N > 0  # mask_truncated_completions empties rows
        count = torch.zeros_like(group_N).index_add(0, group_N, used.long())
        used &= count[group_N] > 1  # a lone response has no baseline
        advantage_N = torch.zeros_like(self._rewards)
        if used.any():
            advantage_N[used] = self.method.advantage(self._rewards[used], group_N[used], lengths_N[used])
        return advantage_N

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the rows that TRL later shuffles and splits, with our advantages and other data for a `Batch`."""
        self._old_pass = True
        output = super()._generate_and_score_completions(inputs)
        self._old_pass = False
        samples = self.num_generations if self.model.training else self.num_generations_eval
        group_N = torch.arange(len(self._rewards), device=self._rewards.device) // samples
        rows = slice(self.accelerator.process_index * len(inputs), (self.accelerator.process_index + 1) * len(inputs))
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        lengths_N = self.accelerator.gather(mask.sum(1))
        output["advantages"] = self._advantages(group_N, lengths_N)[rows]
        output["group"] = group_N[rows]
        if "old_per_token_logps" in output:  # absent with one update per rollout: the old policy is the current one
            output["old_entropies"] = self._old_entropy
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        mask = (inputs["completion_mask"] * inputs.get("tool_mask", 1)).bool()
        # pixel values and other arguments of TRL's pass
        more = {name: inputs[name] for name in PASS_TAKES if name in inputs}
        logp, entropy, _ = self._get_per_token_logps_and_entropies(
            model, ids, attention, mask.shape[1], compute_entropy=True, **more
        )
        old_logp = inputs.get("old_per_token_logps", logp.detach())
        sampling_logp = inputs.get("sampling_per_token_logps")  # from vLLM; NaN where it has no score
        if sampling_logp is not None:
            sampling_logp = sampling_logp.where(~sampling_logp.isnan(), old_logp)  # no correction there, as in TRL
        batch = tepo_bench.Batch(
            logp=logp,
            old_logp=old_logp,
            advantage=inputs["advantages"].to(logp.dtype),
            mask=mask,
            group=inputs["group"],
            entropy=entropy,
            old_entropy=inputs.get("old_entropies", entropy.detach()),
            ref_logp=inputs.get("ref_per_token_logps"),
            sampling_logp=sampling_logp,
            dropped=~mask.any(1),
            max_tokens=self.max_completion_length,
            label=self.method.key,
        )
        mode, accumulated, shares = "eval", 1, 1
        if self.model.training:
            accumulated, shares = self.current_gradient_accumulation_steps, self.args.steps_per_generation
            mode = "train"
        # As in TRL, gradients are summed over accumulated batches and averaged over processes.
        tokens = inputs["num_items_in_batch"].clamp(min=1) / self.accelerator.num_processes * accumulated / shares
        # for methods that draw tokens (Clip-Cov); independent of other random draws
        generator = torch.Generator().manual_seed(self.args.seed + self._step)
        loss = self.method.loss(batch, tokens=tokens, sequences=len(mask) * accumulated, generator=generator)
        for name, value in self.method.diagnostics(batch).items():
            if value is not None:
                self._metrics[mode][name].append(value)
        return loss


# --- A toy: answer with the letter a ----------------------------------------------------------------------------------


def share_of_a(completions: list[str], **_: Any) -> list[float]:
    return [text.count("a") / max(len(text), 1) for text in completions]


def tiny(folder: str) -> None:
    """Save a random Qwen2 and a tokenizer of single letters."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = {word: number for number, word in enumerate(["<pad>", "<eos>", *"abcdefgh"])}
    letters = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    letters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(key: str, **options: Any) -> CatalogTrainer:
    from datasets import Dataset

    method = tepo_bench.parse(key)
    with tempfile.TemporaryDirectory() as folder:
        tiny(folder)
        args = GRPOConfig(
            **{
                "output_dir": folder, "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no",
                "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "steps_per_generation": 2,
                "num_generations": 8, "max_completion_length": 8, "max_steps": 20, "learning_rate": 1e-2,
                "model_init_kwargs": {"dtype": "float32"}, "lr_scheduler_type": "constant", "logging_steps": 4,
                "beta": float("ref_logp" in method.needs),
            }
            | options
        )  # fmt: skip
        prompts = Dataset.from_dict({"prompt": [f"{first}{second}" for first in "abcdefgh" for second in "abcdefgh"]})
        trainer = CatalogTrainer(method=key, model=folder, reward_funcs=share_of_a, args=args, train_dataset=prompts)
        trainer.train()
    return trainer


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tepo")
