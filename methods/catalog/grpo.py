"""GRPO/DAPO, the common baseline: GRPO's advantage and token ratio, DAPO's Clip-Higher and token mean, no KL."""

from methods import options
from methods.options import Option, Settings, method
from methods.parts import Parts, masks, objective


@method(
    key="grpo",
    title="GRPO/DAPO",
    source="arXiv 2402.03300, arXiv 2503.14476",
    options=(options.ADV_STD, *options.TOKEN_CLIP, options.AGG_SCOPE),
    aliases={"dapo": {}},  # its loss; its dynamic sampling is the trainers' filter, its overlong penalty is R22
)
def grpo(s: Settings) -> Parts:
    return options.clipped_loss(s)


@method(
    key="grpo_2024",
    title="GRPO as first published",
    source="arXiv 2402.03300",
    options=(
        options.ADV_STD,
        options.LOW,
        options.HIGH.with_(default=0.2),
        options.DUAL_CLIP,
        Option("beta", 0.04),
        options.KL_ANCHOR.with_(default="ref"),
        options.KL_ESTIMATOR,
        options.KL_CLAMP,
    ),
)
def grpo_2024(s: Settings) -> Parts:
    loss = options.clipped_loss(s, reduce=objective.seq_mean_token_mean())
    return options.with_kl(loss, s, masks.everywhere())
