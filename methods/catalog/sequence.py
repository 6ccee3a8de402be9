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
    paper_rows=("Table 1: w. GSPO", "Table 3, Panel D: w. sequence-mean token-mean/GSPO aggregation"),
    differs_from_grpo="The weight is the geometric mean of the sequence's token ratios, and every sequence counts the "
    "same.",
    equation="J = (1/B) sum_i min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i = exp((1/|y_i|) sum_t log r_t)",
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
    paper_rows=("Table 3, Panel D: w. sequence-mean token-sum aggregation",),
    differs_from_grpo="The weight is the geometric mean of the sequence's token ratios; the sum is divided by "
    "sequences.",
    equation="J = (1/B) sum_i sum_t min(w_i A_i, clip(w_i, 1 - low, 1 + high) A_i),  w_i as in GSPO",
    options=SEQUENCE,
    aliases={"luspo": {}},  # arXiv 2602.05261: the sequence weight, summed over tokens
)
def tepo_seqsum(s: Settings) -> Parts:
    return options.clipped_loss(s, level="sequence", reduce=objective.seq_mean_token_sum())


@method(
    key="prefix_is",
    title="Prefix importance sampling",
    source="arXiv 2604.12736v1",
    paper_rows=("Table 3, Panel C: w. Sentence Prefix IS",),
    differs_from_grpo="The weight of token t is the geometric mean of the ratios of tokens 1 to t.",
    equation="J = (1/N) sum_i sum_t min(w_t A_i, clip(w_t, 1 - low, 1 + high) A_i)\n"
    "w_t = exp((1/t) sum_{u<=t} log r_u)",
    options=(options.ADV_STD, options.SEQ_LOW, options.SEQ_HIGH, options.DUAL_CLIP, PREFIX_GRAD, options.AGG_SCOPE),
)
def prefix_is(s: Settings) -> Parts:
    loss = replace(options.clipped_loss(s), ratio=objective.prefix(gradient=s["prefix-grad"]))
    # A clipped objective with a detached weight has no gradient; `weighted` takes the gradient from log pi instead.
    stopped = objective.weighted(low=s["low"], high=s["high"])
    return replace(loss, surrogate=stopped) if s["prefix-grad"] == "stop" else loss


GMPO_LOW = Option("low", 0.4, reading="gmpo-eps", why="the original's and TRL's", original="0.4; verl 0.2")


@method(
    key="gmpo",
    title="GMPO",
    source="arXiv 2507.20673",
    differs_from_grpo="The weight is the geometric mean of the sequence's clipped token ratios, clipped in logarithms "
    "at .4; every sequence counts the same.",
    equation="J = (1/B) sum_i A_i exp( (1/|y_i|) sum_t d_t )\n"
    "d_t = min(log r_t, high) where A_i > 0, max(log r_t, -low) where A_i < 0",
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


K_POS = Option("k-pos", 2.0, why="TRL's", original="2; TRL's `vespo`")
# least: TRL's floor; at 0 the weight would grow without bound
LAMBDA_POS = Option("lambda-pos", 3.0, why="TRL's", original="3; TRL's `vespo`", least=1e-4)


@method(
    key="vespo",
    title="VESPO",
    source="arXiv 2602.10693",
    differs_from_grpo="The weight is a constant, phi of the product of the sequence's ratios, largest near 1; it falls "
    "on both sides.",
    equation="J = (1/N) sum_i sum_t sg[phi(w_i)] A_i log pi(y_t),  w_i = exp(sum_t log r_t)\n"
    "phi(w) = w^k exp(lambda (1 - w)),  k-pos and lambda-pos where A_i >= 0, k-neg and lambda-neg elsewhere",
    options=(
        options.ADV_STD,
        K_POS,
        LAMBDA_POS,
        K_POS.with_(name="k-neg", default=3.0, original="3; TRL's `vespo`"),
        LAMBDA_POS.with_(name="lambda-neg", default=2.0, original="2; TRL's `vespo`"),
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
