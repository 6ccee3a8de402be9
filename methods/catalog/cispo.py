"""CISPO: GRPO/DAPO, except that the clipped ratio is a constant weight on A log pi: no token loses its gradient."""

from methods import recipe
from methods.parts import Parts, ratios, surrogates
from methods.recipe import Recipe, Settings

BOUNDS = (
    recipe.LOW.but(
        default=None,
        printed="-",
        original="none: set to a large value, 2506.13585",
        why="the original's",
        reading="cispo",
    ),
    recipe.HIGH.but(
        printed="-",
        original="tuned, not disclosed, 2506.13585",
        why="Clip-Higher, as in the other rows",
        reading="cispo",
    ),
)


def cispo(s: Settings) -> Parts:
    surrogate = surrogates.weighted(low=s["low"], high=s["high"])
    return Parts(advantage=recipe.z_score(s), ratio=ratios.token(), surrogate=surrogate, reduce=recipe.token_mean(s))


METHODS = [
    Recipe(
        key="cispo",
        title="CISPO",
        source="arXiv 2506.13585",
        rows=("Table 3, Panel C: w. CISPO/Reinforce (token-level)",),
        differs="The clipped ratio carries no gradient; it weights A log pi.",
        quote="CISPO [...], which performs single-step policy updates by employing [sg(.) A_i log pi], "
        "where sg means stop policy gradient",
        where="section 4.1",
        equation="J = (1/N) sum_i sum_t sg[clip(r_t, 1 - low, 1 + high)] A_i log pi(y_t)",
        options=(recipe.ADV_STD, *BOUNDS, recipe.AGG_SCOPE),
        parts=cispo,
    ),
]
