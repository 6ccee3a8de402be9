"""Where the paper can be read in more than one way: each ambiguity with an id, a default and its alternatives.

A method's reading is an option of its catalog entry: one of the reading's own name (`clip-form=eq4`), or several that a
label stands for (`seq-eps=gspo` means `low=0.0003+high=0.0004`). What training and evaluation settle is listed too, so
that all ambiguities are in one place; `docs/readings.md` is written from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

Value: TypeAlias = float | str | None  # of an option
Room = Literal["methods", "training", "evals"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One ambiguity of the paper."""

    # Fields that are printed and decide no number: `records.code_hashes` leaves them out, but counts labels.
    PROSE: ClassVar = frozenset({"id", "room", "why", "values", "how"})

    id: str  # R for training a method, E for evaluating it
    name: str  # as it is set in a key
    room: Room  # the part of the code that settles it
    values: Mapping[str, str]  # label -> meaning, the default first
    why: str  # why it is ambiguous, and why this default
    settings: Mapping[str, Mapping[str, Value]] | None = None  # label -> options it sets; None: the option `name`
    # Label -> the setting that makes it so, or why nothing does; for what training and evaluation settle.
    how: Mapping[str, str] = field(default_factory=dict)

    @property
    def default(self) -> str:
        """The label in force unless another one is set."""
        return next(iter(self.values))


