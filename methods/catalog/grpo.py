"""GRPO/DAPO, the baseline of all others: GRPO's advantage and token ratio, DAPO's Clip-Higher and token mean, no KL."""

from dataclasses import replace

from methods import recipe
from methods.options import Option
from methods.parts import Part, Parts, masks, ratios, reducers
from methods.recipe import Recipe, Settings


def token_weighted(s: Settings, reduce: Part) -> Parts:
    """Everything but the reducer."""
    return Parts(advantage=recipe.z_score(s), ratio=ratios.token(), surrogate=recipe.clip(s), reduce=reduce)


def grpo(s: Settings) -> Parts:
    return token_weighted(s, recipe.token_mean(s))


def grpo_2024(s: Settings) -> Parts:
    kl = recipe.kl(s, where=masks.everywhere())
    return replace(token_weighted(s, reducers.seq_mean_token_mean()), penalties=(kl,))


METHODS = [
    Recipe(
        key="grpo",
        title="GRPO/DAPO",
        source="arXiv 2402.03300, arXiv 2503.14476",
        rows=("Table 1, 2, 4: GRPO/DAPO", "Table 3, Panel C: GRPO/DAPO (token-level)"),
        differs="Nothing: this is the baseline.",
        quote="GRPO/DAPO [...] adopt the Clip-Higher bound in the PPO loss, with [low = 0.2] and [high = 0.28].",
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i),  r_t = pi(y_t) / pi_old(y_t)",
        options=(recipe.ADV_STD, *recipe.TOKEN_CLIP, recipe.AGG_SCOPE),
        parts=grpo,
    ),
    Recipe(
        key="grpo_2024",
        title="GRPO as first published",
        source="arXiv 2402.03300",
        rows=(),
        differs="A symmetric clip, a KL to the initial model on every token, and every sequence counts the same.",
        quote="",
        where="in no row; kept for comparison with other frameworks",
        equation="J = (1/B) sum_i (1/|y_i|) sum_t { min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i) - beta KL_t }\n"
        "KL_t = k3(pi || pi_ref)",
        options=(
            recipe.ADV_STD,
            recipe.LOW.but(printed="-", original="eps, not stated", why="PPO's"),
            recipe.HIGH.but(default=0.2, printed="-", original="eps, not stated", why="PPO's"),
            recipe.DUAL_CLIP,
            Option("beta", 0.04, "the original's", original="0.04"),
            recipe.KL_ANCHOR.but(default="ref", printed="-", why="the original's"),
            recipe.KL_ESTIMATOR.but(choices=("k3", "abs", "k1", "k2", "k3_is"), why="the original's"),
        ),
        parts=grpo_2024,
    ),
]
