"""GRPO/DAPO with a weight computed from the ratios of a whole response or of its prefix."""

from dataclasses import replace

from methods import options
from methods.options import Option, Settings, method
from methods.parts import Parts, advantages, objective

SEQUENCE = (options.ADV_STD, *options.SEQUENCE_CLIP, options.GRADIENT)
PREFIX_GRAD = options.of_reading("prefix-grad", "through", "own_token", "stop")


@method(
    key="gspo",
    title="GSPO",
    source="arXiv 2507.18071",
    options=SEQUENCE,
    # GSPO-token (eq. 14) has another gradient only if the advantage varies within a response
    aliases={"gspo_token": {}},
)
def gspo(s: Settings) -> Parts:
    return options.clipped_loss(s, level="sequence", reduce=objective.seq_mean_token_mean())


@method(
    key="tepo_seqsum",
    title="TEPO without KL, summed over tokens",
    source="arXiv 2604.12736v1",
    options=SEQUENCE,
    aliases={"luspo": {}},  # arXiv 2602.05261: the sequence weight, summed over tokens
)
def tepo_seqsum(s: Settings) -> Parts:
    return options.clipped_loss(s, level="sequence", reduce=objective.seq_mean_token_sum())


@method(
    key="prefix_is",
    title="Prefix importance sampling",
    source="arXiv 2604.12736v1",
    options=(options.ADV_STD, *options.TOKEN_CLIP, PREFIX_GRAD, options.AGG_SCOPE),
)
def prefix_is(s: Settings) -> Parts:
    loss = replace(options.clipped_loss(s), ratio=objective.prefix(gradient=s["prefix-grad"]))
    # A clipped objective with a detached weight has no gradient; `weighted` takes the gradient from log pi instead.
    stopped = objective.weighted(low=s["low"], high=s["high"])
    return replace(loss, surrogate=stopped) if s["prefix-grad"] == "stop" else loss


GMPO_LOW = Option("low", 0.4)


@method(
    key="gmpo",
    title="GMPO",
    source="arXiv 2507.20673",
    options=(options.ADV_STD, GMPO_LOW, GMPO_LOW.with_(name="high")),
)
def gmpo(s: Settings) -> Parts:
    """Return GSPO with each log ratio clipped before the mean is taken; the bounds are logarithms."""
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=objective.token(),
        surrogate=objective.geometric_clipped(low=s["low"], high=s["high"]),
        reduce=objective.seq_mean_token_mean(),
    )


K_POS = Option("k-pos", 2.0)
# least: TRL's floor; at 0 the weight would grow without bound
LAMBDA_POS = Option("lambda-pos", 3.0, least=1e-4)


@method(
    key="vespo",
    title="VESPO",
    source="arXiv 2602.10693",
    options=(
        options.ADV_STD,
        K_POS,
        LAMBDA_POS,
        K_POS.with_(name="k-neg", default=3.0),
        LAMBDA_POS.with_(name="lambda-neg", default=2.0),
        options.AGG_SCOPE,
    ),
)
def vespo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=objective.product(most=20.0),  # 20 nats per token, as in TRL
        surrogate=objective.gamma_weighted(
            k_pos=s["k-pos"], lambda_pos=s["lambda-pos"], k_neg=s["k-neg"], lambda_neg=s["lambda-neg"]
        ),
        reduce=objective.token_mean(scope=s["agg-scope"]),
    )
