"""The paper's ambiguities, each with an id, a default and alternatives: what `docs/readings.md` is generated from.

A reading that a method holds is an option of its catalog entry: one of the reading's own name (`clip-form=eq4`), or
several that a label stands for (`seq-eps=gspo` means `low=0.0003+high=0.0004`). Readings that training or evaluation
hold are listed too, so that all are in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from methods.options import Option, Value

Room = Literal["methods", "training", "evals"]


@dataclass(frozen=True)
class Reading:
    """An ambiguity. `values` maps each label to its meaning, the default first."""

    id: str
    name: str
    room: Room  # who holds it
    values: Mapping[str, str]
    why: str
    settings: Mapping[str, Mapping[str, Value]] | None = (
        None  # label -> options it sets; None: the option of the same name
    )

    @property
    def default(self) -> str:
        return next(iter(self.values))

    def option(self, **changes: Any) -> Option:
        """The option that holds this reading: a word among its labels."""
        settings = {
            "name": self.name,
            "default": self.default,
            "why": self.why,
            "choices": tuple(self.values),
            "reading": self.name,
        }
        return Option(**settings | changes)


READINGS: tuple[Reading, ...] = (
    Reading(
        "R1", "clip-form", "methods",
        {
            "ppo": "min(w A, clip(w) A)",
            "eq4": "min(w, clip(w)) A, as eq. 4 prints it: bounded above at 1 + high for either sign, never below",
            "none": "w A, as Algorithm 1 line 15 (\"unclipped\")",
        },
        "Eq. 4 has no A inside the minimum; literally, its bound is on the wrong side for A < 0. Equal to "
        "ppo for A > 0.",
    ),
    Reading(
        "R2", "gradient", "methods",
        {"autograd": "the gradient of eq. 4", "alg1_line21": "a token's own path through w only, Algorithm 1 line 21"},
        "Line 21 is not the gradient of line 18: summed over a row it is GSPO's gradient times B/N.",
    ),
    Reading(
        "R3", "kl-anchor", "methods",
        {"old": "the policy that sampled", "ref": "the initial model"},
        "Eq. 4 prints KL(pi || pi_old); Algorithm 1 calls pi_old the reference; the lineage's KL is to the "
        "initial model.",
    ),
    Reading(
        "R4", "kl-estimator", "methods",
        {
            "k3": "exp(-d) + d - 1", "abs": "|d|", "k1": "d", "k2": "d^2 / 2", "k3_is": "r (exp(-d) + d - 1)",
            "full": "exact, summed over the vocabulary; needs both distributions (tests and embedded runs)",
        },
        "Never stated. The lineage uses k3 for its KL loss and abs in KL-Cov. d = log pi/pi_anchor at the "
        "sampled token.",
    ),
    Reading(
        "R5", "dh-def", "methods",
        {
            "entropy_diff": "H_t - H_t^old, full vocabulary, same state, no gradient",
            "cov_sign": "-(A - mean A)(log p - mean log p), as the paper's C.5; a batch statistic",
            "first_order": "-A (log p + H): own-state change to first order",
            "theorem": "-A: what Theorem 3.1 claims, so that the mask is A > 0",
        },
        "Delta H is never defined. In sign, the second and third agree with the first on about 90 % of "
        "sampled tokens, the "
        "fourth on about 60 %.",
    ),
    Reading(
        "R6", "dh-tol", "methods",
        {"auto": "0 in float64, 1e-6 in float32; half precision must say"},
        "A number of nats up to which |dH| counts as 0. In the first minibatch dH is 0 by construction; "
        "without a tolerance the mask would be rounding noise.",
    ),
    Reading(
        "R7", "mask-norm", "methods",
        {"tokens": "the masked KL is divided by all tokens N", "masked": "by the masked tokens; a batch statistic"},
        "Eq. 4 divides the whole bracket by the number of tokens.",
    ),
    Reading(
        "R8", "prefix-grad", "methods",
        {
            "through": "through the running mean",
            "own_token": "the own token's path only, weight kept",
            "stop": "none through the weight: sg[clip(w_t)] A log pi",
        },
        "Unsaid. Line 21's chain rule implies a gradient through w. With `through`, early tokens weigh more "
        "even on-policy.",
    ),
    Reading(
        "R9", "seq-eps", "methods",
        {"clip-higher": "low .2, high .28", "symmetric": "low .2, high .2", "gspo": "low 3e-4, high 4e-4, GSPO's own"},
        "For TEPO, GSPO and prefix: section 4.1 adopts Clip-Higher, eq. 4 prints one epsilon, GSPO's own is "
        "tiny. GSPO shares "
        "TEPO's because its row is Panel D's reducer ablation, digit for digit.",
        {"symmetric": {"high": 0.2}, "gspo": {"low": 3e-4, "high": 4e-4}},
    ),
    Reading(
        "R10", "beta", "methods",
        {"0.001": "Qwen2.5-7B, and Table 2, where it is not stated", "1": "Qwen3-14B"},
        "Any number. Section 4.1 prints .001 for 7B and 1 for 14B, never swapped: two extra runs would tell "
        "what matters.",
    ),
    Reading(
        "R11", "adv-std", "methods",
        {
            "unbiased": "divide by n - 1, eps 1e-6",
            "biased": "divide by n, eps 1e-6",
            "unbiased-1e-4": "divide by n - 1, eps 1e-4",
        },
        "The paper has no eps. verl: unbiased, 1e-6. TRL: unbiased, 1e-4.",
    ),
    Reading(
        "R12", "entropy-alpha", "methods",
        {"original": "alpha .4", "printed": "alpha 4e-4"},
        "Printed 4e-4, \"adopted from their original papers\", where it is .4; at 4e-4 the method is GRPO "
        "within noise.",
        {"printed": {"alpha": 4e-4}},
    ),
    Reading(
        "R13", "gpg-scale", "methods",
        {
            "one": "alpha 1, F_norm 1",
            "std": "F_norm the group's standard deviation",
            "informative": "alpha = B/(B - M), M responses in groups of equal reward",
            "inverse-accuracy": "alpha = B / rewarded responses, verl's rule",
        },
        "Groups of equal reward are filtered, so M = 0 and alpha = 1; the official code has alpha off by default.",
    ),
    Reading(
        "R14", "cov-clip", "methods",
        {"official": "Clip-Cov low 1, high 1; KL-Cov none", "clip-higher": "low .2, high .28"},
        "The official scripts; the paper says only which ratio of tokens is clipped by covariance.",
        {"clip-higher": {"low": 0.2, "high": 0.28}},
    ),
    Reading(
        "R15", "cov-scope", "training",
        {"minibatch": "covariances over the update minibatch, where the trainer can", "microbatch": "per micro-batch"},
        "The lineage takes them per micro-batch, so that dynamic batching changes the method.",
    ),
    Reading(
        "R16", "cispo", "methods",
        {
            "upper": "no lower bound, high .28", "verl": "low 10, high .2", "two-sided": "low .2, high .28",
            "cap": "weight at most 4", "one-update": "as upper, one update per rollout (a training setting)",
        },
        "The paper gives no bounds and says \"single-step policy updates\"; CISPO never discloses its upper bound.",
        {"verl": {"low": 10.0, "high": 0.2}, "two-sided": {"low": 0.2}, "cap": {"high": 3.0}},
    ),
    Reading(
        "R17", "ent-coef", "methods",
        {"1e-3": "coefficient .001", "1e-4": "coefficient .0001", "5e-3": "coefficient .005"},
        "Unstated. The customary value; the lineage's own ablation tried 1e-4 to 1e-2.",
        {"1e-4": {"coefficient": 1e-4}, "5e-3": {"coefficient": 5e-3}},
    ),
    Reading(
        "R18", "panel-b-base", "methods",
        {
            "mixed": "max-, min-entropy and STEER on TEPO without KL; the three covariance and entropy rows on GRPO",
            "grpo": "all on GRPO's token ratio", "tepo": "all on TEPO's sequence ratio",
        },
        "The caption says TEPO, but the last three rows are Table 1's, digit for digit.",
        {"grpo": {"ratio": "token"}, "tepo": {"ratio": "sequence"}},
    ),
    Reading(
        "R19", "steer", "methods",
        {
            "sequence": "sequence ratio, exponential map, lambda_min .8", "token": "token ratio, as STEER's own code",
            "linear": "linear map", "0.7": "lambda_min .7",
        },
        "The panel puts it on TEPO without KL; STEER's own code weights a token-ratio PPO loss.",
        {"token": {"ratio": "token"}, "linear": {"map": "linear"}, "0.7": {"lambda-min": 0.7}},
    ),
    Reading(
        "R20", "agg-scope", "methods",
        {
            "minibatch": "N of the whole update minibatch",
            "group": "N of each prompt's group, then the mean over groups, as eq. 4 and DAPO print it",
            "microbatch": "N of the micro-batch, weighted by its share of sequences, as the lineage's code does",
        },
        "Aggregation is the paper's claim, so whose token count divides is part of it.",
    ),
    Reading(
        "R21", "dual-clip", "methods",
        {"off": "no bound for A < 0 above", "3": "verl's default", "10": "DAPO's script"},
        "The lineage has the dual clip's lines commented out, so that the 10 its scripts pass does nothing.",
    ),
    Reading(
        "R22", "overlong", "training",
        {"off": "no length penalty", "dapo": "DAPO's soft penalty over the last 4096 tokens"},
        "Off in the lineage; the paper does not mention it.",
    ),
    Reading(
        "R23", "updates", "training",
        {"4": "64 prompts in minibatches of 16, one pass", "8-mini-8": "minibatches of 8", "8-passes-2": "two passes"},
        "The paper prints \"8 times\" and also 64 prompts and minibatch 16, which give 4.",
    ),
    Reading(
        "R24", "prompt-max", "training",
        {"2048": "1024 * 2 in the lineage", "2024": "as printed"},
        "The printed 2024 is taken for a slip.",
    ),
    Reading(
        "R25", "data", "training",
        {"subset": "a fixed seeded 5120 prompts of DAPO-Math-17k, group filter with refill", "full": "all of it"},
        "The paper: approximately 80 x 64 = 5120. Refill uses more than 64 prompts per step.",
    ),
    Reading(
        "R26", "steps", "training",
        {"checkpoint": "72; 132 in Table 4 only, its 72-step rows as checkpoints", "separate": "separate 72-step runs"},
        "Other rows' steps are unstated. At a constant learning rate a checkpoint at 72 is the 72-step run.",
    ),
    Reading(
        "R27", "optimiser", "training",
        {"lineage": "AdamW, 5e-7 constant, no warm-up, weight decay 0, gradient clip 1.0"},
        "Weight decay, warm-up and clip are unstated; trainers' defaults are none of these.",
    ),
    Reading(
        "R28", "reward", "training",
        {"0/1": "1 for a correct last box, else 0", "+-1": "1 or -1"},
        "No format reward is mentioned. Matters for GPG only: the others normalise by the group's deviation.",
    ),
    Reading(
        "R29", "prompt", "training",
        {"E3": "as in evaluation, see E3"},
        "The template is not stated.",
    ),
    Reading(
        "R30", "qwen3-14b", "training",
        {"base": "Qwen3-14B-Base", "post-trained": "Qwen3-14B"},
        "The printed base scores fit the base model (assumed).",
    ),
    Reading("E1", "average", "evals", {"both": "pooled over responses; mean of columns"}, "The printed are pooled."),
    Reading(
        "E2", "duplicates", "evals",
        {"paper": "items counted as in the paper's pool", "unique": "each problem once"},
        "Some items occur in two benchmarks; the paper's column and pool differ.",
    ),
    Reading(
        "E3", "eval-prompt", "evals",
        {
            "system": "\"Please reason step by step, and put your final answer within \\boxed{}.\" as system prompt",
            "suffix": "the same text after the problem", "none": "the problem alone",
        },
        "Unknown in the paper; the Qwen convention. The prompt's hash is recorded.",
    ),
    Reading("E4", "top-p", "evals", {"1.0": "top_k off"}, "The paper is silent; the lineage uses 1.0."),
    Reading(
        "E5", "extraction", "evals",
        {"box": "last balanced box, required", "math-verify": "math-verify's default: last number of the prose"},
        "The lineage requires a box; without one, \"There are 3 cases.\" counts as 3.",
    ),
    Reading(
        "E6", "grader", "evals",
        {"ours": "the repository's", "lineage": "the lineage's rules"},
        "Both can be reported, with the table of disagreements.",
    ),
    Reading("E7", "timeouts", "evals", {"wrong": "wrong, and shown", "excluded": "left out"}, "Grades that time out."),
    Reading(
        "E8", "tolerance", "evals",
        {"half-unit": "half a unit of the gold's last printed digit", "exact": "none", "relative": "1e-2"},
        "For decimal and e-notation golds.",
    ),
    Reading(
        "E9", "checkpoint", "evals",
        {"last": "the last step", "best": "the best on validation (its bias shown)"},
        "The paper is silent.",
    ),
    Reading(
        "E10", "missing-set", "evals",
        {"none": "unknown", "zero": "zero in the pool, as the paper's Mistral rows"},
        "A benchmark without results.",
    ),
)  # fmt: skip

NAMED = {reading.name: reading for reading in READINGS}


def option(name: str, **changes: Any) -> Option:
    """The option that holds the reading `name`; `changes` replace its default or its sources."""
    return NAMED[name].option(**changes)