READINGS: tuple[Reading, ...] = (
    Reading(
        id="R1", name="clip-form", room="methods",
        values={
            "ppo": "min(w A, clip(w) A)",
            "eq4": "min(w, clip(w)) A, as eq. 4 prints it: bounded above at 1 + high for either sign, never below",
            "none": 'w A, as Algorithm 1 line 15 ("unclipped")',
        },
        why="Eq. 4 prints A outside the minimum. Taken literally, its bound is on the wrong side where A < 0; where A "
            "> 0 it is equal to ppo.",
    ),
    Reading(
        id="R2", name="gradient", room="methods",
        values={
            "autograd": "the gradient of eq. 4",
            "alg1_line21": "a token's own path through w only, Algorithm 1 line 21",
        },
        why="Line 21 is not the gradient of line 18: summed over a row it is GSPO's gradient times B/N.",
    ),
    Reading(
        id="R3", name="kl-anchor", room="methods",
        values={"old": "the policy that sampled", "ref": "the initial model"},
        why="Eq. 4 prints KL(pi || pi_old); Algorithm 1 calls pi_old the reference; in the lineage the KL is to the "
            "initial model.",
    ),
    Reading(
        id="R4", name="kl-estimator", room="methods",
        values={
            "k3": "exp(-d) + d - 1",
            "abs": "|d|",
            "k1": "d",
            "k2": "d^2 / 2",
            "k3_is": "r (exp(-d) + d - 1)",
            "full": "exact, summed over the vocabulary; needs both distributions (tests and embedded runs)",
        },
        why="Not stated. The lineage uses k3 for its KL loss and abs in KL-Cov. d = log pi/pi_anchor at the sampled "
            "token.",
    ),
    Reading(
        id="R5", name="dh-def", room="methods",
        values={
            "entropy_diff": "H_t - H_t^old, full vocabulary, same state, no gradient",
            "cov_sign": "-(A - mean A)(log p - mean log p), as the paper's C.5; a batch statistic",
            "first_order": "-A (log p + H): own-state change to first order",
            "theorem": "-A: what Theorem 3.1 claims, so that the mask is A > 0",
            "surprise_diff": "-(log p - log p_old) of the sampled token: the change of its surprise, one sample of H",
            "positions": "H_t - H_s, s the token before t in the response, both under the current policy",
        },
        why="The paper does not define Delta H: between which two policies or positions, and of which quantity.",
    ),
    Reading(
        id="R6", name="dh-tol", room="methods",
        values={
            "auto": "0 in float64, 1e-6 in float32, also of passes in bfloat16; for entropies that are in half "
                    "precision a number must be set",
        },
        why="Changes of at most this many nats count as 0. In the first minibatch dH is 0 by construction, and "
            "without a tolerance the mask would be rounding noise. In bfloat16 it is 0 only where old and new "
            "entropies come from the same micro-batches; a run ends with an error if its first minibatch has changed "
            "entropies on more than 1 % of its tokens.",
    ),
    Reading(
        id="R7", name="mask-norm", room="methods",
        values={
            "tokens": "the masked KL is divided by all tokens N",
            "masked": "by the masked tokens; a batch statistic",
        },
        why="Eq. 4 divides the whole bracket by the number of tokens.",
    ),
    Reading(
        id="R8", name="prefix-grad", room="methods",
        values={
            "through": "through the running mean",
            "own_token": "the own token's path only, weight kept",
            "stop": "none through the weight: sg[clip(w_t)] A log pi",
        },
        why="Not stated. Line 21's chain rule implies a gradient through w. With `through`, early tokens weigh more "
            "than late ones even on-policy.",
    ),
    Reading(
        id="R9", name="seq-eps", room="methods",
        values={
            "clip-higher": "low .2, high .28",
            "symmetric": "low .2, high .2",
            "gspo": "low 3e-4, high 4e-4, GSPO's own",
        },
        why="For TEPO, GSPO and prefix. Section 4.1 adopts Clip-Higher, eq. 4 prints one epsilon, and GSPO's own "
            "values are tiny. GSPO takes TEPO's because its row has the digits of the reducer ablation in Panel D.",
        settings={"symmetric": {"high": 0.2}, "gspo": {"low": 0.0003, "high": 0.0004}},
    ),
    Reading(
        id="R10", name="beta", room="methods",
        values={"0.001": "Qwen2.5-7B, and Table 2, where it is not stated", "1": "Qwen3-14B"},
        why="Section 4.1 prints .001 for 7B and 1 for 14B but never swaps them: two more runs would tell whether the "
            "model or the coefficient matters. Any number is allowed.",
    ),
    Reading(
        id="R11", name="adv-std", room="methods",
        values={
            "unbiased": "divide by n - 1, eps 1e-6",
            "biased": "divide by n, eps 1e-6",
            "unbiased-1e-4": "divide by n - 1, eps 1e-4",
        },
        why="The paper has no eps. verl: unbiased, 1e-6. TRL: unbiased, 1e-4.",
    ),
    Reading(
        id="R12", name="entropy-alpha", room="methods",
        values={"original": "alpha .4", "printed": "alpha 4e-4"},
        why='The paper prints 4e-4, "adopted from their original papers", where it is .4. At 4e-4 the method equals '
            "GRPO within noise.",
        settings={"printed": {"alpha": 0.0004}},
    ),
    Reading(
        id="R13", name="gpg-scale", room="methods",
        values={
            "one": "alpha 1, F_norm 1",
            "std": "F_norm the group's standard deviation",
            "informative": "alpha = B/(B - M), M responses in groups of equal reward",
            "inverse-accuracy": "alpha = B / rewarded responses, verl's rule",
        },
        why="Groups of equal reward are filtered out, so that M = 0 and alpha = 1. The official code has alpha off by "
            "default.",
    ),
    Reading(
        id="R14", name="cov-clip", room="methods",
        values={"official": "Clip-Cov low 1, high 1; KL-Cov none", "clip-higher": "low .2, high .28"},
        why="From the official scripts. The paper states only the ratio of tokens that are clipped by covariance.",
        settings={"clip-higher": {"low": 0.2, "high": 0.28}},
    ),
    Reading(
        id="R15", name="cov-scope", room="training",
        values={
            "minibatch": "over the update minibatch, all its GPUs and micro-batches: one forward pass more per update",
            "microbatch": "over each micro-batch, as the lineage's code does",
        },
        why="Statistics of Clip-Cov, KL-Cov, STEER and the 80/20 rule. Over a micro-batch, how rows share GPUs changes "
            "the method: two rows of one prompt with equal rewards have covariance 0, and the share of tokens is not "
            "the printed one.",
        how={"microbatch": "`training.cov_scope: microbatch`"},
    ),
    Reading(
        id="R16", name="cispo", room="methods",
        values={
            "upper": "no lower bound, high .28",
            "verl": "low 10, high .2",
            "two-sided": "low .2, high .28",
            "cap": "weight at most 4",
            "one-update": "as upper, one update per rollout (a training setting)",
        },
        why='The paper gives no bounds and says "single-step policy updates"; CISPO never discloses its upper bound.',
        settings={"verl": {"low": 10.0, "high": 0.2}, "two-sided": {"low": 0.2}, "cap": {"high": 3.0}},
    ),
    Reading(
        id="R17", name="ent-coef", room="methods",
        values={"1e-3": "coefficient .001", "1e-4": "coefficient .0001", "5e-3": "coefficient .005"},
        why="Not stated. The customary value; the lineage's own ablation tried 1e-4 to 1e-2.",
        settings={"1e-4": {"coefficient": 0.0001}, "5e-3": {"coefficient": 0.005}},
    ),
    Reading(
        id="R18", name="panel-b-base", room="methods",
        values={
            "mixed": "max-, min-entropy and STEER on TEPO without KL; the three covariance and entropy rows on GRPO",
            "grpo": "all on GRPO's token ratio",
            "tepo": "all on TEPO's sequence ratio",
        },
        why="The caption says TEPO, but the last three rows have the digits of Table 1.",
        settings={"grpo": {"ratio": "token"}, "tepo": {"ratio": "sequence"}},
    ),
    Reading(
        id="R19", name="steer", room="methods",
        values={
            "sequence": "sequence ratio, exponential map, lambda_min .8, Omega to first order",
            "token": "token ratio, as STEER's own code",
            "linear": "linear map to [lambda_min, 1]",
            "min-max": "linear map of [min, max] to [2 - lambda_min, lambda_min], as STEER's script run_linear",
            "ratio": "Omega times r = p / p_old, as STEER's code",
            "0.7": "lambda_min .7",
        },
        why="The panel puts it on TEPO without KL; STEER's own code weights a token-ratio PPO loss. Its Omega has a "
            "factor A / p_old where the sampled token's probability is p: r is 1 in the first update of a rollout, and "
            "later mixes the old policy's distance, which the ratio of the surrogate has already, into a weight that "
            "is about entropy. Of its two maps, exp only lowers weights, as the paper describes STEER.",
        settings={
            "token": {"ratio": "token"}, "linear": {"map": "linear"}, "min-max": {"map": "min-max"},
            "ratio": {"omega": "ratio"}, "0.7": {"lambda-min": 0.7},
        },
    ),
    Reading(
        id="R20", name="agg-scope", room="methods",
        values={
            "minibatch": "N of the whole update minibatch",
            "group": "N of each prompt's group, then the mean over groups, as eq. 4 and DAPO print it",
            "microbatch": "N of the micro-batch, weighted by its share of sequences, as the lineage's code does",
        },
        why="Aggregation is what the paper claims to improve, so whose token count divides is part of the method. "
            'Table 5 calls G the "Number of responses generated by LLMs per prompt", which is `group`. Algorithm 1 '
            'sums over i = 1 to G in line 6, and in line 2 these rows are a "Batch of prompt-response pairs", which is '
            "`minibatch`.",
    ),
    Reading(
        id="R21", name="dual-clip", room="methods",
        values={"off": "no upper bound where A < 0", "3": "verl's default", "10": "DAPO's script"},
        why="In the lineage the lines of the dual clip are commented out, so that the 10 in its scripts has no effect.",
    ),
    Reading(
        id="R22", name="overlong", room="training",
        values={"off": "no length penalty", "dapo": "DAPO's soft penalty over the last 4096 tokens"},
        why="Off in the lineage; not mentioned in the paper.",
        how={"dapo": "not runnable: the reward sees a response's text, not its number of tokens"},
    ),
    Reading(
        id="R23", name="updates", room="training",
        values={
            "4": "64 prompts in minibatches of 16, one pass",
            "8-mini-8": "minibatches of 8",
            "8-passes-2": "two passes",
        },
        why='The paper prints "8 times", but also 64 prompts and a minibatch of 16, which give 4.',
        how={"8-mini-8": "`training.minibatches: 8`", "8-passes-2": "`training.passes: 2`"},
    ),
    Reading(
        id="R24", name="prompt-max", room="training",
        values={"2048": "1024 * 2 in the lineage", "2024": "as printed"},
        why="The printed 2024 is probably a slip.",
        how={"2024": "`training.max_prompt_tokens: 2024`"},
    ),
    Reading(
        id="R25", name="data", room="training",
        values={
            "subset": "a fixed seeded 5120 prompts of DAPO-Math-17k, group filter with refill",
            "full": "all of it",
        },
        why="The paper prints approximately 80 x 64 = 5120. With refill a step uses more than 64 prompts.",
        how={"full": "`prompts.count`: the number of its distinct problems"},
    ),
    Reading(
        id="R26", name="steps", room="training",
        values={
            "checkpoint": "72; 132 in Table 4 only, its 72-step rows as checkpoints",
            "separate": "separate 72-step runs",
        },
        why="Not stated for other rows. At a constant learning rate the checkpoint at step 72 equals a run of 72 "
            "steps.",
        how={"separate": "the 132-step block under a variant of its own, whose runs are then others"},
    ),
    Reading(
        id="R27", name="optimiser", room="training",
        values={"lineage": "AdamW, 5e-7 constant, no warm-up, weight decay 0, gradient clip 1.0"},
        why="Weight decay, warm-up and gradient clip are not stated; no trainer defaults to these values.",
    ),
    Reading(
        id="R28", name="reward", room="methods",
        values={"binary": "1 for a correct last box, else 0", "signed": "1 or -1"},
        why="No format reward is mentioned. Matters, of the paper's methods, for GPG only, since the others divide by "
            "the group's deviation.",
    ),
    Reading(
        id="R29", name="prompt", room="training",
        values={"E3": "as in evaluation, see E3"},
        why="The paper does not state the template.",
    ),
    Reading(
        id="R30", name="qwen3-14b", room="training",
        values={"base": "Qwen3-14B-Base", "post-trained": "Qwen3-14B"},
        why="The printed base scores fit the base model. An assumption.",
        how={"post-trained": "a file in config/models like qwen3_14b.yaml with `hub: Qwen/Qwen3-14B`"},
    ),
    Reading(
        id="R31", name="gmpo-eps", room="methods",
        values={"original": "low .4, high .4", "verl": "low .2, high .2"},
        why="Bounds of a logarithm. The original and TRL clip at .4; verl reads `clip_ratio`, .2 if unset.",
        settings={"verl": {"low": 0.2, "high": 0.2}},
    ),
    Reading(
        id="R32", name="dppo-cap", room="methods",
        values={"20": "weight at most 20", "3": "at most 3", "off": "no cap"},
        why="The original advises a large cap. verl's loss says 20, but an `ActorConfig` left alone says 3, and verl's "
            "example sets 10000, which is none.",
        settings={"3": {"cap": 3.0}, "off": {"cap": None}},
    ),
    Reading(
        id="R33", name="kl-clamp", room="methods",
        values={"none": "k3 as it is", "10": "k3 at most 10, and no gradient beyond: verl's and the lineage's code"},
        why="Not stated. At d = -4 k3 is 49.6 and its gradient -53.6, with the clamp 10 and 0: in the lineage's code a "
            "token that has moved far pays no more. Any number is allowed.",
    ),
    Reading(
        id="R34", name="step", room="training",
        values={
            "rollout": "72 and 132 count rollouts",
            "update": "they count optimiser steps, 4 a rollout: 72 are 18 rollouts, 132 are 33",
        },
        why="The paper does not say what a step is. With 64 prompts a rollout, 5120 prompts are 80 rollouts.",
        how={"update": "`steps: [18]` in the matrix: a checkpoint of the same run; in config/paper.yaml"},
    ),
    Reading(
        id="R35", name="entropy-of", room="methods",
        values={"current": "of the policy being trained", "old": "of the policy that sampled"},
        why="The paper does not say whose entropy is added to the advantage. The original detaches it, which only the "
            "current policy's needs.",
    ),
    Reading(
        id="R36", name="dppo-anchor", room="methods",
        values={
            "old": "mask and ratio against the trainer's old policy, as in verl where old log-probs are computed again",
            "sampler": "against the sampler's own log-probs: the authors' `dppo_binary_tv` and `dppo_binary_kl`",
        },
        why="Of DPPO, which the paper does not run. Where engine and trainer agree the two are one. `old` by default, "
            "because all other methods' ratios are against it: what is compared is then the method and not its anchor.",
    ),
    Reading(
        id="R37", name="whiten-std", room="methods",
        values={"unbiased": "divide by tokens - 1, as verl", "biased": "divide by tokens, as OpenRLHF"},
        why="Of REINFORCE++, which the paper does not run. The two differ by 1 / (2 N) of the advantage, N the tokens "
            "of a rollout. OpenRLHF also holds the variance at 1e-8 or more instead of adding 1e-8.",
    ),
    Reading(
        id="E1", name="average", room="evals",
        values={"both": "pooled over responses; mean of columns"},
        why="The paper prints the pooled average.",
    ),
    Reading(
        id="E2", name="duplicates", room="evals",
        values={"paper": "items counted as in the paper's pool", "unique": "each problem once"},
        why="Some problems are in two benchmarks; the paper's column and its pool count them differently.",
        how={"unique": "`evals.score.rows(..., duplicates=...)`, from the grades at hand"},
    ),
    Reading(
        id="E3", name="eval-prompt", room="evals",
        values={
            "system": '"Please reason step by step, and put your final answer within \\boxed{}." as system prompt',
            "suffix": "the same text after the problem",
            "none": "the problem alone",
        },
        why="Not stated; the Qwen convention. The prompt's hash is recorded.",
        how={"suffix": "`prompt` in evals/tasks, or `evals.run --prompt user`", "none": "the same, `none`"},
    ),
    Reading(
        id="E4", name="top-p", room="evals",
        values={"1.0": "top_k off"},
        why="Not stated; the lineage uses 1.0.",
    ),
    Reading(
        id="E5", name="extraction", room="evals",
        values={"box": "last balanced box, required", "math-verify": "math-verify's default: last number of the prose"},
        why='The lineage requires a box; without one, "There are 3 cases." counts as 3.',
        how={"math-verify": "not runnable: `python -m benchmarks.grading` shows the difference"},
    ),
    Reading(
        id="E6", name="grader", room="evals",
        values={"ours": "the repository's", "lineage": "the lineage's rules"},
        why="Both can be reported, with a table of their disagreements.",
        how={"lineage": "`python -m evals.grade --compare lineage`"},
    ),
    Reading(
        id="E7", name="timeouts", room="evals",
        values={"wrong": "wrong, and shown", "excluded": "left out"},
        why="For answers whose comparison times out.",
        how={"excluded": "not runnable: `timeout_low` and `timeout_high` of scores.csv bound what it could change"},
    ),
    Reading(
        id="E8", name="tolerance", room="evals",
        values={
            "half-unit": "half a unit of the last digit of the reference answer",
            "exact": "none",
            "relative": "1e-2",
        },
        why="For answers that are decimal or in e-notation.",
        how={"exact": "not runnable: the tolerance is part of the grader", "relative": "not runnable, likewise"},
    ),
    Reading(
        id="E9", name="checkpoint", room="evals",
        values={"last": "the last step", "best": "the best on validation (its bias shown)"},
        why="Not stated.",
        how={"best": "not runnable: training scores no validation set"},
    ),
    Reading(
        id="E10", name="missing-set", room="evals",
        values={"none": "unknown", "zero": "zero in the pool, as the paper's Mistral rows"},
        why="For a benchmark without results.",
        how={"zero": "the row `avg_pooled_missing_wrong` of scores.csv"},
    ),
    Reading(
        id="E11", name="at-32", room="evals",
        values={
            "average": "mean over the responses",
            "pass": "share of problems with a right response",
            "majority": "share of problems whose most frequent answer is right",
        },
        why="The paper prints @32 without saying which. Nearly all printed AIME values are counts of 960, 30 problems "
            "by 32 responses (docs/notebook/audit.md), which the average alone gives.",
        how={
            "pass": "`pass_at_k` of scores.csv, for every checkpoint and benchmark, from the same responses",
            "majority": "`maj_at_k`, likewise",
        },
    ),
)  # fmt: skip

NAMED = {reading.name: reading for reading in READINGS}
