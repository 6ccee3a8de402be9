"""GRPO/DAPO: the row all others are compared with. GRPO's advantage and token ratio, DAPO's Clip-Higher and token mean, no KL."""

from methods import penalties, ratios, reducers, selections
from methods.choices import (
    ADV_STD,
    AGG_SCOPE,
    DUAL_CLIP,
    HIGH,
    KL_ANCHOR,
    KL_ESTIMATOR,
    LOW,
    TOKEN_CLIP,
    clip,
    token_mean,
    z_score,
)
from methods.method import Parts
from methods.options import Option
from methods.recipe import Recipe, Settings

QUOTE = "GRPO/DAPO adopt the Clip-Higher bound in the PPO loss, with epsilon_low = 0.2 and epsilon_high = 0.28."


def grpo(s: Settings) -> Parts:
    return Parts(advantage=z_score(s), ratio=ratios.token(), surrogate=clip(s), reduce=token_mean(s))


def grpo_2024(s: Settings) -> Parts:
    kl = penalties.kl(
        beta=s["beta"], estimator=s["kl-estimator"], anchor=s["kl-anchor"], where=selections.everywhere(), norm="tokens"
    )
    return Parts(
        advantage=z_score(s),
        ratio=ratios.token(),
        surrogate=clip(s),
        penalties=(kl,),
        reduce=reducers.seq_mean_token_mean(),
    )


METHODS = [
    Recipe(
        key="grpo",
        title="GRPO/DAPO",
        source="arXiv 2402.03300, arXiv 2503.14476",
        rows=("Table 1, 2, 4: GRPO/DAPO", "Table 3, Panel C: GRPO/DAPO (token-level)"),
        differs="Nothing: this is the baseline.",
        quote=QUOTE,
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  r_t = pi(y_t) / pi_old(y_t)",
        options=(ADV_STD, *TOKEN_CLIP, AGG_SCOPE),
        parts=grpo,
    ),
    Recipe(
        key="grpo_2024",
        title="GRPO as first published",
        source="arXiv 2402.03300",
        rows=(),
        differs="A symmetric clip, a KL to the initial model on every token, and the mean of each sequence before the mean over sequences.",
        quote="-",
        where="in no row; kept for comparison with other frameworks",
        equation="J = (1/B) sum_i (1/|y_i|) sum_t { min(r_t A_i, clip(r_t, 1 - eps, 1 + eps) A_i) - beta k3(pi || pi_ref) }",
        options=(
            ADV_STD, LOW.but(why="eps is not stated; PPO's"), HIGH.but(default=0.2, why="eps is not stated; PPO's"), DUAL_CLIP,
            Option("beta", 0.04, "the original's", original="0.04"),
            KL_ANCHOR.but(default="ref", why="the original's"), KL_ESTIMATOR.but(why="the original's"),
        ),
        parts=grpo_2024,
    ),
]  # fmt: skip
