"""GRPO/DAPO, the common baseline: GRPO's advantage and token ratio, DAPO's Clip-Higher and token mean, no KL."""

from methods import options
from methods.options import Option, Settings, method
from methods.parts import Parts, masks, objective


@method(
    key="grpo",
    title="GRPO/DAPO",
    source="arXiv 2402.03300, arXiv 2503.14476",
    paper_rows=("Table 1, 2, 4: GRPO/DAPO", "Table 3, Panel C: GRPO/DAPO (token-level)"),
    differs_from_grpo="Nothing: this is the baseline.",
    equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  r_t = pi(y_t) / pi_old(y_t)",
    options=(options.ADV_STD, *options.TOKEN_CLIP, options.AGG_SCOPE),
    aliases={"dapo": {}},  # its loss; its dynamic sampling is the trainers' filter, its overlong penalty is R22
)
def grpo(s: Settings) -> Parts:
    return options.clipped_loss(s)


@method(
    key="grpo_2024",
    title="GRPO as first published",
    source="arXiv 2402.03300",
    differs_from_grpo="A symmetric clip, a KL to the initial model on every token, and every sequence counts the same. "
    "The paper trains no such row; it is here for comparison with other frameworks.",
    equation="J = (1/B) sum_i (1/|y_i|) sum_t { min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i) - beta KL_t }\n"
    "KL_t = k3(pi || pi_ref)",
    options=(
        options.ADV_STD,
        options.LOW.with_(printed="-", original="eps, not stated", why="PPO's"),
        options.HIGH.with_(default=0.2, printed="-", original="eps, not stated", why="PPO's"),
        options.DUAL_CLIP,
        Option("beta", 0.04, why="the original's", original="0.04"),
        options.KL_ANCHOR.with_(default="ref", printed="-", why="the original's"),
        options.KL_ESTIMATOR.with_(why="the original's"),
        options.KL_CLAMP,
    ),
)
def grpo_2024(s: Settings) -> Parts:
    loss = options.clipped_loss(s, reduce=objective.seq_mean_token_mean())
    return options.with_kl(loss, s, masks.everywhere())
