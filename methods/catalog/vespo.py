"""VESPO: GRPO/DAPO, except that A log pi has one constant weight per sequence, a gamma curve of its whole ratio."""

from methods import options
from methods.entry import CatalogEntry, Settings
from methods.options import Option
from methods.parts import Parts, advantages, ratios, reducers, surrogates


def vespo(s: Settings) -> Parts:
    return Parts(
        advantage=advantages.group_zscore(std=s["adv-std"]),
        ratio=ratios.product(most=20.0),  # 20 nats per token, as in TRL
        surrogate=surrogates.gamma_weighted(
            k_pos=s["k-pos"], lambda_pos=s["lambda-pos"], k_neg=s["k-neg"], lambda_neg=s["lambda-neg"]
        ),
        reduce=reducers.token_mean(scope=s["agg-scope"]),
    )


K_POS = Option("k-pos", 2.0, why="TRL's", original="2; TRL's `vespo`")
# least: TRL's floor; at 0 the weight would grow without bound
LAMBDA_POS = Option("lambda-pos", 3.0, why="TRL's", original="3; TRL's `vespo`", least=1e-4)

METHODS = [
    CatalogEntry(
        key="vespo",
        title="VESPO",
        source="arXiv 2602.10693",
        differs_from_grpo="The weight is a constant, phi of the product of the sequence's ratios, largest near 1; it "
        "falls on both sides.",
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
        parts=vespo,
    ),
]
